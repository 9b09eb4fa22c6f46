//! `towpath.toml`.

use super::{Manifest, environment, health, route, upstream};
use crate::document::fields::Fields;
use crate::document::problem::{Problem, Problems};
use std::collections::{BTreeMap, BTreeSet};
use towpath_types::spec::Limits;
use towpath_types::upstream::Protocol;

/// Builders that a manifest may name.
pub(crate) const BUILDERS: &[&str] =
    &["python", "node", "java", "php", "go", "rust", "static", "binary", "procfile"];

/// Reads the file's text. All problems are reported.
pub(super) fn read(source: &str, text: &str) -> Result<Manifest, Vec<Problem>> {
    let node = crate::document::toml::parse(source, text)?;
    let problems = Problems::default();
    let fields = Fields::of(source, &problems, "", &node);
    let env = fields.table("env").map(|env| environment::read(&env)).unwrap_or_default();
    let manifest = Manifest {
        secrets: fields.table("secrets").map(|secrets| required(secrets, &env)).unwrap_or_default(),
        name: fields.named("name"),
        lane: fields.named("lane"),
        instances: fields.count("instances", 0..=10_000).and_then(|n| u32::try_from(n).ok()),
        limits: Limits {
            memory: fields.parsed("memory"),
            disk: fields.parsed("disk"),
            files: fields.count("files", 16..=1_048_576),
            processes: fields.count("processes", 1..=65_536),
        },
        command: not_empty(&fields, "command"),
        builder: builder(&fields),
        health: fields.table("health").map(health::read),
        env,
        routes: route::read_list(&fields),
        protocol: fields.choice("protocol", &[("http1", Protocol::Http1), ("h2c", Protocol::H2c)]),
        grace: fields.parsed("grace"),
        upstream: fields.table("upstream").map(upstream::read),
        path: None,
        ignored: Vec::new(),
    };
    fields.finish();
    problems.or(manifest)
}

/// The variables that `[secrets]` requires: names alone, as values have no place in a file.
fn required(fields: Fields<'_>, env: &BTreeMap<String, String>) -> BTreeSet<String> {
    let names: BTreeSet<String> = fields.texts("required").unwrap_or_default().into_iter().collect();
    for name in &names {
        if let Some(why) = environment::check_variable(name) {
            fields.wrong("required", format!("{name:?}: {why}"), "");
        } else if name.starts_with("BUILD_") {
            let why = format!(
                "{name} is for builds, which may write it into what they make, so it cannot be secret"
            );
            fields.wrong("required", why, "");
        } else if env.contains_key(name) {
            let why = format!("{name} stands in [env] as well, where everybody can read it");
            fields.wrong("required", why, "drop it there");
        }
    }
    fields.finish();
    names
}

fn not_empty(fields: &Fields<'_>, name: &'static str) -> Option<String> {
    let text = fields.text(name)?;
    if text.trim().is_empty() {
        fields.wrong(name, "it is empty", "drop the line to use the builder's own");
        return None;
    }
    Some(text)
}

