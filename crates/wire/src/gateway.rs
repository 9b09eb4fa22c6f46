//! Between managers and gateways.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use towpath_secrets::{Parcel, Proof};
pub use towpath_types::explained::ExplainedEndpoint;
use towpath_types::lane::LanePolicy;
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::UpstreamSpec;
use towpath_types::{
    AppRef, CellId, GatewayId, Incarnation, InstanceId, LaneName, Place, Revision, SpaceRef,
};

/// Identity of an item of the routing table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", content = "key", rename_all = "snake_case")]
pub enum ItemKey {
    /// A route by `host/path`.
    Route(String),
    /// An app.
    App(AppRef),
    /// A space.
    Space(SpaceRef),
    /// A resource of the dynamic gateway.
    Resource {
        /// Its kind, as in addresses: `routes`.
        kind: String,
        /// Its id.
        id: String,
    },
}

/// As gateways name an item that they refuse: `route shop.example/api`, `app org/space/name`, `space org/name`,
/// `resource routes/1`.
impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(key) => write!(f, "route {key}"),
            Self::App(app) => write!(f, "app {app}"),
            Self::Space(space) => write!(f, "space {space}"),
            Self::Resource { kind, id } => write!(f, "resource {kind}/{id}"),
        }
    }
}

/// An item of the routing table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Item {
    /// A route; its key is `host/path`.
    Route(RouteSpec),
    /// An app.
    App {
        /// Which.
        app: AppRef,
        /// How its endpoints are used.
        upstream: UpstreamSpec,
        /// Stopped on purpose, in every lane.
        stopped: bool,
        /// Stopped on purpose in base: what finds nobody in its lane is told so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        base_stopped: bool,
        /// Lanes in which it has a group (which need not have an instance now).
        lanes: Vec<LaneName>,
    },
    /// A space.
    Space {
        /// Which.
        space: SpaceRef,
        /// How lane tags are read.
        lanes: LanePolicy,
        /// Lanes that exist.
        names: Vec<LaneName>,
        /// Those of them that are developers' own machines.
        #[serde(default)]
        local: Vec<LaneName>,
    },
    /// A resource of the dynamic gateway, as it was written; `towpath-resources` reads it.
    Resource {
        /// Its kind, as in addresses: `routes`.
        resource: String,
        /// Its id.
        id: String,
        /// The document.
        value: serde_json::Value,
    },
}

/// Changes of the routing table between two revisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayDelta {
    /// Epoch of the sender.
    pub epoch: u64,
    /// Applies to a gateway at this revision or later; an earlier one has missed something and asks for a snapshot.
    pub from: Revision,
    /// The gateway is at this revision afterwards. With no changes it is a sign of life (sent every 2 s).
    pub to: Revision,
    /// New or changed items.
    pub put: Vec<Item>,
    /// Items that are gone.
    pub delete: Vec<ItemKey>,
}

/// A gateway asks for a page of the table. The answer is a [`SnapshotPage`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotRequest {
    /// Who asks.
    pub gateway: GatewayId,
    /// Cursor of the page before; `None` = from the start.
    pub cursor: Option<String>,
    /// Highest epoch that it has obeyed, in deltas or in the pages before: it takes nothing of a lower one. 0 = none.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub epoch: u64,
    /// Revision that is at least wanted: what it serves, and what the pages before were read at.
    #[serde(default, skip_serializing_if = "is_none")]
    pub at_least: Revision,
}

fn is_unsaid(epoch: &u64) -> bool {
    *epoch == 0
}

fn is_none(revision: &Revision) -> bool {
    revision.0 == 0
}

/// A page of the table. Pages may be of different revisions: together they are at the lowest of them. Deltas since that
/// revision are applied on top and are idempotent. Pages of different epochs do not mix: start again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotPage {
    /// Epoch of the sender's ownership; 0 = a sender of an earlier version, which does not say.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub epoch: u64,
    /// Revision at which this page was read.
    pub revision: Revision,
    /// Items.
    pub items: Vec<Item>,
    /// Cursor of the next page.
    pub next: Option<String>,
}

