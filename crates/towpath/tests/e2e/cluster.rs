//! Roles as separate processes over real NATS and PostgreSQL.

use crate::apps;
use crate::client;
use crate::platform::{Output, Role, at_free_port, cli, forget, open_dir, run};
use std::path::Path;
use std::time::{Duration, Instant};
use towpath_testkit::postgres::Stop;
use towpath_testkit::{NatsServer, Postgres, TempDir};

struct Cluster {
    nats: NatsServer,
    postgres: Postgres,
    manager: Role,
    gateway: Role,
    cell: Role,
    dir: TempDir,
}

impl Cluster {
    fn start() -> Self {
        let dir = open_dir();
        let nats = NatsServer::start();
        let postgres = Postgres::start();
        let url = nats.url();
        let (at, api_at) = (at_free_port(), at_free_port());
        let gateway =
            Role::start(dir.path(), "gateway", "gateway", &["--nats", &url, "--listen", &at, "--node", "n1"]);
        let manager = Role::start(
            dir.path(),
            "manager",
            "manager",
            &[
                "--nats",
                &url,
                "--postgres",
                &postgres.url(),
                "--listen",
                &api_at,
                "--gateway-url",
                gateway.url("gateway"),
            ],
        );
        let cell = start_cell(dir.path(), &url, &manager, &gateway);
        Self { nats, postgres, manager, gateway, cell, dir }
    }

    fn towpath(&self, args: &[&str]) -> Output {
        run(cli(self.dir.path(), self.manager.url("api"), self.manager.url("token_file"), args))
    }

    fn status(&self) -> u16 {
        client::try_get(self.gateway.address("gateway"), "shop.localhost", "/", &[])
            .map_or(0, |answer| answer.status)
    }

    fn eventually_serves(&self, why: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.status() != 200 {
            assert!(Instant::now() < end, "{why}");
        }
    }
}

fn start_cell(dir: &Path, nats: &str, manager: &Role, gateway: &Role) -> Role {
    let args = [
        "--nats",
        nats,
        "--api",
        manager.url("api"),
        "--token-file",
        manager.url("cell_token_file"),
        "--gateway-url",
        gateway.url("gateway"),
        "--stop-instances",
        "--node",
        "n1",
    ];
    Role::start(dir, "cell", "cell", &args)
}

#[test]
fn separate_roles_serve_an_app_and_each_may_go_and_come_back() {
    let mut cluster = Cluster::start();
    let app = apps::python(cluster.dir.path(), "shop", "one");
    cluster.towpath(&["push", app.to_str().unwrap(), "--instances", "2"]).ok();
    assert_eq!(cluster.status(), 200);

    // The cell is killed: its instances serve on, and the next one takes them over.
    let listed = cluster.towpath(&["instances", "shop", "-o", "json"]).ok().json();
    cluster.cell.process.kill();
    assert_eq!(cluster.status(), 200, "instances outlive their cell");
    let cell = start_cell(cluster.dir.path(), &cluster.nats.url(), &cluster.manager, &cluster.gateway);
    forget(std::mem::replace(&mut cluster.cell, cell));
    cluster.towpath(&["scale", "shop", "3"]).ok();
    let now = cluster.towpath(&["instances", "shop", "-o", "json"]).ok().json();
    for old in listed.as_array().unwrap() {
        assert!(now.as_array().unwrap().iter().any(|new| new["pid"] == old["pid"]), "{old} in {now}");
    }

    // The store is gone: the API says so, traffic flows.
    cluster.postgres.stop(Stop::Immediate);
    assert_eq!(cluster.status(), 200);
    let refused = cluster.towpath(&["scale", "shop", "2", "--detach"]);
    assert_eq!(refused.code, 7, "{refused:#?}");
    cluster.postgres.restart();

    // Manager and bus are gone: the gateway goes on, and starts again from its snapshot.
    cluster.manager.process.kill();
    cluster.nats.stop();
    assert_eq!(cluster.status(), 200, "no manager, no bus");
    let listen = cluster.gateway.address("gateway").to_string();
    cluster.gateway.process.kill();
    let args = ["--nats", &cluster.nats.url(), "--listen", &listen, "--node", "n1"];
    let gateway = Role::start(cluster.dir.path(), "gateway", "gateway", &args);
    forget(std::mem::replace(&mut cluster.gateway, gateway));
    cluster.eventually_serves("a gateway starts from its snapshot with nothing else running");

    // Everything is back.
    cluster.nats.restart();
    let args = [
        "--nats",
        &cluster.nats.url(),
        "--postgres",
        &cluster.postgres.url(),
        "--listen",
        &cluster.manager.address("api").to_string(),
        "--gateway-url",
        cluster.gateway.url("gateway"),
    ];
    let manager = Role::start(cluster.dir.path(), "manager", "manager", &args);
    forget(std::mem::replace(&mut cluster.manager, manager));
    let app = apps::python(cluster.dir.path(), "shop", "two");
    cluster.towpath(&["push", app.to_str().unwrap()]).ok();
    let answer = client::get(cluster.gateway.address("gateway"), "shop.localhost", "/", &[]);
    assert_eq!(answer.json()["version"], "two");
}