fn builder(fields: &Fields<'_>) -> Option<String> {
    let choices: Vec<(&'static str, &'static str)> = BUILDERS.iter().map(|name| (*name, *name)).collect();
    fields.choice("builder", &choices).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::health::Probe;
    use towpath_types::upstream::Balancer;
    use towpath_types::{ByteSize, Millis};

    const FULL: &str = r#"
name = "shop"
lane = "promo"
instances = 3
memory = "256M"
disk = "1G"
files = 4096
processes = 64
command = "python app.py"
builder = "python"
protocol = "h2c"
grace = "5s"
routes = ["shop.example.com/api", { host = "*.example.com", path = "/v2", strip_path = true, entry = [{ lane = "canary", percent = 5, hash_by = "cookie user", headers = { x-beta = "*" } }] }]

[env]
LEVEL = "debug"
WORKERS = 4
FAST = true

[secrets]
required = ["DB_PASSWORD", "TOKEN"]

[health]
type = "http"
path = "/healthz"
interval = "1s"

[upstream]
balancer = "chash"
hash_by = "header X-User"
sticky = false
timeouts = { response = "5s" }
retry = { retries = 0 }
max_body = "10M"
"#;

    #[test]
    fn everything_is_read() {
        let manifest = read("towpath.toml", FULL).unwrap();
        assert_eq!(manifest.name.unwrap().as_str(), "shop");
        assert_eq!(manifest.limits.memory, Some(ByteSize::mib(256)));
        assert_eq!(manifest.env["WORKERS"], "4");
        assert_eq!(manifest.env["FAST"], "true");
        assert!(manifest.secrets.iter().eq(["DB_PASSWORD", "TOKEN"]));
        let health = manifest.health.unwrap();
        assert_eq!(health.probe, Probe::Http("/healthz".into()));
        assert_eq!(health.interval, Millis::secs(1));
        assert_eq!(manifest.routes[1].path, "/v2");
        assert_eq!(manifest.routes[1].entry[0].headers[0].value, None);
        let upstream = manifest.upstream.unwrap();
        assert!(matches!(upstream.balancer, Balancer::Chash(_)));
        assert!(upstream.sticky.session_cookies.is_empty());
        assert_eq!(upstream.timeouts.response, Millis::secs(5));
        assert_eq!(upstream.timeouts.connect, Millis::secs(2));
    }

    #[test]
    fn all_errors_are_listed_with_path_and_line() {
        let text = "name = \"Shop\"\ninstance = 2\nmemory = \"12Q\"\nroutes = [\"a b\", 3]\n[env]\nPORT = 1\nA-B = 2\nX = [1]\n[health]\ntype = \"htp\"\npath = \"x\"\n[upstream.retry]\nretries = 99\n";
        let problems = read("towpath.toml", text).unwrap_err();
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let all = lines.join("\n");
        for part in [
            "towpath.toml:1: name: app name \"Shop\" is not valid",
            "towpath.toml:2: instance: unknown key; hint: did you mean \"instances\"?",
            "towpath.toml:3: memory: \"12Q\" is not a size",
            "towpath.toml:4: routes[0]: \"a b\" is not a host name",
            "towpath.toml:4: routes[1]: a table is expected",
            "towpath.toml:6: env.PORT: PORT is set by the platform",
            "towpath.toml:7: env.A-B: a variable's name",
            "towpath.toml:8: env.X: one value is expected, not a list",
            "towpath.toml:10: health.type: \"htp\" is not one of the choices; hint: did you mean \"http\"?",
            "towpath.toml:11: health.path: \"x\" is not a path",
            "towpath.toml:13: upstream.retry.retries: 99 is out of range; hint: 0 to 10",
        ] {
            assert!(all.contains(part), "{part}\n--- in ---\n{all}");
        }
    }

    #[test]
    fn secrets_are_required_by_name_and_have_no_values_here() {
        let text = "[env]\nA = 1\n[secrets]\nrequired = [\"A\", \"B-C\", \"BUILD_X\", 5]\nTOKEN = \"x\"\n";
        let problems = read("towpath.toml", text).unwrap_err();
        let all = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        for part in [
            "towpath.toml:4: secrets.required: A stands in [env] as well",
            "towpath.toml:4: secrets.required: \"B-C\": a variable's name",
            "towpath.toml:4: secrets.required: BUILD_X is for builds",
            "towpath.toml:4: secrets.required[3]: text is expected",
            "towpath.toml:5: secrets.TOKEN: unknown key",
        ] {
            assert!(all.contains(part), "{part}\n--- in ---\n{all}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_no_name() {
        for (text, says) in [
            ("name = 3", "towpath.toml:1: name: text is expected, not a whole number"),
            ("name = true", "towpath.toml:1: name: text is expected, not true/false"),
            ("lane = 1.5", "towpath.toml:1: lane: text is expected, not"),
            ("command = 5", "towpath.toml:1: command: text is expected"),
            ("routes = [{ host = 3 }]", "routes[0].host: text is expected"),
            (
                "routes = [{ host = \"a\", entry = [{ lane = 3 }] }]",
                "routes[0].entry[0].lane: text is expected",
            ),
            ("upstream = { hash_by = 1 }", "upstream.hash_by: text is expected"),
        ] {
            let problems = read("towpath.toml", text).unwrap_err();
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            assert!(lines.iter().any(|line| line.contains(says)), "{text}: {lines:?}");
        }
    }
}
