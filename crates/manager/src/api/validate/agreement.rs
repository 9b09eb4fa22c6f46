//! What the API takes, every gateway serves: whatever passes these checks is refused by no routing table.

use super::super::body::Checked;
use super::super::lanes::SpaceBody;
use super::{entry, host, path, upstream};
use proptest::prelude::*;
use proptest::sample::select;
use towpath_route::{Change, Table};
use towpath_types::lane::{EntryRule, HashBy, LanePolicy};
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Balancer, UpstreamSpec};
use towpath_types::{AppRef, LaneName, Place, SpaceRef};

fn app() -> AppRef {
    AppRef::new(&SpaceRef::first(), "shop".parse().unwrap())
}

/// What a table has against a change.
fn refused(change: Change) -> Vec<String> {
    let (_, refused) = Table::new(Place::default()).apply(&[change], 1);
    refused.into_iter().map(|refused| format!("{}: {}", refused.key, refused.why)).collect()
}

fn route(host: &str, path: &str, entry: Vec<EntryRule>) -> Change {
    let (host, path) = (host.to_owned(), path.to_owned());
    Change::PutRoute(RouteSpec { host, path, app: app(), strip_path: false, entry, automatic: false })
}

/// Texts of a few pieces, plain and odd ones.
fn text(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(select(pieces), 0..most).prop_map(|pieces| pieces.concat())
}

const HOST: &[&str] =
    &["a", "shop", ".", "-", "*.", "*", "0", "10.0.0.1", "[::1]", "[", ":", "ä", "A", "_", "--", "x.y"];
const PATH: &[&str] = &[
    "/",
    "/a",
    "/b",
    "a",
    ".",
    "..",
    "%2f",
    "%2F",
    "%41",
    "%7E",
    "%",
    "%zz",
    "~",
    "_",
    "?",
    "#",
    "\\",
    " ",
    "ä",
    "/a/b/c/d/e/f/g",
];
const HEADERS: &[&str] = &[
    "via",
    "host",
    "x-",
    "forwarded",
    "-for",
    "_for",
    "lane",
    "towpath",
    "-",
    "_",
    "baggage",
    "cookie",
    "trailer",
    " ",
    ":",
    "TE",
    "te",
    "x-real-ip",
    "x-request-id",
    "traceparent",
    "ä",
];

fn share() -> impl Strategy<Value = f32> {
    prop_oneof![4 => Just(0.5), 1 => select(&[-1.0, 0.0, 1.0, 1.5, 1000.0, f32::INFINITY, f32::NAN][..])]
}

fn hash_by() -> impl Strategy<Value = HashBy> {
    let named = text(HEADERS, 2);
    (0..5_u8, named).prop_map(|(kind, name)| match kind {
        0 => HashBy::Address,
        1 => HashBy::Uri,
        2 => HashBy::Header(name),
        3 => HashBy::Cookie(name),
        _ => HashBy::Query(name),
    })
}

fn settings() -> impl Strategy<Value = UpstreamSpec> {
    let balancer = prop_oneof![Just(Balancer::Load), hash_by().prop_map(Balancer::Chash)];
    (balancer, prop::array::uniform5(share())).prop_map(|(balancer, [a, b, c, d, e])| {
        let mut spec = UpstreamSpec { balancer, spill_below: a, ..UpstreamSpec::default() };
        spec.retry.budget = b;
        spec.load_weights.host_cpu = c;
        spec.load_weights.host_part = d;
        spec.ejection.rate = e;
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn hosts_and_paths(name in text(HOST, 5), prefix in text(PATH, 8), by in hash_by(), percent in share()) {
        let rules = vec![EntryRule { lane: LaneName::base(), headers: vec![], percent, hash_by: by }];
        let mut errors = Vec::new();
        host("host", &name, &mut errors);
        path("path", &prefix, &mut errors);
        entry("entry", &rules, &mut errors);
        if errors.is_empty() {
            prop_assert_eq!(refused(route(&name, &prefix, rules)), Vec::<String>::new());
        }
    }

    #[test]
    fn settings_of_apps(spec in settings()) {
        let mut errors = Vec::new();
        upstream("upstream", &spec, &mut errors);
        if errors.is_empty() {
            let change = Change::PutApp { app: app(), upstream: spec, stopped: false, base_stopped: false, lanes: vec![] };
            prop_assert_eq!(refused(change), Vec::<String>::new());
        }
    }

    #[test]
    fn policies_of_spaces(header in text(HEADERS, 3), cookie in text(HEADERS, 2), query in text(HEADERS, 2)) {
        let policy = LanePolicy { header, cookie, query, ..LanePolicy::default() };
        let mut errors = Vec::new();
        SpaceBody { lanes: policy.clone() }.check(&mut errors);
        if errors.is_empty() {
            let space = SpaceRef::first();
            let change = Change::PutSpace { space, policy, names: vec![], local: vec![] };
            prop_assert_eq!(refused(change), Vec::<String>::new());
        }
    }
}

#[test]
fn what_is_refused_is_said_with_what_would_be_right() {
    let said = |check: &dyn Fn(&mut Vec<super::FieldError>)| {
        let mut errors = Vec::new();
        check(&mut errors);
        errors.into_iter().map(|error| (error.field, error.message)).collect::<Vec<_>>()
    };
    for (wrong, right) in
        [("/%2f", "\"/%2F\""), ("/%2F%41", "\"/%2FA\""), ("/a%2E", "\"/a.\""), ("/%7Euser", "\"/~user\"")]
    {
        let errors = said(&|errors| path("path", wrong, errors));
        assert!(
            matches!(&errors[..], [(field, message)] if field == "path" && message.contains(right)),
            "{errors:?}"
        );
    }
    assert!(said(&|errors| path("path", &"/x".repeat(40), errors))[0].1.contains("32 segments"));
    for name in ["via", "x-forwarded-for", "X-Forwarded-For", "x_forwarded_for", "baggage"] {
        let lanes = LanePolicy { header: name.into(), ..LanePolicy::default() };
        let errors = said(&|errors| SpaceBody { lanes: lanes.clone() }.check(errors));
        assert_eq!(errors.len(), 1, "{name}");
        assert_eq!(errors[0].0, "lanes.header");
    }
    assert_eq!(said(&|errors| host("host", "[::1]", errors)), []);
    assert!(said(&|errors| host("host", "[0:0::1]", errors))[0].1.contains("[::1]"));
    for by in
        [HashBy::Header("bad header".into()), HashBy::Cookie(String::new()), HashBy::Query("a=b".into())]
    {
        let spec = UpstreamSpec { balancer: Balancer::Chash(by), ..UpstreamSpec::default() };
        assert_eq!(said(&|errors| upstream("upstream", &spec, errors)).len(), 1);
    }
    let mut spec = UpstreamSpec::default();
    spec.ejection.window = towpath_types::Millis(0);
    assert_eq!(said(&|errors| upstream("upstream", &spec, errors))[0].0, "upstream.ejection.window");
}
