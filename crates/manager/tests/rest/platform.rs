//! Status, explanations, logs, documents.

use crate::client::{Client, Platform, parse_events, push_of};
use crate::fleet::{Fleet, SOON, until};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use towpath_types::{GatewayId, InstanceId, LaneName, Place, Revision};
use towpath_wire::gateway::{ExplainRequest, Explanation};
use towpath_wire::{decode, encode, subject};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_platform_shows_itself() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", json!({"source": source, "instances": 2})).await;
    let status = platform.api().get("/v1/status").await.json();
    assert_eq!(
        (&status["apps"], &status["instances"], &status["ready"]),
        (&json!(1), &json!(2), &json!(2)),
        "{status}"
    );
    assert_eq!((&status["bus"], &status["store"]["ok"]), (&json!("up"), &json!(true)));
    assert_eq!(status["managers"][0]["this"], true);
    assert_eq!(status["cells"][0]["id"], json!(platform.cell.id));
    assert_eq!(status["gateways"][0]["id"], json!(platform.gateway.id));
    assert_eq!(platform.api().get("/v1/cells").await.json()["items"][0]["id"], status["cells"][0]["id"]);
    assert_eq!(platform.api().get("/v1/gateways").await.json()["items"].as_array().unwrap().len(), 1);
    let instances = platform.api().get("/v1/instances").await.json();
    assert_eq!(instances["items"].as_array().unwrap().len(), 2);
    let anybody = Client { token: None, ..platform.api() };
    assert_eq!(anybody.get("/v1/healthz").await.json(), json!({"ok": true}));
    for path in ["/", "/docs"] {
        let page = anybody.get(path).await;
        assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
        assert!(page.text().contains("/v1/apps/{app}/releases"));
        assert!(page.headers.contains_key("content-security-policy"));
    }
}

/// Answers for a gateway.
async fn explainer(fleet: &Fleet, gateway: GatewayId) -> JoinHandle<()> {
    let bus = fleet.bus();
    let mut asked = bus.subscribe(&subject::gateway_explain(gateway)).await.unwrap();
    tokio::spawn(async move {
        while let Some(message) = asked.next().await {
            let request: ExplainRequest = decode(&message.payload).unwrap();
            let explanation = Explanation {
                gateway,
                place: Place::default(),
                revision: Revision(1),
                route: Some(format!("{}{}", request.host, request.target)),
                app: None,
                asked_lane: request.headers.first().cloned(),
                lane: LaneName::base(),
                lane_reason: request.method,
                balancer: "load".into(),
                tier: None,
                tier_reason: request.client,
                endpoints: Vec::new(),
                error: None,
            };
            bus.publish(&message.reply.unwrap(), encode(&explanation).into()).await.unwrap();
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_live_gateway_explains() {
    let platform = Platform::start().await;
    let answering = explainer(&platform.fleet, platform.gateway.id).await;
    let body = json!({"url": "https://shop.localhost:8443/a?b=c", "headers": [["towpath-lane", "blue"]]});
    let explained = platform.api().post("/v1/explain", body.clone()).await.json();
    assert_eq!(explained["items"][0]["route"], "shop.localhost:8443/a?b=c", "{explained}");
    assert_eq!(explained["items"][0]["asked_lane"], json!(["towpath-lane", "blue"]));
    assert_eq!(explained["items"][0]["lane_reason"], "GET");
    assert_eq!(explained["silent"], json!([]));
    answering.abort();
    until("it answers no more", || answering.is_finished()).await;
    let silent = platform.api().post("/v1/explain", body).await.json();
    assert_eq!(silent, json!({"items": [], "silent": [platform.gateway.id]}));
    let wrong = platform
        .api()
        .post(
            "/v1/explain",
            json!({"url": "shop", "method": "A B", "headers": [["a b", "c"]], "client": "x"}),
        )
        .await;
    assert_eq!(wrong.fields(), ["client", "headers[0][0]", "method", "url"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_read_merged_and_followed() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", json!({"source": source, "instances": 2})).await;
    let read = platform.api().get("/v1/apps/shop/logs?tail=1").await.json();
    let texts: Vec<_> = read["lines"].as_array().unwrap().iter().map(|line| line["text"].clone()).collect();
    assert_eq!((texts, &read["missing"]), (vec![json!("boom"), json!("boom")], &json!([])), "{read}");
    assert_eq!(platform.api().get("/v1/apps/shop/logs?tail=10001").await.fields(), ["tail"]);
    let nobody = InstanceId::mint(1, [0; 10]);
    assert_eq!(platform.api().get(&format!("/v1/instances/{nobody}/logs")).await.code(), "not_found");

    let instance = platform.cell.specs()[0].instance;
    let mut follow =
        Follow::open(&platform, &format!("/v1/instances/{instance}/logs?tail=1&follow=true")).await;
    follow.until("the last line", |events| events.iter().any(|(_, data)| data["text"] == "boom")).await;
    assert_eq!(follow.events[0].0, "instance");
    platform.stager.say(instance, 10, "ten").await;
    platform.stager.say(instance, 13, "thirteen").await;
    follow.until("the new lines", |events| events.iter().any(|(_, data)| data["text"] == "thirteen")).await;
    // `begun` comes in no order with what each instance tells.
    let of_instance = follow.events.iter().filter(|(name, _)| name != "begun");
    let told: Vec<_> = of_instance.map(|(name, data)| (name.as_str(), data["text"].clone())).collect();
    let past = [("instance", Value::Null), ("line", json!("boom")), ("live", Value::Null)];
    assert_eq!(told[..3], past);
    assert_eq!(told[3..], [("line", json!("ten")), ("gap", Value::Null), ("line", json!("thirteen"))]);
    assert_eq!(platform.stager.follows(instance), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_logs_of_an_app_go_on_with_its_next_instances() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let old = platform.cell.specs()[0].instance;
    let mut follow = Follow::open(&platform, "/v1/apps/shop/logs?follow=true").await;
    follow.until("the first instance", |events| events.iter().any(|(name, _)| name == "line")).await;
    platform.push("shop", push_of(platform.upload("two").await)).await;
    follow
        .until("the old one goes and the new one comes", |events| {
            let is = |state: &str, same: bool| {
                events
                    .iter()
                    .any(|(_, data)| data["state"] == state && (data["instance"] == json!(old)) == same)
            };
            is("found", false) && is("gone", true)
        })
        .await;
}

/// A stream of events that is read bit by bit.
pub(crate) struct Follow {
    body: hyper::body::Incoming,
    text: String,
    pub(crate) events: Vec<(String, Value)>,
    task: JoinHandle<()>,
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follow {
    pub(crate) async fn open(platform: &Platform, path: &str) -> Self {
        let stream = TcpStream::connect(platform.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let task = tokio::spawn(async move { drop(connection.await) });
        let request = http::Request::get(path)
            .header("host", "api")
            .header("authorization", format!("Bearer {}", platform.token))
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), events: Vec::new(), task }
    }

    pub(crate) async fn until(&mut self, what: &str, so: impl Fn(&[(String, Value)]) -> bool) {
        let end = tokio::time::Instant::now() + SOON;
        while !so(&self.events) {
            let frame = tokio::time::timeout_at(end, self.body.frame()).await;
            let frame = frame.unwrap_or_else(|_| panic!("did not happen: {what}: {:?}", self.events));
            let Some(frame) = frame else { panic!("ended before: {what}") };
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
            let whole = self.text.rfind("\n\n").map_or(0, |at| at + 2);
            self.events.extend(parse_events(&self.text[..whole]));
            self.text.drain(..whole);
        }
    }
}
