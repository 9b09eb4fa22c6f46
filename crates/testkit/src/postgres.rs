//! A real PostgreSQL server. `initdb` runs once for all test processes; each server starts from a copy of what it made.

use crate::process::{Process, Start, find_program, log_tail, logged};
use crate::{free_port, temp_dir, wait};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, User, chown};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// How the server is set up.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// More settings, each `name=value`. `$DIR` stands for the server's directory.
    pub settings: Vec<String>,
    /// Lines of `pg_hba.conf` instead of "trust everybody on loopback".
    pub hba: Option<String>,
    /// Files to put in its directory first (mode 0600): name and content.
    pub files: Vec<(String, String)>,
}

/// A PostgreSQL server on 127.0.0.1, not durable; ends with this guard. Its superuser is `postgres`, without password.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    directory: TempDir,
    settings: Vec<String>,
    port: u16,
}

/// How the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Open transactions are rolled back, connections closed with a word.
    Fast,
    /// At once, with recovery at the next start.
    Immediate,
    /// SIGKILL.
    Kill,
}

impl Postgres {
    /// A plain server.
    pub fn start() -> Self {
        Self::start_with(&PostgresOptions::default())
    }

    /// A server with options.
    pub fn start_with(options: &PostgresOptions) -> Self {
        let directory = temp_dir();
        let data = directory.path().join("data");
        copy_tree(&template(), &data);
        if let Some(hba) = &options.hba {
            fs::write(data.join("pg_hba.conf"), hba).expect("pg_hba.conf");
        }
        for (name, content) in &options.files {
            let file = directory.path().join(name);
            fs::write(&file, content).expect("a file of the server");
            set_mode(&file, 0o600);
        }
        give_away(directory.path());
        let place = directory.path().display().to_string();
        let settings = options.settings.iter().map(|setting| setting.replace("$DIR", &place)).collect();
        let mut server = Self { process: None, directory, settings, port: free_port() };
        server.restart();
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A connection string for a database that is always there.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// A connection string for a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database; returns its connection string.
    pub fn create_database(&self, name: &str) -> String {
        self.psql(&format!("CREATE DATABASE \"{name}\""));
        self.url_of(name)
    }

    /// Runs SQL beside the code under test; returns the rows as text, columns separated by `|`.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// [`Postgres::psql`] in a database.
    pub fn psql_in(&self, database: &str, sql: &str) -> String {
        let output = Command::new(program("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(self.url_of(database))
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "psql {sql:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Ends it.
    pub fn stop(&mut self, how: Stop) {
        let Some(mut process) = self.process.take() else { return };
        match how {
            Stop::Fast => process.signal(Signal::SIGINT),
            Stop::Immediate => process.signal(Signal::SIGQUIT),
            Stop::Kill => process.signal(Signal::SIGKILL),
        }
        process.wait(Duration::from_secs(30));
    }

    /// Starts it again on the same port, stopping it first if it runs.
    pub fn restart(&mut self) {
        self.stop(Stop::Fast);
        let log = self.directory.path().join("log");
        let pid_file = self.data().join("postmaster.pid");
        let mut process = self.spawn(&log);
        wait::block_until(Duration::from_secs(60), "a PostgreSQL server that is ready", || {
            if let Some(status) = process.exited() {
                let said = log_tail(&log);
                // The children of a killed server hold its memory until they have noticed.
                assert!(
                    said.contains("pre-existing shared memory block"),
                    "postgres ended with {status}:\n{said}"
                );
                process = self.spawn(&log);
                return None;
            }
            let text = fs::read_to_string(&pid_file).unwrap_or_default();
            let mut lines = text.lines();
            let ours = lines.next() == Some(process.pid().to_string().as_str());
            (ours && lines.any(|line| line.trim() == "ready")).then_some(())
        });
        self.process = Some(process);
    }

    fn spawn(&self, log: &Path) -> Process {
        let mut command = logged(&program("postgres"), log);
        command.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
        command.args(["-p", &self.port.to_string()]);
        let usual = [
            "listen_addresses=127.0.0.1",
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=32MB",
            "max_connections=200",
            "autovacuum=off",
        ];
        for setting in usual.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        // SIGQUIT, not SIGKILL, so that it takes its shared memory with it.
        Process::spawn_as(command, Start { at_parents_death: Signal::SIGQUIT, user: server_user() })
    }

    /// Stops the whole server from doing anything: the postmaster takes no connection, sessions that are open go on.
    pub fn pause(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGSTOP);
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGCONT);
    }

    /// Ends every session but the one that asks, as a failing network would.
    pub fn cut_connections(&self) {
        self.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
        );
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        log_tail(&self.directory.path().join("log"))
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            process.signal(Signal::SIGCONT);
        }
        self.stop(Stop::Immediate);
    }
}

pub(crate) fn program(name: &str) -> PathBuf {
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    versions.reverse();
    let newest = versions.iter().map(|directory| directory.join(name)).find(|program| program.is_file());
    newest.unwrap_or_else(|| find_program(name, &[], "postgresql"))
}

/// The directory of PostgreSQL's programs: the newest that is installed.
pub fn programs() -> PathBuf {
    let server = program("postgres");
    server.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The user that servers run as which refuse to run as root. PostgreSQL refuses to run as root; then it runs as its own user, or as nobody.
pub fn server_user() -> Option<(Uid, Gid)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let user = ["postgres", "nobody"].into_iter().find_map(|name| User::from_name(name).ok().flatten());
    let user = user.expect("root needs a user `postgres` or `nobody` to run PostgreSQL as");
    Some((user.uid, user.gid))
}

/// Where build output is: kept between test runs, thrown away by `cargo clean`.
pub(crate) fn cache_directory() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    let target = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    target.map_or_else(std::env::temp_dir, |target| target.join("tmp")).join("towpath-testkit")
}

/// A directory as `initdb` leaves it, made by the first test process that needs one.
fn template() -> PathBuf {
    let initdb = program("initdb");
    let version = initdb.to_string_lossy().replace('/', "-");
    let cache = cache_directory();
    let template = cache.join(format!("initdb{version}"));
    fs::create_dir_all(&cache).expect("a cache directory");
    let lock = File::create(cache.join("lock")).expect("a lock file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("a lock");
    if template.is_dir() {
        return template;
    }
    let scratch = temp_dir();
    give_away(scratch.path());
    let log = scratch.path().join("log");
    let mut command = logged(&initdb, &log);
    command.arg("-D").arg(scratch.path().join("data"));
    command.args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
        "--wal-segsize=1",
    ]);
    let start = Start { user: server_user(), ..Start::default() };
    let status = Process::spawn_as(command, start).wait(Duration::from_secs(120));
    assert!(status.success(), "initdb ended with {status}:\n{}", log_tail(&log));
    let half = cache.join("half");
    let _ = fs::remove_dir_all(&half);
    copy_tree(&scratch.path().join("data"), &half);
    fs::rename(&half, &template).expect("the template takes its place");
    template
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    set_mode(to, 0o700);
    for entry in fs::read_dir(from).expect("a directory to copy").flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a file type").is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("a file can be copied");
        }
    }
}

/// Gives a tree to the user that the server runs as.
pub fn give_away(path: &Path) {
    let Some((uid, gid)) = server_user() else { return };
    chown(path, Some(uid), Some(gid)).expect("root may give files away");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a directory").flatten() {
            give_away(&entry.path());
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}
