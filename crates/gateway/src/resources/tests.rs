use super::*;
use crate::plugins::program::Program;
use crate::tls::TicketKeys;
use serde_json::{Value, json};
use towpath_resources::read;

fn none() -> Resources {
    Resources::new(Certificates::new(TicketKeys::random().unwrap()), &DnsSettings::default())
}

fn document(kind: Kind, id: &str, value: Value) -> Document {
    let id = Id::new(kind, id).unwrap();
    read(kind, &id, &value).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn consumer(name: &str, note: &str) -> Document {
    let plugins = json!({"key-auth": {"key": name}, "request-id": {}});
    document(
        Kind::Consumer,
        name,
        json!({"username": name, "plugins": plugins, "labels": {"custom_id": note}}),
    )
}

#[test]
fn a_consumer_that_did_not_change_stays_the_same_object() {
    let mut resources = none();
    resources.change(vec![consumer("jack", "a"), consumer("jill", "a")], &[]);
    let before = resources.plugins.consumers.clone();
    resources.change(vec![consumer("jill", "b")], &[]);
    let after = &resources.plugins.consumers;
    assert!(Arc::ptr_eq(&before.by_name["jack"], &after.by_name["jack"]));
    assert!(Arc::ptr_eq(&after.by_key["jack"].consumer, &after.by_name["jack"]));
    assert_eq!(after.by_name["jill"].custom_id.as_deref(), Some("b"));
}

#[test]
fn global_rules_are_compiled_anew_when_metadata_changes_and_only_then() {
    let mut resources = none();
    let limit = json!({"plugins": {"limit-count": {"count": 1, "time_window": 60}}});
    resources.change(vec![document(Kind::GlobalRule, "g", limit)], &[]);
    let first = resources.plugins.global.clone().unwrap();
    resources.change(vec![consumer("jack", "a")], &[]);
    let second = resources.plugins.global.clone().unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let metadata = document(Kind::PluginMetadata, "limit-count", json!({"limit_header": "X-Limit"}));
    resources.change(vec![metadata], &[]);
    assert!(!Arc::ptr_eq(&second, &resources.plugins.global.clone().unwrap()));
}

#[test]
fn a_global_rule_with_a_dangling_reference_still_protects() {
    let mut resources = none();
    let split = json!({"rules": [{"weighted_upstreams": [{"upstream_id": "gone"}]}]});
    let rule = json!({"plugins": {"key-auth": {}, "traffic-split": split}});
    let outcome = resources.change(vec![document(Kind::GlobalRule, "g", rule)], &[]);
    assert_eq!(outcome.refused.len(), 1);
    let global = resources.plugins.global.clone().unwrap();
    let names: Vec<_> = global.entries.iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["key-auth", "traffic-split"]);
}

#[test]
fn routes_know_the_new_name_of_their_service() {
    let mut resources = none();
    let service = |name: &str| document(Kind::Service, "s", json!({"name": name}));
    let route = document(Kind::Route, "r", json!({"uri": "/", "service_id": "s"}));
    resources.change(vec![service("old"), route], &[]);
    let outcome = resources.change(vec![service("new")], &[]);
    let names: Vec<_> = outcome
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::PutRule(rule) => Program::of(rule.payload.as_ref()?)?.about.service_name.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["new"]);
}
