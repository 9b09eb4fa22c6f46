//! The launchers launch, stop and clean up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use towpath_testkit::postgres::Stop;
use towpath_testkit::{HttpApp, NatsOptions, NatsServer, Postgres, Process, wait};

#[test]
fn nats_starts_and_comes_back_on_its_port() {
    let mut server = NatsServer::start_with(&NatsOptions { jetstream: true, ..NatsOptions::default() });
    let port = server.port();
    server.stop();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    server.restart();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    assert!(server.directory().join("jetstream").is_dir());
}

#[test]
fn postgres_starts_keeps_its_data_and_comes_back_on_its_port() {
    let mut server = Postgres::start();
    server.create_database("mine");
    server.psql_in("mine", "CREATE TABLE t AS SELECT 7 AS n");
    for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        server.stop(how);
        assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
        server.restart();
        assert_eq!(server.psql_in("mine", "SELECT n FROM t"), "7");
    }
}

#[test]
fn a_child_ends_with_its_guard() {
    let mut command = Command::new("sleep");
    command.arg("600");
    let process = Process::spawn(command);
    let proc_directory = format!("/proc/{}", process.pid());
    assert!(std::fs::exists(&proc_directory).unwrap());
    drop(process);
    assert!(!std::fs::exists(&proc_directory).unwrap());
}

/// Not a test of its own: what `a_child_ends_with_a_killed_test_process` kills.
#[test]
fn victim() {
    if std::env::var_os("TOWPATH_TEST_VICTIM").is_none() {
        return;
    }
    let mut command = Command::new("sleep");
    command.arg("600");
    let process = Process::spawn(command);
    // Straight to the file descriptor: the harness captures what goes through `println!`.
    writeln!(std::io::stderr(), "victim-child {}", process.pid()).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_child_ends_with_a_killed_test_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--nocapture"]).env("TOWPATH_TEST_VICTIM", "1");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut victim = Process::spawn(command);
    let stderr = BufReader::new(victim.child().stderr.take().unwrap());
    let child = stderr
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("victim-child ").map(|pid| format!("/proc/{pid}/stat")))
        .expect("the victim says which child it has");
    victim.kill();
    // The child is an orphan now: gone, or a zombie that init has not reaped yet.
    wait::block_until(Duration::from_secs(10), "the end of the orphan", || {
        match std::fs::read_to_string(&child) {
            Err(_) => Some(()),
            Ok(stat) => stat.contains(") Z ").then_some(()),
        }
    });
}

fn ask(app: &HttpApp, request: &str) -> String {
    let mut stream = TcpStream::connect(app.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A connection that is broken off gives what came before.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn an_app_behaves_as_told() {
    let app = HttpApp::start("shop");
    let get = |path: &str| ask(&app, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
    assert!(get("/status/418").starts_with("HTTP/1.1 418"));
    let described = get("/some/path?q=1");
    assert!(
        described.contains("x-app: shop") && described.contains(r#""path":"/some/path?q=1""#),
        "{described}"
    );
    assert!(get("/bytes/5").ends_with("xxxxx"));
    assert!(get("/sse/2/1").contains("data: event 1"));
    assert_eq!(get("/close"), "");
    assert!(get("/partial").ends_with("\r\n\r\n0123456789"));
    app.set_status(503);
    assert!(get("/").starts_with("HTTP/1.1 503"));
    app.set_refusing(true);
    assert_eq!(get("/"), "");
    assert_eq!(app.requests(), 8);
    assert_eq!(app.in_flight(), 0);
}

#[test]
fn an_app_echoes_upgraded_streams() {
    let app = HttpApp::start("shop");
    let mut stream = TcpStream::connect(app.address()).unwrap();
    stream
        .write_all(b"GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    stream.write_all(b"ping").unwrap();
    let mut echo = [0; 4];
    reader.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"ping");
}
