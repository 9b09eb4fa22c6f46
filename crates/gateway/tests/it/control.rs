//! The gateway on the bus: snapshot, deltas, announcements, reports, explanations.

use crate::support::{Client, PATIENCE, Rig, World, instance_id};
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use towpath_bus::{Bus, BusError, BusState, MemoryBus, Message, Subscription, SubscriptionSource};
use towpath_testkit::{HttpApp, wait};
use towpath_types::Revision;
use towpath_wire::cell::CellAnnounce;
use towpath_wire::gateway::{
    ExplainRequest, Explanation, GatewayDelta, GatewayReport, Item, SnapshotPage, SnapshotRequest,
};
use towpath_wire::{decode, encode, subject};

/// Managers and cells, as far as a gateway can tell.
struct Others {
    bus: MemoryBus,
    snapshots: Arc<AtomicU64>,
    reports: Subscription,
}

fn items(world: &World) -> Vec<Item> {
    world.items.iter().map(|item| serde_json::from_value(item.clone()).unwrap()).collect()
}

fn announce(world: &World, seq: u64, more: Value) -> CellAnnounce {
    let mut cell = world.announce(seq);
    for (key, value) in more.as_object().unwrap() {
        cell[key] = value.clone();
    }
    serde_json::from_value(cell).unwrap()
}

impl Others {
    /// Serves this world's items as a snapshot at a revision, one item a page.
    async fn start(world: &World, revision: u64) -> Self {
        let bus = MemoryBus::new();
        let snapshots = Arc::new(AtomicU64::new(0));
        let mut asked = bus.subscribe_queue(subject::GATEWAY_SNAPSHOT, subject::MANAGERS).await.unwrap();
        let reports = bus.subscribe(subject::GATEWAY_REPORT_ALL).await.unwrap();
        let (answering, count, items) = (bus.clone(), snapshots.clone(), items(world));
        tokio::spawn(async move {
            while let Some(message) = asked.next().await {
                let request: SnapshotRequest = decode(&message.payload).unwrap();
                let at: usize = request.cursor.map_or(0, |cursor| cursor.parse().unwrap());
                count.fetch_add(u64::from(at == 0), Ordering::SeqCst);
                let next = (at + 1 < items.len()).then(|| (at + 1).to_string());
                let page = SnapshotPage {
                    epoch: 0,
                    revision: Revision(revision + at as u64),
                    items: vec![items[at].clone()],
                    next,
                };
                answering.publish(&message.reply.unwrap(), Bytes::from(encode(&page))).await.unwrap();
            }
        });
        Self { bus, snapshots, reports }
    }

    async fn delta(&self, from: u64, to: u64, put: Vec<Item>) {
        let delta =
            GatewayDelta { epoch: 1, from: Revision(from), to: Revision(to), put, delete: Vec::new() };
        self.bus.publish(subject::GATEWAY_DELTA, Bytes::from(encode(&delta))).await.unwrap();
    }

    async fn announce(&self, announce: &CellAnnounce) {
        self.bus
            .publish(&subject::cell_announce(announce.cell), Bytes::from(encode(announce)))
            .await
            .unwrap();
    }

    /// The first report that satisfies.
    async fn report(&mut self, what: &str, satisfies: impl Fn(&GatewayReport) -> bool) -> GatewayReport {
        let end = Instant::now() + PATIENCE;
        loop {
            let next = tokio::time::timeout_at(end.into(), self.reports.next()).await;
            let message = next.unwrap_or_else(|_| panic!("no report: {what}")).unwrap();
            let report: GatewayReport = decode(&message.payload).unwrap();
            if satisfies(&report) {
                return report;
            }
        }
    }

    async fn rig(&self) -> Rig {
        Rig::start_in(towpath_testkit::temp_dir(), |_| {}, Some(Arc::new(self.bus.clone()))).await
    }
}

