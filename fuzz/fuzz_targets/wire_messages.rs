//! Bytes from the bus: decoding never panics, and what was read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_wire::{WireMessage, cell, decode, encode, gateway, log, manager, staging};

fn check<M: WireMessage>(bytes: &[u8]) {
    if let Ok(message) = decode::<M>(bytes) {
        assert!(decode::<M>(&encode(&message)).is_ok());
    }
}

fuzz_target!(|bytes: &[u8]| {
    check::<cell::CellAnnounce>(bytes);
    check::<cell::SyncRequest>(bytes);
    check::<cell::SyncPage>(bytes);
    check::<cell::CellCommand>(bytes);
    check::<cell::CellReply>(bytes);
    check::<gateway::GatewayDelta>(bytes);
    check::<gateway::SnapshotPage>(bytes);
    check::<gateway::GatewayReport>(bytes);
    check::<gateway::ExplainRequest>(bytes);
    check::<cell::CellPoke>(bytes);
    check::<gateway::SnapshotRequest>(bytes);
    check::<gateway::Explanation>(bytes);
    check::<manager::ManagerReport>(bytes);
    check::<manager::ApiCall>(bytes);
    check::<manager::ApiReply>(bytes);
    check::<manager::OperationQuery>(bytes);
    check::<manager::OperationPage>(bytes);
    check::<manager::ManagerEvent>(bytes);
    check::<manager::Activate>(bytes);
    check::<staging::StageEvent>(bytes);
    check::<log::LogChunk>(bytes);
});
