//! A cluster on a real PostgreSQL whose secrets of each sort are in no row and no file, and which serves by them all the same.

use crate::apps;
use crate::client::{self, Request, Response};
use crate::platform::{Output, Role, at_free_port, cli, command, forget, open_dir, run};
use crate::secrets::files_with;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use towpath_testkit::{NatsServer, Postgres, TempDir};

/// In no other word of the test.
const VALUE: &str = "hunter2-s3aled-cluster-value";

struct Cluster {
    nats: NatsServer,
    postgres: Postgres,
    manager: Role,
    gateway: Role,
    _cell: Role,
    dir: TempDir,
    said: String,
}

fn config(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn start_gateway(dir: &Path, nats: &str, listen: &str, manager: &Role) -> Role {
    let token = manager.data.join("gateway-token").display().to_string();
    let file = config(dir, "gateway", &format!("[gateway]\ntoken_file = {token:?}\n"));
    Role::start(
        dir,
        "gateway",
        "gateway",
        &["--config", &file, "--nats", nats, "--listen", listen, "--node", "n1"],
    )
}

impl Cluster {
    fn start() -> Self {
        let dir = open_dir();
        let (nats, postgres) = (NatsServer::start(), Postgres::start());
        let (url, listen, api) = (nats.url(), at_free_port(), at_free_port());
        let key = dir.path().join("secrets.key").display().to_string();
        let mut new_key = command(dir.path());
        new_key.args(["secrets", "new-key", &key]);
        run(new_key).ok();
        let file = config(dir.path(), "manager", &format!("[manager]\nsecrets_key_file = {key:?}\n"));
        let gateway_url = format!("http://{listen}");
        let args = [
            "--config",
            &file,
            "--nats",
            &url,
            "--postgres",
            &postgres.url(),
            "--listen",
            &api,
            "--gateway-url",
            &gateway_url,
        ];
        let manager = Role::start(dir.path(), "manager", "manager", &args);
        let gateway = start_gateway(dir.path(), &url, &listen, &manager);
        let args = [
            "--nats",
            &url,
            "--api",
            manager.url("api"),
            "--token-file",
            manager.url("cell_token_file"),
            "--gateway-url",
            &gateway_url,
            "--stop-instances",
            "--node",
            "n1",
        ];
        let cell = Role::start(dir.path(), "cell", "cell", &args);
        Self { nats, postgres, manager, gateway, _cell: cell, dir, said: String::new() }
    }

    fn towpath(&mut self, args: &[&str]) -> Output {
        let output = run(cli(self.dir.path(), self.manager.url("api"), self.manager.url("token_file"), args));
        self.said += &format!("{args:?}: {}{}\n", output.stdout, output.stderr);
        output
    }

    /// Through the Admin API.
    fn admin(&mut self, request: Request) -> Response {
        let token = std::fs::read_to_string(self.manager.url("token_file")).unwrap();
        let answer = request.header("x-api-key", token.trim()).send(self.manager.address("api")).unwrap();
        self.said += &answer.body;
        answer
    }

    fn put(&mut self, path: &str, body: &Value) {
        let body = body.to_string();
        let request = Request::put("api", &format!("/apisix/admin/{path}?wait=revision"), body.as_bytes());
        let answer = self.admin(request.header("idempotency-key", &path.replace('/', "-")));
        assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.body);
    }

    fn guarded(&self, key: Option<&str>) -> u16 {
        let headers: Vec<(&str, &str)> = key.map(|key| ("apikey", key)).into_iter().collect();
        client::try_get(self.gateway.address("gateway"), "guarded.test", "/v1/healthz", &headers)
            .map_or(0, |answer| answer.status)
    }

    fn eventually(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !so(self) {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every row of every table, as text.
    fn rows(&self) -> String {
        let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'towpath'";
        let tables = self.postgres.psql(tables);
        assert!(tables.lines().count() >= 5, "{tables}");
        let rows = |table: &str| self.postgres.psql(&format!("SELECT t::text FROM towpath.\"{table}\" t"));
        tables.lines().map(rows).collect::<Vec<_>>().join("\n")
    }
}

/// The sealed texts in a text.
fn sealed_in(text: &str) -> BTreeSet<String> {
    text.split('"').filter(|part| part.starts_with("tps1.")).map(str::to_owned).collect()
}

fn set_all(cluster: &mut Cluster, file: &str) {
    let app = apps::python(cluster.dir.path(), "shop", "one");
    let manifest = std::fs::read_to_string(app.join("towpath.toml")).unwrap();
    let manifest = format!("{manifest}[secrets]\nrequired = [\"LEVEL\"]\n");
    std::fs::write(app.join("towpath.toml"), manifest).unwrap();
    let refused = cluster.towpath(&["push", app.to_str().unwrap()]);
    let line = refused.one_error_line();
    assert!(line.contains("secret LEVEL of shop is not set, and the manifest requires it"), "{line}");
    assert!(line.ends_with("towpath secrets set shop LEVEL --create"), "{line}");
    cluster.towpath(&["secrets", "set", "shop", "LEVEL", "--create", "--from", file]).ok();
    cluster.towpath(&["push", app.to_str().unwrap()]).ok();
    cluster.towpath(&["secrets", "set", "shop", "OWN", "--lane", "base", "--from", file]).ok();

    let pair = towpath_testkit::tls::Authority::new().issue(&["a.test"]);
    let tls = json!({"client_cert": pair.certificate, "client_key": pair.key});
    let api = cluster.manager.address("api").to_string();
    let nodes = json!({ api: 1 });
    cluster.put("ssls/s", &json!({"type": "client", "cert": pair.certificate, "key": pair.key}));
    cluster.put("upstreams/u", &json!({"nodes": nodes, "scheme": "https", "tls": tls}));
    cluster.put(
        "consumers/jack",
        &json!({"username": "jack", "plugins": {
            "key-auth": {"key": VALUE}, "basic-auth": {"username": "jack", "password": VALUE},
            "jwt-auth": {"key": "jack", "secret": VALUE}, "hmac-auth": {"key_id": "jack", "secret_key": VALUE}}}),
    );
    cluster.put(
        "consumers/jack/credentials/c",
        &json!({"plugins": {"key-auth": {"key": format!("{VALUE}-2")}}}),
    );
    cluster.put(
        "routes/r",
        &json!({"uri": "/v1/healthz", "host": "guarded.test", "upstream": {"nodes": nodes},
            "plugins": {"key-auth": {"hide_credentials": true}}}),
    );
    cluster.put(
        "routes/form",
        &json!({"uri": "/form", "host": "form.test", "upstream": {"nodes": nodes},
            "plugins": {"csrf": {"key": VALUE}, "http-logger": {"uri": "http://127.0.0.1:1/", "auth_header": VALUE}}}),
    );
}

#[test]
fn secrets_of_each_sort_are_in_no_row_and_no_file_of_a_cluster_that_serves_by_them() {
    let mut cluster = Cluster::start();
    let elsewhere = open_dir();
    let file = elsewhere.path().join("value");
    std::fs::write(&file, VALUE).unwrap();
    set_all(&mut cluster, file.to_str().unwrap());
    let level = |cluster: &Cluster| {
        client::get(cluster.gateway.address("gateway"), "shop.localhost", "/", &[]).json()["level"].clone()
    };
    assert_eq!(level(&cluster), VALUE);
    let serves = |cluster: &Cluster| {
        let second = format!("{VALUE}-2");
        [
            cluster.guarded(Some(VALUE)),
            cluster.guarded(Some(&second)),
            cluster.guarded(Some("tps1")),
            cluster.guarded(None),
        ] == [200, 200, 401, 401]
    };
    assert!(serves(&cluster), "at once, as the writes waited for the gateway");

    // Another key: nothing of it is to be seen from outside.
    let key = cluster.dir.path().join("secrets.key").display().to_string();
    cluster.towpath(&["secrets", "new-key", &key]).ok();
    cluster.eventually("the manager has read the new key", |cluster| {
        let status = run(cli(
            cluster.dir.path(),
            cluster.manager.url("api"),
            cluster.manager.url("token_file"),
            &["secrets", "status", "-o", "json"],
        ));
        status.ok().json()["keys"].as_array().unwrap().len() == 2
    });
    cluster.towpath(&["secrets", "rotate"]).ok();
    assert!(cluster.said.contains("not used"), "{}", cluster.said);
    cluster.eventually("it serves as before", serves);
    for path in ["consumers", "routes", "ssls", "upstreams", "consumers/jack/credentials"] {
        assert_eq!(cluster.admin(Request::get("api", &format!("/apisix/admin/{path}"))).status, 200);
    }
    cluster.towpath(&["audit", "-o", "json"]).ok();
    assert!(
        cluster.said.contains("tps1.")
            && !cluster.said.contains(VALUE)
            && !cluster.said.contains("PRIVATE KEY")
    );
    let rows = cluster.rows();
    assert!(rows.contains("tps1.") && rows.contains("auth_header") && rows.contains("client_cert"));
    assert!(!rows.contains(VALUE) && !rows.contains("PRIVATE KEY"), "a row holds a secret");

    // With managers gone, a gateway that starts serves by the keys that it was given.
    cluster.eventually("the snapshot has what the store has", |cluster| {
        let snapshot = cluster.gateway.data.join("gateway/snapshot.json");
        let sealed =
            sealed_in(&cluster.postgres.psql("SELECT spec FROM towpath.resources WHERE kind = 'resource'"));
        let kept = sealed_in(&std::fs::read_to_string(snapshot).unwrap_or_default());
        sealed.len() >= 9 && sealed.is_subset(&kept)
    });
    cluster.manager.process.kill();
    cluster.gateway.process.kill();
    let listen = cluster.gateway.address("gateway").to_string();
    let gateway = start_gateway(cluster.dir.path(), &cluster.nats.url(), &listen, &cluster.manager);
    forget(std::mem::replace(&mut cluster.gateway, gateway));
    let refused = |cluster: &Cluster| [cluster.guarded(Some("tps1")), cluster.guarded(None)];
    assert_eq!(refused(&cluster), [401, 401]);
    assert_ne!(cluster.guarded(Some(VALUE)), 401, "it knows the key; what is behind it is gone");
    assert_eq!(level(&cluster), VALUE);
    let (mut looked, mut found) = (0, Vec::new());
    for text in [VALUE, "PRIVATE KEY"] {
        files_with(cluster.dir.path(), text, &mut looked, &mut found);
    }
    assert!(looked > 30, "{looked}");
    // The cell's copy of this program, which knows how a key begins.
    found.retain(|path| !path.ends_with("/run/bin/towpath"));
    assert_eq!(found, Vec::<String>::new());
}
