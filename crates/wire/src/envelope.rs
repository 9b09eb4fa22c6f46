//! The envelope around every message.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A message that has a name and a version.
pub trait WireMessage: Serialize + DeserializeOwned {
    /// Stable name.
    const NAME: &'static str;
    /// Version of the body; readers also take `VERSION - 1`.
    const VERSION: u16 = 1;
}

/// Why a payload was refused.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not an envelope, or a body that does not fit.
    #[error("not a readable {expected} message: {why}")]
    Unreadable {
        /// The message that was expected.
        expected: &'static str,
        /// What the parser said.
        why: String,
    },
    /// Another message.
    #[error("expected a {expected} message, got {got:?}")]
    WrongMessage {
        /// The message that was expected.
        expected: &'static str,
        /// The one that came, cut to 80 characters.
        got: String,
    },
    /// A version that this build does not know.
    #[error("{message} message of version {got}; this build reads {newest} and the one before")]
    WrongVersion {
        /// The message.
        message: &'static str,
        /// Its version.
        got: u16,
        /// The newest that is known here.
        newest: u16,
    },
}

#[derive(Serialize)]
struct Out<'a, M> {
    v: u16,
    m: &'a str,
    b: &'a M,
}

#[derive(Deserialize)]
struct Head<'a> {
    v: u16,
    #[serde(borrow)]
    m: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    b: &'a serde_json::value::RawValue,
}

/// The payload for a message. A message that cannot be written as JSON (which none of ours is) gives an empty payload,
/// which every reader refuses.
pub fn encode<M: WireMessage>(message: &M) -> Vec<u8> {
    serde_json::to_vec(&Out { v: M::VERSION, m: M::NAME, b: message }).unwrap_or_default()
}

/// The message in a payload.
pub fn decode<M: WireMessage>(payload: &[u8]) -> Result<M, DecodeError> {
    let unreadable =
        |error: serde_json::Error| DecodeError::Unreadable { expected: M::NAME, why: error.to_string() };
    let head: Head<'_> = serde_json::from_slice(payload).map_err(unreadable)?;
    if head.m != M::NAME {
        return Err(DecodeError::WrongMessage { expected: M::NAME, got: head.m.chars().take(80).collect() });
    }
    if head.v > M::VERSION || head.v + 1 < M::VERSION {
        return Err(DecodeError::WrongVersion { message: M::NAME, got: head.v, newest: M::VERSION });
    }
    serde_json::from_str(head.b.get()).map_err(unreadable)
}
