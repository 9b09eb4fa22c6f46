use super::names::Names;
use super::served::Served;
use super::tickets::TicketKeys;
use super::{Certificates, TlsListener};
use crate::settings::TlsSettings;
use rustls::server::ProducesTickets;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use towpath_resources::model::Ssl;
use towpath_resources::{Body, Id, Kind, read};
use towpath_testkit::tls::Authority;

/// Seconds since 1970, as tests have them.
static NOW: AtomicU64 = AtomicU64::new(0);

fn ssl(id: &str, names: &[&str], days: i64, more: Value) -> (Id, Arc<Ssl>) {
    let made = Authority::new().issue_for_days(names, days);
    let mut value = json!({"snis": names, "cert": made.certificate, "key": made.key});
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let id = Id::new(Kind::Ssl, id).unwrap();
    match read(Kind::Ssl, &id, &value).unwrap().body {
        Body::Ssl(ssl) => (id, ssl),
        _ => unreachable!(),
    }
}

#[test]
fn of_several_for_a_name_the_stricter_the_valid_and_the_longer_one_serves() {
    let keys = TicketKeys::random().unwrap();
    let authority = Authority::new();
    let all = [
        ssl("short", &["a.test", "b.test"], 10, json!({})),
        ssl("long", &["a.test", "*.c.test", "x.c.test"], 90, json!({})),
        ssl("over", &["b.test", "d.test"], -1, json!({})),
        ssl("asking", &["x.c.test"], 5, json!({"client": {"ca": authority.pem()}})),
    ];
    let served: Vec<_> =
        all.iter().map(|(id, ssl)| Arc::new(Served::of_resource(id, ssl, &keys).unwrap())).collect();
    let now = i64::try_from(crate::clock::unix_ms() / 1000).unwrap();
    let found = |names: &Names, name: &str| {
        names.find(name).and_then(|served| served.id.as_ref()).map(|id| id.as_str().to_owned())
    };
    for backwards in [false, true] {
        let names =
            if backwards { Names::new(served.iter().rev(), now) } else { Names::new(served.iter(), now) };
        for (name, id) in [
            ("a.test", Some("long")),
            ("b.test", Some("short")),
            ("d.test", Some("over")),
            ("y.c.test", Some("long")),
            ("x.c.test", Some("asking")),
            ("x.c.test.", Some("asking")),
            ("y.z.c.test", None),
            ("c.test", None),
        ] {
            assert_eq!(found(&names, name).as_deref(), id, "{name}");
        }
        assert!(names.asks_clients);
    }
    let any = ssl("any", &["*"], 9, json!({}));
    let any = [Arc::new(Served::of_resource(&any.0, &any.1, &keys).unwrap()), served[0].clone()];
    let names = Names::new(any.iter(), now);
    assert_eq!(found(&names, "what.ever").as_deref(), Some("any"));
    assert_eq!(found(&names, "a.test").as_deref(), Some("short"));
    assert!(!names.asks_clients);
}

#[test]
fn what_cannot_serve_is_told_and_the_one_from_before_goes_on() {
    let certificates = Certificates::new(TicketKeys::random().unwrap());
    let listener = TlsListener::new(&TlsSettings::at("127.0.0.1:0".parse().unwrap()), &certificates).unwrap();
    let (id, good) = ssl("1", &["a.test"], 9, json!({}));
    assert_eq!(certificates.change(&[(id.clone(), good.clone())], &[]), []);
    let first = listener.find(Some("a.test")).unwrap();
    certificates.change(&[(id.clone(), good.clone())], &[]);
    assert!(Arc::ptr_eq(&first, &listener.find(Some("a.test")).unwrap()), "nothing changed");
    let bad = Ssl { key: "no key".into(), ..Ssl::clone(&good) };
    let refused = certificates.change(&[(id.clone(), Arc::new(bad))], &[]);
    assert!(refused[0].1.starts_with("key: cannot be read"), "{refused:?}");
    assert!(Arc::ptr_eq(&first, &listener.find(Some("a.test")).unwrap()));
    let mut text = String::new();
    certificates.render(&mut text);
    assert!(text.contains("towpath_gateway_certificate_expiry_seconds{id=\"1\"} 77"), "{text}");
    certificates.change(&[], &[id]);
    assert!(listener.find(Some("a.test")).is_none());
}

#[test]
fn tickets_end_with_their_keys_and_belong_to_one_scope() {
    let now = || NOW.load(SeqCst);
    let keys = Arc::new(TicketKeys::of(&[1; 32], now));
    let (tickets, other) = (keys.of_scope(None), keys.of_scope(Some([2; 32])));
    let elsewhere = Arc::new(TicketKeys::of(&[1; 32], now)).of_scope(None);
    let hour = 3600;
    NOW.store(100 * hour, SeqCst);
    let ticket = tickets.encrypt(b"session").unwrap();
    for (at, opens) in [(89, false), (90, true), (101, true), (107, true), (108, false)] {
        NOW.store(at * hour, SeqCst);
        let opened = tickets.decrypt(&ticket);
        assert_eq!(opened.as_deref(), opens.then_some(&b"session"[..]), "at {at} h");
        assert_eq!(elsewhere.decrypt(&ticket), opened, "another process with this secret");
    }
    NOW.store(100 * hour, SeqCst);
    assert_eq!(other.decrypt(&ticket), None);
    assert_eq!(Arc::new(TicketKeys::of(&[3; 32], now)).of_scope(None).decrypt(&ticket), None);
    for at in 0..ticket.len() {
        let mut torn = ticket.clone();
        torn[at] ^= 1;
        assert_eq!(tickets.decrypt(&torn), None, "byte {at}");
        assert_eq!(tickets.decrypt(&ticket[..at]), None, "cut at {at}");
    }
    assert_ne!(tickets.encrypt(b"session").unwrap(), ticket);
}
