use super::*;
use crate::certificate::tests::pair;
use crate::{Target, read};
use serde_json::{Value, json};

fn document(kind: Kind, id: &str, value: Value) -> Document {
    let id = Id::new(kind, id).unwrap();
    read(kind, &id, &value).unwrap_or_else(|faults| {
        panic!("{}", faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"))
    })
}

fn key(kind: Kind, id: &str) -> Key {
    Key::new(kind, Id::new(kind, id).unwrap())
}

fn route(id: &str, more: Value) -> Document {
    let mut value = json!({"uri": format!("/{id}")});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document(Kind::Route, id, value)
}

fn upstream(nodes: Value) -> Document {
    document(Kind::Upstream, "u", json!({"nodes": nodes}))
}

#[test]
fn changing_one_of_many_routes_resolves_one() {
    let mut set = Set::new();
    let mut puts = vec![upstream(json!({"127.0.0.1:1": 1}))];
    let model = route("r", json!({"upstream_id": "u"}));
    puts.extend((0..100_000).map(|n| Document { key: key(Kind::Route, &format!("r{n}")), ..model.clone() }));
    let changed = set.change(puts, &[]);
    assert_eq!(changed.routes.len(), 100_000);
    let before = set.resolutions();
    let changed = set.change(vec![route("r77", json!({"upstream_id": "u", "priority": 3}))], &[]);
    assert_eq!((set.resolutions() - before, changed.routes.len()), (1, 1));
    // New nodes are no matter of the routes that lead to them.
    let changed = set.change(vec![upstream(json!({"127.0.0.1:1": 1, "127.0.0.2:1": 1}))], &[]);
    assert_eq!((set.resolutions() - before, changed.routes.len(), changed.upstreams.len()), (2, 0, 1));
}

#[test]
fn what_stays_equal_changes_nothing() {
    let mut set = Set::new();
    set.change(vec![upstream(json!({"a.test:80": 1})), route("r", json!({"upstream_id": "u"}))], &[]);
    let changed =
        set.change(vec![upstream(json!({"a.test:80": 1})), route("r", json!({"upstream_id": "u"}))], &[]);
    assert!(changed.routes.is_empty() && changed.upstreams.is_empty());
}

#[test]
fn a_route_waits_for_what_it_refers_to() {
    let mut set = Set::new();
    let changed = set.change(vec![route("r", json!({"service_id": "s"}))], &[]);
    assert_eq!(changed.refused.len(), 1);
    assert_eq!(changed.refused[0].faults[0].to_string(), "service_id: there is no service \"s\"");
    let service = document(Kind::Service, "s", json!({"upstream_id": "u", "hosts": ["a.test"]}));
    let changed = set.change(vec![upstream(json!({"a.test:80": 1})), service], &[]);
    assert_eq!(changed.routes.len(), 1);
    assert_eq!(changed.routes[0].hosts[0].as_str(), "a.test");
    assert_eq!(changed.routes[0].target, Target::Upstream(UpstreamKey::by_id(&key(Kind::Upstream, "u").id)));
    assert_eq!(set.refused().count(), 0);
    let changed = set.change(Vec::new(), &[key(Kind::Service, "s")]);
    assert_eq!(changed.routes_gone.len(), 1);
    assert_eq!(set.refused().count(), 1);
}

#[test]
fn an_upstream_that_becomes_an_app_is_seen_by_its_routes() {
    let mut set = Set::new();
    let service = document(Kind::Service, "s", json!({"upstream_id": "u"}));
    set.change(vec![upstream(json!({"a.test:80": 1})), service, route("r", json!({"service_id": "s"}))], &[]);
    let app = document(Kind::Upstream, "u", json!({"app": "shop", "lane": "blue"}));
    let changed = set.change(vec![app], &[]);
    let Target::App { app, lane, .. } = &changed.routes[0].target else { panic!("{:?}", changed.routes) };
    assert_eq!((app.to_string().as_str(), lane.as_ref().unwrap().as_str()), ("default/default/shop", "blue"));
}

#[test]
fn plugins_merge_route_over_plugin_configuration_over_service() {
    let count = |count: u32| json!({"count": count, "time_window": 1});
    let service = document(
        Kind::Service,
        "s",
        json!({
            "upstream": {"nodes": {"a.test:80": 1}},
            "plugins": {"limit-count": count(1), "request-id": {"header_name": "of-service"}, "ip-restriction": {"whitelist": ["10.0.0.0/8"]}},
        }),
    );
    let shared = document(
        Kind::PluginConfig,
        "p",
        json!({"plugins": {"limit-count": count(2), "request-id": {"header_name": "of-config"}}}),
    );
    let mut set = Set::new();
    let changed = set.change(
        vec![
            service,
            shared,
            route(
                "r",
                json!({"service_id": "s", "plugin_config_id": "p", "plugins": {"limit-count": count(3)}}),
            ),
        ],
        &[],
    );
    let from: Vec<_> =
        changed.routes[0].plugins.iter().map(|plugin| (plugin.name, plugin.from.to_string())).collect();
    assert_eq!(
        from,
        [
            ("request-id", "plugin_configs/p".to_owned()),
            ("ip-restriction", "services/s".to_owned()),
            ("limit-count", "routes/r".to_owned()),
        ]
    );
}

#[test]
fn a_consumer_has_its_groups_plugins_and_its_credentials() {
    let consumer = document(
        Kind::Consumer,
        "jack",
        json!({
            "username": "jack", "group_id": "g",
            "plugins": {"key-auth": {"key": "one"}, "limit-count": {"count": 9, "time_window": 1}},
        }),
    );
    let group = document(
        Kind::ConsumerGroup,
        "g",
        json!({"plugins": {
            "limit-count": {"count": 1, "time_window": 1}, "request-id": {},
        }}),
    );
    let credential = document(
        Kind::Credential,
        "jack/credentials/second",
        json!({"plugins": {"key-auth": {"key": "two"}}}),
    );
    let mut set = Set::new();
    set.change(vec![consumer, group], &[]);
    let changed = set.change(vec![credential], &[]);
    let jack = &changed.consumers[0];
    assert_eq!(jack.credentials.len(), 2);
    assert_eq!(jack.credentials[1].0.as_ref().unwrap().as_str(), "jack/credentials/second");
    let from: Vec<_> = jack.plugins.iter().map(|plugin| (plugin.name, plugin.from.kind)).collect();
    assert_eq!(from, [("request-id", Kind::ConsumerGroup), ("limit-count", Kind::Consumer)]);
    let changed = set.change(Vec::new(), &[key(Kind::Credential, "jack/credentials/second")]);
    assert_eq!(changed.consumers[0].credentials.len(), 1);
}

#[test]
fn a_route_that_is_switched_off_is_gone_and_comes_back() {
    let mut set = Set::new();
    let inline = json!({"upstream": {"nodes": {"a.test:80": 1}}});
    let changed = set.change(vec![route("r", inline.clone())], &[]);
    assert_eq!(changed.upstreams[0].key.as_str(), "routes/r");
    let mut off = inline.clone();
    off["status"] = json!(0);
    let changed = set.change(vec![route("r", off)], &[]);
    assert_eq!(changed.routes_gone.len(), 1);
    assert_eq!(set.change(vec![route("r", inline)], &[]).routes.len(), 1);
    let changed = set.change(Vec::new(), &[key(Kind::Route, "r")]);
    assert_eq!((changed.routes_gone.len(), changed.upstreams_gone.len()), (1, 1));
}

#[test]
fn a_changed_certificate_reaches_the_upstream_that_shows_it() {
    let (first, second) = (pair("a.test"), pair("b.test"));
    let ssl = |(cert, key): &(String, String)| {
        document(Kind::Ssl, "c", json!({"type": "client", "cert": cert, "key": key}))
    };
    let shows = document(
        Kind::Upstream,
        "u",
        json!({"nodes": {"a.test:443": 1}, "scheme": "https", "tls": {"client_cert_id": "c"}}),
    );
    let mut set = Set::new();
    assert_eq!(set.change(vec![shows], &[]).refused.len(), 1);
    assert_eq!(set.change(vec![ssl(&first)], &[]).upstreams.len(), 1);
    let changed = set.change(vec![ssl(&second)], &[]);
    assert_eq!(changed.upstreams[0].client_certificate.as_ref().unwrap().0, second.0);
}

#[test]
fn a_global_rule_stays_whatever_it_refers_to() {
    let mut set = Set::new();
    let plugins = json!({"plugins": {"key-auth": {}, "traffic-split": {"rules": [{"weighted_upstreams": [{"upstream_id": "u"}]}]}}});
    let changed = set.change(vec![document(Kind::GlobalRule, "g", plugins)], &[]);
    assert_eq!(changed.refused.len(), 1);
    let names: Vec<_> = changed.rules.unwrap()[0].plugins.iter().map(|plugin| plugin.name).collect();
    assert_eq!(names, ["key-auth", "traffic-split"]);
    set.change(vec![upstream(json!({"a.test:80": 1}))], &[]);
    let changed = set.change(Vec::new(), &[key(Kind::Upstream, "u")]);
    assert_eq!(changed.rules.unwrap()[0].plugins.len(), 2, "nor when what it refers to is deleted");
}

#[test]
fn a_lane_in_an_upstream_of_traffic_split_is_refused() {
    let mut set = Set::new();
    let split =
        json!({"plugins": {"traffic-split": {"rules": [{"weighted_upstreams": [{"upstream_id": "u"}]}]}}});
    let lane = document(Kind::Upstream, "u", json!({"app": "shop", "lane": "blue"}));
    let changed = set.change(vec![lane, route("r", split)], &[]);
    assert!(changed.refused[0].faults[0].to_string().starts_with("plugins.traffic-split: "), "{changed:?}");
}

#[test]
fn a_stream_route_is_refused_for_what_its_upstream_or_service_cannot_do_and_listeners_are_told() {
    let mut set = Set::new();
    let stream = |id: &str, fields: Value| document(Kind::StreamRoute, id, fields);
    let puts = vec![
        document(Kind::Upstream, "u", json!({"scheme": "grpc", "nodes": {"127.0.0.1:1": 1}})),
        document(Kind::Upstream, "t", json!({"scheme": "tcp", "nodes": {"127.0.0.1:1": 1}})),
        document(Kind::Service, "s", json!({"upstream_id": "t", "plugins": {"cors": {}}})),
        document(
            Kind::Service,
            "good",
            json!({"upstream_id": "t", "plugins": {"ip-restriction": {"blacklist": ["10.0.0.1"]}}}),
        ),
        stream("by-upstream", json!({"upstream_id": "u"})),
        stream("by-service", json!({"service_id": "s"})),
        stream("good", json!({"service_id": "good"})),
        route("r", json!({"upstream_id": "t"})),
        document(Kind::Listener, "l", json!({"listen": "127.0.0.1:1", "protocol": "tcp"})),
    ];
    let changed = set.change(puts, &[]);
    let refused: Vec<_> =
        changed.refused.iter().map(|one| (one.key.to_string(), one.faults[0].to_string())).collect();
    assert_eq!(
        refused,
        [
            ("routes/r".to_owned(), "upstream_id: names upstream \"t\", whose scheme is for stream routes: in a route give http, https, grpc or grpcs".to_owned()),
            ("stream_routes/by-service".to_owned(), "service_id: names a service whose plugins.cors works on HTTP requests, not in a stream route: that takes ip-restriction and limit-conn".to_owned()),
            ("stream_routes/by-upstream".to_owned(), "upstream_id: names upstream \"u\", whose scheme is for routes: in a stream route give tcp, tls or udp".to_owned()),
        ]
    );
    assert_eq!((changed.streams.len(), changed.streams[0].plugins.len(), changed.listeners.len()), (1, 1, 1));
    assert_eq!(set.change(Vec::new(), &[key(Kind::Listener, "l")]).listeners_gone.len(), 1);
}
