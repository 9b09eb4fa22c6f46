//! What cells ask of managers.

mod epoch;
mod secrets;
mod stamp;
pub(crate) mod sync;
mod waiting;
