//! Sizes and durations as people write them: `256M`, `1.5G`, `30s`, `250ms`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Why a size or a duration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a {what}; write {right}")]
pub struct UnitError {
    /// `size` or `duration`.
    pub what: &'static str,
    /// The refused text, cut to 80 characters.
    pub value: String,
    /// What would be right.
    pub right: &'static str,
}

/// A number of bytes. Text: a number with `K`, `M`, `G`, `T` (powers of 1024, an `B`/`iB` may follow) or none.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    Default,
)]
#[serde(try_from = "NumberOrText", into = "String")]
#[schema(value_type = String, example = "256M")]
pub struct ByteSize(pub u64);

/// A duration in whole milliseconds. Text: a number with `ms`, `s`, `m` or `h`; a bare number is seconds.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
    Default,
)]
#[serde(try_from = "NumberOrText", into = "String")]
#[schema(value_type = String, example = "30s")]
pub struct Millis(pub u64);

/// How both units may stand in JSON, TOML and YAML.
#[derive(Deserialize)]
#[serde(untagged, expecting = "write text such as 256M or 30s, or a number (bytes or seconds)")]
enum NumberOrText {
    Number(u64),
    Fraction(f64),
    Text(String),
}

/// Splits `12.5MB` into the number and the unit, lower-cased.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number = number.parse::<f64>().ok().filter(|n| n.is_finite())?;
    Some((number, unit.trim().to_ascii_lowercase()))
}

/// `number * factor`, when it is a whole count below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast"
)]
fn scaled(number: f64, factor: f64) -> Option<u64> {
    let value = (number * factor).round();
    ((0.0..9_007_199_254_740_992.0).contains(&value)).then_some(value as u64)
}

impl ByteSize {
    /// So many mebibytes.
    pub const fn mib(n: u64) -> Self {
        Self(n * 1024 * 1024)
    }
}

impl Millis {
    /// So many seconds.
    pub const fn secs(n: u64) -> Self {
        Self(n * 1000)
    }

    /// The standard library's form.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl std::str::FromStr for ByteSize {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            what: "size",
            value: text.chars().take(80).collect(),
            right: "for example 256M, 1.5G or 4096",
        };
        let (number, unit) = split(text).ok_or_else(error)?;
        let factor = match unit.trim_end_matches("ib").trim_end_matches('b') {
            "" => 1.0,
            "k" => 1024.0,
            "m" => 1024.0 * 1024.0,
            "g" => 1024.0 * 1024.0 * 1024.0,
            "t" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            _ => return Err(error()),
        };
        scaled(number, factor).map(Self).ok_or_else(error)
    }
}

impl std::str::FromStr for Millis {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError {
            what: "duration",
            value: text.chars().take(80).collect(),
            right: "for example 250ms, 30s, 5m or 1h",
        };
        let (number, unit) = split(text).ok_or_else(error)?;
        let factor = match unit.as_str() {
            "ms" => 1.0,
            "" | "s" => 1000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return Err(error()),
        };
        scaled(number, factor).map(Self).ok_or_else(error)
    }
}

impl TryFrom<NumberOrText> for ByteSize {
    type Error = UnitError;
    fn try_from(value: NumberOrText) -> Result<Self, UnitError> {
        match value {
            NumberOrText::Number(n) => Ok(Self(n)),
            NumberOrText::Fraction(n) => n.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl TryFrom<NumberOrText> for Millis {
    type Error = UnitError;
    fn try_from(value: NumberOrText) -> Result<Self, UnitError> {
        match value {
            NumberOrText::Number(n) => n.to_string().parse(),
            NumberOrText::Fraction(n) => n.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl From<Millis> for String {
    fn from(duration: Millis) -> Self {
        duration.to_string()
    }
}

impl fmt::Display for ByteSize {
    /// Exact: the largest unit that divides the count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut n, mut unit) = (self.0, 0);
        while n != 0 && n % 1024 == 0 && unit < 4 {
            n /= 1024;
            unit += 1;
        }
        write!(f, "{n}{}", ["", "K", "M", "G", "T"].get(unit).unwrap_or(&""))
    }
}

impl fmt::Display for Millis {
    /// Exact: the largest unit that divides the count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0s"),
            n if n % 3_600_000 == 0 => write!(f, "{}h", n / 3_600_000),
            n if n % 60_000 == 0 => write!(f, "{}m", n / 60_000),
            n if n % 1000 == 0 => write!(f, "{}s", n / 1000),
            n => write!(f, "{n}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_units_in_many_ways() {
        for (text, bytes) in [
            ("256M", 256 << 20),
            ("256mb", 256 << 20),
            ("256MiB", 256 << 20),
            ("1.5G", 3 << 29),
            ("4096", 4096),
            (" 1 K ", 1024),
        ] {
            assert_eq!(text.parse::<ByteSize>().unwrap().0, bytes, "{text}");
        }
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("30", 30_000), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(text.parse::<Millis>().unwrap().0, ms, "{text}");
        }
        for bad in ["", "M", "-1M", "1X", "1e9", "9999999999T", "1.2.3M", "∞"] {
            assert!(bad.parse::<ByteSize>().unwrap_err().to_string().contains("256M"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn display_is_exact(n in 0_u64..(1 << 50)) {
            prop_assert_eq!(ByteSize(n).to_string().parse::<ByteSize>().unwrap(), ByteSize(n));
            prop_assert_eq!(Millis(n).to_string().parse::<Millis>().unwrap(), Millis(n));
        }
    }
}
