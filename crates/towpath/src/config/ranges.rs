//! Ranges as people write them: `20000-29999`.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A range of numbers.
#[derive(Debug)]
pub(super) struct Span<N>(pub(super) RangeInclusive<N>);

impl<N: FromStr + PartialOrd + Display + Copy + From<u8>> FromStr for Span<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range; write for example 20000-29999");
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let from: N = from.trim().parse().map_err(|_| wrong())?;
        let to: N = to.trim().parse().map_err(|_| wrong())?;
        if from > to || from < N::from(1) {
            return Err(format!("{text:?} has no numbers in it; write for example 20000-29999"));
        }
        Ok(Self(from..=to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!("20000-29999".parse::<Span<u16>>().unwrap().0, 20000..=29999);
        for bad in ["", "5", "9-1", "0-7", "1-70000", "a-b"] {
            assert!(bad.parse::<Span<u16>>().is_err(), "{bad}");
        }
    }
}
