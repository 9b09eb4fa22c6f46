//! Load as cells report it. Every figure is a share between 0 and 1.

use serde::{Deserialize, Serialize};

/// Load of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct HostLoad {
    /// Busy share of all cores over the last interval.
    pub cpu: f32,
    /// Used share of memory (1 − available / total).
    pub mem: f32,
    /// Share of the interval in which some task waited for I/O (`/proc/pressure/io`, `some`).
    pub io: f32,
}

/// Load of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
pub struct InstanceLoad {
    /// Used share of the CPU that it may use (its quota, else one core; capped at 1).
    pub cpu: f32,
    /// Used share of its memory limit.
    pub mem: f32,
    /// Used share of its I/O allowance: bytes a second from and to block devices, of 128 MiB/s where no limit is set.
    pub io: f32,
}
