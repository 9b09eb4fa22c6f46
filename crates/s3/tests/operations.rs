//! Each operation that Amazon's own client library describes is recognised as itself. The facts stand in `operations.jsonl`, made by
//! `tests/object-storage/operations.py`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use http::{HeaderMap, HeaderName};
use serde_json::Value;
use std::collections::BTreeSet;
use towpath_s3::{Operation, recognise};

const FACTS: &str = include_str!("operations.jsonl");

fn facts() -> impl Iterator<Item = Value> {
    FACTS.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn each_operation_is_recognised_as_itself_in_both_styles() {
    let bases = ["s3.test".to_owned()];
    let mut seen_all = BTreeSet::new();
    for fact in facts() {
        let name = fact["name"].as_str().unwrap();
        let expected: Operation = name.parse().unwrap_or_else(|()| panic!("{name} is not known"));
        let uri = fact["uri"].as_str().unwrap();
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut query: Vec<String> = query.split('&').map(str::to_owned).collect();
        query.extend(texts(&fact["query"]).iter().map(|name| format!("{name}=1")));
        let query = query.join("&");
        let headers: HeaderMap = texts(&fact["headers"])
            .iter()
            .map(|name| (HeaderName::from_bytes(name.as_bytes()).unwrap(), "x".parse().unwrap()))
            .collect();
        let method = fact["method"].as_str().unwrap();
        let key = |path: &str| path.replace("{Key+}", "some/key");
        let in_path = key(&path.replace("{Bucket}", "bucket"));
        let seen = recognise(method, &in_path, Some(&query), "s3.test", &headers, &bases).unwrap();
        assert_eq!(seen.operation, Some(expected), "{name}");
        seen_all.insert(expected.name());
        if path.contains("{Bucket}") {
            let in_host = key(&path.replace("/{Bucket}", ""));
            let in_host = if in_host.is_empty() { "/" } else { &in_host };
            let seen = recognise(method, in_host, Some(&query), "bucket.s3.test", &headers, &bases).unwrap();
            assert_eq!((seen.operation, seen.bucket.as_deref()), (Some(expected), Some("bucket")), "{name}");
        }
    }
    let ours: BTreeSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    let only_ours: Vec<_> = ours.difference(&seen_all).copied().collect();
    assert_eq!(only_ours, ["PostObject"], "what browsers send as a form is in no model");
}