/// A blocking request off the runtime's thread.
async fn get(rig: &Rig, host: &'static str, path: &'static str) -> u16 {
    let mut client = rig.client();
    tokio::task::spawn_blocking(move || {
        client.request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).status
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn what_managers_and_cells_say_is_served_at_once_and_reported() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let mut others = Others::start(&world, 10).await;
    let rig = others.rig().await;
    let report = others.report("the snapshot", |report| report.revision == Revision(10)).await;
    assert_eq!(report.listeners, [format!("http://{}", rig.address)]);
    assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 503, "no instance yet");
    let cell = announce(&world, 1, json!({}));
    others.announce(&cell).await;
    others
        .report("the announcement", |report| report.heard.get(&cell.cell).is_some_and(|heard| heard.seq == 1))
        .await;
    assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 200, "what is reported is served");
    assert_eq!(get(&rig, "blog.localhost", "/status/200").await, 404);
    others.delta(10, 11, items(&World::new().app("blog", json!({})))).await;
    others.report("the delta", |report| report.revision == Revision(11)).await;
    assert_eq!(get(&rig, "blog.localhost", "/status/200").await, 503);
    assert_eq!(others.snapshots.load(Ordering::SeqCst), 1);
    others.delta(20, 21, Vec::new()).await;
    wait::poll_until(PATIENCE, "another snapshot", || {
        (others.snapshots.load(Ordering::SeqCst) == 2).then_some(())
    })
    .await;
    others.report("the second snapshot", |report| report.revision == Revision(10)).await;
}

#[tokio::test]
async fn draining_instances_get_nothing_new_and_are_reported_until_they_are_free() {
    let apps = [HttpApp::start("old"), HttpApp::start("new")];
    let world = World::new().app("shop", json!({})).instance("shop", apps[0].address());
    let mut others = Others::start(&world, 1).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(1)).await;
    let first = announce(&world, 1, json!({}));
    others.announce(&first).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    let mut slow = rig.client();
    slow.send("GET /delay/700 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    wait::poll_until(PATIENCE, "the request at the app", || (apps[0].in_flight() > 0).then_some(())).await;
    let mut next = World::new().app("shop", json!({}));
    next = next
        .instance_with("shop", apps[0].address(), json!({"state": "draining"}))
        .instance("shop", apps[1].address());
    others.announce(&announce(&next, 2, json!({}))).await;
    let report =
        others.report("the draining", |report| report.heard.values().any(|heard| heard.seq == 2)).await;
    let old = instance_id(1).parse().unwrap();
    assert_eq!(report.draining.get(&old), Some(&1));
    for _ in 0..10 {
        assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 200);
    }
    assert_eq!((apps[0].requests(), apps[1].requests()), (1, 10));
    others.report("the end of draining", |report| report.draining.is_empty()).await;
    let answer = tokio::task::spawn_blocking(move || slow.answer().status).await.unwrap();
    assert_eq!(answer, 200);
}

#[tokio::test]
async fn a_gateway_starts_again_from_its_snapshot_with_nobody_on_the_bus() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let mut others = Others::start(&world, 5).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.announce(&announce(&world, 1, json!({}))).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    let file = rig.dir.path().join("snapshot.json");
    wait::poll_until(PATIENCE, "the file with the endpoint", || {
        std::fs::read_to_string(&file).ok().filter(|text| text.contains(&instance_id(1))).map(|_| ())
    })
    .await;
    let dir = rig.stop().await;
    for bus in [None, Some(Arc::new(MemoryBus::new()) as Arc<dyn Bus>)] {
        let copy = towpath_testkit::temp_dir();
        for name in ["snapshot.json", "gateway.json"] {
            std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
        let rig = Rig::start_in(copy, |_| {}, bus).await;
        assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 200);
    }
}

/// A bus that ends, or forgets, every subscription when it is told to.
struct EndingBus {
    bus: MemoryBus,
    ends: tokio::sync::watch::Sender<u64>,
    /// Nothing ends and nothing comes any more.
    silently: bool,
}

struct EndingSource {
    inner: Subscription,
    ends: tokio::sync::watch::Receiver<u64>,
    silently: bool,
}

impl EndingBus {
    fn new(others: &Others, silently: bool) -> Arc<Self> {
        let ends = tokio::sync::watch::Sender::new(0);
        Arc::new(Self { bus: others.bus.clone(), ends, silently })
    }
}

