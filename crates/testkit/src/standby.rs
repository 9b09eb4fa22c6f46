//! A standby of a PostgreSQL server, and PgBouncer before one.

use crate::postgres::{Postgres, give_away, program, server_user};
use crate::process::{Process, Start, find_program, log_tail, logged};
use crate::{free_port, temp_dir, wait};
use nix::sys::signal::Signal;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const READY: Duration = Duration::from_secs(60);

/// A server that follows another one until it is promoted; ends with this guard.
#[derive(Debug)]
pub struct Standby {
    _process: Process,
    _directory: TempDir,
    port: u16,
}

impl Standby {
    /// Copies a running server and follows it. From then on the first one commits nothing that the standby does not have.
    pub fn of(primary: &Postgres) -> Self {
        let directory = temp_dir();
        give_away(directory.path());
        let (data, log) = (directory.path().join("data"), directory.path().join("log"));
        let mut copy = logged(&program("pg_basebackup"), &log);
        copy.arg("-D")
            .arg(&data)
            .args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d"])
            .arg(primary.url());
        let status = Process::spawn_as(copy, start(Signal::SIGKILL)).wait(READY);
        assert!(status.success(), "pg_basebackup ended with {status}:\n{}", log_tail(&log));
        let port = free_port();
        let mut server = logged(&program("postgres"), &log);
        server.arg("-D").arg(&data).arg("-k").arg(directory.path()).args(["-p", &port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "fsync=off", "shared_buffers=32MB", "max_connections=200"]
        {
            server.args(["-c", setting]);
        }
        let mut process = Process::spawn_as(server, start(Signal::SIGQUIT));
        wait::block_until(READY, "a standby that follows", || {
            if let Some(status) = process.exited() {
                panic!("postgres ended with {status}:\n{}", log_tail(&log));
            }
            (primary.psql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1")
                .then_some(())
        });
        primary.psql("ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.psql("SELECT pg_reload_conf()");
        wait::block_until(READY, "a synchronous standby", || {
            (primary.psql("SELECT sync_state FROM pg_stat_replication") == "sync").then_some(())
        });
        let standby = Self { _process: process, _directory: directory, port };
        wait::block_until(READY, "a standby that answers", || standby.try_psql("SELECT 1"));
        standby
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Makes it the server that takes writes.
    pub fn promote(&self) {
        self.try_psql("SELECT pg_promote(true, 60)").expect("a promotion");
    }

    /// Runs SQL; what it gives, if it succeeds.
    pub fn try_psql(&self, sql: &str) -> Option<String> {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port);
        let output = Command::new(program("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .arg(url)
            .output()
            .expect("psql runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// PgBouncer in session mode; ends with this guard.
#[derive(Debug)]
pub struct Bouncer {
    process: Option<Process>,
    directory: TempDir,
    port: u16,
}

impl Bouncer {
    /// Before a server.
    pub fn before(server: &Postgres) -> Self {
        let (directory, port) = (temp_dir(), free_port());
        let config = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = session\ndefault_pool_size = 50\n",
            server.port()
        );
        std::fs::write(directory.path().join("pgbouncer.ini"), config).expect("a configuration");
        std::fs::write(directory.path().join("log"), "").expect("a log");
        give_away(directory.path());
        let mut bouncer = Self { process: None, directory, port };
        bouncer.restart();
        bouncer
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once and starts it again.
    pub fn restart(&mut self) {
        self.process = None;
        let log = self.directory.path().join("log");
        let mut command = logged(&find_program("pgbouncer", &[], "pgbouncer"), &log);
        command.arg(self.directory.path().join("pgbouncer.ini"));
        let mut process = Process::spawn_as(command, start(Signal::SIGKILL));
        wait::block_until(READY, "PgBouncer answers", || {
            if let Some(status) = process.exited() {
                panic!("pgbouncer ended with {status}:\n{}", log_tail(&log));
            }
            TcpStream::connect(("127.0.0.1", self.port)).ok().map(drop)
        });
        self.process = Some(process);
    }
}

fn start(at_parents_death: Signal) -> Start {
    Start { at_parents_death, user: server_user() }
}
