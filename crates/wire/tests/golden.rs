//! One example of each message, as it stood when its version was fixed. A build that cannot read a fixture, or writes
//! it otherwise, cannot run beside the release before it: it needs a new version and a new fixture.
//!
//! `UPDATE=1 cargo nextest run -p towpath-wire` writes fixtures that are not there yet; it never changes one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use towpath_types::health::HealthCheck;
use towpath_types::lane::LanePolicy;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::resource::Key;
use towpath_types::spec::{Limits, RouteSpec, Wanted};
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{
    AppName, AppRef, ByteSize, CellId, Digest, ErrorCode, GatewayId, Incarnation, InstanceId, Kind, LaneName,
    ManagerId, Millis, OperationId, Place, Revision, SpaceRef,
};
use towpath_wire::cell::{
    CellAnnounce, CellCommand, CellOrder, CellPoke, CellReply, InstanceReport, InstanceSpec, InstanceState,
    Stamps, SyncPage, SyncRequest,
};
use towpath_wire::gateway::{
    ExplainRequest, ExplainedEndpoint, Explanation, GatewayDelta, GatewayKeys, GatewayKeysRequest,
    GatewayReport, Heard, Item, ItemKey, SnapshotPage, SnapshotRequest,
};
use towpath_wire::limits::{LimitAsk, LimitGrant, LimitsMessage, Said};
use towpath_wire::log::{LogChunk, LogLine, LogQuery, LogSource};
use towpath_wire::manager::{
    Activate, ApiCall, ApiReply, LoginAct, LoginCount, LoginCounter, LoginVerdict, ManagerEvent,
    ManagerReport, Membership, OperationEvent, OperationPage, OperationQuery,
};
use towpath_wire::staging::{StageEvent, StageJob, StageOutput, StageResult};
use towpath_wire::{WireMessage, decode, decode_at, encode, encode_at};

fn check<M: WireMessage + PartialEq + Debug>(case: &str, message: &M) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{case}.v{}.json", M::VERSION));
    let written = String::from_utf8(encode(message)).unwrap();
    if std::env::var_os("UPDATE").is_some() && !path.exists() {
        std::fs::write(&path, format!("{written}\n")).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(golden.trim_end(), written, "{case} is written otherwise than before");
    assert_eq!(
        &decode::<M>(golden.trim_end().as_bytes()).unwrap(),
        message,
        "{case} is read otherwise than before"
    );
}

/// What is written for builds of the protocol before is what these wrote, and is read as `read`.
fn check_before<M: WireMessage + PartialEq + Debug>(case: &str, message: &M, read: &M) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{case}.v{}.json", M::VERSION - 1));
    let written = String::from_utf8(encode_at(message, M::SINCE - 1)).unwrap();
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(golden.trim_end(), written, "{case} is written otherwise than by the build before");
    assert_eq!(&decode::<M>(written.as_bytes()).unwrap(), read);
    assert_eq!(&decode_at::<M>(written.as_bytes(), M::SINCE - 1).unwrap(), read);
    // Which could not read what is written among builds of the new one.
    let refused = decode_at::<M>(&encode(message), M::SINCE - 1).unwrap_err();
    assert!(matches!(refused, towpath_wire::DecodeError::WrongVersion { .. }), "{case}: {refused}");
}

#[test]
fn limits() {
    let gateway = GatewayId::mint(1, RANDOM);
    let message = |said| LimitsMessage { gateway, said };
    check("gateway.limits_alive", &message(Said::Alive { new: true }));
    check("gateway.limits_leaving", &message(Said::Leaving));
    let window = LimitAsk {
        key: "0f".into(),
        limit: 10,
        have: 1,
        want: 3,
        need: 1,
        window_ms: Some(60_000),
        window: 7,
        left_ms: 500,
    };
    let places = LimitAsk { window_ms: None, window: 0, left_ms: 0, ..window.clone() };
    check("gateway.limits_ask", &message(Said::Ask { number: 5, asks: vec![window, places] }));
    let grant = LimitGrant { key: "0f".into(), total: 3, free: 2, window: 7, left_ms: 499 };
    check("gateway.limits_grant", &message(Said::Grant { number: 5, grants: vec![grant] }));
}

const RANDOM: [u8; 10] = [7; 10];

fn app() -> AppRef {
    AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap())
}

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

fn cell() -> CellId {
    CellId::mint(1, RANDOM)
}