#[async_trait::async_trait]
impl SubscriptionSource for EndingSource {
    async fn next(&mut self) -> Option<Message> {
        let forgotten = tokio::select! {
            biased;
            _ = self.ends.wait_for(|times| *times > 0) => self.silently,
            message = self.inner.next() => return message,
        };
        if forgotten {
            std::future::pending::<()>().await;
        }
        None
    }

    fn lost(&self) -> u64 {
        0
    }
}

#[async_trait::async_trait]
impl Bus for EndingBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.bus.publish(subject, payload).await
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        self.bus.request(subject, payload, timeout).await
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        let inner = self.bus.subscribe(pattern).await?;
        // Those that are made after it are well.
        if *self.ends.borrow() > 0 {
            return Ok(inner);
        }
        let ends = self.ends.subscribe();
        Ok(Subscription::new(Box::new(EndingSource { inner, ends, silently: self.silently })))
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        self.bus.subscribe_queue(pattern, queue).await
    }

    fn state(&self) -> tokio::sync::watch::Receiver<BusState> {
        self.bus.state()
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.bus.flush().await
    }
}

#[tokio::test]
async fn a_subscription_that_ends_is_made_again() {
    let world = World::new().app("shop", json!({}));
    let mut others = Others::start(&world, 5).await;
    let bus = EndingBus::new(&others, false);
    let _rig = Rig::start_in(towpath_testkit::temp_dir(), |_| {}, Some(bus.clone())).await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    bus.ends.send_modify(|times| *times += 1);
    wait::poll_until(PATIENCE, "another snapshot", || {
        (others.snapshots.load(Ordering::SeqCst) == 2).then_some(())
    })
    .await;
    others.delta(5, 6, Vec::new()).await;
    others.report("a delta", |report| report.revision == Revision(6)).await;
}

