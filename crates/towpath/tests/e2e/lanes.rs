//! Lanes: where a tagged request goes, and what `explain` says of it.

use crate::apps;
use crate::platform::Up;

#[test]
fn a_tag_leads_into_the_lane_however_it_is_carried() {
    let up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "base"), &[]).ok();
    up.push(&apps::python(up.dir.path(), "shop", "blue"), &["--lane", "blue"]).ok();
    let version = |host: &str, target: &str, headers: &[(&str, &str)]| {
        up.get(host, target, headers).json()["version"].as_str().unwrap().to_owned()
    };
    assert_eq!(version("shop.localhost", "/", &[]), "base");
    assert_eq!(version("shop.localhost", "/", &[("towpath-lane", "blue")]), "blue");
    assert_eq!(version("shop.localhost", "/", &[("cookie", "a=b; towpath_lane=blue")]), "blue");
    assert_eq!(version("shop.localhost", "/?towpath_lane=blue", &[]), "blue");
    assert_eq!(version("blue--shop.localhost", "/", &[]), "blue");
    assert_eq!(
        version("shop.localhost", "/", &[("towpath-lane", "green")]),
        "base",
        "an unknown tag goes to base"
    );
    let served = up.get("shop.localhost", "/", &[("towpath-lane", "green")]);
    assert_eq!(served.header("towpath-lane-served"), Some("base"), "{served:?}");

    // An app that is not in the lane serves from base.
    up.push(&apps::python(up.dir.path(), "orders", "base"), &[]).ok();
    assert_eq!(version("orders.localhost", "/", &[("towpath-lane", "blue")]), "base");

    let url = format!("http://shop.localhost:{}/", up.role.address("gateway").port());
    let explained = up.towpath(&["explain", &url, "-H", "towpath-lane: blue"]).ok().stdout;
    for part in ["shop.localhost", "blue", "header towpath-lane", "load", "100%"] {
        assert!(explained.contains(part), "{part} in {explained}");
    }
    let json = up.towpath(&["explain", &url, "--cookie", "towpath_lane=blue", "-o", "json"]).ok().json();
    assert_eq!(json[0]["lane"], "blue", "{json:#}");
    assert_eq!(json[0]["endpoints"].as_array().unwrap().len(), 2, "{json:#}");
    let none = up.towpath(&["explain", "http://nowhere.localhost/"]);
    assert!(none.code == 4 && none.stdout.contains("no_route"), "{none:?}");

    let lanes = up.towpath(&["lanes", "list"]).ok().stdout;
    assert!(lanes.contains("blue") && lanes.contains("shop"), "{lanes}");
    assert_eq!(up.towpath(&["lanes", "remove", "blue"]).code, 6, "while apps are in it");
    up.towpath(&["delete", "shop", "--lane", "blue", "--yes"]).ok();
    assert_eq!(version("shop.localhost", "/", &[("towpath-lane", "blue")]), "base");
    up.towpath(&["lanes", "remove", "blue"]).ok();
}
