use super::channel::Channel;
use super::status::{Predecessor, Word};
use super::*;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use tokio::net::UnixStream;
use towpath_types::{CellId, Incarnation, InstanceId, Revision};
use towpath_wire::gateway::Heard;

fn cell(n: u128) -> CellId {
    CellId(uuid::Uuid::from_u128(n))
}

fn status(revision: u64, heard: &[(u128, u64, u64)], draining: &[(u128, u64)]) -> Status {
    let heard = heard
        .iter()
        .map(|(id, start, seq)| (cell(*id), Heard { incarnation: Incarnation(*start), seq: *seq }));
    let draining = draining.iter().map(|(id, requests)| (InstanceId(uuid::Uuid::from_u128(*id)), *requests));
    Status { revision: Revision(revision), heard: heard.collect(), draining: draining.collect() }
}

#[test]
fn two_processes_serve_what_both_serve_and_have_in_flight_what_either_has() {
    let new = status(7, &[(1, 5, 3), (2, 5, 9), (3, 6, 1)], &[(8, 1)]);
    let old = status(6, &[(1, 5, 4), (3, 5, 9)], &[(8, 2), (9, 1)]);
    let both = status(6, &[(1, 5, 3), (3, 5, 9)], &[(8, 3), (9, 1)]);
    assert_eq!(new.merge(&old), both);
}

#[test]
fn nothing_is_said_before_the_process_before_has_spoken_and_all_of_it_when_it_is_gone() {
    let word = Word::new(true);
    let (own, old) = (status(7, &[], &[]), status(6, &[], &[]));
    assert!(!word.is_active());
    assert_eq!(word.of_all(own.clone()), None);
    word.predecessor.send_replace(Predecessor::Says(old.clone()));
    assert_eq!(word.of_all(own.clone()), Some(old));
    word.predecessor.send_replace(Predecessor::None);
    assert_eq!(word.of_all(own.clone()), Some(own));
}

#[tokio::test]
async fn descriptors_come_with_their_messages_between_long_ones_without() {
    let (one, other) = UnixStream::pair().unwrap();
    let (one, mut other) = (Channel::new(one), Channel::new(other));
    let (mut end, passed) = std::os::unix::net::UnixStream::pair().unwrap();
    let passed = OwnedFd::from(passed);
    let long = Message::Refused { why: "x".repeat(300_000) };
    let sent = long.clone();
    let sending = tokio::spawn(async move {
        one.send(&sent, None).await.unwrap();
        one.send(&Message::Kept { name: "a".into() }, Some(passed.as_fd())).await.unwrap();
        one.send(&Message::Ready, None).await.unwrap();
        let socket = Message::Socket { transport: Transport::Udp, address: "127.0.0.1:1".parse().unwrap() };
        one.send(&socket, Some(passed.as_fd())).await.unwrap();
    });
    assert_eq!(other.receive().await.unwrap().unwrap().0, long);
    let (message, descriptor) = other.receive().await.unwrap().unwrap();
    assert_eq!(message, Message::Kept { name: "a".into() });
    let mut got = std::os::unix::net::UnixStream::from(descriptor.unwrap());
    got.write_all(b"hello").unwrap();
    let mut read = [0; 5];
    end.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"hello");
    assert_eq!(other.receive().await.unwrap().unwrap().0, Message::Ready);
    assert!(other.receive().await.unwrap().unwrap().1.is_some());
    sending.await.unwrap();
    assert!(other.receive().await.unwrap().is_none(), "the other side has ended");
}

#[test]
fn a_long_directory_has_a_socket_too() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(60)).join("e".repeat(60));
    std::fs::create_dir_all(&deep).unwrap();
    for dir in [dir.path(), &deep] {
        // One that was left behind is no hindrance.
        drop(listen(dir).unwrap());
        let _listener = listen(dir).unwrap();
        let path = SocketPath::new(dir).unwrap();
        assert!(std::os::unix::net::UnixStream::connect(&path.path).is_ok());
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(matches!(TakeOver::ask(&dir.path().join("none")), Err(TakeOverError::Nobody)));
}
