//! Rules and routes against a naive matcher: all candidates in a list, sorted, and the first that holds.

use proptest::prelude::*;
use regex::Regex;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::LazyLock;
use towpath_route::vars::{Expr, RequestVars};
use towpath_route::{Change, Methods, Networks, RequestView, RuleSpec, Table, route_key};
use towpath_types::spec::RouteSpec;
use towpath_types::{AppName, AppRef, Place, SpaceRef};

struct Request {
    host: &'static str,
    path: &'static str,
    query: Option<&'static str>,
    header: Option<&'static str>,
    method: &'static str,
    client: IpAddr,
}

impl RequestView for Request {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        self.header.filter(|_| name == "x" && nth == 0).map(str::as_bytes)
    }
    fn path(&self) -> &str {
        self.path
    }
    fn query(&self) -> Option<&str> {
        self.query
    }
    fn client(&self) -> Option<IpAddr> {
        Some(self.client)
    }
    fn inside(&self) -> bool {
        false
    }
    fn method(&self) -> &str {
        self.method
    }
}

fn one<T: Copy>(rng: &mut fastrand::Rng, list: &[T]) -> T {
    list[rng.usize(..list.len())]
}

const RULE_HOSTS: [&str; 6] = ["a.test", "A.test", "*.test", "b.a.test", "*.a.test", "new--a.test"];
const RULE_PATHS: [&str; 24] = [
    "/",
    "/*",
    "*",
    "/a",
    "/a*",
    "/a/*",
    "/a/b",
    "/a/b*",
    "/ab*",
    "/a/b/c",
    "/a/:x",
    "/a/:x/c",
    "/a/*r",
    "/a/*r/c",
    "/:x",
    "/:x/b",
    "/a/:x/*",
    "/a b",
    "/A",
    "/a%2Fb",
    "/a/",
    "/a/b/:y",
    "/a/:z",
    "/:a/:b/:c",
];
const ROUTE_HOSTS: [&str; 4] = ["a.test", "*.test", "b.a.test", "c.test"];
const ROUTE_PATHS: [&str; 5] = ["/", "/a", "/a/b", "/ab", "/a/b/c"];
const HOSTS: [&str; 9] =
    ["a.test", "A.TEST:80", "b.a.test", "c.b.a.test", "new--a.test", "c.test", "test", "other", "no host"];
/// As sent, and as matched.
const PATHS: [(&str, &str); 17] = [
    ("/", "/"),
    ("/a", "/a"),
    ("/a/", "/a/"),
    ("/a/b", "/a/b"),
    ("/a/b/", "/a/b/"),
    ("/a/b/c", "/a/b/c"),
    ("/a/x/c", "/a/x/c"),
    ("/a/x/y/c", "/a/x/y/c"),
    ("/ab", "/ab"),
    ("/abc/d", "/abc/d"),
    ("/x/b", "/x/b"),
    ("/a%20b", "/a b"),
    ("/%61//b", "/a/b"),
    ("/a/./b/../x?q", "/a/x"),
    ("/a%2fb", "/a%2Fb"),
    ("/A", "/A"),
    ("*", "/"),
];

fn app(rng: &mut fastrand::Rng) -> AppRef {
    match rng.u8(..3) {
        0 => AppRef::of_upstream("1"),
        n => AppRef::new(&SpaceRef::first(), AppName::new(&format!("app{n}")).unwrap()),
    }
}

fn rule(rng: &mut fastrand::Rng) -> RuleSpec {
    let some = |rng: &mut fastrand::Rng, list: &[&str], most: usize| -> Vec<String> {
        (0..rng.usize(..=most)).map(|_| one(rng, list).to_owned()).collect()
    };
    let mut spec = RuleSpec::new(format!("r{}", rng.u8(..14)), &[], app(rng));
    spec.hosts = some(rng, &RULE_HOSTS, 2);
    spec.paths = some(rng, &RULE_PATHS, 2);
    spec.paths.push(one(rng, &RULE_PATHS).to_owned());
    spec.priority = one(rng, &[0, 0, 0, 1, -1, 5]);
    if rng.u8(..4) == 0 {
        spec.methods = Some(Methods::parse(&[one(rng, &["GET", "POST"])]).unwrap());
    }
    if rng.u8(..5) == 0 {
        spec.remote = Some(Networks::parse(&["10.0.0.0/8"]).unwrap());
    }
    if rng.u8(..3) == 0 {
        let all = [
            json!([["arg_v", "==", "1"]]),
            json!([["http_x", "~~", "^y"]]),
            json!([["uri", "==", "/a/b"]]),
            json!(["OR", ["arg_v", "==", null], ["http_x", "in", ["y", "z"]]]),
        ];
        spec.vars = Some(Expr::parse(&all[rng.usize(..all.len())]).unwrap());
    }
    spec
}

