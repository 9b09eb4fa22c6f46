//! A lane tag as a request carries it: a valid lane name on the stack.

use std::fmt;
use towpath_types::LaneName;

/// A valid lane name, copied out of a request without allocating.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; LaneName::MAX],
    len: u8,
}

impl Tag {
    /// The tag in `text`, if it is a valid lane name: `[a-z0-9]([-a-z0-9]*[a-z0-9])?` without `--`, at most 40 bytes.
    pub fn read(text: &[u8]) -> Option<Self> {
        if text.is_empty() || text.len() > LaneName::MAX {
            return None;
        }
        let mut tag = Self { bytes: [0; LaneName::MAX], len: text.len() as u8 };
        let mut before = b'-';
        for (to, byte) in tag.bytes.iter_mut().zip(text) {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' => {}
                b'-' if before != b'-' => {}
                _ => return None,
            }
            before = *byte;
            *to = *byte;
        }
        (before != b'-').then_some(tag)
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..usize::from(self.len))
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tags_are_exactly_the_valid_lane_names(text in "[-a-zA-Z0-9_.é]{0,44}") {
            prop_assert_eq!(
                Tag::read(text.as_bytes()).map(|tag| tag.as_str().to_owned()),
                LaneName::new(&text).ok().map(|name| name.as_str().to_owned())
            );
        }
    }
}
