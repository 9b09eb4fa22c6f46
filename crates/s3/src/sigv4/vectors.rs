//! The examples of Amazon's documentation ("Signature Calculations for the Authorization Header", "Authenticating Requests:
//! Using Query Parameters", "… in Multiple Chunks", "… including trailing headers") and of its SigV4 test suite.

use super::*;
use crate::error::ErrorCode;
use http::HeaderMap;

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const HOST: &[u8] = b"examplebucket.s3.amazonaws.com";
const NOW: Instant = Instant(1_369_353_600);
const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

fn policy() -> Policy {
    Policy { region: None, skew: 900, unsigned_payload: true }
}

fn secret(key: &str) -> Option<String> {
    (key == KEY).then(|| SECRET.to_owned())
}

fn heads(lines: &[(&'static str, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
}

/// A request with the headers of the documentation's examples, signed like this.
fn signed(lines: &[(&'static str, &str)], sha256: &str, names: &str, signature: &str) -> HeaderMap {
    let mut headers = heads(lines);
    headers.insert("x-amz-date", "20130524T000000Z".parse().unwrap());
    headers.insert("x-amz-content-sha256", sha256.parse().unwrap());
    let text =
        format!("AWS4-HMAC-SHA256 Credential={KEY}/{SCOPE}, SignedHeaders={names}, Signature={signature}");
    headers.insert("authorization", text.parse().unwrap());
    headers
}

fn check(
    method: &str,
    path: &str,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<Verified, crate::S3Error> {
    verify(&Message { method, path, query, host: HOST, headers }, NOW, &policy(), secret)
}

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn get_object() {
    let headers = signed(
        &[("range", "bytes=0-9")],
        EMPTY,
        "host;range;x-amz-content-sha256;x-amz-date",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    );
    let verified = check("GET", "/test.txt", None, &headers).unwrap();
    assert_eq!((verified.access_key.as_str(), verified.payload), (KEY, Payload::Hash(EMPTY_SHA256)));
    assert_eq!(sha256(b""), EMPTY_SHA256);
}

#[test]
fn put_object() {
    let headers = signed(
        &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
        "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
    );
    for path in ["/test%24file.text", "/test$file.text"] {
        let verified = check("PUT", path, None, &headers).unwrap();
        assert_eq!(verified.payload, Payload::Hash(sha256(b"Welcome to Amazon S3.")));
    }
}

#[test]
fn get_bucket_lifecycle_and_list() {
    let names = "host;x-amz-content-sha256;x-amz-date";
    let lifecycle =
        signed(&[], EMPTY, names, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    assert!(check("GET", "/", Some("lifecycle"), &lifecycle).is_ok());
    let list = signed(&[], EMPTY, names, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    for query in ["max-keys=2&prefix=J", "prefix=J&max-keys=2"] {
        assert!(check("GET", "/", Some(query), &list).is_ok());
    }
    assert_eq!(
        check("GET", "/", Some("prefix=K&max-keys=2"), &list).unwrap_err().code,
        ErrorCode::SignatureDoesNotMatch
    );
}

const PRESIGNED: &str = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&\
     X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&\
     X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";

#[test]
fn presigned_url() {
    let none = HeaderMap::new();
    let at = |now| {
        let message =
            Message { method: "GET", path: "/test.txt", query: Some(PRESIGNED), host: HOST, headers: &none };
        verify(&message, Instant(now), &policy(), secret)
    };
    let verified = at(NOW.0).unwrap();
    assert_eq!((verified.payload, verified.presigned), (Payload::Unsigned, true));
    assert!(at(NOW.0 + 86_400).is_ok() && at(NOW.0 - 900).is_ok());
    let late = at(NOW.0 + 86_401).unwrap_err();
    assert_eq!((late.code, late.message.as_ref()), (ErrorCode::AccessDenied, "Request has expired"));
    assert_eq!(at(NOW.0 - 901).unwrap_err().message, "Request is not yet valid");
    let longer = PRESIGNED.replace("86400", "86401");
    let message =
        Message { method: "GET", path: "/test.txt", query: Some(&longer), host: HOST, headers: &none };
    assert_eq!(verify(&message, NOW, &policy(), secret).unwrap_err().code, ErrorCode::SignatureDoesNotMatch);
    let week = PRESIGNED.replace("86400", "604801");
    let message = Message { query: Some(&week), ..message };
    assert_eq!(
        verify(&message, NOW, &policy(), secret).unwrap_err().code,
        ErrorCode::AuthorizationQueryParametersError
    );
    let extra = heads(&[("x-amz-meta-own", "1")]);
    let message =
        Message { method: "GET", path: "/test.txt", query: Some(PRESIGNED), host: HOST, headers: &extra };
    assert_eq!(verify(&message, NOW, &policy(), secret).unwrap_err().code, ErrorCode::AccessDenied);
}

#[test]
fn the_suites_get_vanilla() {
    let scope = Scope { day: "20150830".into(), region: "us-east-1".into(), service: "service".into() };
    let key = SigningKey::derive("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", &scope);
    let headers = heads(&[("x-amz-date", "20150830T123600Z")]);
    let sign = |method, path, query, names: &[&str], headers: &HeaderMap| {
        let message = Message { method, path, query, host: b"example.amazonaws.com", headers };
        let hash = message.canonical_hash(names, EMPTY.as_bytes());
        crate::encode::hex(
            &key.sign(format!("AWS4-HMAC-SHA256\n20150830T123600Z\n{scope}\n{hash}").as_bytes()),
        )
    };
    let names = ["host", "x-amz-date"];
    assert_eq!(
        sign("GET", "/", None, &names, &headers),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    );
    assert_eq!(
        sign("GET", "/", Some("Param2=value2&Param1=value1"), &names, &headers),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
    );
    assert_eq!(
        sign("POST", "/", None, &names, &headers),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    );
}

#[test]
fn the_suites_header_values_are_trimmed() {
    let headers = heads(&[
        ("my-header1", " value1"),
        ("my-header2", "\"a   b   c\""),
        ("x-amz-date", "20150830T123600Z"),
    ]);
    let message =
        Message { method: "GET", path: "/", query: None, host: b"example.amazonaws.com", headers: &headers };
    let canonical = message.canonical(&["host", "my-header1", "my-header2", "x-amz-date"], EMPTY.as_bytes());
    let text = String::from_utf8(canonical).unwrap();
    assert!(text.contains("my-header1:value1\nmy-header2:\"a b c\"\n"), "{text}");
}

#[test]
fn what_is_wrong_is_told_apart() {
    let good = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    let names = "host;range;x-amz-content-sha256;x-amz-date";
    let with = |change: &dyn Fn(&mut HeaderMap)| {
        let mut headers = signed(&[("range", "bytes=0-9")], EMPTY, names, good);
        change(&mut headers);
        check("GET", "/test.txt", None, &headers).unwrap_err().code
    };
    let auth = |from: &str, to: &str| {
        with(&|headers: &mut HeaderMap| {
            let text = headers["authorization"].to_str().unwrap().replace(from, to);
            headers.insert("authorization", text.parse().unwrap());
        })
    };
    assert_eq!(auth(KEY, "AKIDOTHER"), ErrorCode::InvalidAccessKeyId);
    assert_eq!(auth("f0e8", "f0e9"), ErrorCode::SignatureDoesNotMatch);
    assert_eq!(auth("f0e8", "f0"), ErrorCode::AuthorizationHeaderMalformed);
    assert_eq!(auth("20130524", "20130525"), ErrorCode::AuthorizationHeaderMalformed);
    assert_eq!(auth("/s3/", "/ec2/"), ErrorCode::AuthorizationHeaderMalformed);
    assert_eq!(auth("host;range", "range;host"), ErrorCode::AuthorizationHeaderMalformed);
    assert_eq!(auth(";x-amz-date", ""), ErrorCode::AccessDenied);
    assert_eq!(auth("AWS4-HMAC-SHA256", "AWS"), ErrorCode::InvalidRequest);
    assert_eq!(with(&|h| drop(h.remove("authorization"))), ErrorCode::AccessDenied);
    assert_eq!(
        with(&|h| assert!(h.append("authorization", "x".parse().unwrap()))),
        ErrorCode::InvalidArgument
    );
    assert_eq!(
        with(&|h| drop(h.insert("x-amz-acl", "public-read".parse().unwrap()))),
        ErrorCode::AccessDenied
    );
    assert_eq!(
        with(&|h| drop(h.insert("x_amz_acl", "public-read".parse().unwrap()))),
        ErrorCode::AccessDenied
    );
    assert_eq!(
        with(&|h| drop(h.insert("range", "bytes=0-8".parse().unwrap()))),
        ErrorCode::SignatureDoesNotMatch
    );
    assert_eq!(
        with(&|h| drop(h.insert("x-amz-date", "20130524T001501Z".parse().unwrap()))),
        ErrorCode::RequestTimeTooSkewed
    );
    assert_eq!(
        with(&|h| drop(h.insert("x-amz-content-sha256", "none".parse().unwrap()))),
        ErrorCode::InvalidArgument
    );
    let headers = signed(&[("range", "bytes=0-9")], EMPTY, names, good);
    let message = Message { method: "GET", path: "/test.txt", query: None, host: HOST, headers: &headers };
    let elsewhere = Policy { region: Some("eu-west-1".into()), ..policy() };
    let error = verify(&message, NOW, &elsewhere, secret).unwrap_err();
    assert_eq!(
        (error.code, error.more[0].1.as_str()),
        (ErrorCode::AuthorizationHeaderMalformed, "eu-west-1")
    );
    assert!(verify(&message, Instant(NOW.0 + 900), &policy(), secret).is_ok());
    assert_eq!(
        verify(&message, Instant(NOW.0 + 901), &policy(), secret).unwrap_err().code,
        ErrorCode::RequestTimeTooSkewed
    );
}

#[test]
fn what_is_signed_here_is_verified_here() {
    let credentials = Credentials { access_key: KEY.into(), secret_key: SECRET.into(), region: "r-1".into() };
    let mut headers = heads(&[
        ("content-type", "text/x"),
        ("x-amz-meta-a", "1  2"),
        ("authorization", "old"),
        ("via", "x"),
    ]);
    let (path, query) = ("/b/a%20b+c/%E4", Some("acl&x=%2F"));
    let outgoing = Outgoing { method: "PUT", path, query, host: HOST, payload: "UNSIGNED-PAYLOAD" };
    sign(&outgoing, &mut headers, &credentials, NOW);
    let verified = check("PUT", path, query, &headers).unwrap();
    assert_eq!(verified.payload, Payload::Unsigned);
    let strict = Policy { unsigned_payload: false, ..policy() };
    let message = Message { method: "PUT", path, query, host: HOST, headers: &headers };
    assert_eq!(verify(&message, NOW, &strict, secret).unwrap_err().code, ErrorCode::AccessDenied);
}

proptest::proptest! {
    #[test]
    fn any_request_that_is_signed_verifies_and_any_other_does_not(
        path in "/[ -~]{0,30}", query in "[!-~]{0,30}", value in "[ -~]{0,20}"
    ) {
        let credentials = Credentials { access_key: KEY.into(), secret_key: SECRET.into(), region: "r".into() };
        let mut headers = heads(&[("x-amz-meta-a", value.as_str())]);
        proptest::prop_assume!(!query.to_ascii_lowercase().contains("amz"));
        let outgoing =
            Outgoing { method: "PUT", path: &path, query: Some(&query), host: HOST, payload: "UNSIGNED-PAYLOAD" };
        sign(&outgoing, &mut headers, &credentials, NOW);
        proptest::prop_assert!(check("PUT", &path, Some(&query), &headers).is_ok());
        let longer = format!("{path}x");
        proptest::prop_assert!(check("PUT", &longer, Some(&query), &headers).is_err());
        proptest::prop_assert!(check("GET", &path, Some(&query), &headers).is_err());
    }
}
