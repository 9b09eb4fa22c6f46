use proptest::prelude::*;
use std::net::IpAddr;
use towpath_route::{Change, Draw, RequestView, Table, Tag, TriedSet};
use towpath_types::lane::{EntryRule, HashBy, LanePolicy};
use towpath_types::spec::RouteSpec;
use towpath_types::{LaneName, Place, SpaceRef};

/// The same bytes in every header.
struct Foreign<'a> {
    bytes: &'a [u8],
    text: &'a str,
}

impl RequestView for Foreign<'_> {
    fn header(&self, _: &str, nth: usize) -> Option<&[u8]> {
        (nth < 3).then_some(self.bytes)
    }
    fn path(&self) -> &str {
        self.text
    }
    fn query(&self) -> Option<&str> {
        Some(self.text)
    }
    fn client(&self) -> Option<IpAddr> {
        None
    }
    fn inside(&self) -> bool {
        true
    }
}

fn table() -> Table {
    let rule = |hash_by| EntryRule {
        lane: LaneName::new("new").unwrap(),
        headers: Vec::new(),
        percent: 50.0,
        hash_by,
    };
    let route = |host: &str, path: &str| {
        Change::PutRoute(RouteSpec {
            host: host.into(),
            path: path.into(),
            app: crate::support::app(),
            strip_path: true,
            entry: vec![rule(HashBy::Cookie("a".into())), rule(HashBy::Query("a".into())), rule(HashBy::Uri)],
            automatic: false,
        })
    };
    let space = Change::PutSpace {
        space: SpaceRef::first(),
        policy: LanePolicy::default(),
        names: vec![LaneName::new("new").unwrap()],
        local: Vec::new(),
    };
    let changes = [space, route("*.a", "/"), route("b.a", "/b"), route("b.a", "/b/c"), route("[::1]", "/")];
    Table::new(Place::default()).apply(&changes, 0).0
}

/// Bytes that look a little like what is parsed.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"towpath_lane=".to_vec()),
        Just(b"towpath.lane=".to_vec()),
        Just(b"--".to_vec()),
        Just(b"b.a".to_vec()),
        Just(b"/../".to_vec()),
        Just(b"%2e".to_vec()),
        Just(b"[::".to_vec()),
        prop::collection::vec(any::<u8>(), 0..4),
        prop::collection::vec(prop::sample::select(b"ab/.:;,=%-&?# \"".to_vec()), 0..6),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn foreign_bytes_never_panic_and_lanes_are_always_known_ones(host in bytes(), path in bytes(), header in bytes()) {
        let table = table();
        let text = String::from_utf8_lossy(&path);
        let request = Foreign { bytes: &header, text: &text };
        let hosts: [&[u8]; 3] = [&host, b"x.a", b"b.a"];
        for host in hosts {
            let Some(matched) = table.find(host, text.as_bytes()) else { continue };
            let lane = table.lane(&matched, &request).unwrap();
            prop_assert!(["base", "new"].contains(&lane.lane.as_str()));
            let stripped = matched.stripped(&text);
            prop_assert!(stripped.starts_with('/') || matched.route().spec.path == "/");
            let draw = Draw { now: 0, rnd: 0, key: matched.affinity(&request) };
            prop_assert!(table.pick(&matched, &lane, draw, &TriedSet::default()).is_err());
        }
        prop_assert!(Tag::read(&header).is_none_or(|tag| LaneName::new(tag.as_str()).is_ok()));
    }

    /// However a path is written, the route is that of the place it leads to: writing it in the one form changes nothing.
    #[test]
    fn no_spelling_of_a_path_slips_past_a_longer_prefix(path in "(/|//|/\\./|/x/\\.\\./)(b|%62)(/|//|/%2e/)?(c|%63|d)?(/.{0,3})?") {
        prop_assume!(!path.contains(['?', '#']));
        let table = table();
        let decoded = path.replace("%62", "b").replace("%63", "c").replace("%2e", ".");
        let mut parts: Vec<&str> = Vec::new();
        for part in decoded.split('/') {
            match part {
                "" | "." => {}
                ".." => _ = parts.pop(),
                part => parts.push(part),
            }
        }
        let want = match parts.as_slice() {
            ["b", "c", ..] => "b.a/b/c",
            ["b", ..] => "b.a/b",
            _ => "*.a/",
        };
        let matched = table.find(b"b.a", path.as_bytes()).map(|matched| matched.route().key.clone());
        prop_assert_eq!(matched.as_deref(), Some(want));
    }
}