fn instance() -> InstanceId {
    InstanceId::mint(2, RANDOM)
}

fn gateway() -> GatewayId {
    GatewayId::mint(3, RANDOM)
}

fn operation() -> OperationId {
    OperationId::mint(4, RANDOM)
}

fn place() -> Place {
    Place { region: "eu".into(), zone: "eu-1".into(), node: "n1".into() }
}

fn env() -> BTreeMap<String, String> {
    BTreeMap::from([("GREETING".to_owned(), "hello".to_owned())])
}

fn spec() -> InstanceSpec {
    InstanceSpec {
        instance: instance(),
        app: app(),
        lane: LaneName::base(),
        ordinal: 0,
        release: digest(1),
        artifact: digest(2),
        artifact_bytes: 1000,
        command: "python3 app.py".into(),
        env: env(),
        secrets: Default::default(),
        limits: Limits { memory: Some(ByteSize::mib(256)), ..Limits::default() },
        health: HealthCheck::default(),
        protocol: Protocol::Http1,
        grace: Millis::secs(10),
        wanted: Wanted::Run,
    }
}

#[test]
fn cell_messages() {
    let report = InstanceReport {
        instance: instance(),
        app: app(),
        lane: LaneName::base(),
        release: digest(1),
        port: 41000,
        protocol: Protocol::Http1,
        weight: 100,
        state: InstanceState::Ready,
        state_ms: 1500,
        restarts: 0,
        reason: String::new(),
        load: InstanceLoad { cpu: 0.25, mem: 0.5, io: 0.0 },
        memory_bytes: 1 << 20,
        pid: 4242,
        memory_limit: 0,
    };
    check(
        "cell.announce",
        &CellAnnounce {
            cell: cell(),
            incarnation: Incarnation(9),
            seq: 3,
            place: place(),
            address: "10.0.0.1".into(),
            version: "0.1.0".into(),
            driver: "process".into(),
            memory_bytes: 1 << 34,
            cores: 2,
            host: HostLoad { cpu: 0.5, mem: 0.25, io: 0.125 },
            cordoned: false,
            leaving: false,
            desired: Revision(12),
            builders: vec!["python".into()],
            troubles: Vec::new(),
            ports: None,
            priority: 0,
            instances: vec![report],
        },
    );
    check("cell.poke", &CellPoke { epoch: 1, revision: Revision(12) });
    check(
        "cell.sync_request",
        &SyncRequest {
            cell: cell(),
            incarnation: Incarnation(9),
            cursor: Some("x".into()),
            at_least: Revision(12),
            epoch: 3,
            proof: None,
            known: Stamps::new(),
        },
    );
    check(
        "cell.sync_page",
        &SyncPage {
            epoch: 1,
            revision: Revision(12),
            instances: vec![spec()],
            next: None,
            parcel: None,
            withheld: BTreeMap::new(),
            kept: Vec::new(),
            stamps: Stamps::new(),
        },
    );
}

#[test]
fn what_cells_have_already() {
    check(
        "cell.sync_request.known",
        &SyncRequest {
            cell: cell(),
            incarnation: Incarnation(9),
            cursor: None,
            at_least: Revision(12),
            epoch: 3,
            proof: None,
            known: [(instance(), 7)].into(),
        },
    );
    check(
        "cell.sync_page.kept",
        &SyncPage {
            epoch: 1,
            revision: Revision(12),
            instances: Vec::new(),
            next: None,
            parcel: None,
            withheld: BTreeMap::new(),
            kept: vec![instance()],
            stamps: [(instance(), 7)].into(),
        },
    );
}

#[test]
fn commands_and_replies() {
    let job = StageJob {
        operation: operation(),
        app: app(),
        source: digest(3),
        builder: Some("python".into()),
        command: None,
        env: env(),
        timeout: Millis::secs(900),
    };
    check("cell.command.stage", &CellCommand::Stage(job));
    check("cell.command.cancel", &CellCommand::CancelStage { operation: operation() });
    check(
        "cell.command.logs",
        &CellCommand::Logs(LogQuery { instance: instance(), tail: 100, follow_ms: 15_000 }),
    );
    check("cell.command.cordon", &CellCommand::Cordon { on: true });
    check("cell.command.cordon", &CellOrder { epoch: 0, command: CellCommand::Cordon { on: true } });
    check("cell.command.ordered", &CellOrder { epoch: 7, command: CellCommand::Cordon { on: true } });
    check("cell.reply.outdated", &CellReply::Outdated { epoch: 8 });
    check("cell.reply.accepted", &CellReply::Accepted);
    let line = LogLine { at_ms: 1_700_000_000_000, source: LogSource::Stderr, text: "ready".into() };
    check("cell.reply.log", &CellReply::Log { lines: vec![line.clone()] });
    check(
        "cell.reply.refused",
        &CellReply::Refused { code: ErrorCode::NotFound, message: "no such instance".into() },
    );
    check("log.chunk", &LogChunk { instance: instance(), seq: 5, lines: vec![line] });
}

