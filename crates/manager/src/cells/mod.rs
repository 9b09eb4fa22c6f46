//! What cells ask of managers.

pub(crate) mod epoch;
pub(crate) mod order;
mod secrets;
mod stamp;
pub(crate) mod sync;
mod waiting;
