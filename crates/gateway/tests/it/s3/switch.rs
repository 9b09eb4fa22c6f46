//! `s3-switch`.

use super::refusal;
use crate::alone::{Alone, route, until};
use serde_json::json;
use towpath_testkit::HttpApp;

fn ask(alone: &Alone, method: &str, target: &str, lines: &str) -> crate::support::Answer {
    alone.send(&format!("{method} {target} HTTP/1.1\r\nHost: s3.test\r\nContent-Length: 0\r\n{lines}\r\n"))
}

#[tokio::test]
async fn operations_are_off_for_all_for_a_bucket_or_for_an_access_key() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [route(app.address(), json!({"s3-switch": {"rules": [
        {"operations": ["DeleteBucket", "settings"], "except": ["GetBucketLocation"]},
        {"operations": ["write", "delete"], "buckets": ["frozen-*"], "code": "MethodNotAllowed", "message": "It is frozen."},
        {"operations": ["all"], "access_keys": ["AKOUT*"], "code": "ServiceUnavailable"},
    ]}}))]}))
    .await;
    assert_eq!(refusal(&ask(&alone, "DELETE", "/any", "")), (403, "AccessDenied".into()));
    assert_eq!(refusal(&ask(&alone, "PUT", "/any/key?acl", "")), (403, "AccessDenied".into()));
    assert_eq!(ask(&alone, "GET", "/any?location", "").status, 200);
    let frozen = ask(&alone, "PUT", "/frozen-1/a<b", "");
    assert_eq!(frozen.status, 400, "not a path");
    let frozen = ask(&alone, "PUT", "/frozen-1/a%3Cb", "");
    assert_eq!(refusal(&frozen), (405, "MethodNotAllowed".into()));
    assert_eq!(super::element(&frozen, "Message"), "It is frozen.");
    assert_eq!(super::element(&frozen, "Resource"), "/frozen-1/a%3Cb");
    assert_eq!(ask(&alone, "POST", "/frozen-1?delete", "").status, 405);
    assert_eq!(ask(&alone, "GET", "/frozen-1/a", "").status, 200);
    assert_eq!(ask(&alone, "PUT", "/thawed/a", "").status, 200);
    let key =
        "Authorization: AWS4-HMAC-SHA256 Credential=AKOUTSIDE/20260101/r/s3/aws4_request, Signature=0\r\n";
    assert_eq!(refusal(&ask(&alone, "GET", "/any/a", key)), (503, "ServiceUnavailable".into()));
    assert_eq!(ask(&alone, "GET", "/any/a?X-Amz-Credential=AKOUT%2F1", "").status, 503);
    let head = ask(&alone, "HEAD", "/any/a", key);
    assert_eq!(
        (head.status, head.body.len(), head.header("content-type")),
        (503, 0, Some("application/xml"))
    );
    assert_eq!(ask(&alone, "GET", "/any/a", "").status, 200);
}

#[tokio::test]
async fn what_is_no_operation_is_refused_and_no_spelling_slips_past() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [route(app.address(), json!({"s3-switch": {
        "base_domains": ["s3.test"], "rules": [{"operations": ["PutObjectAcl", "DeleteObject"], "buckets": ["b"]}]
    }}))]}))
    .await;
    for (method, target) in [("PUT", "/b/k?acl"), ("PUT", "/%62/k?%61cl="), ("DELETE", "/b/k?x-id=GetObject")]
    {
        assert_eq!(refusal(&ask(&alone, method, target, "")), (403, "AccessDenied".into()), "{target}");
    }
    assert_eq!(refusal(&ask(&alone, "PUT", "/b/k?acl&tagging", "")), (400, "InvalidArgument".into()));
    assert_eq!(refusal(&ask(&alone, "DELETE", "/b?acl", "")), (405, "MethodNotAllowed".into()));
    for target in ["//b/k", "/c/../b/k", "/c/%2e%2e/b/k"] {
        let status = ask(&alone, "DELETE", target, "").status;
        assert!([400, 403].contains(&status), "{target} {status}");
    }
    let in_host = alone.send("DELETE /k HTTP/1.1\r\nHost: b.s3.test\r\n\r\n");
    assert_eq!(refusal(&in_host), (403, "AccessDenied".into()));
    assert_eq!(alone.send("DELETE /k HTTP/1.1\r\nHost: c.s3.test\r\n\r\n").status, 200);
    let in_capitals = alone.send("DELETE /k HTTP/1.1\r\nHost: B.S3.test\r\n\r\n");
    assert_eq!(refusal(&in_capitals), (403, "AccessDenied".into()));
    for host in ["c.s3.test.", ".s3.test", "b..s3.test"] {
        assert_eq!(alone.send(&format!("DELETE /k HTTP/1.1\r\nHost: {host}\r\n\r\n")).status, 400, "{host}");
    }
}

