use super::*;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use towpath_resources::{Body, Kind, read};

type Orders = Vec<UnboundedReceiver<Order>>;

fn listeners(workers: usize, inherited: Vec<Inherited>) -> (Listeners, Orders) {
    let (send, receive) = (0..workers).map(|_| unbounded_channel()).unzip();
    let certificates = Certificates::new(crate::tls::TicketKeys::random().unwrap());
    (Listeners::new(send, inherited, certificates), receive)
}

fn resource(listen: SocketAddr, protocol: &str) -> Arc<Listener> {
    let id = Id::new(Kind::Listener, "a").unwrap();
    let value = json!({"listen": listen.to_string(), "protocol": protocol});
    match read(Kind::Listener, &id, &value).unwrap().body {
        Body::Listener(listener) => listener,
        _ => panic!("no listener"),
    }
}

fn id(text: &str) -> Id {
    Id::new(Kind::Listener, text).unwrap()
}

/// What a worker was told, in short.
fn told(orders: &mut UnboundedReceiver<Order>) -> Vec<&'static str> {
    let mut told = Vec::new();
    while let Ok(order) = orders.try_recv() {
        told.push(match order {
            Order::Open(_, _, Serves::Http(_)) => "http",
            Order::Open(_, _, Serves::Stream(Mode::Plain)) => "tcp",
            Order::Open(_, _, Serves::Stream(Mode::Passthrough)) => "passthrough",
            Order::Open(_, _, Serves::Stream(Mode::Tls(_))) => "tls",
            Order::Open(_, _, Serves::Datagrams) => "udp",
            Order::Close(_) => "close",
        });
    }
    told
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// An address that is free.
fn free() -> SocketAddr {
    std::net::TcpListener::bind(any()).unwrap().local_addr().unwrap()
}

#[test]
fn a_resource_comes_changes_what_is_spoken_moves_and_goes() {
    let (listeners, mut orders) = listeners(2, Vec::new());
    let (first, second) = (free(), free());
    let change = |listener| listeners.change(vec![(id("a"), listener)]);
    assert_eq!(change(Some(resource(first, "tcp"))), [(id("a"), None)]);
    assert_eq!(listeners.urls(), [format!("tcp://{first}")]);
    assert!(std::net::TcpStream::connect(first).is_ok());
    for one in &mut orders {
        assert_eq!(told(one), ["tcp"]);
    }
    // The same again is nothing new.
    change(Some(resource(first, "tcp")));
    assert!(told(&mut orders[0]).is_empty());
    let waits = std::net::TcpStream::connect(first).unwrap();
    change(Some(resource(first, "http")));
    let said = told(&mut orders[0]);
    assert!(said.starts_with(&["http"]) && said[1..].iter().all(|one| *one == "close"), "{said:?}");
    assert_eq!(waits.take_error().unwrap().map(|error| error.to_string()), None, "the socket is the same");
    change(Some(resource(second, "http")));
    assert_eq!(listeners.urls(), [format!("http://{second}")]);
    change(None);
    assert!(listeners.urls().is_empty());
    assert!(told(&mut orders[1]).contains(&"close"));
}

#[test]
fn what_cannot_be_opened_is_said_tried_again_and_hinders_no_other() {
    let (listeners, _orders) = listeners(1, Vec::new());
    let own = listeners.open(any(), Speaks::Http, [].into()).unwrap();
    let foreign = std::net::TcpListener::bind(any()).unwrap();
    let taken = foreign.local_addr().unwrap();
    let (free, udp) = (free(), std::net::UdpSocket::bind(any()).unwrap().local_addr().unwrap());
    let told = listeners.change(vec![
        (id("taken"), Some(resource(taken, "tcp"))),
        (id("own"), Some(resource(own, "tcp"))),
        (id("good"), Some(resource(free, "tcp"))),
        (id("twin"), Some(resource(free, "tls-passthrough"))),
        (id("udp"), Some(resource(udp, "udp"))),
    ]);
    let why = |name: &str| told.iter().find(|(known, _)| *known == id(name)).unwrap().1.clone();
    assert!(why("taken").unwrap().contains("cannot be listened on"), "{told:?}");
    assert!(why("own").unwrap().contains("own settings"), "{told:?}");
    assert!(why("twin").unwrap().contains("listeners/good"), "{told:?}");
    assert_eq!((why("good"), why("udp")), (None, None));
    assert!(listeners.try_again().is_empty(), "nothing has changed");
    drop(foreign);
    assert_eq!(listeners.try_again(), [(id("taken"), None)]);
    // A port that one leaves may be another's in the same change.
    let told = listeners.change(vec![
        (id("twin"), Some(resource(free, "tls-passthrough"))),
        (id("good"), Some(resource(taken, "tcp"))),
        (id("taken"), None),
    ]);
    assert!(told.iter().all(|(_, why)| why.is_none()), "{told:?}");
}

#[test]
fn sockets_that_are_handed_over_are_taken_all_of_them_and_queues_are_shared_where_they_are_too_few() {
    for (before, after) in [(3, 1), (1, 3), (2, 2)] {
        for speaks in [Speaks::Tcp, Speaks::Udp] {
            let (old, _old_orders) = listeners(before, Vec::new());
            let address = old.open(any(), speaks.clone(), [].into()).unwrap();
            let copies = old.copies().unwrap();
            assert_eq!(copies.len(), before);
            let (new, mut orders) = listeners(after, copies);
            assert_eq!(new.open(address, speaks.clone(), [].into()).unwrap(), address);
            let dealt: Vec<usize> = orders.iter_mut().map(|one| told(one).len()).collect();
            // Sessions of datagrams are one worker's: no queue of them is shared.
            let wanted = if matches!(speaks, Speaks::Tcp) { before.max(after) } else { before };
            assert_eq!(dealt.iter().sum::<usize>(), wanted, "{dealt:?}");
            assert!(wanted < after || dealt.iter().all(|sockets| *sockets > 0), "{dealt:?}");
            old.let_go();
            assert!(old.copies().is_err(), "a gateway that ends hands nothing over");
            if matches!(speaks, Speaks::Tcp) {
                assert!(std::net::TcpStream::connect(address).is_ok());
            }
        }
    }
}
