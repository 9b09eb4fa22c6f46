//! Whatever is sent, the answer is a document or faults.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeSet;
use towpath_resources::{Format, Id, Kind, Set, patched, read, read_file};

const NAMES: &[&str] = &[
    "id",
    "uri",
    "uris",
    "upstream",
    "nodes",
    "plugins",
    "limit-count",
    "key-auth",
    "ip-restriction",
    "request-id",
    "_meta",
    "filter",
    "count",
    "time_window",
    "rules",
    "key",
    "vars",
    "methods",
    "host",
    "hosts",
    "timeout",
    "connect",
    "type",
    "checks",
    "active",
    "tls",
    "client_cert_id",
    "service_id",
    "username",
    "app",
    "lane",
    "port",
    "weight",
    "priority",
    "cert",
    "sni",
    "client",
    "ca",
    "status",
    "remote_addr",
    "whitelist",
    "remote_addrs",
    "hash_on",
    "scheme",
    "retries",
    "labels",
    "*",
    "x",
];
const TEXTS: &[&str] = &[
    "",
    "/",
    "/a",
    "/a/*",
    "*",
    "/a*b",
    "/:x",
    "a.test",
    "*.a.test",
    "1",
    "chash",
    "GET",
    "10.0.0.0/8",
    "::1",
    "[::1]:80",
    "a:0",
    "a:80",
    "$secret://x",
    "ä",
    "💥",
    "OR",
    "==",
    "~~",
    "(",
    "in",
    "jack",
    "default/default/a",
    "-----BEGIN CERTIFICATE-----",
];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        (-3i64..600).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        proptest::sample::select(TEXTS).prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 8, |inner| {
        let name = prop_oneof![4 => proptest::sample::select(NAMES).prop_map(str::to_owned), 1 => ".{0,8}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            proptest::collection::vec((name, inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn id_of(kind: Kind) -> Id {
    let text = match kind {
        Kind::Credential => "jack/credentials/1",
        Kind::Secret => "vault/1",
        Kind::PluginMetadata => "limit-count",
        _ => "1",
    };
    Id::new(kind, text).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_json_is_a_document_or_faults(value in any_value(), at in 0usize..13, patch in any_value()) {
        let kind = Kind::ALL[at];
        let good = json!({"uri": "/a", "upstream": {"nodes": {"a.test:80": 1}}, "plugins": {"limit-count": {"count": 1, "time_window": 1}}});
        for value in [value.clone(), patched(&good, "", &value).unwrap_or_default(), patched(&good, "plugins/limit-count", &value).unwrap()] {
            match read(kind, &id_of(kind), &value) {
                Ok(document) => {
                    let mut set = Set::new();
                    let key = document.key.clone();
                    set.change(vec![document], &[]);
                    set.change(Vec::new(), &[key]);
                }
                Err(faults) => prop_assert!(!faults.is_empty()),
            }
            let _ = patched(&value, "upstream/nodes/0", &patch);
        }
        let text = json!({kind.as_str(): [value]}).to_string();
        for format in [Format::Json, Format::Yaml, Format::Toml] {
            let _ = read_file(&format!("{text}\n#END"), format, &|_| None);
        }
    }

    #[test]
    fn what_is_taken_the_table_takes(
        paths in proptest::collection::vec("(/|//|a|:|:a|\\.|\\.\\.|\\*|\\?|#|%2F|ä| ){0,8}|/(a/){60,70}|/[a/:.*?]{0,12}", 1..3),
        hosts in proptest::collection::vec("\\*|\\*?\\.?[a-bA-B.]{1,6}(:80)?|\\[::1\\]|_|-a", 1..3),
    ) {
        let paths: BTreeSet<_> = paths.into_iter().collect();
        let hosts: BTreeSet<_> = hosts.into_iter().collect();
        let route = json!({"uris": paths, "hosts": hosts, "upstream": {"nodes": {}}});
        let service = json!({"hosts": hosts});
        let mut rule = towpath_route::RuleSpec::new("r", &[], towpath_types::AppRef::of_upstream("u"));
        rule.paths = paths.into_iter().collect();
        rule.hosts = hosts.into_iter().collect();
        if read(Kind::Route, &id_of(Kind::Route), &route).is_ok() {
            prop_assert_eq!(towpath_route::check::rule(&rule), Vec::new());
        }
        rule.paths = vec!["/".to_owned()];
        if read(Kind::Service, &id_of(Kind::Service), &service).is_ok() {
            prop_assert_eq!(towpath_route::check::rule(&rule), Vec::new());
        }
    }

    #[test]
    fn any_text_is_a_file_or_faults(text in "(routes:|[a-z:\\-\\[\\]{}\"' \\n&*#$]|\\$\\{\\{A\\}\\}|.){0,80}") {
        for format in [Format::Json, Format::Yaml, Format::Toml] {
            if let Err(faults) = read_file(&format!("{text}\n#END"), format, &|_| None) {
                prop_assert!(!faults.is_empty());
            }
        }
    }
}
