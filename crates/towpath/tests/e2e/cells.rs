//! Cells come, go, are emptied and lost, as separate processes over real NATS and PostgreSQL.

use crate::apps;
use crate::load::Load;
use crate::platform::{Output, Role, cli, forget, open_dir, run};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use towpath_testkit::wait::block_until;
use towpath_testkit::{NatsServer, Postgres, TempDir};

/// Longest wait for anything that should happen.
const SOON: Duration = Duration::from_secs(60);

/// One manager, one gateway, two cells in two zones.
struct Cells {
    cells: BTreeMap<&'static str, Role>,
    manager: Role,
    gateway: Role,
    nats: NatsServer,
    postgres: Postgres,
    dir: TempDir,
}

impl Cells {
    fn start() -> Self {
        let dir = open_dir();
        std::fs::write(dir.path().join("towpath.toml"), "[rollout]\nlost = \"6s\"\n").unwrap();
        let (nats, postgres) = (NatsServer::start(), Postgres::start());
        let gateway = ["--nats", &nats.url(), "--listen", "127.0.0.1:0"];
        let gateway = Role::start(dir.path(), "gateway", "gateway", &gateway);
        let manager = start_manager(&dir, &nats, &postgres, &gateway, "127.0.0.1:0");
        let mut platform = Self { cells: BTreeMap::new(), manager, gateway, nats, postgres, dir };
        platform.start_cell("a");
        platform.start_cell("b");
        platform.until("both cells are known", |platform| platform.listed().len() == 2);
        platform
    }

    fn start_cell(&mut self, name: &'static str) {
        let args = [
            "--nats",
            &self.nats.url(),
            "--api",
            self.manager.url("api"),
            "--token-file",
            self.manager.url("cell_token_file"),
            "--gateway-url",
            self.gateway.url("gateway"),
            "--stop-instances",
            "--zone",
            name,
            "--node",
            name,
        ];
        let role = Role::start(self.dir.path(), name, "cell", &args);
        if let Some(old) = self.cells.insert(name, role) {
            forget(old);
        }
    }

    fn towpath(&self, args: &[&str]) -> Output {
        run(cli(self.dir.path(), self.manager.url("api"), self.manager.url("token_file"), args))
    }

    /// Cells as listed, by their nodes.
    fn listed(&self) -> BTreeMap<String, Value> {
        let listed = self.towpath(&["cells", "-o", "json"]).ok().json();
        let node = |cell: &Value| cell["place"]["node"].as_str().unwrap_or_default().to_owned();
        listed.as_array().unwrap().iter().map(|cell| (node(cell), cell.clone())).collect()
    }

    /// Process ids of the app's ready instances, by the node of their cell.
    fn ready(&self) -> BTreeMap<String, Vec<i32>> {
        let listed = self.towpath(&["instances", "shop", "-o", "json"]).ok().json();
        let mut found: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for instance in listed.as_array().unwrap().iter().filter(|instance| instance["state"] == "ready") {
            let pid = i32::try_from(instance["pid"].as_i64().unwrap()).unwrap();
            found.entry(instance["node"].as_str().unwrap().to_owned()).or_default().push(pid);
        }
        found
    }

    fn counts(&self) -> (usize, usize) {
        let ready = self.ready();
        let count = |node| ready.get(node).map_or(0, Vec::len);
        (count("a"), count("b"))
    }

    #[track_caller]
    fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        block_until(SOON, what, || so(self).then_some(()));
    }

    fn push(&self, instances: &str) {
        let app = apps::python(self.dir.path(), "shop", "one");
        self.towpath(&["push", app.to_str().unwrap(), "--instances", instances]).ok();
    }
}

fn start_manager(
    dir: &TempDir,
    nats: &NatsServer,
    postgres: &Postgres,
    gateway: &Role,
    listen: &str,
) -> Role {
    let config = dir.path().join("towpath.toml");
    let args = [
        "--config",
        config.to_str().unwrap(),
        "--nats",
        &nats.url(),
        "--postgres",
        &postgres.url(),
        "--listen",
        listen,
        "--gateway-url",
        gateway.url("gateway"),
    ];
    Role::start(dir.path(), "manager", "manager", &args)
}