#[tokio::test]
async fn subscriptions_that_die_silently_are_made_again_and_what_was_missed_is_caught_up() {
    let world = World::new().app("shop", json!({}));
    let mut others = Others::start(&world, 5).await;
    let bus = EndingBus::new(&others, true);
    let rig = Rig::start_in(towpath_testkit::temp_dir(), |_| {}, Some(bus.clone())).await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.announce(&announce(&world, 1, json!({}))).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    bus.ends.send_replace(1);
    others.delta(5, 6, items(&World::new().app("blog", json!({})))).await;
    // From here on only signs of life, as managers and cells give them.
    let (signs, cells) = (others.bus.clone(), world.clone());
    let speaking = tokio::spawn(async move {
        for seq in 2.. {
            let delta = GatewayDelta {
                epoch: 1,
                from: Revision(6),
                to: Revision(6),
                put: Vec::new(),
                delete: Vec::new(),
            };
            signs.publish(subject::GATEWAY_DELTA, Bytes::from(encode(&delta))).await.unwrap();
            let cell = announce(&cells, seq, json!({}));
            signs.publish(&subject::cell_announce(cell.cell), Bytes::from(encode(&cell))).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    others.report("a later announcement", |report| report.heard.values().any(|heard| heard.seq > 1)).await;
    // This manager's snapshot is at revision 5 for ever, so that it is asked for again and again.
    wait::poll_until(PATIENCE, "another snapshot", || {
        (others.snapshots.load(Ordering::SeqCst) >= 2).then_some(())
    })
    .await;
    others.delta(5, 6, items(&World::new().app("blog", json!({})))).await;
    others.report("what was missed", |report| report.revision == Revision(6)).await;
    assert_eq!(get(&rig, "blog.localhost", "/").await, 503, "it has a route");
    let id = rig.gateway.as_ref().unwrap().id();
    let request = ExplainRequest {
        method: "GET".into(),
        host: "blog.localhost".into(),
        target: "/".into(),
        headers: Vec::new(),
        client: String::new(),
    };
    let subject = subject::gateway_explain(id);
    let asked = others.bus.request(&subject, Bytes::from(encode(&request)), PATIENCE);
    assert!(asked.await.is_ok(), "questions are heard again too");
    speaking.abort();
}

#[tokio::test]
async fn a_busy_neighbour_costs_nobody_a_second_snapshot() {
    let world = World::new().app("shop", json!({}));
    let bus = MemoryBus::new();
    let mut asked = bus.subscribe_queue(subject::GATEWAY_SNAPSHOT, subject::MANAGERS).await.unwrap();
    let mut others = Others {
        reports: bus.subscribe(subject::GATEWAY_REPORT_ALL).await.unwrap(),
        bus,
        snapshots: Arc::default(),
    };
    // While the answer is on its way one app changes all the time.
    let busy = items(&World::new().app("busy", json!({})));
    let changes: Vec<Bytes> = (6..=12_005)
        .map(|revision| GatewayDelta {
            epoch: 1,
            from: Revision(revision - 1),
            to: Revision(revision),
            put: busy.clone(),
            delete: Vec::new(),
        })
        .map(|delta| Bytes::from(encode(&delta)))
        .collect();
    let rig = others.rig().await;
    let mut question = asked.next().await.unwrap();
    for change in changes {
        others.bus.publish(subject::GATEWAY_DELTA, change).await.unwrap();
    }
    let answering = others.bus.clone();
    let answers = tokio::spawn(async move {
        loop {
            let page = SnapshotPage { epoch: 0, revision: Revision(5), items: items(&world), next: None };
            answering.publish(&question.reply.unwrap(), Bytes::from(encode(&page))).await.unwrap();
            question = asked.next().await.unwrap();
        }
    });
    // A second snapshot would be of revision 5 too, with nothing more to come.
    others.report("the last change", |report| report.revision == Revision(12_005)).await;
    assert_eq!(get(&rig, "shop.localhost", "/").await, 503, "it has a route");
    answers.abort();
}

#[tokio::test]
async fn without_any_table_the_gateway_is_not_well_and_knows_no_404() {
    let rig = Rig::start_in(towpath_testkit::temp_dir(), |_| {}, Some(Arc::new(MemoryBus::new()))).await;
    let health = |rig: &Rig| {
        let admin = rig.gateway.as_ref().unwrap().admin_address().unwrap();
        Client::connect(admin).request("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").status
    };
    assert_eq!(health(&rig), 503);
    assert_eq!(get(&rig, "shop.localhost", "/").await, 503);
    let rig = Rig::start(World::new()).await;
    assert_eq!(health(&rig), 200);
    assert_eq!(get(&rig, "shop.localhost", "/").await, 404);
}

#[tokio::test]
async fn what_came_last_is_in_the_file_at_the_end() {
    let world = World::new().app("shop", json!({}));
    let mut others = Others::start(&world, 5).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.delta(5, 6, items(&World::new().app("blog", json!({})))).await;
    others.report("the delta", |report| report.revision == Revision(6)).await;
    let dir = rig.stop().await;
    let text = std::fs::read_to_string(dir.path().join("snapshot.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["revision"], 6);
    assert!(text.contains("blog.localhost"));
}

#[tokio::test]
async fn a_bus_that_is_gone_expires_nobody() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let mut others = Others::start(&world, 5).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.announce(&announce(&world, 1, json!({}))).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    others.bus.set_state(BusState::Down);
    assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 200);
    others.bus.set_state(BusState::Up);
    others.report("a report after the bus came back", |_| true).await;
    others.announce(&announce(&world, 2, json!({"leaving": true}))).await;
    others.report("the leaving", |report| report.heard.is_empty()).await;
    assert_eq!(get(&rig, "shop.localhost", "/status/200").await, 503);
}

#[tokio::test]
async fn a_gateway_explains_without_sending() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address()).instance_with(
        "shop",
        app.address(),
        json!({"lane": "blue"}),
    );
    let mut others = Others::start(&world, 5).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.announce(&announce(&world, 1, json!({}))).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    let request = ExplainRequest {
        method: "GET".into(),
        host: "shop.localhost".into(),
        target: "/x?y=1".into(),
        headers: vec![("towpath-lane".into(), "blue".into())],
        client: "10.0.0.1".into(),
    };
    let id = rig.gateway.as_ref().unwrap().id();
    let answer = others
        .bus
        .request(&subject::gateway_explain(id), Bytes::from(encode(&request)), PATIENCE)
        .await
        .unwrap();
    let explanation: Explanation = decode(&answer).unwrap();
    assert_eq!(explanation.gateway, id);
    assert_eq!(explanation.route.as_deref(), Some("shop.localhost/"));
    assert_eq!((explanation.lane.as_str(), explanation.tier), ("blue", Some(2)));
    assert_eq!(explanation.endpoints.len(), 2);
    assert!(explanation.error.is_none());
    assert_eq!(app.requests(), 0);
}

#[tokio::test]
async fn a_leaving_gateway_says_so() {
    let mut others = Others::start(&World::new().app("shop", json!({})), 1).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(1) && !report.leaving).await;
    let stopping = tokio::spawn(rig.stop());
    others.report("the goodbye", |report| report.leaving).await;
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_bus_that_is_down_shows_in_the_metrics_and_in_the_word_of_health() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let mut others = Others::start(&world, 5).await;
    let rig = others.rig().await;
    others.report("the snapshot", |report| report.revision == Revision(5)).await;
    others.announce(&announce(&world, 1, json!({}))).await;
    others.report("the announcement", |report| !report.heard.is_empty()).await;
    let shows = |name: &'static str, value: f64| {
        let rig = &rig;
        async move {
            wait::poll_until(PATIENCE, name, || ((rig.metric(name) - value).abs() < 0.1).then_some(())).await;
        }
    };
    shows("towpath_gateway_bus_up", 1.0).await;
    shows("towpath_gateway_cells", 1.0).await;
    others.bus.set_state(BusState::Down);
    shows("towpath_gateway_bus_up", 0.0).await;
    let admin = rig.gateway.as_ref().unwrap().admin_address().unwrap();
    let health = crate::support::Client::connect(admin).request("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(health.status, 200, "it serves on");
    assert!(health.text().starts_with("ok, but the bus has been down for "), "{}", health.text());
}

