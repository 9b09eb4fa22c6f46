//! Several managers over real NATS and PostgreSQL: who owns what, takeover, fences.

use crate::apps;
use crate::client;
use crate::platform::{Output, Role, cli, forget, open_dir, run};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use towpath_testkit::{NatsServer, Postgres, TempDir};

/// Longest wait for something that takes an eviction.
const TAKEOVER: Duration = Duration::from_secs(40);

/// What a manager was built from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Build {
    /// What is tested.
    #[default]
    This,
    /// The one before: it writes and reads the protocol before and says so. `TOWPATH_TEST_BEFORE` may name the real binary
    /// of an earlier commit; without, this build is told to know no more.
    Before,
}

impl Build {
    /// The settings file, and the program that starts the right binary.
    fn prepare(self, dir: &std::path::Path) -> (String, Option<String>) {
        let real = std::env::var("TOWPATH_TEST_BEFORE").ok().filter(|_| self == Self::Before);
        let config = dir.join(format!("{self:?}.toml"));
        let older = self == Self::Before && real.is_none();
        let settings = if older { "[manager]\nprotocol = 1\n" } else { "" };
        let log = "log = \"info,towpath_manager::api::calls=debug\"\n";
        std::fs::write(&config, format!("{log}{settings}")).unwrap();
        let by = real.map(|binary| {
            let by = dir.join("before.sh");
            std::fs::write(&by, format!("#!/bin/sh\nshift\nexec {binary} \"$@\"\n")).unwrap();
            std::fs::set_permissions(&by, std::fs::Permissions::from_mode(0o755)).unwrap();
            by.display().to_string()
        });
        (config.display().to_string(), by)
    }
}

pub struct Cluster {
    pub managers: Vec<Role>,
    pub gateway: Role,
    cell: Option<Role>,
    postgres: Postgres,
    nats: NatsServer,
    pub dir: TempDir,
}

impl Cluster {
    /// So many managers, each with a directory of its own, and a gateway.
    pub fn start(managers: usize) -> Self {
        Self::start_of(&vec![Build::default(); managers])
    }

    /// The same with managers of these builds.
    pub fn start_of(builds: &[Build]) -> Self {
        let managers = builds.len();
        let dir = open_dir();
        let nats = NatsServer::start();
        let postgres = Postgres::start();
        let url = nats.url();
        let args = ["--nats", &url, "--listen", "127.0.0.1:0", "--node", "n1"];
        let gateway = Role::start(dir.path(), "gateway", "gateway", &args);
        let mut cluster = Self { managers: Vec::new(), gateway, cell: None, postgres, nats, dir };
        for (n, build) in builds.iter().enumerate() {
            let manager = cluster.start_manager_of(n, "127.0.0.1:0", *build);
            cluster.managers.push(manager);
        }
        cluster.eventually("all know all", |cluster| {
            (0..managers)
                .all(|n| cluster.states(n).iter().filter(|(_, state)| state == "live").count() == managers)
        });
        cluster
    }

    pub fn start_manager(&self, n: usize, listen: &str) -> Role {
        self.start_manager_of(n, listen, Build::This)
    }

    pub fn start_manager_of(&self, n: usize, listen: &str, build: Build) -> Role {
        let gateway = self.gateway.url("gateway");
        let (nats, postgres) = (self.nats.url(), self.postgres.url());
        let (config, by) = build.prepare(self.dir.path());
        let args = ["--nats", &nats, "--postgres", &postgres, "--listen", listen, "--gateway-url", gateway];
        let args = [&args[..], &["--config", &config]].concat();
        Role::start_by(self.dir.path(), &format!("manager-{n}"), "manager", &args, by.as_deref())
    }

    /// A cell that gets its files from this manager.
    pub fn start_cell(&mut self, manager: usize) {
        let manager = &self.managers[manager];
        let nats = self.nats.url();
        let args = [
            "--nats",
            &nats,
            "--api",
            manager.url("api"),
            "--token-file",
            manager.url("cell_token_file"),
            "--gateway-url",
            self.gateway.url("gateway"),
            "--stop-instances",
            "--node",
            "n1",
        ];
        self.cell = Some(Role::start(self.dir.path(), "cell", "cell", &args));
    }

    /// A command of the command line against one manager, with the first one's token.
    pub fn towpath(&self, manager: usize, args: &[&str]) -> Output {
        let token = self.dir.path().join("manager-0").join("token");
        run(cli(self.dir.path(), self.managers[manager].url("api"), token.to_str().unwrap(), args))
    }

