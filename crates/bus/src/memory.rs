//! The in-memory bus.

/// In-memory bus.
pub struct MemoryBus;
