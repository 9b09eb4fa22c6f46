//! What cells ask of managers.

pub(crate) mod sync;
