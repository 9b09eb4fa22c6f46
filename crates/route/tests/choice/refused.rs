use towpath_route::{Change, RequestView, Table};
use towpath_types::lane::LanePolicy;
use towpath_types::{AppRef, LaneName, Place, SpaceRef};

struct Tagged(&'static str);

impl RequestView for Tagged {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        (name == "x-lane" && nth == 0).then_some(self.0.as_bytes())
    }
    fn path(&self) -> &str {
        "/"
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn client(&self) -> Option<std::net::IpAddr> {
        None
    }
    fn inside(&self) -> bool {
        false
    }
}

#[test]
fn a_policy_that_cannot_be_used_hides_no_lane() {
    let space = |header: &str, names: &[&str]| Change::PutSpace {
        space: SpaceRef::first(),
        policy: LanePolicy { header: header.into(), ..LanePolicy::default() },
        names: names.iter().map(|name| LaneName::new(name).unwrap()).collect(),
        local: vec![],
    };
    let app: AppRef = crate::support::app();
    let route = Change::PutRoute(towpath_types::spec::RouteSpec {
        host: "a".into(),
        path: "/".into(),
        app,
        strip_path: false,
        entry: vec![],
        automatic: false,
    });
    let (table, refused) = Table::new(Place::default()).apply(&[route, space("x-lane", &["base"])], 1);
    assert!(refused.is_empty());
    let (table, refused) = table.apply(&[space("via", &["base", "late"])], 2);
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].key, "space default/default");
    assert!(refused[0].why.starts_with("lanes.header"), "{}", refused[0].why);
    let matched = table.find(b"a", b"/").unwrap();
    assert_eq!(matched.policy().header, "x-lane", "the policy before");
    let lane = table.lane(&matched, &Tagged("late")).unwrap();
    assert_eq!(lane.reason, towpath_route::LaneReason::NotInApp, "the new lane is known");
}
