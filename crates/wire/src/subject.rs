//! Every subject on the bus, in one place.

use towpath_types::{CellId, GatewayId, InstanceId, ManagerId, OperationId};

/// Announcements of all cells.
pub const CELL_ANNOUNCE_ALL: &str = "towpath.cell.*.announce";
/// Reports of all gateways.
pub const GATEWAY_REPORT_ALL: &str = "towpath.gateway.*.report";
/// Deltas of the routing table, from managers to gateways.
pub const GATEWAY_DELTA: &str = "towpath.gateway.delta";
/// What gateways that share limits tell each other: that they are there.
pub const GATEWAY_LIMITS_ALL: &str = "towpath.gateway.limits";
/// Requests for a page of the routing table; queue group [`MANAGERS`].
pub const GATEWAY_SNAPSHOT: &str = "towpath.gateway.snapshot";
/// Requests of gateways for the keys of what is secret in resources; queue group [`MANAGERS`].
pub const GATEWAY_KEYS: &str = "towpath.gateway.keys";
/// Requests of cells for a page of what they should run; queue group [`MANAGERS`].
pub const CELL_SYNC: &str = "towpath.cell.sync";
/// Joining and leaving of managers.
pub const MANAGER_EVENT: &str = "towpath.manager.event";
/// What managers say of themselves.
pub const MANAGER_REPORT: &str = "towpath.manager.report";
/// Requests to the API over the bus; queue group [`MANAGERS`].
pub const API: &str = "towpath.api";
/// The queue group that all managers share.
pub const MANAGERS: &str = "managers";

/// Announcements of one cell.
pub fn cell_announce(cell: CellId) -> String {
    format!("towpath.cell.{cell}.announce")
}

/// Tells a cell that what it should run has changed.
pub fn cell_poke(cell: CellId) -> String {
    format!("towpath.cell.{cell}.poke")
}

/// Commands to a cell that want an answer.
pub fn cell_command(cell: CellId) -> String {
    format!("towpath.cell.{cell}.command")
}

/// Reports of one gateway.
pub fn gateway_report(gateway: GatewayId) -> String {
    format!("towpath.gateway.{gateway}.report")
}

/// Questions to one gateway: what would you do with this request?
pub fn gateway_explain(gateway: GatewayId) -> String {
    format!("towpath.gateway.{gateway}.explain")
}

/// Parts of shared limits that one gateway is asked for, or granted.
pub fn gateway_limits(gateway: GatewayId) -> String {
    format!("towpath.gateway.{gateway}.limits")
}

/// What a staging run says, in order.
pub fn staging_output(operation: OperationId) -> String {
    format!("towpath.staging.{operation}.output")
}

/// Followed log lines of an instance.
pub fn instance_log(instance: InstanceId) -> String {
    format!("towpath.instance.{instance}.log")
}

/// The queue of one service in one manager.
pub fn service(service: &str, manager: ManagerId) -> String {
    format!("towpath.svc.{service}.{manager}")
}
