//! Requests of S3 as anybody may send them: heads that say who signed them, and bodies in chunks. Reading ends in a value or an
//! error; what was signed here verifies; what comes out of chunks is never more than was announced.
#![no_main]

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use towpath_s3::chunked::{Decoder, Output, Verifier};
use towpath_s3::sigv4::{Chunks, Instant, Message, Policy, Scope, SigningKey, verify};

const NOW: Instant = Instant(1_369_353_600);

fuzz_target!(|input: (&str, &str, &str, &str, &[u8], u8)| {
    let (target, host, authorization, statement, body, size) = input;
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut headers = HeaderMap::new();
    let lines =
        [("authorization", authorization), ("x-amz-content-sha256", statement), ("x-amz-date", "20130524T000000Z"), ("x-amz-copy-source", host)];
    for (name, value) in lines {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    let bases = ["s3.test".to_owned()];
    for method in ["GET", "PUT", "POST", "DELETE", "HEAD"] {
        match towpath_s3::recognise(method, path, query, host, &headers, &bases) {
            Ok(seen) => assert!(seen.operation.is_some() && seen.bucket.is_none_or(|bucket| !bucket.is_empty())),
            Err(unclear) => assert!(unclear.error().status() >= 400),
        }
    }
    let _ = towpath_s3::recognise::claimed_access_key(query, &headers);
    let message = Message { method: "PUT", path, query, host: host.as_bytes(), headers: &headers };
    let policy = Policy { region: None, skew: 900, unsigned_payload: true };
    // Nobody knows this secret, so nothing may pass.
    assert!(verify(&message, NOW, &policy, |_| Some("a secret that the fuzzer does not know".to_owned())).is_err());

    let scope = Scope { day: "20130524".into(), region: "r".into(), service: "s3".into() };
    let key = SigningKey::derive("a secret that the fuzzer does not know", &scope);
    let signed = Chunks { key, stamp: format!("{NOW}\n{scope}\n"), last: [0; 32] };
    for (chunks, trailer) in [(Some(signed), None), (None, Some("")), (None, Some(statement)), (None, None)] {
        for output in [Output::Decoded, Output::AsItCame] {
            let is_signed = chunks.is_some();
            let Ok(decoder) = Decoder::new(u64::from(size), chunks.clone(), trailer) else { continue };
            let mut verifier = Verifier::of_chunks(decoder, output);
            let mut out = VecDeque::new();
            let pieces = body.chunks(usize::from(size).max(1));
            let read = pieces.map(Bytes::copy_from_slice).try_for_each(|piece| verifier.push(piece, &mut out));
            let ended = read.and_then(|()| verifier.end());
            assert!(!(is_signed && ended.is_ok()));
            let sent: usize = out.iter().map(Bytes::len).sum();
            let most = if output == Output::Decoded { usize::from(size) } else { body.len() };
            assert!(sent <= most);
            if let (Ok(last), Output::Decoded) = (ended, output) {
                assert_eq!(sent + last.map_or(0, |last| last.len()), usize::from(size));
            }
        }
    }
});
