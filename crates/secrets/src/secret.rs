//! A plain secret in memory.

use serde::{Deserialize, Deserializer};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A plain value: never printed, never serialized, wiped when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a value.
    pub fn new(value: String) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The plain value, for whoever has to use it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for Secret {}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_print_itself() {
        let secret: Secret = serde_json::from_str("\"hunter2\"").unwrap();
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "(secret) Some(\n    (secret),\n)");
        assert_eq!(secret, Secret::new("hunter2".into()));
        assert_ne!(secret, Secret::new("hunter3".into()));
        assert_eq!(secret.expose(), "hunter2");
    }
}