#[tokio::test]
async fn resources_of_managers_are_served_refused_by_name_and_kept_for_a_restart() {
    let app = HttpApp::start("a");
    let resource = |kind: &str, id: &str, value: Value| json!({"kind": "resource", "resource": kind, "id": id, "value": value});
    let nodes = json!({app.address().to_string(): 1});
    let world = World::new()
        .item(resource("routes", "1", json!({"uri": "/a", "upstream_id": "u"})))
        .item(resource("upstreams", "u", json!({"nodes": nodes})));
    let mut others = Others::start(&world, 10).await;
    let rig = others.rig().await;
    let at = others.report("the snapshot", |report| report.revision >= Revision(10)).await.revision.0;
    assert_eq!((get(&rig, "any.test", "/a").await, get(&rig, "any.test", "/b").await), (200, 404));
    let put = [
        resource("routes", "2", json!({"uri": "/b", "plugins": {"mocking": {"response_example": "x"}}})),
        resource("routes", "3", json!({"uri": "/c", "upstream_id": "none"})),
        resource("routes", "4", json!({"uri": "/d", "plugins": {"mokcing": {}}})),
    ];
    let put = put.into_iter().map(|item| serde_json::from_value(item).unwrap()).collect();
    others.delta(at, at + 1, put).await;
    let report = others.report("the delta", |report| report.revision == Revision(at + 1)).await;
    assert_eq!((get(&rig, "any.test", "/a").await, get(&rig, "any.test", "/b").await), (200, 200));
    let refused: Vec<_> = report.refused.keys().map(String::as_str).collect();
    assert_eq!(refused, ["resource routes/3", "resource routes/4"]);
    assert!(report.refused["resource routes/4"].contains("mocking"), "{report:?}");
    let dir = rig.stop().await;
    let alone = Rig::start_in(dir, |_| {}, None).await;
    assert_eq!((get(&alone, "any.test", "/a").await, get(&alone, "any.test", "/b").await), (200, 200));
}