fn lives(pid: i32) -> bool {
    // A zombie whose parent is gone or slow does not run.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[test]
fn a_cell_is_emptied_under_load_without_a_failed_request_and_stays_empty_until_it_is_uncordoned() {
    let mut platform = Cells::start();
    platform.push("4");
    assert_eq!(platform.counts(), (2, 2), "spread over the zones");
    let load = Load::start(platform.gateway.address("gateway"), "shop.localhost", 2);
    load.goes_on(20);
    let drained = platform.towpath(&["cells", "drain", "a", "--note", "new kernel"]).ok();
    assert!(drained.stdout.contains("a is empty"), "{drained:?}");
    load.goes_on(20);
    load.lost_nothing();
    assert_eq!(platform.counts(), (0, 4));
    let cell = &platform.listed()["a"];
    assert_eq!((&cell["state"], &cell["note"]), (&"drained".into(), &"new kernel".into()), "{cell}");
    platform.until("the cell says it too", |platform| platform.listed()["a"]["instances"] == 0);

    // What is wanted of it outlives a restart of the manager and of the cell.
    platform.manager.process.kill();
    let listen = platform.manager.address("api").to_string();
    let manager =
        start_manager(&platform.dir, &platform.nats, &platform.postgres, &platform.gateway, &listen);
    forget(std::mem::replace(&mut platform.manager, manager));
    platform.cells.get_mut("a").unwrap().process.kill();
    platform.start_cell("a");
    platform.until("the cell is heard again", |platform| {
        platform.listed().get("a").is_some_and(|cell| cell["lost"] == false)
    });
    platform.towpath(&["scale", "shop", "5"]).ok();
    assert_eq!(platform.counts(), (0, 5));

    // The other one cannot be emptied: there is no place for what it has.
    let stuck = platform.towpath(&["cells", "drain", "b"]);
    assert_eq!(stuck.code, 7, "{stuck:?}");
    assert!(stuck.stderr.contains("shop in lane base: every cell is cordoned, draining"), "{stuck:?}");
    platform.towpath(&["cells", "uncordon", "b"]).ok();
    platform.towpath(&["cells", "uncordon", "a"]).ok();
    assert_eq!(platform.listed()["b"]["state"], "ready");
    platform.until("all goes on where it was", |platform| platform.counts() == (0, 5));
    platform.towpath(&["scale", "shop", "8"]).ok();
    assert_eq!(platform.counts(), (3, 5), "new ones go where there are fewest; what runs is not moved");
}

#[test]
fn what_was_lost_is_replaced_elsewhere_once_and_leftovers_end_when_the_cell_returns() {
    let mut platform = Cells::start();
    platform.push("2");
    assert_eq!(platform.counts(), (1, 1));

    // A machine dies: cell and instances at once.
    let here = platform.ready()["a"].clone();
    platform.cells.get_mut("a").unwrap().process.kill();
    for pid in here {
        nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    platform.until("replaced on the other cell", |platform| platform.counts() == (0, 2));
    platform.start_cell("a");
    platform.until("the cell is back", |platform| platform.listed()["a"]["state"] == "ready");
    platform.towpath(&["scale", "shop", "4"]).ok();
    assert_eq!(platform.counts(), (2, 2));

    // A cell alone dies: its instances run on, nobody knows.
    let leftovers = platform.ready()["a"].clone();
    platform.cells.get_mut("a").unwrap().process.kill();
    platform.until("replaced, although they run", |platform| platform.counts() == (0, 4));
    assert!(leftovers.iter().all(|pid| lives(*pid)), "nobody was there to stop them");
    platform.start_cell("a");
    platform.until("leftovers are stopped", |_| leftovers.iter().all(|pid| !lives(*pid)));
    platform.until("four, not six", |platform| {
        platform.counts() == (0, 4) && platform.listed()["a"]["instances"] == 0
    });
}