fn route(rng: &mut fastrand::Rng) -> RouteSpec {
    RouteSpec {
        host: one(rng, &ROUTE_HOSTS).into(),
        path: one(rng, &ROUTE_PATHS).into(),
        app: AppRef::new(&SpaceRef::first(), AppName::new("own").unwrap()),
        strip_path: false,
        entry: Vec::new(),
        automatic: false,
    }
}

fn request(rng: &mut fastrand::Rng) -> (Request, &'static str) {
    let (path, matched) = one(rng, &PATHS);
    let request = Request {
        host: one(rng, &HOSTS),
        path,
        query: one(rng, &[None, Some("v=1"), Some("v=%32")]),
        header: one(rng, &[None, Some("y"), Some("z")]),
        method: one(rng, &["GET", "POST", "PURGE", "get"]),
        client: one(rng, &["10.0.0.1", "11.0.0.1"]).parse().unwrap(),
    };
    (request, matched)
}

#[derive(Default)]
struct World {
    rules: BTreeMap<String, RuleSpec>,
    routes: BTreeMap<String, RouteSpec>,
}

/// A path of a rule as a regular expression, and what comes before its first star or parameter.
fn read(pattern: &str) -> &'static (Regex, Option<String>) {
    static ALL: LazyLock<BTreeMap<&str, (Regex, Option<String>)>> =
        LazyLock::new(|| RULE_PATHS.iter().chain(&ROUTE_PATHS).map(|path| (*path, compile(path))).collect());
    &ALL[pattern]
}

fn compile(pattern: &str) -> (Regex, Option<String>) {
    let pattern = if pattern == "*" { "/*" } else { pattern };
    let mut text = String::new();
    let mut literal: Option<String> = None;
    for (at, segment) in pattern.split('/').enumerate() {
        let before = pattern.split('/').take(at).collect::<Vec<_>>().join("/") + "/";
        if at > 0 {
            text.push('/');
        }
        if segment.starts_with(':') {
            text.push_str("([^/]+)");
            literal.get_or_insert(before);
        } else if segment.starts_with('*') {
            text.push_str("(.*)");
            literal.get_or_insert(before);
        } else if let Some(begin) = segment.strip_suffix('*') {
            text.push_str(&format!("{}(?:.*)", regex::escape(begin)));
            literal.get_or_insert(before + begin);
        } else {
            text.push_str(&regex::escape(segment));
        }
    }
    (Regex::new(&format!("^(?s:{text})$")).unwrap(), literal)
}

impl World {
    fn apply(&mut self, change: &Change) {
        match change.clone() {
            Change::PutRule(spec) => _ = self.rules.insert(spec.id.clone(), *spec),
            Change::DeleteRule(id) => _ = self.rules.remove(&id),
            Change::PutRoute(spec) => _ = self.routes.insert(route_key(&spec.host, &spec.path), spec),
            Change::DeleteRoute(key) => _ = self.routes.remove(&key),
            other => panic!("{other:?}"),
        }
    }

    fn holds(spec: &RuleSpec, request: &Request, path: &str) -> bool {
        // the path that conditions see is the one that is matched
        let uri = spec.vars.as_ref().is_some_and(|vars| vars.source()[0][0] == "uri");
        spec.methods.is_none_or(|methods| methods.contains(request.method))
            && spec.remote.as_ref().is_none_or(|networks| networks.contains(request.client))
            && spec
                .vars
                .as_ref()
                .is_none_or(|vars| if uri { path == "/a/b" } else { vars.holds(&RequestVars(request)) })
    }