#[test]
fn staging_messages() {
    let result = StageResult {
        builder: "python".into(),
        artifact: digest(2),
        artifact_bytes: 1000,
        command: "python3 app.py".into(),
        env: env(),
        health: HealthCheck::default(),
    };
    let failed =
        StageOutput::Failed { code: ErrorCode::BuildFailed, message: "pip ended with status 1".into() };
    for (case, event) in [
        ("staging.step", StageOutput::Step { title: "Installing packages".into() }),
        ("staging.line", StageOutput::Line { text: "Collecting flask".into() }),
        ("staging.alive", StageOutput::Alive),
        ("staging.done", StageOutput::Done(result)),
        ("staging.failed", failed),
    ] {
        check(case, &StageEvent { seq: 1, event });
    }
}

fn items() -> Vec<Item> {
    let route = RouteSpec {
        host: "shop.localhost".into(),
        path: "/".into(),
        app: app(),
        strip_path: false,
        entry: vec![],
        automatic: true,
    };
    vec![
        Item::Route(route),
        Item::App {
            app: app(),
            upstream: UpstreamSpec::default(),
            stopped: false,
            base_stopped: false,
            lanes: vec![LaneName::base()],
        },
        Item::Space {
            space: SpaceRef::first(),
            lanes: LanePolicy::default(),
            names: vec![LaneName::base()],
            local: vec![],
        },
    ]
}

#[test]
fn gateway_messages() {
    let request = |epoch, at_least| SnapshotRequest { gateway: gateway(), cursor: None, epoch, at_least };
    let page = |epoch| SnapshotPage { epoch, revision: Revision(12), items: items(), next: Some("x".into()) };
    check("gateway.snapshot_request.epoch", &request(7, Revision(11)));
    check("gateway.snapshot_page.epoch", &page(7));
    // Of a build before there were epochs in them.
    check("gateway.snapshot_request", &request(0, Revision(0)));
    check("gateway.snapshot_page", &page(0));
    let delete = vec![
        ItemKey::Route("shop.localhost/".into()),
        ItemKey::App(app()),
        ItemKey::Space(SpaceRef::first()),
    ];
    check(
        "gateway.delta",
        &GatewayDelta { epoch: 1, from: Revision(11), to: Revision(12), put: items(), delete },
    );
    let resource = Item::Resource {
        resource: "routes".into(),
        id: "1".into(),
        value: serde_json::json!({"id": "1", "uri": "/a", "upstream_id": "u", "create_time": 1, "update_time": 2}),
    };
    let gone = ItemKey::Resource { kind: "consumers".into(), id: "jack".into() };
    check(
        "gateway.delta_of_resources",
        &GatewayDelta {
            epoch: 1,
            from: Revision(12),
            to: Revision(13),
            put: vec![resource],
            delete: vec![gone],
        },
    );
    let proof = towpath_secrets::Proof { public: "AAAA".into(), proof: "BBBB".into() };
    let request = GatewayKeysRequest { gateway: gateway(), incarnation: Incarnation(9), proof: Some(proof) };
    check("gateway.keys_request", &request);
    let parcel = towpath_secrets::Parcel { public: "CCCC".into(), sealed: "DDDD".into() };
    check("gateway.keys", &GatewayKeys { parcel: Some(parcel), withheld: String::new() });
    check("gateway.keys.withheld", &GatewayKeys { parcel: None, withheld: "no such token".into() });
    check(
        "gateway.report",
        &GatewayReport {
            gateway: gateway(),
            incarnation: Incarnation(9),
            place: place(),
            version: "0.1.0".into(),
            listeners: vec!["http://0.0.0.0:8080".into()],
            revision: Revision(12),
            heard: BTreeMap::from([(cell(), Heard { incarnation: Incarnation(9), seq: 3 })]),
            draining: BTreeMap::from([(instance(), 2)]),
            refused: BTreeMap::from([("bad.localhost/".to_owned(), "host is not valid".to_owned())]),
            leaving: false,
        },
    );
}

