//! HTTP/1.1 towards instances.

mod body;
mod conn;
mod decoder;
mod exchange;
mod response_head;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
mod whole;

pub(crate) use body::H1Body;
pub(crate) use conn::H1Conn;
pub(crate) use decoder::Decoder;
pub(crate) use exchange::{H1Reply, Sending, exchange};
#[cfg(fuzzing)]
pub use whole::read_answer;