/// A gateway asks for the keys that open what is secret in resources. The answer is [`GatewayKeys`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayKeysRequest {
    /// Who asks.
    pub gateway: GatewayId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Shows that it knows a gateways' token, and to which key the answer is to be sealed.
    pub proof: Option<Proof>,
}

impl GatewayKeysRequest {
    /// Who asks, as the proof says it.
    pub fn who(&self) -> String {
        format!("gateway {} {}", self.gateway, self.incarnation.0)
    }
}

/// Keys for a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayKeys {
    /// The keys in hex, newest first, as a JSON list; sealed for who asked.
    pub parcel: Option<Parcel>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub withheld: String,
}

/// What a gateway is and serves. Sent every 2 s and within 10 ms of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// Who.
    pub gateway: GatewayId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Where.
    pub place: Place,
    /// Version of the binary.
    pub version: String,
    /// Addresses that it listens on, for example `http://0.0.0.0:8080`.
    pub listeners: Vec<String>,
    /// Every worker serves the table of at least this revision.
    pub revision: Revision,
    /// Per cell: the announcement up to which every worker serves its instances.
    pub heard: BTreeMap<CellId, Heard>,
    /// Requests in flight to draining instances; absent = none.
    pub draining: BTreeMap<InstanceId, u64>,
    /// Items that could not be used, by key text, and why.
    pub refused: BTreeMap<String, String>,
    /// Leaving cleanly: do not wait for it any more.
    pub leaving: bool,
}

/// How far a gateway has heard a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Heard {
    /// Which start of the cell.
    pub incarnation: Incarnation,
    /// Announcement number.
    pub seq: u64,
}

/// A request that is to be explained, not sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// Method.
    pub method: String,
    /// Host as in the `Host` header.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// Headers (cookies among them).
    pub headers: Vec<(String, String)>,
    /// Client address to assume.
    pub client: String,
}

/// What a gateway would do with a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Which gateway says so.
    pub gateway: GatewayId,
    /// Where it stands.
    pub place: Place,
    /// Revision of its table.
    pub revision: Revision,
    /// Matched route `host/path`; absent = none.
    pub route: Option<String>,
    /// Its app.
    pub app: Option<AppRef>,
    /// Lane that was asked for, as text, and where it was read (`header towpath-lane`, …).
    pub asked_lane: Option<(String, String)>,
    /// Lane that is served, and why if it is not the one asked for.
    pub lane: LaneName,
    /// Why that lane.
    pub lane_reason: String,
    /// Balancer.
    pub balancer: String,
    /// Tier that serves, 1..=9.
    pub tier: Option<u8>,
    /// Why that tier.
    pub tier_reason: String,
    /// Every endpoint of the app, best first.
    pub endpoints: Vec<ExplainedEndpoint>,
    /// The error that the client would get.
    pub error: Option<(towpath_types::ErrorCode, String)>,
}

impl WireMessage for Explanation {
    const NAME: &'static str = "gateway.explanation";
}
impl WireMessage for ExplainRequest {
    const NAME: &'static str = "gateway.explain";
}
impl WireMessage for GatewayDelta {
    const NAME: &'static str = "gateway.delta";
}
impl WireMessage for SnapshotRequest {
    const NAME: &'static str = "gateway.snapshot_request";
}
impl WireMessage for GatewayKeysRequest {
    const NAME: &'static str = "gateway.keys_request";
}
impl WireMessage for GatewayKeys {
    const NAME: &'static str = "gateway.keys";
}
impl WireMessage for SnapshotPage {
    const NAME: &'static str = "gateway.snapshot_page";
}
impl WireMessage for GatewayReport {
    const NAME: &'static str = "gateway.report";
}
