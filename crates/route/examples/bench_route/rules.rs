//! 100,000 rules, laid out in the ways that are hardest for one part or another of the table.

use super::{Memory, SEC, median, time_requests};
use serde_json::json;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;
use std::time::Instant;
use towpath_route::vars::{Expr, RequestVars};
use towpath_route::{Change, Methods, Networks, RequestView, RuleSpec, Table};
use towpath_types::{AppRef, Place};

const RULES: usize = 100_000;
const CHANGES: usize = 200;

struct Request<'a> {
    path: &'a str,
}

impl RequestView for Request<'_> {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        (name == "x-version" && nth == 0).then_some(b"v2")
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        None
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

/// A layout: its name, the n-th rule (host, path, priority, whether it has conditions), and the path that the n-th request asks for.
struct Layout {
    name: &'static str,
    rule: fn(usize) -> (Option<String>, String, i64, bool),
    path: fn(usize) -> String,
}

const LAYOUTS: [Layout; 7] = [
    Layout {
        name: "many_hosts",
        rule: |n| (Some(format!("h{n}.example.com")), "/api/*".into(), 0, false),
        path: |_| "/api/orders".into(),
    },
    Layout {
        name: "one_host_exact",
        rule: |n| (Some("one.example.com".into()), format!("/p{n}/x"), 0, false),
        path: |n| format!("/p{n}/x"),
    },
    Layout {
        name: "one_host_prefixes",
        rule: |n| (Some("one.example.com".into()), format!("/p{n}/*"), 0, false),
        path: |n| format!("/p{n}/orders/17"),
    },
    Layout {
        name: "one_host_parameters",
        rule: |n| (Some("one.example.com".into()), format!("/p{n}/:id/orders"), 0, false),
        path: |n| format!("/p{n}/17/orders"),
    },
    Layout {
        name: "no_host_prefixes",
        rule: |n| (None, format!("/p{n}/*"), 0, false),
        path: |n| format!("/p{n}/orders/17"),
    },
    Layout {
        name: "one_path_priorities",
        rule: |n| (Some("one.example.com".into()), "/api/*".into(), n as i64, false),
        path: |_| "/api/orders".into(),
    },
    Layout {
        name: "many_hosts_conditions",
        rule: |n| (Some(format!("h{n}.example.com")), "/api/*".into(), 0, true),
        path: |_| "/api/orders".into(),
    },
];

/// Conditions as many rules share them. A regular expression makes its scratch memory when it is first used, which is no cost
/// of each request.
fn conditions() -> Expr {
    static SHARED: LazyLock<Expr> = LazyLock::new(|| {
        let vars =
            json!([["http_x_version", "~~", "^v[0-9]$"], ["remote_addr", "!", "ipmatch", "10.0.0.0/8"]]);
        let expr = Expr::parse(&vars).unwrap();
        assert!(expr.holds(&RequestVars(&Request { path: "/" })));
        expr
    });
    SHARED.clone()
}

fn rule(layout: &Layout, n: usize) -> Box<RuleSpec> {
    let (host, path, priority, conditional) = (layout.rule)(n);
    let mut spec = RuleSpec::new(format!("r{n}"), &[&path], AppRef::of_upstream(&format!("u{}", n % 1000)));
    spec.hosts.extend(host);
    spec.priority = priority;
    if conditional {
        spec.methods = Some(Methods::parse(&["GET", "HEAD"]).unwrap());
        spec.remote = Some(Networks::parse(&["127.0.0.0/8", "10.0.0.0/8"]).unwrap());
        spec.vars = Some(conditions());
    }
    Box::new(spec)
}

fn resident_mb() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0 / 1e6
}

/// Milliseconds of a change of one rule, median and worst: changed, taken away, put again.
fn time_changes(layout: &Layout, table: &Table) -> (f64, f64) {
    let (mut table, mut times) = (table.clone(), Vec::new());
    for at in 0..CHANGES {
        let n = at * 499;
        let change = match at % 3 {
            0 => {
                let mut spec = rule(layout, n);
                spec.websocket = true;
                Change::PutRule(spec)
            }
            1 => Change::DeleteRule(format!("r{n}")),
            _ => {
                let mut spec = rule(layout, n);
                spec.id = format!("new{n}");
                Change::PutRule(spec)
            }
        };
        let started = Instant::now();
        let (next, refused) = table.apply(std::slice::from_ref(&change), 2 * SEC);
        assert!(refused.is_empty(), "{refused:?}");
        table = next;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let worst = times.iter().copied().fold(0.0, f64::max);
    (median(times), worst)
}

/// Prints the figures of all layouts; the slowest change (median) in milliseconds, and allocations of a look-up.
pub(crate) fn run(memory: &mut Memory) -> (f64, f64) {
    let (mut slowest, mut most) = (0.0_f64, 0.0_f64);
    for layout in &LAYOUTS {
        let changes: Vec<_> = (0..RULES).map(|n| Change::PutRule(rule(layout, n))).collect();
        let (before, started) = (resident_mb(), Instant::now());
        let (table, refused) = Table::new(Place::default()).apply(&changes, SEC);
        let (load, mb) = (started.elapsed().as_secs_f64() * 1e3, resident_mb() - before);
        assert!(refused.is_empty() && table.counts().rules == RULES);
        drop(changes);
        let (middle, worst) = time_changes(layout, &table);
        let mut rng = fastrand::Rng::with_seed(3);
        let asked: Vec<_> = (0..super::REQUESTS)
            .map(|_| {
                let n = rng.usize(..RULES);
                ((layout.rule)(n).0.unwrap_or_else(|| format!("any{n}.example.com")), (layout.path)(n))
            })
            .collect();
        let (find, allocations) = time_requests(memory, |n| {
            let (host, path) = &asked[n];
            let found = table.find_for(host.as_bytes(), path.as_bytes(), &Request { path });
            black_box(found.unwrap().rule().unwrap());
        });
        let name = layout.name;
        println!(
            "rules_{name}: match_ns={find:.0} apply_ms={middle:.3} worst_ms={worst:.3} load_ms={load:.0} resident_mb={mb:.0}"
        );
        (slowest, most) = (slowest.max(middle), most.max(allocations));
    }
    (slowest, most)
}