#[tokio::test]
async fn nothing_is_copied_out_of_a_bucket_that_must_not_be_read() {
    let app = HttpApp::start("a");
    let rules = json!([{"operations": ["read"], "buckets": ["secret"]}]);
    let alone =
        Alone::start(json!({"routes": [route(app.address(), json!({"s3-switch": {"rules": rules}}))]})).await;
    let copy = |target: &str, lines: &str| ask(&alone, "PUT", target, lines);
    for target in ["/open/k", "/open/k?partNumber=1&uploadId=x"] {
        for source in [
            "/secret/k",
            "secret/k?versionId=1",
            "%2Fsecret%2Fk",
            "//secret/k",
            "sec%72et/k",
            "arn:aws:s3:r:1:accesspoint/a/object/k",
            "open/../secret/k",
            "%2573ecret/k",
            "open/k%3F/../../secret/k",
            "open",
        ] {
            let refused = copy(target, &format!("x-amz-copy-source: {source}\r\n"));
            assert_eq!(refusal(&refused), (403, "AccessDenied".into()), "{source}");
        }
        assert_eq!(copy(target, "x-amz-copy-source: /open/a%2Fb?versionId=1\r\n").status, 200);
        let both = "x-amz-copy-source: open/k\r\nx-amz-copy-source: secret/k\r\n";
        assert_eq!(copy(target, both).status, 403);
    }
}

#[tokio::test]
async fn lists_in_order_are_refused_or_asked_for_without() {
    let app = HttpApp::start("a");
    let with =
        |mode: &str| json!({"routes": [route(app.address(), json!({"s3-switch": {"ordered_list": mode}}))]});
    let alone = Alone::start(with("refuse")).await;
    for target in ["/b", "/b?list-type=2", "/b?versions", "/b?uploads", "/b?list-type=2&delimiter=%2F"] {
        assert_eq!(refusal(&ask(&alone, "GET", target, "")), (501, "NotImplemented".into()), "{target}");
    }
    for target in ["/", "/b/k", "/b?allow-unordered=true", "/b/k?uploadId=1"] {
        assert_eq!(ask(&alone, "GET", target, "").status, 200, "{target}");
    }
    // Changed while it runs.
    alone.write(with("relax"));
    until("lists go on without order", || ask(&alone, "GET", "/b", "").status == 200);
    assert_eq!(ask(&alone, "GET", "/b", "").json()["path"], "/b?allow-unordered=true");
    assert_eq!(
        ask(&alone, "GET", "/b?list-type=2&prefix=a", "").json()["path"],
        "/b?list-type=2&prefix=a&allow-unordered=true"
    );
    assert_eq!(ask(&alone, "GET", "/b?delimiter=%2F", "").status, 501);
    assert_eq!(ask(&alone, "GET", "/b?list-type=2&start-after=x", "").status, 501);
    alone.write(with("allow"));
    until("lists go on", || ask(&alone, "GET", "/b?delimiter=%2F", "").status == 200);
    assert_eq!(ask(&alone, "GET", "/b", "").json()["path"], "/b");
}

#[tokio::test]
async fn an_operation_is_switched_off_and_on_while_the_gateway_runs() {
    let app = HttpApp::start("a");
    let with = |rules| json!({"routes": [route(app.address(), json!({"s3-switch": {"rules": rules}}))]});
    let alone = Alone::start(with(json!([]))).await;
    let mut client = alone.client();
    let mut put = || client.request("PUT /b/k HTTP/1.1\r\nHost: s3.test\r\nContent-Length: 0\r\n\r\n").status;
    assert_eq!(put(), 200);
    alone.write(with(json!([{"operations": ["PutObject"], "code": "NotImplemented"}])));
    until("PUT is off", || put() == 501);
    alone.write(with(json!([])));
    until("PUT is on", || put() == 200);
}

#[tokio::test]
async fn what_was_asked_for_is_a_variable() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [route(app.address(), json!({
        "s3-switch": {}, "response-rewrite": {"headers": {"set": {"X-Seen": "$s3_operation of $s3_bucket"}}}
    }))]}))
    .await;
    assert_eq!(ask(&alone, "GET", "/b?versions", "").header("x-seen"), Some("ListObjectVersions of b"));
}
