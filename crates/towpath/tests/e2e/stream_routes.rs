//! Real servers behind stream routes of a gateway that runs alone.

use crate::platform::{Role, open_dir};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;
use towpath_testkit::postgres::programs;
use towpath_testkit::process::find_program;
use towpath_testkit::wait::block_until;
use towpath_testkit::{Postgres, Process, TempDir, free_port};

const LONG: Duration = Duration::from_secs(60);

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A gateway with stream routes by port, each with a listener of its own: port, protocol, node.
fn start(routes: &[(u16, &str, SocketAddr)]) -> (Role, TempDir) {
    let dir = open_dir();
    let file = dir.path().join("apisix.yaml");
    let mut text = "listeners:\n".to_owned();
    for (port, protocol, _) in routes {
        text += &format!("  - {{id: l{port}, listen: \"127.0.0.1:{port}\", protocol: {protocol}}}\n");
    }
    text += "stream_routes:\n";
    for (port, _, node) in routes {
        text +=
            &format!("  - {{id: s{port}, server_port: {port}, upstream: {{nodes: {{\"{node}\": 1}}}}}}\n");
    }
    std::fs::write(&file, text + "#END\n").unwrap();
    let args = ["--file", file.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    (Role::start(dir.path(), "gw", "gateway", &args), dir)
}

#[test]
fn redis_answers_through_a_stream_route() {
    let (port, through) = (free_port(), free_port());
    let dir = open_dir();
    let mut command = Command::new(find_program("redis-server", &[], "redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let _redis = Process::spawn(command);
    block_until(LONG, "redis listens", || TcpStream::connect(at(port)).ok());
    let (_gateway, _dir) = start(&[(through, "tcp", at(port))]);
    let stream = TcpStream::connect(at(through)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    // Pipelined, with a value larger than any buffer on the way.
    let value = "v".repeat(3 << 20);
    let mut writer = stream.try_clone().unwrap();
    let length = value.len();
    let sending = std::thread::spawn(move || {
        write!(
            writer,
            "PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n{value}\r\nSTRLEN k\r\nINCR n\r\nINCR n\r\n"
        )
        .unwrap();
    });
    assert_eq!(line(), "+PONG");
    assert_eq!(line(), "+OK");
    assert_eq!(line(), format!(":{length}"));
    assert_eq!((line(), line()), (":1".to_owned(), ":2".to_owned()));
    sending.join().unwrap();
    // A client that is told that the server goes.
    (&stream).write_all(b"QUIT\r\n").unwrap();
    assert_eq!(line(), "+OK");
    let mut rest = Vec::new();
    assert_eq!((&stream).read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn postgres_answers_through_a_stream_route() {
    let postgres = Postgres::start();
    let through = free_port();
    let (_gateway, _dir) = start(&[(through, "tcp", at(postgres.port()))]);
    let url = postgres.url().replace(&postgres.port().to_string(), &through.to_string());
    let mut psql = Command::new(programs().join("psql"));
    psql.args([
        "-X",
        "-A",
        "-t",
        &url,
        "-c",
        "select sum(n), length(string_agg(n::text, '')) from generate_series(1, 200000) n",
    ]);
    let output = psql.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.trim(), "20000100000|1088895", "{}", String::from_utf8_lossy(&output.stderr));
}

/// A question for the address of a name, and an answer to it as a server gives it.
#[test]
fn dns_questions_are_answered_through_a_stream_route() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let node = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length, peer)) = server.recv_from(&mut bytes) {
            let mut answer = bytes[..length].to_vec();
            answer[2] |= 0x80;
            answer[7] = 1;
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 1, 2, 3]);
            let _ = server.send_to(&answer, peer);
        }
    });
    let through = free_port();
    let (_gateway, _dir) = start(&[(through, "udp", node)]);
    for id in 0..50_u8 {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let question =
            [&[7, id, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 4][..], b"test", &[0, 0, 1, 0, 1]].concat();
        client.send_to(&question, at(through)).unwrap();
        let mut answer = [0; 512];
        let length = client.recv(&mut answer).unwrap();
        assert_eq!(answer[..2], [7, id]);
        assert_eq!(answer[length - 4..length], [10, 1, 2, 3]);
    }
}
