//! A configuration as people have it, of more than a hundred routes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use towpath_resources::{Format, Kind, Set, read_file};

const SHOP: &str = include_str!("fixtures/apisix.yaml");

#[test]
fn the_configuration_of_a_shop_is_taken_as_it_is() {
    let documents = read_file(SHOP, Format::Yaml, &|_| None).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(|fault| format!("{fault}\n")).collect::<String>())
    });
    let count = |kind: Kind| documents.iter().filter(|document| document.key.kind == kind).count();
    assert_eq!((count(Kind::Route), count(Kind::Service), count(Kind::Upstream)), (110, 12, 14));
    let mut set = Set::new();
    let changed = set.change(documents, &[]);
    // Two exports are switched off.
    assert_eq!((changed.routes.len(), changed.upstreams.len(), changed.refused.len()), (108, 17, 0));
    let admin = changed.routes.iter().find(|route| route.id.as_str() == "catalog-8").unwrap();
    let plugins: Vec<_> = admin.plugins.iter().map(|plugin| plugin.name).collect();
    assert_eq!(plugins, ["ip-restriction", "key-auth", "limit-count"]);
    let acme = changed.consumers.iter().find(|consumer| consumer.name.as_str() == "acme").unwrap();
    assert_eq!((acme.credentials.len(), acme.plugins.len()), (2, 1));
}
