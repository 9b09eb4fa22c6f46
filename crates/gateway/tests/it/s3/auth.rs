//! `s3-auth`: heads and URLs.

use super::{SECRET, Signed, jack, now, refusal, resources};
use crate::alone::{Alone, route};
use serde_json::json;
use towpath_s3::sigv4::{Credentials, Instant, Message, Policy, verify};
use towpath_testkit::HttpApp;

#[tokio::test]
async fn who_signs_is_known_and_who_does_not_is_refused() {
    let app = HttpApp::start("a");
    let alone = Alone::start(resources(app.address(), json!({"s3-auth": {}}))).await;
    let good = Signed::new("GET", "/b/a%20b?list-type=2&prefix=%C3%A9").line("x-amz-meta-a", "1  2");
    let answer = alone.send(&good.text());
    assert_eq!((answer.status, answer.seen("x-consumer-username").as_deref()), (200, Some("jack")));
    assert_eq!(
        answer.seen("authorization").as_deref(),
        Some(good.headers()["authorization"].to_str().unwrap())
    );
    let code = |signed: Signed| refusal(&alone.send(&signed.text())).1;
    let by =
        |key: &str, secret: &str| Credentials { access_key: key.into(), secret_key: secret.into(), ..jack() };
    let get = || Signed::new("GET", "/b/k");
    assert_eq!(code(Signed { by: by("AKJACK", "wrong"), ..get() }), "SignatureDoesNotMatch");
    assert_eq!(code(Signed { by: by("AKJILL", SECRET), ..get() }), "InvalidAccessKeyId");
    assert_eq!(code(Signed { at: now() - 1000, ..get() }), "RequestTimeTooSkewed");
    assert_eq!(code(Signed { at: now() + 1000, ..get() }), "RequestTimeTooSkewed");
    assert_eq!(refusal(&alone.get("/b/k")), (403, "AccessDenied".into()));
    assert_eq!(
        refusal(&alone.get_with("/b/k", "Authorization: AWS AKJACK:xyz")),
        (400, "InvalidRequest".into())
    );
    let head = alone.send("HEAD /b/k HTTP/1.1\r\nHost: s3.test\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (403, 0));
    let other = get().text().replace("GET /b/k", "GET /b/l");
    assert_eq!(refusal(&alone.send(&other)), (403, "SignatureDoesNotMatch".into()));
    assert_eq!(app.requests(), 1);
    let preflight = "OPTIONS /b/k HTTP/1.1\r\nHost: s3.test\r\nOrigin: http://x.test\r\nAccess-Control-Request-Method: PUT\r\n\r\n";
    assert_eq!(alone.send(preflight).status, 200);
}

#[tokio::test]
async fn an_anonymous_consumer_is_for_those_who_say_nothing() {
    let app = HttpApp::start("a");
    let mut all = resources(app.address(), json!({"s3-auth": {"anonymous_consumer": "public"}}));
    all["consumers"].as_array_mut().unwrap().push(json!({"username": "public", "plugins": {}}));
    let alone = Alone::start(all).await;
    assert_eq!(alone.get("/b/k").seen("x-consumer-username").as_deref(), Some("public"));
    let wrong = Signed { at: 0, ..Signed::new("GET", "/b/k") };
    assert_eq!(alone.send(&wrong.text()).status, 403);
    assert_eq!(alone.get("/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256").status, 400);
}

#[tokio::test]
async fn region_and_unsigned_bodies_are_as_configured() {
    let app = HttpApp::start("a");
    let strict = json!({"s3-auth": {"region": "eu-1", "allow_unsigned_payload": false}});
    let alone = Alone::start(resources(app.address(), strict)).await;
    let wrong = alone.send(&Signed::new("GET", "/b/k").hash_of(b"").text());
    assert_eq!(refusal(&wrong), (400, "AuthorizationHeaderMalformed".into()));
    assert_eq!(super::element(&wrong, "Region"), "eu-1");
    let here = || Credentials { region: "eu-1".into(), ..jack() };
    assert_eq!(alone.send(&Signed { by: here(), ..Signed::new("GET", "/b/k") }.text()).status, 403);
    assert_eq!(
        alone.send(&Signed { by: here(), ..Signed::new("GET", "/b/k").hash_of(b"") }.text()).status,
        200
    );
}

/// What the upstream saw, verified with the backend's keys.
fn verify_seen(answer: &crate::support::Answer, host: &str) -> towpath_s3::sigv4::Verified {
    let seen = answer.json();
    let headers = seen["headers"].as_array().unwrap().iter().map(|pair| {
        let text = |n: usize| pair[n].as_str().unwrap();
        (text(0).parse::<http::HeaderName>().unwrap(), text(1).parse().unwrap())
    });
    let headers = headers.collect();
    let target = seen["path"].as_str().unwrap();
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let method = seen["method"].as_str().unwrap();
    let message = Message { method, path, query, host: host.as_bytes(), headers: &headers };
    let policy = Policy { region: Some("r-2".into()), skew: 900, unsigned_payload: true };
    verify(&message, Instant(now()), &policy, |key| (key == "AKBACK").then(|| "back".to_owned())).unwrap()
}

#[tokio::test]
async fn requests_are_signed_anew_for_the_upstream() {
    let app = HttpApp::start("a");
    let backend = json!({"access_key": "AKBACK", "secret_key": "back", "region": "r-2"});
    let config =
        json!({"forward": "sign", "backend": backend, "base_domains": ["s3.test"], "path_style": true});
    let mut all = resources(app.address(), json!({"s3-auth": config}));
    let alone = Alone::start(all.clone()).await;
    let signed =
        Signed::new("PUT", "/b/a%20b?tagging").line("x-amz-meta-a", "1").line("content-type", "text/x");
    let answer = alone.send(&signed.text().replace("\r\n\r\n", "\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!((answer.status, answer.json()["path"].as_str()), (200, Some("/b/a%20b?tagging")));
    verify_seen(&answer, "s3.test");
    assert_eq!(answer.seen("x-consumer-username").as_deref(), Some("jack"));
    // With the node's own name as its host.
    all["routes"][0]["upstream"]["pass_host"] = json!("node");
    alone.write(all);
    let node = app.address().ip().to_string();
    crate::alone::until("the node's name is the host", || {
        let answer = alone.send(&Signed::new("GET", "/b/k").text());
        answer.seen("host").is_some_and(|host| host.starts_with(&node))
    });
    let answer = alone.send(&Signed::new("GET", "/b/k").text());
    verify_seen(&answer, &answer.seen("host").unwrap());
}

/// A URL that jack has signed, and its host.
fn presigned(method: &str, host: &str, path: &str, at: u64, expires: u64) -> String {
    use towpath_s3::encode::hex;
    use towpath_s3::sigv4::{Scope, SigningKey, sha256};
    let scope = Scope { day: Instant(at).day(), region: "us-east-1".into(), service: "s3".into() };
    let credential = format!("AKJACK/{scope}").replace('/', "%2F");
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}&X-Amz-Expires={expires}&X-Amz-SignedHeaders=host",
        Instant(at)
    );
    let canonical = format!("{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD");
    let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", Instant(at), hex(&sha256(canonical.as_bytes())));
    format!(
        "{path}?{query}&X-Amz-Signature={}",
        hex(&SigningKey::derive(SECRET, &scope).sign(text.as_bytes()))
    )
}

#[tokio::test]
async fn presigned_urls_are_good_for_their_time() {
    let app = HttpApp::start("a");
    let backend = json!({"access_key": "AKBACK", "secret_key": "back", "region": "r-2"});
    let config =
        json!({"forward": "sign", "backend": backend, "base_domains": ["s3.test"], "path_style": true});
    let alone = Alone::start(resources(app.address(), json!({"s3-auth": config}))).await;
    let ask = |method: &str, host: &str, target: &str| {
        alone.send(&format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    };
    let answer = ask("GET", "photos.s3.test", &presigned("GET", "photos.s3.test", "/a/b", now(), 60));
    assert_eq!((answer.status, answer.json()["path"].as_str()), (200, Some("/photos/a/b")));
    verify_seen(&answer, "s3.test");
    let unclear = ask("GET", "photos.s3.test.", &presigned("GET", "photos.s3.test.", "/a/b", now(), 60));
    assert_eq!(unclear.status, 400, "some servers know this bucket and some do not");
    let late = ask("GET", "s3.test", &presigned("GET", "s3.test", "/b/k", now() - 61, 60));
    assert_eq!(
        (refusal(&late), super::element(&late, "Message")),
        ((403, "AccessDenied".into()), "Request has expired".into())
    );
    let early = ask("GET", "s3.test", &presigned("GET", "s3.test", "/b/k", now() + 1000, 60));
    assert_eq!(super::element(&early, "Message"), "Request is not yet valid");
    let other = ask("PUT", "s3.test", &presigned("GET", "s3.test", "/b/k", now(), 60));
    assert_eq!(refusal(&other), (403, "SignatureDoesNotMatch".into()));
}

#[tokio::test]
async fn a_consumer_brings_its_plugins() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "consumers": [{"username": "jack", "plugins": {
            "s3-auth": {"access_key": "AKJACK", "secret_key": SECRET},
            "s3-switch": {"rules": [{"operations": ["write"]}]},
        }}],
        "routes": [route(app.address(), json!({"s3-auth": {"forward": "unsigned"}}))],
    }))
    .await;
    let answer = alone.send(&Signed::new("GET", "/b/k").text());
    assert_eq!((answer.status, answer.seen("authorization"), answer.seen("x-amz-date")), (200, None, None));
    assert_eq!(refusal(&alone.send(&Signed::new("PUT", "/b/k").text())), (403, "AccessDenied".into()));
}
