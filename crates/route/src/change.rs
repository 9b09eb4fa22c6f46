//! What can change in a routing table.

use crate::rule::RuleSpec;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use towpath_types::lane::LanePolicy;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppRef, CellId, InstanceId, LaneName, Place, SpaceRef};

/// One change. Every change is complete for its item and idempotent.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new or changed route.
    PutRoute(RouteSpec),
    /// The route with this key (see [`crate::route_key`]) is gone.
    DeleteRoute(String),
    /// A new or changed rule. Boxed, since it is far larger than the other changes.
    PutRule(Box<RuleSpec>),
    /// The rule with this id is gone.
    DeleteRule(String),
    /// A new or changed app.
    PutApp {
        /// Which.
        app: AppRef,
        /// How its endpoints are used.
        upstream: UpstreamSpec,
        /// Stopped on purpose, in every lane.
        stopped: bool,
        /// Stopped on purpose in base, which is where requests of all lanes end that find nobody.
        base_stopped: bool,
        /// Lanes in which it has a group.
        lanes: Vec<LaneName>,
    },
    /// The app is gone. Its endpoints are gone when their sources say so.
    DeleteApp(AppRef),
    /// A new or changed space.
    PutSpace {
        /// Which.
        space: SpaceRef,
        /// How lane tags are read.
        policy: LanePolicy,
        /// Lanes that exist.
        names: Vec<LaneName>,
        /// Those of them that are developers' own machines.
        local: Vec<LaneName>,
    },
    /// The space is gone.
    DeleteSpace(SpaceRef),
    /// All endpoints of a source, with their loads. Unchanged ones cost nothing but the store of their load.
    Endpoints {
        /// Who says so.
        source: Source,
        /// All of them.
        endpoints: Vec<EndpointSpec>,
    },
    /// A source is silent (or is heard again): its endpoints are the last resort.
    Stale {
        /// Which.
        source: Source,
        /// Silent or heard.
        stale: bool,
    },
    /// A source and all its endpoints are gone.
    DropSource(Source),
}

/// Who says which endpoints there are. Two sources should not name the same instance; if they do, the one that is
/// smaller in this type's order counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A cell, by its announcements.
    Cell(CellId),
    /// A fixed list for one app in one lane.
    Group(AppRef, LaneName),
}

/// Where an endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IP address and a port.
    Socket(SocketAddr),
    /// A host name, resolved by the gateway, and a port.
    Name(String, u16),
}

impl Address {
    /// `host` is an IP address (IPv6 with or without brackets) or a name.
    pub fn parse(host: &str, port: u16) -> Self {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(ip) => Address::Socket(SocketAddr::new(ip, port)),
            Err(_) => Address::Name(host.to_owned(), port),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Socket(address) => address.fmt(f),
            Address::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// Load as reported, before the formula.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReportedLoad {
    /// Of the machine.
    pub host: HostLoad,
    /// Of the instance.
    pub instance: InstanceLoad,
}

/// One endpoint as its source describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointSpec {
    /// Which instance.
    pub instance: InstanceId,
    /// Which start of it; another number makes a fresh [`crate::EndpointState`].
    pub start: u32,
    /// Its app.
    pub app: AppRef,
    /// Its lane.
    pub lane: LaneName,
    /// Where it listens.
    pub address: Address,
    /// Where it stands.
    pub place: Place,
    /// What it speaks.
    pub protocol: Protocol,
    /// 100 is normal, 0 takes no requests.
    pub weight: u32,
    /// Higher ones come first within a lane, whatever the place; normally 0.
    pub priority: i32,
    /// Takes no new requests.
    pub draining: bool,
    /// Passes its health check, or was not judged yet.
    pub healthy: bool,
    /// How long it has been ready already, milliseconds; less than the slow start means that it ramps up.
    pub ready_ms: u64,
    /// Its load now; `None` = not known.
    pub load: Option<ReportedLoad>,
}

impl EndpointSpec {
    /// Whether both describe the same endpoint, whatever its load and age.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.instance == other.instance
            && self.start == other.start
            && self.weight == other.weight
            && self.priority == other.priority
            && self.draining == other.draining
            && self.healthy == other.healthy
            && self.protocol == other.protocol
            && self.address == other.address
            && self.lane == other.lane
            && self.app == other.app
            && self.place == other.place
    }
}

/// An item that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The item: `route shop.example.com/`, `app org/space/app`, …
    pub key: String,
    /// What is wrong and what would be right.
    pub why: String,
}
