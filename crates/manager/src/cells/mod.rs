//! What cells ask of managers.

pub(crate) mod epoch;
mod secrets;
mod stamp;
pub(crate) mod sync;
mod waiting;