    /// What serves on exactly one host (`None`: the rules without one), with the path as written.
    fn on(&self, host: Option<&str>, request: &Request, path: &str) -> Option<(String, String, AppRef)> {
        let mut all = Vec::new();
        for spec in self.rules.values() {
            let here = match host {
                None => spec.hosts.is_empty(),
                Some(host) => spec.hosts.iter().any(|other| other.to_lowercase() == host),
            };
            for pattern in spec.paths.iter().filter(|_| here) {
                let (regex, literal) = read(pattern);
                if regex.is_match(path) && Self::holds(spec, request, path) {
                    let len = literal.as_ref().map_or(usize::MAX, String::len);
                    let key = (
                        usize::MAX - len,
                        -spec.priority,
                        false,
                        usize::MAX - pattern.len(),
                        spec.id.clone(),
                    );
                    all.push((key, (spec.id.clone(), pattern.clone(), spec.target.clone())));
                }
            }
        }
        for route in self.routes.values().filter(|route| Some(route.host.as_str()) == host) {
            let below = if route.path == "/" { "/".to_owned() } else { format!("{}/", route.path) };
            // an escaped slash is none, and a blank is in no route
            let len = if path == route.path {
                usize::MAX
            } else if path.starts_with(&below) {
                below.len()
            } else {
                continue;
            };
            let key = (usize::MAX - len, 0, true, usize::MAX - route.path.len(), String::new());
            all.push((key, (route_key(&route.host, &route.path), route.path.clone(), route.app.clone())));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all.into_iter().next().map(|(_, found)| found)
    }

    fn find(&self, request: &Request, path: &str) -> Option<(String, String, AppRef)> {
        let host = request.host.split(':').next().unwrap().to_lowercase();
        let on = |host: &str| self.on(Some(host), request, path);
        let bare =
            || host.strip_prefix("new--").and_then(on).filter(|(_, _, app)| app.upstream_id().is_none());
        let above = || host.split_once('.').and_then(|(_, above)| on(&format!("*.{above}")));
        on(&host).or_else(bare).or_else(above).or_else(|| self.on(None, request, path))
    }

    fn all(&self) -> Vec<Change> {
        let rules = self.rules.values().map(|spec| Change::PutRule(Box::new(spec.clone())));
        rules.chain(self.routes.values().cloned().map(Change::PutRoute)).collect()
    }
}

fn found(table: &Table, request: &Request) -> Option<(String, String, AppRef)> {
    let matched = table.find_for(request.host.as_bytes(), request.path.as_bytes(), request)?;
    assert_eq!(matched.rule().map(|rule| &rule.spec.id), matched.rule().map(|_| &matched.route().key));
    Some((matched.route().key.clone(), matched.path().to_owned(), matched.app().clone()))
}

fn check_params(table: &Table, request: &Request, path: &str) {
    let Some(matched) = table.find_for(request.host.as_bytes(), request.path.as_bytes(), request) else {
        return;
    };
    let (regex, _) = read(matched.path());
    let Some(captures) = regex.captures(path).filter(|_| matched.rule().is_some()) else { return };
    let want: Vec<&str> = captures.iter().skip(1).flatten().map(|group| group.as_str()).collect();
    let got: Vec<_> =
        matched.params().map(|name| matched.param(name, request.path.as_bytes()).unwrap()).collect();
    let got: Vec<&str> = got.iter().map(|value| std::str::from_utf8(value).unwrap()).collect();
    // a star inside a segment has a value too, which the naive one does not name
    assert!(got == want || (want.is_empty() && got.len() == 1), "{} {path}: {got:?}", matched.path());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn rules_and_routes_serve_as_a_sorted_list_would(seed in any::<u64>()) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let here = Place { region: "r".into(), zone: "z".into(), node: "n".into() };
        let (mut table, mut world) = (Table::new(here.clone()), World::default());
        for _ in 0..40 {
            let change = match rng.u8(..8) {
                0..=3 => Change::PutRule(Box::new(rule(&mut rng))),
                4 => Change::DeleteRule(format!("r{}", rng.u8(..14))),
                5..=6 => Change::PutRoute(route(&mut rng)),
                _ => {
                    let route = route(&mut rng);
                    Change::DeleteRoute(route_key(&route.host, &route.path))
                }
            };
            let (next, refused) = table.apply(std::slice::from_ref(&change), 0);
            prop_assert_eq!(refused, vec![]);
            world.apply(&change);
            table = next;
            for _ in 0..8 {
                let (request, path) = request(&mut rng);
                let (got, want) = (found(&table, &request), world.find(&request, path));
                prop_assert_eq!(got, want, "{} {} {}", request.method, request.host, request.path);
                check_params(&table, &request, path);
            }
        }
        prop_assert_eq!(table.counts().rules, world.rules.len());
        let (fresh, _) = Table::new(here).apply(&world.all(), 0);
        for _ in 0..40 {
            let (request, _) = request(&mut rng);
            prop_assert_eq!(found(&table, &request), found(&fresh, &request));
        }
        // the same once more changes nothing, and taking all away leaves nothing
        let (again, _) = table.apply(&world.all(), 0);
        prop_assert!(again.same(&table));
        let mut gone: Vec<_> = world.rules.keys().cloned().map(Change::DeleteRule).collect();
        gone.extend(world.routes.keys().cloned().map(Change::DeleteRoute));
        let (empty, _) = table.apply(&gone, 0);
        prop_assert_eq!(empty.counts(), towpath_route::Counts::default());
        for host in HOSTS {
            prop_assert!(empty.find(host.as_bytes(), b"/a").is_none());
        }
    }
}
