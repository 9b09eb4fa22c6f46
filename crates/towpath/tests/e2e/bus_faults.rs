//! A cluster over three NATS servers with encryption and nkeys: they go one by one, then all together; and a manager whose
//! clock is wrong.

use crate::load::Load;
use crate::platform::{Output, Role, cli, open_dir, run};
use crate::{apps, client, clocks};
use nix::sys::signal::Signal;
use std::path::Path;
use std::time::Duration;
use towpath_testkit::tls::Authority;
use towpath_testkit::wait::block_until;
use towpath_testkit::{NatsCluster, NatsOptions, NatsServer, Postgres, TempDir};

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(90);

/// Servers that take encrypted connections with certificates and known keys only; the settings to reach them.
fn secured(dir: &Path) -> (NatsCluster, String) {
    let authority = Authority::new();
    let (server, ours) = (authority.issue(&["127.0.0.1"]), authority.issue(&["towpath"]));
    let user = nkeys::KeyPair::new_user();
    let file = |name: &str, content: String| (name.to_owned(), content);
    let options = NatsOptions {
        jetstream: true,
        config: format!(
            "ping_interval: \"2s\"\nping_max: 2\nauthorization {{ users: [ {{ nkey: \"{}\" }} ] }}\n\
             tls {{ cert_file: \"$DIR/server.pem\", key_file: \"$DIR/server.key\", ca_file: \"$DIR/ca.pem\", verify: true }}",
            user.public_key()
        ),
        files: vec![
            file("ca.pem", authority.pem()),
            file("server.pem", server.certificate),
            file("server.key", server.key),
        ],
        ..NatsOptions::default()
    };
    let cluster = NatsCluster::start_with(3, &options);
    let put = |name: &str, content: &str| {
        std::fs::write(dir.join(name), content).unwrap();
        dir.join(name).display().to_string()
    };
    let settings = format!(
        "[bus]\nnats = {:?}\nca = {:?}\ncertificate = {:?}\nkey = {:?}\nnkey = {:?}\n",
        cluster.urls(),
        put("ca.pem", &authority.pem()),
        put("towpath.pem", &ours.certificate),
        put("towpath.key", &ours.key),
        put("towpath.nk", &user.seed().unwrap()),
    );
    (cluster, settings)
}

/// One of each role.
pub struct Roles {
    pub manager: Role,
    pub gateway: Role,
    pub _cell: Role,
}

