//! A real NATS server.

use crate::process::{Process, find_program, log_tail, logged};
use crate::{free_port, temp_dir, wait};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

/// How the server is set up.
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    /// With JetStream, stored in the server's own directory.
    pub jetstream: bool,
    /// More lines for its configuration file. `$DIR` stands for its directory.
    pub config: String,
    /// Files to put in its directory first: name and content.
    pub files: Vec<(String, String)>,
}

/// A NATS server on 127.0.0.1; ends with this guard.
#[derive(Debug)]
pub struct NatsServer {
    process: Option<Process>,
    directory: TempDir,
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
        let mut server = Self { process: None, directory, port };
        server.resume_or_start();
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
        self.resume_or_start();
    }

    /// Stops it from doing anything, connections stay.
    pub fn pause(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGSTOP);
    }

    /// Lets a paused one go on.
    pub fn resume(&self) {
        self.process.as_ref().expect("a running server").signal(Signal::SIGCONT);
    }

    fn resume_or_start(&mut self) {
        let log = self.directory.path().join("log");
        let mut command = logged(&find_program("nats-server", &[], "nats-server"), &log);
        command.arg("-c").arg(self.directory.path().join("nats.conf"));
        let mut process = Process::spawn(command);
        let port = self.port;
        wait::block_until(Duration::from_secs(20), "a NATS server that answers", || {
            if let Some(status) = process.exited() {
                panic!("nats-server ended with {status}:\n{}", log_tail(&log));
            }
            greets(port).then_some(())
        });
        self.process = Some(process);
    }
}

/// A server says INFO first.
fn greets(port: u16) -> bool {
    let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout can be set");
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("INFO")
}