#[test]
fn explain_messages() {
    check(
        "gateway.explain",
        &ExplainRequest {
            method: "GET".into(),
            host: "shop.localhost".into(),
            target: "/x?y=1".into(),
            headers: vec![("towpath-lane".into(), "summer".into())],
            client: "127.0.0.1".into(),
        },
    );
    let endpoint = ExplainedEndpoint {
        instance: instance(),
        address: "10.0.0.1:41000".into(),
        lane: LaneName::base(),
        place: place(),
        tier: Some(5),
        score: Some(1.5),
        share: 1.0,
        in_flight: 0,
        latency_ms: 2.5,
        load: Some(0.25),
        why_not: String::new(),
    };
    check(
        "gateway.explanation",
        &Explanation {
            gateway: gateway(),
            place: place(),
            revision: Revision(12),
            route: Some("shop.localhost/".into()),
            app: Some(app()),
            asked_lane: Some(("summer".into(), "header towpath-lane".into())),
            lane: LaneName::base(),
            lane_reason: "the app has no group in lane summer".into(),
            balancer: "load".into(),
            tier: Some(5),
            tier_reason: "the first with an available endpoint".into(),
            endpoints: vec![endpoint],
            error: Some((ErrorCode::NoEndpoint, "none".into())),
        },
    );
}

#[test]
fn another_message_version_or_garbage_is_refused_by_name() {
    let poke = String::from_utf8(encode(&CellPoke { epoch: 1, revision: Revision(1) })).unwrap();
    let wrong = decode::<SyncPage>(poke.as_bytes()).unwrap_err().to_string();
    assert!(wrong.contains("cell.sync_page") && wrong.contains("cell.poke"), "{wrong}");
    let newer = decode::<CellPoke>(poke.replace("\"v\":1", "\"v\":2").as_bytes()).unwrap_err().to_string();
    assert!(newer.contains("version 2"), "{newer}");
    assert!(
        decode::<CellPoke>(poke.replace("\"v\":1", "\"v\":0").as_bytes()).is_ok(),
        "the version before is read"
    );
    for garbage in ["", "{}", "null", "[1]", "{\"v\":1,\"m\":\"cell.poke\",\"b\":7}"] {
        assert!(decode::<CellPoke>(garbage.as_bytes()).is_err(), "{garbage}");
    }
    let more = poke.replace("\"epoch\"", "\"later_field\":true,\"epoch\"");
    assert!(decode::<CellPoke>(more.as_bytes()).is_ok(), "unknown fields are ignored");
}

#[test]
fn messages_between_managers_stay_as_they_are() {
    let manager = ManagerId::mint(1, RANDOM);
    let event = |event| ManagerEvent { manager, incarnation: Incarnation(3), event };
    check("manager.event.joined", &event(Membership::Joined));
    check("manager.event.left", &event(Membership::Left));
    let space = SpaceRef::first();
    let key =
        Key { kind: Kind::Group, org: Some(space.org), space: Some(space.space), name: "shop:base:".into() };
    check("manager.activate", &Activate { epoch: 7, key, hops: 1 });
    check("manager.event.leaving", &event(Membership::Leaving));
    check("manager.event.evicted", &event(Membership::Evicted));
    let report = ManagerReport {
        manager,
        incarnation: Incarnation(3),
        epoch: 7,
        revision: Revision(5),
        lag: 1,
        queue: 2,
        operations: 3,
        ring: 4,
        address: String::new(),
    };
    check("manager.report", &report);
    check("manager.report.address", &ManagerReport { address: "http://10.0.0.1:7700".into(), ..report });
}

