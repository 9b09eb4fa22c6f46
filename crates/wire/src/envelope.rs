//! The envelope around every message.

use crate::protocol::PROTOCOL;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// A message that has a name and a version.
pub trait WireMessage: Serialize + DeserializeOwned {
    /// Stable name.
    const NAME: &'static str;
    /// Version of the body; readers also take `VERSION - 1`.
    const VERSION: u16 = 1;
    /// The protocol that brought this version; builds of earlier ones write and read the version before.
    const SINCE: u16 = 1;

    /// The version that builds of a protocol write.
    fn version_at(protocol: u16) -> u16 {
        if protocol >= Self::SINCE { Self::VERSION } else { Self::VERSION - 1 }
    }

    /// The message as the version before has it; `None` = its body is the same.
    fn to_version_before(&self) -> Option<Self> {
        None
    }
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

/// The payload for a message, in its newest version. A message that cannot be written as JSON (which none of ours is) gives
/// an empty payload, which every reader refuses.
pub fn encode<M: WireMessage>(message: &M) -> Vec<u8> {
    encode_at(message, PROTOCOL)
}

/// The payload for a message, as builds of a protocol read it.
pub fn encode_at<M: WireMessage>(message: &M, protocol: u16) -> Vec<u8> {
    let v = M::version_at(protocol);
    let before = if v < M::VERSION { message.to_version_before() } else { None };
    let out = Out { v, m: M::NAME, b: before.as_ref().unwrap_or(message) };
    serde_json::to_vec(&out).unwrap_or_default()
}

/// The message in a payload.
pub fn decode<M: WireMessage>(payload: &[u8]) -> Result<M, DecodeError> {
    decode_at(payload, PROTOCOL)
}

/// The message in a payload, for a reader that knows no more than a protocol.
pub fn decode_at<M: WireMessage>(payload: &[u8], protocol: u16) -> Result<M, DecodeError> {
    let unreadable =
        |error: serde_json::Error| DecodeError::Unreadable { expected: M::NAME, why: error.to_string() };
    let head: Head<'_> = serde_json::from_slice(payload).map_err(unreadable)?;
    if head.m != M::NAME {
        return Err(DecodeError::WrongMessage { expected: M::NAME, got: head.m.chars().take(80).collect() });
    }
    let newest = M::version_at(protocol);
    if head.v > newest || head.v + 1 < newest {
        return Err(DecodeError::WrongVersion { message: M::NAME, got: head.v, newest });
    }
    serde_json::from_str(head.b.get()).map_err(unreadable)
}
