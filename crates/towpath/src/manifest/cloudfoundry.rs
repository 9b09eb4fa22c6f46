//! Cloud Foundry's `manifest.yml`, as far as it has a meaning here; what has none is said, by name and line.

use super::{Manifest, environment, parse_route};
use crate::document::fields::Fields;
use crate::document::problem::{Problem, Problems};
use crate::document::{Node, Value};
use towpath_types::health::{HealthCheck, Probe};
use towpath_types::spec::Limits;
use towpath_types::{ByteSize, Millis};

/// Reads the file's text: one manifest for each application in it.
pub(super) fn read(source: &str, text: &str) -> Result<Vec<Manifest>, Vec<Problem>> {
    let node = crate::document::yaml::parse(source, text)?;
    let problems = Problems::default();
    let top = Fields::of(source, &problems, "", &node);
    let mut ignored = Vec::new();
    if let Some(version) = top.node("version")
        && version.value != Value::Integer(1)
    {
        top.wrong("version", "only version 1 is known", "version: 1");
    }
    let mut apps = Vec::new();
    match top.list("applications") {
        Some(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                apps.push(application(source, &problems, at, item));
            }
        }
        _ => {
            top.wrong("applications", "the list of applications is missing", "applications: [{name: my-app}]")
        }
    }
    for entry in top.unknown() {
        ignored.push(format!("{source}:{}: {}: has no meaning here", entry.line, entry.key));
    }
    if let Some(first) = apps.first_mut() {
        first.ignored.splice(0..0, ignored);
    }
    problems.or(apps)
}

fn application(source: &str, problems: &Problems, at: usize, item: &Node) -> Manifest {
    let path = format!("applications[{at}]");
    let fields = Fields::of(source, problems, &path, item);
    let mut ignored = Vec::new();
    let mut manifest = Manifest {
        name: fields.parsed("name"),
        instances: fields.count("instances", 0..=10_000).and_then(|n| u32::try_from(n).ok()),
        limits: Limits {
            memory: present(&fields, "memory").and_then(|()| fields.parsed::<ByteSize>("memory")),
            disk: present(&fields, "disk_quota").and_then(|()| fields.parsed::<ByteSize>("disk_quota")),
            ..Limits::default()
        },
        command: present(&fields, "command").and_then(|()| fields.text("command")),
        builder: builder(&fields, &mut ignored),
        health: health(&fields),
        env: present(&fields, "env")
            .and_then(|()| fields.table("env"))
            .map(|env| environment::read(&env))
            .unwrap_or_default(),
        path: fields.text("path").map(Into::into),
        ..Manifest::default()
    };
    if manifest.name.is_none() && fields.node("name").is_none() {
        fields.wrong("name", "an application needs a name", "name: my-app");
    }
    routes(&fields, &mut manifest);
    if fields.node("docker").is_some() {
        fields.wrong("docker", "images are not run yet", "push the source of the app");
    }
    for entry in fields.unknown() {
        ignored.push(format!(
            "{source}:{}: {}: {}",
            entry.line,
            fields.path_of(&entry.key),
            reason(&entry.key)
        ));
    }
    manifest.ignored.extend(ignored);
    manifest
}

/// Whether the field has a value: Cloud Foundry reads `null` as "the default".
fn present(fields: &Fields<'_>, name: &'static str) -> Option<()> {
    fields.node(name).filter(|node| node.value != Value::Null).map(|_| ())
}

/// Why a known key of Cloud Foundry has no effect.
fn reason(key: &str) -> &'static str {
    match key {
        "stack" => "ignored: apps run on the cell's own system",
        "services" => "ignored: set the address of the service in env",
        "random-route" | "default-route" | "no-route" => "ignored: every app has an address of its own here",
        "host" | "hosts" | "domain" | "domains" => "ignored: deprecated; use routes",
        "processes" | "sidecars" => "ignored: an app has one process here; push the others as apps",
        "metadata" => "ignored: there are no labels",
        "log-rate-limit-per-second" => "ignored: logs are bounded by rotation",
        _ => "ignored: has no meaning here",
    }
}