    /// GET at one manager's API.
    pub fn get(&self, manager: usize, target: &str) -> client::Response {
        let token = std::fs::read_to_string(self.dir.path().join("manager-0").join("token")).unwrap();
        let auth = format!("Bearer {}", token.trim());
        client::get(self.managers[manager].address("api"), "api", target, &[("authorization", &auth)])
    }

    /// Ids and states of all managers, as one of them tells.
    pub fn states(&self, manager: usize) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let list = self.get(manager, "/v1/managers").json();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| (text(&item["id"]), text(&item["state"]))).collect()
    }

    pub fn id(&self, manager: usize) -> String {
        let list = self.get(manager, "/v1/managers").json();
        let this = list["items"].as_array().unwrap().iter().find(|item| item["this"] == true).cloned();
        this.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// The index of the manager that owns a resource, as another one tells. One that has just joined has no address yet.
    pub fn owner(&self, asked: usize, resource: &str) -> usize {
        let found = std::cell::Cell::new(None);
        self.eventually("the owner has an address", |cluster| {
            let owner = cluster.get(asked, &format!("/v1/managers/owner/{resource}")).json();
            let address = owner["address"].as_str().unwrap();
            found.set(cluster.managers.iter().position(|manager| address == manager.url("api")));
            found.get().is_some()
        });
        found.get().unwrap()
    }

    /// The name of an app (with this beginning) that a manager owns.
    pub fn app_of(&self, manager: usize, beginning: &str) -> String {
        let names = (0..1000).map(|n| format!("{beginning}{n}"));
        names.into_iter().find(|name| self.owner(0, name) == manager).expect("an app of each")
    }

    #[track_caller]
    pub fn eventually(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + TAKEOVER;
        while !so(self) {
            assert!(Instant::now() < end, "did not happen: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn managers_know_each_other_share_the_work_and_come_and_go() {
    let mut cluster = Cluster::start(3);
    let listed = cluster.towpath(1, &["managers", "-o", "json"]).ok().json();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), 3);
    let share: f64 = listed.iter().map(|manager| manager["share"].as_f64().unwrap()).sum();
    assert!((share - 1.0).abs() < 1e-6, "{listed:?}");
    for (n, manager) in cluster.managers.iter().enumerate() {
        let row = listed.iter().find(|row| row["address"] == manager.url("api")).expect("its real address");
        assert_eq!((row["id"].as_str().unwrap(), &row["state"]), (cluster.id(n).as_str(), &"live".into()));
        assert!(
            row["version"].as_str().is_some_and(|version| !version.is_empty()) && row["started_ms"].is_u64()
        );
    }
    cluster.eventually("all have told what they do", |cluster| {
        let listed = cluster.get(2, "/v1/managers").json();
        listed["items"].as_array().unwrap().iter().all(|row| row["queue"].is_u64() && row["lag"].is_u64())
    });
    let table = cluster.towpath(0, &["managers"]).ok().stdout;
    for head in ["MANAGER", "SHARE", "QUEUE", "LAG", "VERSION", "live"] {
        assert!(table.contains(head), "{table}");
    }
    // All agree about owners.
    for n in 0..20 {
        let app = format!("app-{n}");
        let owners: Vec<usize> = (0..3).map(|asked| cluster.owner(asked, &app)).collect();
        assert_eq!(owners, [owners[0]; 3]);
    }
    let owner = cluster.towpath(2, &["managers", "owner", "shop:base"]);
    assert_eq!(owner.code, 4, "{owner:#?}");
    assert!(owner.one_error_line().contains("there is no default/default/shop:base; hint: manager "));
    // One leaves cleanly: at once the others own all.
    let (gone, epoch) =
        (cluster.id(2), cluster.get(0, "/v1/managers/owner/x").json()["epoch"].as_u64().unwrap());
    assert_eq!(cluster.managers[2].terminate(), 0);
    cluster.eventually("it is gone from the table and the ring", |cluster| {
        (0..2).all(|n| cluster.states(n).len() == 2 && cluster.states(n).iter().all(|(id, _)| *id != gone))
    });
    // One is killed: it is suspected, then evicted, and its row says so.
    let (killed, address) = (cluster.id(1), cluster.managers[1].address("api").to_string());
    cluster.managers[1].process.kill();
    cluster.eventually("it is evicted", |cluster| {
        cluster.states(0).iter().any(|(id, state)| *id == killed && state == "evicted")
    });
    for n in 0..10 {
        assert_eq!(cluster.owner(0, &format!("app-{n}")), 0, "the last one owns all");
    }
    assert!(cluster.get(0, "/v1/managers/owner/x").json()["epoch"].as_u64().unwrap() > epoch);
    // It comes back with its id at another address, and is found there.
    let again = cluster.start_manager(1, "127.0.0.1:0");
    assert_ne!(again.address("api").to_string(), address);
    forget(std::mem::replace(&mut cluster.managers[1], again));
    cluster.eventually("it is live at its new address", |cluster| {
        let listed = cluster.get(0, "/v1/managers").json();
        let row =
            listed["items"].as_array().unwrap().iter().find(|row| row["id"] == killed.as_str()).cloned();
        row.is_some_and(|row| row["state"] == "live" && row["address"] == cluster.managers[1].url("api"))
    });
    let theirs = cluster.app_of(1, "theirs");
    assert_eq!(cluster.owner(1, &theirs), 1);
}

#[test]
fn any_manager_takes_any_request_and_files_are_found_wherever_they_are() {
    let mut cluster = Cluster::start(3);
    cluster.start_cell(2);
    // Pushed through one manager, owned by another, staged by a cell of the third.
    let name = cluster.app_of(1, "shop");
    let app = apps::python(cluster.dir.path(), &name, "one");
    let pushed = cluster.towpath(0, &["push", app.to_str().unwrap(), "--instances", "2"]).ok();
    assert!(pushed.stdout.contains(&name) || pushed.stderr.contains(&name), "{pushed:?}");
    let host = format!("{name}.localhost");
    assert_eq!(client::get(cluster.gateway.address("gateway"), &host, "/", &[]).status, 200);
    let listed = cluster.get(0, "/v1/operations").json();
    let operation = listed["items"][0].clone();
    assert_eq!((&operation["app"], &operation["phase"]), (&name.as_str().into(), &"succeeded".into()));
    // What was written through one is read through another at once.
    for n in 0..3 {
        let (through, read) = (n, (n + 1) % 3);
        cluster.towpath(through, &["env", "set", &name, &format!("LEVEL={n}"), "--detach"]).ok();
        cluster.eventually("the change is made", |cluster| {
            let env = cluster.get(read, &format!("/v1/apps/{name}/env")).json();
            env.to_string().contains(&format!("\"LEVEL\":\"{n}\""))
                || env.to_string().contains(&format!("\"{n}\""))
        });
    }
    cluster.eventually("all operations have ended", |cluster| {
        let listed = cluster.get(1, "/v1/operations").json();
        let items = listed["items"].as_array().unwrap();
        items.iter().all(|item| matches!(item["phase"].as_str(), Some("succeeded" | "failed")))
    });
    // The manager that took the upload goes, and so does the owner: files and app are still there.
    cluster.managers[0].process.kill();
    cluster.managers[1].process.kill();
    cluster.eventually("the last one owns all", |cluster| {
        cluster.states(2).iter().filter(|(_, state)| state == "evicted").count() == 2
    });
    cluster.towpath(2, &["scale", &name, "3"]).ok();
    let (first, second) = (cluster.start_manager(0, "127.0.0.1:0"), cluster.start_manager(1, "127.0.0.1:0"));
    forget(std::mem::replace(&mut cluster.managers[0], first));
    forget(std::mem::replace(&mut cluster.managers[1], second));
}

#[test]
fn a_cell_works_on_when_the_manager_that_its_settings_name_is_killed() {
    let mut cluster = Cluster::start(2);
    cluster.start_cell(0);
    cluster.eventually("the cell is known", |cluster| {
        cluster.get(1, "/v1/cells").json()["items"].as_array().is_some_and(|cells| cells.len() == 1)
    });
    cluster.managers[0].process.kill();
    // Nobody waits for the eviction: sources and artifacts come and go through the one that is left.
    let app = apps::python(cluster.dir.path(), "shop", "one");
    cluster.towpath(1, &["push", app.to_str().unwrap()]).ok();
    assert_eq!(client::get(cluster.gateway.address("gateway"), "shop.localhost", "/", &[]).status, 200);
    cluster.towpath(1, &["scale", "shop", "2"]).ok();
    let running = cluster.towpath(1, &["instances", "shop", "-o", "json"]).ok().json();
    assert_eq!(running.as_array().map(Vec::len), Some(2));
}

#[test]
fn a_manager_that_was_paused_past_its_eviction_does_no_harm() {
    let mut cluster = Cluster::start(2);
    cluster.start_cell(0);
    let name = cluster.app_of(1, "shop");
    let app = apps::python(cluster.dir.path(), &name, "one");
    cluster.towpath(0, &["push", app.to_str().unwrap()]).ok();
    let (paused, before) =
        (cluster.id(1), cluster.get(1, "/v1/managers/owner/x").json()["epoch"].as_u64().unwrap());
    cluster.managers[1].process.signal(Signal::SIGSTOP);
    cluster.eventually("it is evicted", |cluster| {
        cluster.states(0).iter().any(|(id, state)| *id == paused && state == "evicted")
    });
    // The other one has taken over: what the paused one owned is changed through it.
    cluster.towpath(0, &["scale", &name, "3"]).ok();
    let running = || {
        let listed = cluster.towpath(0, &["instances", &name, "-o", "json"]).ok().json();
        let mut ids: Vec<String> =
            listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let instances = running();
    assert_eq!(instances.len(), 3);
    cluster.managers[1].process.signal(Signal::SIGCONT);
    cluster.eventually("it has joined anew, under a newer epoch", |cluster| {
        let live = cluster.states(0).iter().any(|(id, state)| *id == paused && state == "live");
        let epoch = cluster.get(0, "/v1/managers/owner/x").json()["epoch"].as_u64().unwrap();
        live && epoch > before && cluster.owner(0, &name) == 1 && cluster.owner(1, &name) == 1
    });
    assert_eq!(running(), instances, "nothing was started or stopped by it");
    // It is of use again.
    cluster.towpath(1, &["scale", &name, "2"]).ok();
    cluster.eventually("the third has ended", |_| running().len() == 2);
}

/// Requests are under way in a manager that is paused past its eviction. Their clients ask another one again, under the same
/// keys. When the paused one goes on, what it was about to write takes effect no second time.
#[test]
fn writes_in_flight_in_a_paused_manager_take_effect_once_at_most() {
    const APPS: usize = 24;
    let cluster = Cluster::start(2);
    let token = std::fs::read_to_string(cluster.dir.path().join("manager-0").join("token")).unwrap();
    let auth = format!("Bearer {}", token.trim());
    let (first, second) = (cluster.managers[0].address("api"), cluster.managers[1].address("api"));
    let names: Vec<String> = (0..1000)
        .map(|n| format!("flight-{n}"))
        .filter(|name| cluster.owner(0, name) == 1)
        .take(APPS)
        .collect();
    let request = |request: client::Request| {
        request.header("authorization", &auth).header("content-type", "application/json")
    };
    let change = |name: &str, key: &str, value: &str| {
        let body = format!("{{\"env\":{{\"VALUE\":\"{value}\"}}}}");
        request(client::Request::patch("api", &format!("/v1/apps/{name}"), body.as_bytes()))
            .header("idempotency-key", key)
    };
    for name in &names {
        let made = request(client::Request::put("api", &format!("/v1/apps/{name}"), b"{}")).send(first);
        assert_eq!(made.unwrap().status, 201);
    }
    let (paused, mut changed) = (cluster.id(1), Vec::new());
    let started = std::sync::Barrier::new(APPS + 1);
    std::thread::scope(|scope| {
        let under_way: Vec<_> = names
            .iter()
            .map(|name| {
                let (change, started) = (change(name, "change-1", "one"), &started);
                scope.spawn(move || {
                    started.wait();
                    change.send(second).map(|answer| answer.status)
                })
            })
            .collect();
        started.wait();
        cluster.managers[1].process.signal(Signal::SIGSTOP);
        cluster.eventually("it is evicted", |cluster| {
            cluster.states(0).iter().any(|(id, state)| *id == paused && state == "evicted")
        });
        // Who had no answer asks again elsewhere; then things go on.
        for name in &names {
            assert_eq!(change(name, "change-1", "one").send(first).unwrap().status, 200);
            assert_eq!(change(name, "change-2", "two").send(first).unwrap().status, 200);
        }
        cluster.managers[1].process.signal(Signal::SIGCONT);
        changed = under_way.into_iter().map(|request| request.join().unwrap()).collect();
    });
    cluster.eventually("it has joined anew", |cluster| {
        (0..2).all(|n| cluster.states(n).iter().filter(|(_, state)| state == "live").count() == 2)
    });
    for (name, answer) in names.iter().zip(changed) {
        // 503: it was no member. 200: it had been done before, or the first answer was found.
        assert!(matches!(answer, Ok(200 | 503) | Err(_)), "{name}: {answer:?}");
        let app = cluster.get(1, &format!("/v1/apps/{name}")).json();
        assert_eq!(app["generation"], 3, "made, changed, changed, and nothing else: {app}");
        assert_eq!(cluster.get(0, &format!("/v1/apps/{name}/env")).json()["env"]["VALUE"], "two");
    }
}
