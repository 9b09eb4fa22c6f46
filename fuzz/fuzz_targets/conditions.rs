//! Conditions, paths and hosts of rules as people write them, and requests against them: reading ends in a rule or in faults,
//! and a rule that matches gives its parameters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr};
use towpath_route::vars::{Expr, RequestVars, Template};
use towpath_route::{Change, Networks, RequestView, RuleSpec, Table, check};
use towpath_types::{AppRef, Place};

struct Request<'a> {
    header: &'a [u8],
    path: &'a str,
}

impl RequestView for Request<'_> {
    fn header(&self, _: &str, nth: usize) -> Option<&[u8]> {
        (nth == 0).then_some(self.header)
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        self.path.split_once('?').map(|(_, query)| query)
    }
    fn client(&self) -> Option<IpAddr> {
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
    fn inside(&self) -> bool {
        false
    }
    fn method(&self) -> &str {
        "GET"
    }
}

fuzz_target!(|input: (&str, &str, &str, &str, &[u8])| {
    let (json, host, pattern, path, header) = input;
    let request = Request { header, path };
    let mut rule = RuleSpec::new("1", &[pattern, "/a/*"], AppRef::of_upstream("1"));
    if !host.is_empty() {
        rule.hosts.push(host.into());
    }
    if let Ok(value) = serde_json::from_str(json) {
        match Expr::parse(&value) {
            Ok(expr) => {
                let _ = expr.holds(&RequestVars(&request));
                rule.vars = Some(expr);
            }
            Err(faults) => assert!(!faults.is_empty()),
        }
    }
    let _ = Networks::parse(&[host, json]);
    Template::new(json).fill(&RequestVars(&request), |_| ());
    let wrong = check::rule(&rule);
    let (table, refused) = Table::new(Place::default()).apply(&[Change::PutRule(Box::new(rule))], 0);
    assert_eq!(wrong.is_empty(), refused.is_empty());
    if let Some(matched) = table.find_for(host.as_bytes(), path.as_bytes(), &request) {
        for name in matched.params() {
            assert!(matched.param(name, path.as_bytes()).is_some());
        }
    }
    assert!(
        table.apply(&[Change::DeleteRule("1".into())], 0).0.find(host.as_bytes(), path.as_bytes()).is_none()
    );
});
