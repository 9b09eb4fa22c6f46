//! The NATS adapter.

/// NATS.
pub struct NatsBus;
/// Config.
pub struct NatsConfig;
