//! Bodies that nobody would write: read as every type that the API takes, they are taken or refused with fields, and nothing
//! else happens.

use super::super::apps::{AppBody, Patch};
use super::super::explain::ExplainBody;
use super::super::groups::GroupBody;
use super::super::lanes::{LaneBody, SpaceBody};
use super::super::releases::{PushBody, RollbackBody};
use super::super::routes::RouteBody;
use super::super::tokens::TokenBody;
use super::super::variables::EnvBody;
use super::{Checked, read_checked};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Number, Value};

const KEYS: &[&str] = &[
    "",
    "a",
    "app",
    "balancer",
    "chash",
    "command",
    "cookie",
    "count",
    "disk",
    "ejection",
    "entry",
    "env",
    "files",
    "grace",
    "hash_by",
    "header",
    "headers",
    "health",
    "host",
    "host_label",
    "http",
    "instances",
    "kind",
    "lane",
    "lanes",
    "limits",
    "load_weights",
    "memory",
    "method",
    "mode",
    "name",
    "path",
    "percent",
    "probe",
    "query",
    "retry",
    "role",
    "routes",
    "source",
    "secret",
    "sticky",
    "stopped",
    "timeouts",
    "total",
    "upstream",
    "url",
    "value",
    "window",
    "x.y[0]",
    "ä\u{0}",
];
const TEXTS: &[&str] = &[
    "",
    "/",
    "base",
    "shop",
    "5s",
    "-1s",
    "99999999999999999999s",
    "1M",
    "18446744073709551615G",
    "load",
    "strict",
    "http",
    "a b",
    "\u{0}",
    "ä",
    "*.a.b",
    "/%2f",
    "[::1]",
    "sha256:00",
    "NaN",
    "http://a/b?c#d",
];

fn value() -> impl Strategy<Value = Value> {
    let number = select(
        &[0.0, -0.0, 1.0, -1.0, 0.5, 1e308, -1e308, 5e-324, 4_294_967_296.0, 18_446_744_073_709_551_616.0][..],
    );
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        Just(Value::from(u64::MAX)),
        number.prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        select(TEXTS).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            4 => map(inner),
        ]
    })
}

fn map(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec((select(KEYS), inner), 0..6).prop_map(|entries| {
        Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    })
}

/// Reads the bytes as one type.
fn read<T: Checked>(bytes: &[u8]) {
    if let Err(problem) = read_checked::<T>(bytes) {
        let said = format!("{problem:?}");
        assert!(!said.is_empty() && said.len() < 1024 * 1024, "a problem of {} bytes", said.len());
    }
}

fn read_as_all(bytes: &[u8]) {
    read::<AppBody>(bytes);
    read::<EnvBody>(bytes);
    read::<Patch>(bytes);
    read::<ExplainBody>(bytes);
    read::<GroupBody>(bytes);
    read::<LaneBody>(bytes);
    read::<SpaceBody>(bytes);
    read::<PushBody>(bytes);
    read::<RollbackBody>(bytes);
    read::<RouteBody>(bytes);
    read::<TokenBody>(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn documents_of_every_shape_are_taken_or_refused(document in map(value())) {
        read_as_all(document.to_string().as_bytes());
    }

    #[test]
    fn so_are_documents_with_bytes_changed(
        document in map(value()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = document.to_string().into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_as_all(&bytes);
    }
}