#[test]
fn calls_between_managers_stay_as_they_are() {
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    let call = ApiCall {
        epoch: 7,
        correlation: "r1".into(),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        deadline_ms: 5000,
        hops: 1,
        from: Some(ManagerId::mint(1, RANDOM)),
        method: "PUT".into(),
        target: "/v1/apps/shop?org=default".into(),
        headers: headers.clone(),
        body: "{}".into(),
        sealed: None,
    };
    check("manager.api_call", &call);
    check_before("manager.api_call", &call, &ApiCall { from: None, ..call.clone() });
    check("manager.api_reply.answer", &ApiReply::Answer { status: 200, headers, body: "{}".into() });
    check("manager.api_reply.not_mine", &ApiReply::NotMine { epoch: 8 });
    let operation = OperationId::mint(1, RANDOM);
    check("manager.operation_query", &OperationQuery { operation, after: 9, wait_ms: 1000 });
    let (counter, act) = (LoginCounter::WrongByUser, LoginAct::Note);
    check("manager.login_count", &LoginCount { counter, key: digest(3), act });
    let (counter, act) = (LoginCounter::RightByUser, LoginAct::Look);
    check("manager.login_count.look", &LoginCount { counter, key: digest(3), act });
    let (counter, act) = (LoginCounter::WrongBySource, LoginAct::Forgive);
    check("manager.login_count.forgive", &LoginCount { counter, key: digest(3), act });
    check("manager.login_verdict", &LoginVerdict { pause_ms: Some(5) });
    let data = serde_json::json!({"text": "built"});
    let events = vec![OperationEvent { number: 10, name: "line".into(), data }];
    let status = serde_json::json!({"phase": "staging"});
    check("manager.operation_page", &OperationPage { known: true, events, ended: false, status });
}

/// Every fixture as a build of the version after may write it: with more in it. It is read all the same, so that builds
/// of two versions run side by side.
#[test]
fn what_a_later_build_adds_is_passed_over() {
    fn read<M: WireMessage + PartialEq + Debug>(case: &str, text: &str) {
        let plain = decode::<M>(text.as_bytes()).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["later"] = "in the envelope".into();
        if let Some(body) = value["b"].as_object_mut() {
            body.insert("later".into(), serde_json::json!({"in": "the body"}));
        }
        assert_eq!(decode::<M>(value.to_string().as_bytes()).unwrap(), plain, "{case}");
        // A whole version ahead is refused, by name; the one who sent it can then speak the one before.
        value["v"] = (M::VERSION + 1).into();
        let refused = decode::<M>(value.to_string().as_bytes()).unwrap_err();
        assert!(matches!(refused, towpath_wire::DecodeError::WrongVersion { .. }), "{case}: {refused}");
    }
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let case = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let name =
            serde_json::from_str::<serde_json::Value>(&text).unwrap()["m"].as_str().unwrap().to_owned();
        seen += 1;
        match name.as_str() {
            CellAnnounce::NAME => read::<CellAnnounce>(&case, &text),
            CellCommand::NAME => {
                read::<CellCommand>(&case, &text);
                read::<CellOrder>(&case, &text);
            }
            CellPoke::NAME => read::<CellPoke>(&case, &text),
            CellReply::NAME => read::<CellReply>(&case, &text),
            SyncPage::NAME => read::<SyncPage>(&case, &text),
            SyncRequest::NAME => read::<SyncRequest>(&case, &text),
            GatewayDelta::NAME => read::<GatewayDelta>(&case, &text),
            ExplainRequest::NAME => read::<ExplainRequest>(&case, &text),
            Explanation::NAME => read::<Explanation>(&case, &text),
            GatewayKeys::NAME => read::<GatewayKeys>(&case, &text),
            GatewayKeysRequest::NAME => read::<GatewayKeysRequest>(&case, &text),
            GatewayReport::NAME => read::<GatewayReport>(&case, &text),
            LimitsMessage::NAME => read::<LimitsMessage>(&case, &text),
            SnapshotPage::NAME => read::<SnapshotPage>(&case, &text),
            SnapshotRequest::NAME => read::<SnapshotRequest>(&case, &text),
            LogChunk::NAME => read::<LogChunk>(&case, &text),
            Activate::NAME => read::<Activate>(&case, &text),
            ApiCall::NAME => read::<ApiCall>(&case, &text),
            ApiReply::NAME => read::<ApiReply>(&case, &text),
            LoginCount::NAME => read::<LoginCount>(&case, &text),
            LoginVerdict::NAME => read::<LoginVerdict>(&case, &text),
            ManagerEvent::NAME => read::<ManagerEvent>(&case, &text),
            OperationPage::NAME => read::<OperationPage>(&case, &text),
            OperationQuery::NAME => read::<OperationQuery>(&case, &text),
            ManagerReport::NAME => read::<ManagerReport>(&case, &text),
            StageEvent::NAME => read::<StageEvent>(&case, &text),
            other => panic!("{case}: {other} is not tried here"),
        }
    }
    assert!(seen >= 34);
}
