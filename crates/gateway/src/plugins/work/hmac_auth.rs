//! `hmac-auth`: a signature over parts of the request tells who the consumer is.

use super::{auth, outbound};
use crate::clock;
use crate::plugins::program::Known;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use crate::upstream::request_body::ClientBody;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, DATE};
use ring::hmac;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::hmac_auth::{Algorithm, Config, Credential};

/// See the module.
pub(in crate::plugins) struct HmacAuth(Arc<Config>);

/// Longest wait for a body that is compared.
const BODY_TIME: Duration = Duration::from_secs(60);
const REFUSED: &str = "client request can't be validated";

impl HmacAuth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

/// `Signature keyId="…",algorithm="…",headers="…",signature="…"`.
fn fields(text: &str) -> Option<HashMap<&str, &str>> {
    let rest = text.strip_prefix("Signature")?;
    let fields = rest.split(',').filter_map(|field| {
        let (key, value) = field.trim().split_once('=')?;
        Some((key, value.strip_prefix('"')?.strip_suffix('"')?))
    });
    Some(fields.collect())
}

fn find(config: &Config, request: &mut Request<'_>) -> Result<Known<Credential>, &'static str> {
    let text = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let text = text.ok_or("client request can't be validated: missing Authorization header")?;
    let fields = fields(&text)
        .ok_or("client request can't be validated: Authorization header does not start with 'Signature'")?;
    let field = |name| fields.get(name).copied().ok_or(REFUSED);
    let (id, algorithm) = (field("keyId")?, field("algorithm")?);
    let given = STANDARD.decode(field("signature")?).map_err(|_| REFUSED)?;
    let plugins = request.running().plugins.clone();
    let known = plugins.and_then(|plugins| plugins.consumers.by_key_id.get(id).cloned()).ok_or(REFUSED)?;
    let (kind, algorithm) = match algorithm {
        "hmac-sha1" => (Algorithm::Sha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        "hmac-sha256" => (Algorithm::Sha256, hmac::HMAC_SHA256),
        "hmac-sha512" => (Algorithm::Sha512, hmac::HMAC_SHA512),
        _ => return Err(REFUSED),
    };
    if !config.allowed_algorithms.contains(&kind) {
        return Err(REFUSED);
    }
    let date = request.headers.get(DATE).and_then(|value| value.to_str().ok());
    let date = date.and_then(seconds_of).ok_or(REFUSED)?;
    if (clock::unix_ms() / 1000).abs_diff(date) > config.clock_skew {
        return Err(REFUSED);
    }
    let signed: Vec<&str> = fields.get("headers").map_or_else(Vec::new, |text| text.split(' ').collect());
    if config.signed_headers.iter().any(|name| !signed.contains(&name.as_str())) {
        return Err(REFUSED);
    }
    let mut text = format!("{id}\n");
    for name in signed {
        let value = request.headers.get(name).and_then(|value| value.to_str().ok());
        let host = || String::from_utf8_lossy(request.record.host()).into_owned();
        match (value, name) {
            (Some(value), _) => text.push_str(&format!("{name}: {value}\n")),
            (None, "@request-target") => {
                let target = request.record.uri.path_and_query().map_or("/", |target| target.as_str());
                text.push_str(&format!("{} {target}\n", request.record.method));
            }
            (None, "host") => text.push_str(&format!("host: {}\n", host())),
            (None, _) => {}
        }
    }
    let key = hmac::Key::new(algorithm, known.credential.secret_key.as_bytes());
    hmac::verify(&key, text.as_bytes(), &given).map_err(|_| REFUSED)?;
    Ok(known)
}

/// Seconds since 1970 of an HTTP date: `Tue, 15 Nov 1994 08:12:31 GMT`.
fn seconds_of(date: &str) -> Option<u64> {
    let mut parts = date.split_once(", ")?.1.split(' ');
    let day: u64 = parts.next()?.parse().ok()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let name = parts.next()?;
    let month = months.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut clock = parts.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    (parts.next()? == "GMT").then_some(())?;
    // Days since 1970-01-01, years beginning in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
    Some(days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second)
}

impl HmacAuth {
    /// The digest that the request names is compared with its body.
    fn compare_body(&self, known: Known<Credential>, request: &mut Request<'_>) -> Step {
        let digest = request.headers.get("digest").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (body, config) = (request.body.take(), self.0.clone());
        Step::Wait(Box::pin(async move {
            let mut read = bytes::Bytes::new();
            let had_body = body.is_some();
            if let Some(body) = body {
                let reading = outbound::read_up_to(body, config.max_req_body_size);
                read = match tokio::time::timeout(BODY_TIME, reading).await {
                    Ok(Ok(Some(body))) => body,
                    Ok(Ok(None)) => {
                        return Box::new(|_: &mut Request<'_>| Step::answer(Answer::status(413))) as Resume;
                    }
                    _ => return Box::new(|_: &mut Request<'_>| Step::answer(Answer::status(400))) as Resume,
                };
            }
            let made = format!("SHA-256={}", STANDARD.encode(Sha256::digest(&read)));
            let same = digest.is_some_and(|digest| auth::same(digest.as_bytes(), made.as_bytes()));
            Box::new(move |request: &mut Request<'_>| {
                if had_body {
                    *request.body = Some(ClientBody::Held(read));
                }
                let found = if same { Ok(known) } else { Err(REFUSED) };
                HmacAuth(config).ends(found, request)
            }) as Resume
        }))
    }

    fn ends(&self, found: Result<Known<Credential>, &'static str>, request: &mut Request<'_>) -> Step {
        let challenge = format!("hmac realm=\"{}\"", self.0.realm);
        let (consumer, credential) = match (found, self.0.anonymous_consumer.as_deref()) {
            (Ok(known), _) => (known.consumer, known.id),
            (Err(why), None) => return Step::answer(auth::refuse(why, &challenge)),
            (Err(_), anonymous) => match auth::anonymous(request, anonymous) {
                Some(consumer) => (consumer, None),
                None => return Step::answer(auth::refuse("Invalid user authorization", &challenge)),
            },
        };
        if self.0.hide_credentials {
            request.headers.remove(AUTHORIZATION);
        }
        auth::attach(request, consumer, credential);
        Step::Next
    }
}

impl Plugin for HmacAuth {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        match find(&self.0, request) {
            Ok(known) if self.0.validate_request_body => self.compare_body(known, request),
            found => self.ends(found, request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        assert_eq!(seconds_of("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds_of("Tue, 15 Nov 1994 08:12:31 GMT"), Some(784_887_151));
        assert_eq!(seconds_of("Mon, 29 Feb 2016 23:59:60 GMT"), Some(1_456_790_400));
        for bad in
            ["", "Tue, 15 Nov 1994 08:12:31", "15 Nov 1994 08:12:31 GMT", "Tue, 15 Nuv 1994 08:12:31 GMT"]
        {
            assert_eq!(seconds_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_fields_of_a_signature_are_found() {
        let fields = fields("Signature keyId=\"a\",algorithm=\"hmac-sha256\", headers=\"@request-target date\",signature=\"YQ==\"").unwrap();
        assert_eq!(
            (fields["keyId"], fields["headers"], fields["signature"]),
            ("a", "@request-target date", "YQ==")
        );
        assert!(super::fields("Basic x").is_none());
    }
}
