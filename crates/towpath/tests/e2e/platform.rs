//! `towpath up` in a directory of its own, and the command line against it.

use crate::client::{self, Response};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use towpath_testkit::process::{log_tail, logged};
use towpath_testkit::wait::block_until;
use towpath_testkit::{Process, TempDir};

/// The binary.
pub const BIN: &str = env!("CARGO_BIN_EXE_towpath");
/// Longest wait for a platform to be up.
const UP: Duration = Duration::from_secs(60);

/// What a command of the command line gave.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Itself, if the command did well.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:#?}");
        self
    }

    /// stderr, if it is exactly one line that says an error.
    #[track_caller]
    pub fn one_error_line(&self) -> &str {
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{self:#?}");
        assert!(lines[0].starts_with("error: "), "{self:#?}");
        lines[0]
    }
}

/// A fresh directory that other users may pass through (instances of a root cell run as such).
pub fn open_dir() -> TempDir {
    let dir = towpath_testkit::temp_dir();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A command without anything of the caller's environment that Towpath reads.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(BIN);
    clean(&mut command, dir);
    command
}

fn clean(command: &mut Command, dir: &Path) {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOWPATH_")) {
        command.env_remove(name);
    }
    command
        .env("HOME", dir)
        .env("XDG_CONFIG_HOME", dir.join("config"))
        .env("XDG_DATA_HOME", dir.join("share"));
    command.stdin(Stdio::null());
}

/// Runs a command to its end; one that hangs is killed and fails the test.
pub fn run(command: Command) -> Output {
    run_within(command, Duration::from_secs(120))
}

/// The same with a deadline of its own.
pub fn run_within(mut command: Command, deadline: Duration) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(command);
    let read = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        let mut pipe = pipe.expect("a pipe");
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let stdout = process.child().stdout.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    let stderr = process.child().stderr.take().map(|pipe| Box::new(pipe) as Box<dyn std::io::Read + Send>);
    let (stdout, stderr) = (read(stdout), read(stderr));
    let status = process.wait(deadline);
    Output {
        code: status.code().unwrap_or(-1),
        stdout: stdout.join().expect("a reader"),
        stderr: stderr.join().expect("a reader"),
    }
}

/// Ports and user ids that no other test of this run uses: a share of the range for each slot of the test runner, and of that a
/// part for each of several cells, told apart by their names.
fn shares(name: &str) -> (String, String) {
    let slot: u32 =
        std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse().ok()).unwrap_or(0);
    let part = name.bytes().map(u32::from).sum::<u32>() % 4;
    let (port, uid) = (20_000 + (slot % 20) * 400 + part * 100, 200_000 + (slot % 20) * 1_000 + part * 250);
    (format!("{port}-{}", port + 99), format!("{uid}-{}", uid + 249))
}

/// One running role (`up`, or one of a cluster).
pub struct Role {
    pub process: Process,
    pub data: PathBuf,
    pub ready: Value,
    pub log: PathBuf,
}

impl Role {
    /// Starts `towpath <role>` with its data in `dir/<name>` and waits until it is up.
    pub fn start(dir: &Path, name: &str, role: &str, args: &[&str]) -> Self {
        Self::start_by(dir, name, role, args, None)
    }

    /// The same, by way of another program.
    pub fn start_by(dir: &Path, name: &str, role: &str, args: &[&str], by: Option<&str>) -> Self {
        let by: Vec<String> = by.into_iter().map(str::to_owned).collect();
        Self::start_as(dir, name, role, args, &by, Path::new(BIN))
    }

    /// The same, with the words that stand before it and the binary's path.
    pub fn start_as(dir: &Path, name: &str, role: &str, args: &[&str], by: &[String], binary: &Path) -> Self {
        let data = dir.join(name);
        let ready_file = dir.join(format!("{name}.ready"));
        let _ = std::fs::remove_file(&ready_file);
        let log = dir.join(format!("{name}.log"));
        let (ports, uids) = shares(name);
        let mut words = by.iter().map(PathBuf::from).chain([binary.to_owned()]);
        let mut command = logged(&words.next().unwrap(), &log);
        command.args(words);
        clean(&mut command, dir);
        command.env("TOWPATH_CELL_PORTS", ports).env("TOWPATH_CELL_UIDS", uids);
        command.arg(role).arg("--data-dir").arg(&data).arg("--ready-file").arg(&ready_file).args(args);
        let mut process = Process::spawn(command);
        let ready = block_until(UP, &format!("{role} is up; see {}", log.display()), || {
            if let Some(status) = process.exited() {
                panic!("{role} ended with {status}:\n{}", log_tail(&log));
            }
            serde_json::from_slice(&std::fs::read(&ready_file).ok()?).ok()
        });
        Self { process, data, ready, log }
    }

