//! `request-id`: a request gets an id that it keeps.

use crate::clock;
use crate::plugins::{Phase, Phases, Plugin, Reply, Request, Step};
use crate::request::ids;
use crate::worker::Worker;
use http::header::{HeaderName, HeaderValue};
use std::sync::Arc;
use towpath_resources::plugins::request_id::{Algorithm, Config};

/// See the module.
pub(in crate::plugins) struct RequestId {
    config: Arc<Config>,
    name: HeaderName,
    chars: Vec<char>,
}

impl RequestId {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let name = HeaderName::from_bytes(config.header_name.as_bytes());
        Self {
            name: name.unwrap_or(HeaderName::from_static("x-request-id")),
            chars: config.range_id.char_set.chars().collect(),
            config: config.clone(),
        }
    }

    fn is_ours(&self) -> bool {
        self.name == "x-request-id"
    }

    fn make(&self, worker: &Worker) -> String {
        let bits = || u128::from(worker.random()) << 64 | u128::from(worker.random());
        match self.config.algorithm {
            Algorithm::Uuid => {
                uuid::Builder::from_random_bytes(bits().to_be_bytes()).into_uuid().hyphenated().to_string()
            }
            Algorithm::Uuidv7 => {
                let random: [u8; 10] = std::array::from_fn({
                    let bytes = bits().to_be_bytes();
                    move |n| bytes.get(n).copied().unwrap_or(0)
                });
                uuid::Builder::from_unix_timestamp_millis(clock::unix_ms(), &random).into_uuid().to_string()
            }
            Algorithm::Nanoid => {
                let chars: Vec<char> =
                    "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ".chars().collect();
                pick(worker, &chars, 21)
            }
            Algorithm::RangeId => {
                pick(worker, &self.chars, usize::try_from(self.config.range_id.length).unwrap_or(16))
            }
            Algorithm::Ksuid => ksuid(worker),
        }
    }
}

fn pick(worker: &Worker, chars: &[char], length: usize) -> String {
    let count = chars.len().max(1) as u64;
    let one = || chars.get((worker.random() % count) as usize).copied().unwrap_or('0');
    (0..length).map(|_| one()).collect()
}

/// Seconds since 2014-05-13 and 128 random bits in base 62.
fn ksuid(worker: &Worker) -> String {
    let seconds = (clock::unix_ms() / 1000).saturating_sub(1_400_000_000) as u32;
    let mut bytes = seconds.to_be_bytes().to_vec();
    bytes.extend_from_slice(&worker.random().to_be_bytes());
    bytes.extend_from_slice(&worker.random().to_be_bytes());
    let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut text = Vec::new();
    for _ in 0..27 {
        let mut rest = 0_u32;
        for byte in &mut bytes {
            let value = rest << 8 | u32::from(*byte);
            *byte = (value / 62) as u8;
            rest = value % 62;
        }
        text.push(digits.get(rest as usize).copied().unwrap_or(b'0'));
    }
    text.reverse();
    String::from_utf8(text).unwrap_or_default()
}

impl Plugin for RequestId {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite, Phase::ResponseHead])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let given = request.headers.get(&self.name).filter(|value| !value.is_empty()).cloned();
        if self.is_ours() {
            if given.is_none()
                && let Ok(value) = HeaderValue::from_str(&self.make(&request.record.conn.worker))
            {
                request.record.id = ids::RequestId::Given(value);
            }
            return Step::Next;
        }
        let value = match given {
            Some(value) => value,
            None => {
                let Ok(value) = HeaderValue::from_str(&self.make(&request.record.conn.worker)) else {
                    return Step::Next;
                };
                request.headers.insert(self.name.clone(), value.clone());
                value
            }
        };
        request.running().written.push(self.name.clone());
        request.running().note(self, value);
        Step::Next
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        if self.is_ours() {
            if !self.config.include_in_response {
                reply.headers.remove(&self.name);
            }
            return;
        }
        if !self.config.include_in_response || reply.headers.contains_key(&self.name) {
            return;
        }
        let running = reply.record.running.get_or_insert_default();
        if let Some(value) = running.noted::<Self, HeaderValue>(self).cloned() {
            reply.headers.insert(self.name.clone(), value);
        }
    }
}
