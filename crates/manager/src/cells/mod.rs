//! What cells ask of managers.

mod epoch;
pub(crate) mod sync;
