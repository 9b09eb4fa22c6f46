//! Server-sent events.

use crate::exit::{Exit, Failure, Outcome};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// Its `event:` name.
    pub(crate) name: String,
    /// Its `id:`, if it has one.
    pub(crate) id: Option<String>,
    /// Its data, read as JSON.
    pub(crate) data: Value,
}

impl Event {
    /// A text field of the data; empty if absent.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.data.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}

/// A stream that is silent for so long is broken: the API sends a comment every ten seconds.
const SILENCE: Duration = Duration::from_secs(45);

/// A stream of events.
pub(crate) struct Events {
    body: Incoming,
    parser: EventParser,
    ready: VecDeque<Event>,
}

impl Events {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, parser: EventParser::default(), ready: VecDeque::new() }
    }

    /// The next event; `None` at the end of the stream. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Outcome<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Ok(frame) = tokio::time::timeout(SILENCE, self.body.frame()).await else {
                return Err(Failure::new(Exit::Unreachable, "the stream fell silent"));
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    return Err(Failure::new(Exit::Unreachable, format!("the stream broke off: {error}")));
                }
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.ready.extend(self.parser.feed(&data));
                    }
                }
            }
        }
    }
}

/// Longest line that is kept.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// Cuts bytes into events, wherever the chunks end.
#[derive(Debug, Default)]
struct EventParser {
    line: Vec<u8>,
    name: String,
    id: Option<String>,
    data: String,
    has_data: bool,
}

impl EventParser {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in bytes {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                let text = String::from_utf8_lossy(&line);
                events.extend(self.line(text.trim_end_matches('\r')));
            } else if self.line.len() < MAX_LINE {
                self.line.push(*byte);
            }
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let name = std::mem::take(&mut self.name);
            let data = std::mem::take(&mut self.data);
            if !std::mem::take(&mut self.has_data) {
                return None;
            }
            let data = serde_json::from_str(&data).unwrap_or(Value::String(data));
            return Some(Event { name, id: self.id.clone(), data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.to_owned(),
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data += value;
                self.has_data = true;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_wherever_chunks_end() {
        let text = ": hello\n\nid: 1\nevent: line\ndata: {\"text\":\"caf\u{e9}\"}\n\nevent: done\r\ndata: {\r\ndata: }\r\n\r\nevent: empty\n\n";
        for size in [1, 2, 7, 1000] {
            let mut parser = EventParser::default();
            let events: Vec<Event> =
                text.as_bytes().chunks(size).flat_map(|chunk| parser.feed(chunk)).collect();
            assert_eq!(events.len(), 2, "{events:?}");
            assert_eq!((events[0].name.as_str(), events[0].text("text")), ("line", "caf\u{e9}"));
            assert_eq!(events[0].id.as_deref(), Some("1"));
            assert_eq!(events[1].data, serde_json::json!({}));
        }
    }
}