fn routes(fields: &Fields<'_>, manifest: &mut Manifest) {
    let Some(items) = fields.list("routes") else { return };
    for (at, item) in items.iter().enumerate() {
        let path = format!("{}[{at}]", fields.path_of("routes"));
        let route = Fields::of(fields.source(), fields.problems(), &path, item);
        match route.text("route").as_deref().map(parse_route) {
            Some(Ok(wish)) => manifest.routes.push(wish),
            Some(Err(message)) => route.wrong("route", message, ""),
            None => route.wrong("route", "a route is missing", "- route: shop.example.com/api"),
        }
        for entry in route.unknown() {
            let (source, line) = (fields.source(), entry.line);
            manifest.ignored.push(format!("{source}:{line}: {}: {}", route.path_of(&entry.key), reason("")));
        }
    }
}

fn builder(fields: &Fields<'_>, ignored: &mut Vec<String>) -> Option<String> {
    let mut packs = Vec::new();
    if present(fields, "buildpack").is_some() {
        packs.extend(fields.text("buildpack").map(|text| ("buildpack", text)));
    }
    if present(fields, "buildpacks").is_some() {
        packs.extend(
            fields.texts("buildpacks").unwrap_or_default().into_iter().map(|text| ("buildpacks", text)),
        );
    }
    let line = |name| fields.entries().iter().find(|entry| entry.key == name).map_or(0, |entry| entry.line);
    let mut found = None;
    // The last buildpack is the one that starts the app.
    for (name, pack) in packs {
        match builder_of(&pack) {
            Some(builder) => {
                if let Some(before) = found.replace(builder.to_owned()) {
                    let (source, path) = (fields.source(), fields.path_of(name));
                    ignored.push(format!(
                        "{source}:{}: {path}: {before}: ignored: one builder an app; {builder} is used",
                        line(name)
                    ));
                }
            }
            None => ignored.push(format!(
                "{}:{}: {}: {pack:?} ignored: no builder is like it; the source decides",
                fields.source(),
                line(name),
                fields.path_of(name)
            )),
        }
    }
    found
}

/// The builder that does what a buildpack does: by name (`python_buildpack`) or address
/// (`https://github.com/cloudfoundry/nodejs-buildpack#v1`).
fn builder_of(pack: &str) -> Option<&'static str> {
    let pack = pack.to_ascii_lowercase();
    let name = pack.split(['#', '@']).next().unwrap_or_default();
    let name = name.trim_end_matches(".git").rsplit('/').next().unwrap_or_default();
    [
        ("python", "python"),
        ("nodejs", "node"),
        ("node", "node"),
        ("java", "java"),
        ("php", "php"),
        ("go", "go"),
        ("golang", "go"),
        ("rust", "rust"),
        ("staticfile", "static"),
        ("static", "static"),
        ("nginx", "static"),
        ("binary", "binary"),
    ]
    .into_iter()
    .find(|(word, _)| name.split(['_', '-']).any(|part| part == *word))
    .map(|(_, builder)| builder)
}

#[derive(Clone, Copy)]
enum Check {
    Port,
    Http,
    Process,
}

