//! A session stays with its instance.

use crate::support::{Raw, Rig, World};
use serde_json::json;

fn app(name: &'static str) -> Raw {
    Raw::start(move |_, mut client| {
        while let Some(head) = client.try_read_request() {
            let login = head[0].contains("/login");
            let cookie =
                if login { "Set-Cookie: JSESSIONID=1; Path=/shop; HttpOnly; SameSite=Lax\r\n" } else { "" };
            client.send(format!("HTTP/1.1 200 OK\r\nX-App: {name}\r\n{cookie}Content-Length: 0\r\n\r\n"));
        }
    })
}

#[tokio::test]
async fn the_cookie_follows_the_apps_session_and_holds_the_client() {
    let (one, two) = (app("one"), app("two"));
    let world = World::new()
        .app("shop", json!({"balancer": "roundrobin"}))
        .instance("shop", one.address)
        .instance("shop", two.address);
    let rig = Rig::start(world.clone()).await;
    let plain = rig.get("shop.localhost", "/");
    assert!(plain.all("set-cookie").is_empty(), "an app without sessions pays nothing");
    let login = rig.get("shop.localhost", "/login");
    let cookies = login.all("set-cookie");
    assert_eq!(cookies.len(), 2);
    assert!(
        cookies[1].starts_with("towpath_sticky=")
            && cookies[1].ends_with("; Path=/shop; HttpOnly; SameSite=Lax"),
        "{cookies:?}"
    );
    let cookie = cookies[1].split(';').next().unwrap().to_owned();
    let home = login.header("x-app").unwrap().to_owned();
    let with = |cookie: &str| {
        format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\nCookie: JSESSIONID=1; {cookie}\r\n\r\n")
    };
    for _ in 0..6 {
        let answer = rig.client().request(&with(&cookie));
        assert_eq!(answer.header("x-app"), Some(home.as_str()));
        assert!(answer.all("set-cookie").is_empty());
    }
    let forged: Vec<_> = (0..4)
        .map(|_| rig.client().request(&with("towpath_sticky=forged")).header("x-app").unwrap().to_owned())
        .collect();
    assert!(forged.iter().any(|app| *app != home), "a forged cookie binds to nothing");

    // The instance is gone: the session moves, and the client gets a new cookie.
    let dir = rig.stop().await;
    let mut moved = world;
    moved.instances.retain(|instance| {
        instance["port"] != json!(if home == "one" { one.address.port() } else { two.address.port() })
    });
    moved.write(dir.path());
    let rig = Rig::start_in(dir, |_| {}, None).await;
    let answer = rig.client().request(&with(&cookie));
    assert_ne!(answer.header("x-app"), Some(home.as_str()));
    let set = answer.all("set-cookie")[0];
    assert!(
        set.ends_with("; Path=/shop; HttpOnly; SameSite=Lax"),
        "else both would be sent from now on: {set}"
    );
    let fresh = set.split(';').next().unwrap().to_owned();
    assert!(fresh.starts_with("towpath_sticky=") && fresh != cookie);
    assert!(rig.client().request(&with(&fresh)).all("set-cookie").is_empty());
    let both = rig.client().request(&with(&format!("{cookie}; {fresh}")));
    assert_eq!(both.header("x-app"), answer.header("x-app"), "the first that is there counts");
    assert!(both.all("set-cookie").is_empty());
}

#[tokio::test]
async fn a_session_stays_where_it_is_when_the_client_comes_by_another_gateway_with_the_same_key() {
    let (one, two) = (app("one"), app("two"));
    let world = World::new()
        .app("shop", json!({"balancer": "roundrobin"}))
        .instance("shop", one.address)
        .instance("shop", two.address);
    let keys = towpath_testkit::temp_dir();
    let key = keys.path().join("sticky.key");
    std::fs::write(&key, "5a".repeat(32)).unwrap();
    let shared = || {
        let key = key.clone();
        move |settings: &mut towpath_gateway::GatewaySettings| settings.sticky_key = Some(key)
    };
    let gateways =
        [Rig::start_with(world.clone(), shared(), None).await, Rig::start_with(world, shared(), None).await];
    let login = gateways[0].get("shop.localhost", "/login");
    let home = login.header("x-app").unwrap().to_owned();
    let cookie = login.all("set-cookie")[1].split(';').next().unwrap().to_owned();
    for turn in 0..8 {
        let request =
            format!("GET / HTTP/1.1\r\nHost: shop.localhost\r\nCookie: JSESSIONID=1; {cookie}\r\n\r\n");
        let answer = gateways[turn % 2].client().request(&request);
        assert_eq!(answer.header("x-app"), Some(home.as_str()), "{turn}");
        assert!(answer.all("set-cookie").is_empty(), "it needs no new cookie");
    }
}
