use super::routes::{Asking, Stream, Streams};
use crate::plugins::program::Plugins;
use serde_json::{Value, json};
use std::sync::Arc;
use towpath_resources::{Id, Kind, Set, read};

/// These stream routes, each leading to a node of its own.
fn streams(routes: &[(&str, Value)]) -> Streams {
    let documents = routes.iter().map(|(id, fields)| {
        let mut value = json!({"upstream": {"nodes": {"127.0.0.1:1": 1}}});
        value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        read(Kind::StreamRoute, &Id::new(Kind::StreamRoute, id).unwrap(), &value).unwrap()
    });
    let changed = Set::new().change(documents.collect(), &[]);
    let plugins = Plugins::default();
    Streams::new(changed.streams.iter().map(|stream| Arc::new(Stream::compile(stream, &plugins).unwrap())))
}

fn found(streams: &Streams, local: &str, peer: &str, sni: Option<&str>) -> Option<String> {
    let asking = Asking { local: local.parse().unwrap(), peer: peer.parse().unwrap(), sni };
    streams.find(&asking).map(|stream| stream.id.clone())
}

#[test]
fn name_then_port_then_networks_then_id_decide() {
    let streams = streams(&[
        ("any", json!({})),
        ("port", json!({"server_port": 5432})),
        ("port-near", json!({"server_port": 5432, "remote_addr": "10.0.0.0/8"})),
        ("port-nearer", json!({"server_port": 5432, "remote_addr": "10.1.0.0/16"})),
        ("port-server", json!({"server_port": 5432, "server_addr": "192.168.0.1"})),
        ("name", json!({"sni": "a.test.com"})),
        ("name-port", json!({"sni": "a.test.com", "server_port": 8443})),
        ("below", json!({"sni": "*.test.com"})),
        ("below-longer", json!({"sni": "*.b.test.com"})),
        ("z-twin", json!({"sni": "*.b.test.com"})),
        ("mapped", json!({"server_port": 7, "remote_addr": "10.0.0.1"})),
    ]);
    let find = |local, peer, sni| found(&streams, local, peer, sni).unwrap();
    for (local, peer, sni, expected) in [
        ("127.0.0.1:1", "127.0.0.1:9", None, "any"),
        ("127.0.0.1:5432", "127.0.0.1:9", None, "port"),
        ("127.0.0.1:5432", "10.2.0.1:9", None, "port-near"),
        ("127.0.0.1:5432", "10.1.0.1:9", None, "port-nearer"),
        ("192.168.0.1:5432", "10.1.0.1:9", None, "port-server"),
        ("127.0.0.1:5432", "127.0.0.1:9", Some("a.test.com"), "name"),
        ("127.0.0.1:8443", "127.0.0.1:9", Some("a.test.com"), "name-port"),
        ("127.0.0.1:8443", "127.0.0.1:9", Some("c.test.com"), "below"),
        ("127.0.0.1:8443", "127.0.0.1:9", Some("x.b.test.com"), "below-longer"),
        ("127.0.0.1:8443", "127.0.0.1:9", Some("x.y.test.com"), "below"),
        ("127.0.0.1:8443", "127.0.0.1:9", Some("test.com"), "any"),
        ("[::1]:7", "[::ffff:10.0.0.1]:9", None, "mapped"),
    ] {
        assert_eq!(find(local, peer, sni), expected, "{local} {peer} {sni:?}");
    }
}

#[test]
fn what_no_route_takes_is_not_taken() {
    let streams = streams(&[("1", json!({"server_port": 1})), ("2", json!({"sni": "a.test"}))]);
    assert_eq!(found(&streams, "127.0.0.1:2", "127.0.0.1:9", None), None);
    assert_eq!(found(&streams, "127.0.0.1:2", "127.0.0.1:9", Some("b.test")), None);
    assert_eq!(found(&Streams::default(), "127.0.0.1:2", "127.0.0.1:9", Some("")), None);
}