fn health(fields: &Fields<'_>) -> Option<HealthCheck> {
    let default = HealthCheck::default();
    let kind = fields.choice(
        "health-check-type",
        &[
            ("port", Check::Port),
            ("http", Check::Http),
            ("process", Check::Process),
            ("none", Check::Process),
        ],
    );
    let endpoint = fields.text("health-check-http-endpoint");
    if let Some(endpoint) = endpoint.as_deref().filter(|path| !path.starts_with('/')) {
        fields.wrong(
            "health-check-http-endpoint",
            format!("{endpoint:?} is not a path"),
            "begin it with '/'",
        );
    }
    let seconds = |name| fields.count(name, 1..=86_400).map(Millis::secs);
    let start_timeout = seconds("timeout");
    let timeout = seconds("health-check-invocation-timeout");
    let interval = seconds("health-check-interval");
    if kind.is_none() && start_timeout.is_none() && timeout.is_none() && interval.is_none() {
        return None;
    }
    let probe = match kind.unwrap_or(Check::Port) {
        Check::Port => Probe::Port,
        Check::Process => Probe::Process,
        Check::Http => Probe::Http(endpoint.unwrap_or_else(|| "/".into())),
    };
    Some(HealthCheck {
        probe,
        interval: interval.unwrap_or(default.interval),
        timeout: timeout.unwrap_or(default.timeout),
        start_timeout: start_timeout.unwrap_or(default.start_timeout),
        ..default
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "---\nversion: 1\ndefaults: &d\n  memory: 64M\n  stack: cflinuxfs4\napplications:\n- name: front\n  <<: *d\n  command: ~\n  instances: 2\n  disk_quota: 1G\n  timeout: 90\n  health-check-type: http\n  health-check-http-endpoint: /up\n  buildpacks: [nodejs_buildpack, https://github.com/cloudfoundry/python-buildpack.git#v1]\n  env:\n    A: 1\n    B: yes\n  routes:\n  - route: front.example.com/shop\n    protocol: http2\n  services: [db]\n- name: back\n  no-route: true\n  path: back/app.jar\n";

    #[test]
    fn applications_are_read_and_the_rest_is_said() {
        let apps = read("manifest.yml", TWO).unwrap();
        let front = &apps[0];
        assert_eq!(front.limits.memory, Some(ByteSize::mib(64)));
        assert_eq!(front.command, None);
        assert_eq!(front.builder.as_deref(), Some("python"));
        assert_eq!(front.env["B"], "yes");
        let health = front.health.as_ref().unwrap();
        assert_eq!(health.probe, Probe::Http("/up".into()));
        assert_eq!(health.start_timeout, Millis::secs(90));
        assert_eq!(front.routes[0].path, "/shop");
        let said = front.ignored.join("\n");
        for part in [
            "manifest.yml:3: defaults:",
            "manifest.yml:5: applications[0].stack: ignored: apps run",
            "manifest.yml:15: applications[0].buildpacks: node: ignored",
            "manifest.yml:21: applications[0].routes[0].protocol",
            "manifest.yml:22: applications[0].services: ignored: set the address",
        ] {
            assert!(said.contains(part), "{part}\n--- in ---\n{said}");
        }
        assert!(apps[1].ignored[0].contains("applications[1].no-route: ignored: every app has"));
        assert_eq!(apps[1].path.as_deref(), Some(std::path::Path::new("back/app.jar")));
    }

    #[test]
    fn all_errors_are_listed() {
        let text = "applications:\n- memory: lots\n  instances: two\n  health-check-type: htp\n  env: [A]\n  docker: {image: x}\n- name: Bad_Name\n  routes: [{route: 'a:80'}]\n";
        let all: String =
            read("manifest.yml", text).unwrap_err().iter().map(|p| p.to_string() + "\n").collect();
        for part in [
            "applications[0].name: an application needs a name",
            "manifest.yml:2: applications[0].memory: \"lots\" is not a size",
            "manifest.yml:3: applications[0].instances: a whole number is expected, not the text \"two\"",
            "manifest.yml:4: applications[0].health-check-type",
            "manifest.yml:5: applications[0].env: a table is expected, not a list",
            "manifest.yml:6: applications[0].docker",
            "manifest.yml:7: applications[1].name: app name \"Bad_Name\"",
            "manifest.yml:8: applications[1].routes[0].route: \"a:80\" has a port",
        ] {
            assert!(all.contains(part), "{part}\n--- in ---\n{all}");
        }
        assert!(read("m", "").is_err());
    }
}
