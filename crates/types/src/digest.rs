//! Content digests: SHA-256, written `sha256:<64 hex digits>` as in OCI.

use serde::{Deserialize, Serialize};
use std::fmt;

/// SHA-256 of some content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, pattern = "^sha256:[0-9a-f]{64}$")]
pub struct Digest([u8; 32]);

/// Why a digest was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("digest is not valid; it looks like sha256: and 64 lower-case hex digits")]
pub struct DigestError;

impl Digest {
    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hex digits without the `sha256:` before them; safe as a file name.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
            text
        })
    }

    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }
}

impl std::str::FromStr for Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").ok_or(DigestError)?;
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte =
                hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(DigestError)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_go_round_and_bad_text_is_refused() {
        let digest = Digest::from_bytes([0xab; 32]);
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        for bad in [
            "",
            "sha256:",
            "sha256:ab",
            &"a".repeat(71),
            &format!("sha256:{}", "AB".repeat(32)),
            &format!("sha256:{}é", "a".repeat(62)),
        ] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad}");
        }
    }
}