    /// A URL of the ready file.
    pub fn url(&self, key: &str) -> &str {
        self.ready[key].as_str().unwrap_or_else(|| panic!("no {key} in {}", self.ready))
    }

    /// The address in a URL of the ready file.
    pub fn address(&self, key: &str) -> SocketAddr {
        self.url(key).trim_start_matches("http://").split('/').next().unwrap().parse().unwrap()
    }

    /// Asks it to end and waits for it; gives its exit code.
    pub fn terminate(&mut self) -> i32 {
        self.process.signal(Signal::SIGTERM);
        self.process.wait(Duration::from_secs(60)).code().unwrap_or(-1)
    }
}

impl Drop for Role {
    /// Instances outlive a killed cell by design: end it cleanly, and what is left of its instances by force.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of {}:\n{}", self.log.display(), log_tail(&self.log));
        }
        if self.process.exited().is_none() {
            self.process.signal(Signal::SIGTERM);
            let end = std::time::Instant::now() + Duration::from_secs(20);
            while self.process.exited().is_none() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        self.process.kill();
        kill_below(&self.data);
    }
}

/// Every process whose directory lies in `dir` or whose command line names it: instances and their parents.
pub fn processes_below(dir: &Path) -> Vec<u32> {
    let needle = dir.as_os_str().as_encoded_bytes();
    let is_below = |pid: &u32| {
        let about = PathBuf::from(format!("/proc/{pid}"));
        let below = std::fs::read_link(about.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir));
        let command = std::fs::read(about.join("cmdline")).unwrap_or_default();
        below || command.windows(needle.len()).any(|window| window == needle)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).filter(is_below).collect()
}

/// Kills them.
fn kill_below(dir: &Path) {
    for pid in processes_below(dir) {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// `towpath up` on free ports, with a directory for apps.
pub struct Up {
    pub role: Role,
    pub dir: TempDir,
}

/// An address that stays free for a start and for every later one.
pub fn at_free_port() -> String {
    format!("127.0.0.1:{}", towpath_testkit::free_port())
}

fn up_args<'a>(gateway: &'a str, api: &'a str) -> [&'a str; 6] {
    ["--listen", gateway, "--api-listen", api, "--admin-listen", "127.0.0.1:0"]
}

pub const FREE_ARGS: &[&str] = &["--listen", "127.0.0.1:0", "--api-listen", "127.0.0.1:0"];

impl Up {
    /// Starts it.
    pub fn start() -> Self {
        let dir = open_dir();
        let (gateway, api) = (at_free_port(), at_free_port());
        let role = Role::start(dir.path(), "data", "up", &up_args(&gateway, &api));
        Self { role, dir }
    }

    /// Starts it again, as after a crash, on the same ports.
    pub fn again(&mut self) {
        let (gateway, api) = (self.role.address("gateway").to_string(), self.role.address("api").to_string());
        let role = Role::start(self.dir.path(), "data", "up", &up_args(&gateway, &api));
        // The old guard's process is gone; the instances in its directory are the new one's.
        let old = std::mem::replace(&mut self.role, role);
        forget(old);
    }

    /// A command of the command line.
    pub fn command(&self, args: &[&str]) -> Command {
        cli(self.dir.path(), self.role.url("api"), self.role.url("token_file"), args)
    }

    /// Runs a command of the command line.
    pub fn towpath(&self, args: &[&str]) -> Output {
        run(self.command(args))
    }

    /// Pushes a directory.
    pub fn push(&self, dir: &Path, more: &[&str]) -> Output {
        let mut args = vec!["push", dir.to_str().unwrap()];
        args.extend(more);
        self.towpath(&args)
    }

    /// GET through the gateway.
    pub fn get(&self, host: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        client::get(self.role.address("gateway"), host, target, headers)
    }

    /// Instances of an app, as the API lists them.
    pub fn instances(&self, app: &str) -> Vec<Value> {
        let listed = self.towpath(&["instances", app, "-o", "json"]).ok().json();
        listed.as_array().cloned().unwrap_or_default()
    }
}

/// A command of the command line against an API.
pub fn cli(dir: &Path, api: &str, token_file: &str, args: &[&str]) -> Command {
    let mut command = command(dir);
    command.env("TOWPATH_API", api).env("TOWPATH_TOKEN_FILE", token_file).args(args);
    command
}

/// Drops a guard whose process has ended, without touching the instances in its directory.
pub fn forget(mut role: Role) {
    assert!(role.process.exited().is_some(), "only for an ended process");
    role.data = PathBuf::from("/nonexistent-towpath-test");
}