impl Roles {
    /// Starts them with the same settings file.
    pub fn start(dir: &Path, settings: &str, postgres: &str) -> Self {
        let file = dir.join("settings.toml");
        std::fs::write(&file, settings).unwrap();
        let config = ["--config", file.to_str().unwrap(), "--node", "n1"];
        let args =
            |more: &[&str]| [&config[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let start = |name: &str, more: &[&str]| {
            let args = args(more);
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            Role::start(dir, name, name, &args)
        };
        let gateway = start("gateway", &["--listen", "127.0.0.1:0"]);
        let url = gateway.url("gateway").to_owned();
        let more = ["--postgres", postgres, "--listen", "127.0.0.1:0", "--gateway-url", &url];
        let manager = start("manager", &more);
        let (api, token) = (manager.url("api"), manager.url("cell_token_file"));
        let more = ["--api", api, "--token-file", token, "--gateway-url", &url, "--stop-instances"];
        let cell = start("cell", &more);
        Self { manager, gateway, _cell: cell }
    }

    /// A command of the command line.
    pub fn towpath(&self, dir: &Path, args: &[&str]) -> Output {
        run(cli(dir, self.manager.url("api"), self.manager.url("token_file"), args))
    }

    /// A command that has to do well once the fault is over.
    pub fn in_the_end(&self, dir: &Path, args: &[&str]) -> Output {
        block_until(SOON, &format!("towpath {args:?} does well"), || {
            Some(self.towpath(dir, args)).filter(|output| output.code == 0)
        })
    }

    pub fn load(&self) -> Load {
        Load::start(self.gateway.address("gateway"), "shop.localhost", 1)
    }
}

#[test]
fn traffic_feels_nothing_while_nats_restarts_and_changes_go_on_afterwards() {
    let dir = open_dir();
    let (mut nats, settings) = secured(dir.path());
    let postgres = Postgres::start();
    let roles = Roles::start(dir.path(), &settings, &postgres.url());
    let app = apps::python(dir.path(), "shop", "one");
    roles.towpath(dir.path(), &["push", app.to_str().unwrap(), "--instances", "2"]).ok();
    let load = roles.load();
    load.goes_on(20);
    // One after the other: changes are possible all the time, at the latest when everybody is at another server.
    for number in 0..3 {
        nats.stop_one(number);
        load.goes_on(20);
        roles.in_the_end(dir.path(), &["lanes", "add", &format!("lane-{number}")]);
        nats.restart_one(number);
        load.goes_on(20);
    }
    // All together. What is accepted meanwhile is done when they are back.
    nats.stop();
    load.goes_on(20);
    let accepted = roles.towpath(dir.path(), &["scale", "shop", "3", "--detach"]);
    nats.restart();
    load.goes_on(20);
    if accepted.code == 0 {
        block_until(SOON, "what was accepted in the outage is done", || {
            let listed = roles.towpath(dir.path(), &["instances", "shop", "-o", "json"]);
            (listed.code == 0 && listed.json().as_array().is_some_and(|all| all.len() == 3)).then_some(())
        });
    }
    let app = apps::python(dir.path(), "shop", "two");
    roles.in_the_end(dir.path(), &["push", app.to_str().unwrap()]);
    let answer = client::get(roles.gateway.address("gateway"), "shop.localhost", "/", &[]);
    assert_eq!(answer.json()["version"], "two");
    load.lost_nothing();
}

struct Managers {
    roles: Vec<Role>,
    dir: TempDir,
}

impl Managers {
    /// States by the address of the API, as one of them tells.
    fn state(&self, asked: usize, of: usize) -> String {
        let token = self.dir.path().join("m0/token");
        let api = self.roles[asked].url("api");
        let listed = run(cli(self.dir.path(), api, token.to_str().unwrap(), &["managers", "-o", "json"]));
        let listed = if listed.code == 0 { listed.json() } else { return format!("{listed:?}") };
        let rows = listed.as_array().cloned().unwrap_or_default();
        let row = rows.iter().find(|row| row["address"] == self.roles[of].url("api"));
        row.and_then(|row| row["state"].as_str()).unwrap_or("unknown").to_owned()
    }
}

#[test]
fn a_manager_is_evicted_by_the_stores_clock_alone() {
    let dir = open_dir();
    let nats = NatsServer::start();
    let postgres = Postgres::start();
    let script = clocks::shifted(dir.path(), "+7m");
    let (url, store) = (nats.url(), postgres.url());
    let settings = dir.path().join("settings.toml");
    // Much less than the clocks differ, much more than a busy machine is late.
    std::fs::write(&settings, "[manager]\nevict_after = \"20s\"\n").unwrap();
    let settings = settings.to_str().unwrap();
    let args = ["--config", settings, "--nats", &url, "--postgres", &store, "--listen", "127.0.0.1:0"];
    let normal = Role::start(dir.path(), "m0", "manager", &args);
    let early = Role::start_by(dir.path(), "m1", "manager", &args, Some(script.to_str().unwrap()));
    let managers = Managers { roles: vec![normal, early], dir };
    // It is really somewhere else in time.
    let log = std::fs::read_to_string(&managers.roles[1].log).unwrap_or_default();
    assert!(!log.contains("cannot be preloaded"), "{log}");
    let live = |asked, of| managers.state(asked, of) == "live";
    block_until(SOON, "both know both", || {
        (live(0, 0) && live(0, 1) && live(1, 0) && live(1, 1)).then_some(())
    });
    // A dozen looks over some rounds of heartbeats: nobody is taken for silent for minutes.
    for _ in 0..12 {
        for (asked, of) in [(0, 1), (1, 0)] {
            let state = managers.state(asked, of);
            assert_ne!(state, "evicted", "manager {of}, as {asked} tells");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    // And one that is silent indeed is evicted by the one that is ahead, which itself stays.
    managers.roles[0].process.signal(Signal::SIGSTOP);
    block_until(SOON, "the silent one is evicted", || (managers.state(1, 0) == "evicted").then_some(()));
    assert_ne!(managers.state(1, 1), "evicted");
    managers.roles[0].process.signal(Signal::SIGCONT);
    block_until(SOON, "it joins again", || live(1, 0).then_some(()));
}
