//! What cells ask of managers.

mod epoch;
mod secrets;
pub(crate) mod sync;
