//! Times as SigV4 writes them: `20130524T000000Z`.

use std::fmt;

/// A second since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

const DAY: u64 = 86_400;

impl Instant {
    /// Reads `YYYYMMDDTHHMMSSZ`.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 16 || bytes.get(8) != Some(&b'T') || bytes.get(15) != Some(&b'Z') {
            return None;
        }
        let number = |from: usize, to: usize| {
            let digits = text.get(from..to)?;
            digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u64>().ok())?
        };
        let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
        let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
        let is_right = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second < 61;
        is_right.then(|| Self(days(year, month, day) * DAY + hour * 3600 + minute * 60 + second))
    }

    /// `YYYYMMDD`.
    pub fn day(self) -> String {
        let (year, month, day) = date(self.0 / DAY);
        format!("{year:04}{month:02}{day:02}")
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.0 % DAY;
        write!(f, "{}T{:02}{:02}{:02}Z", self.day(), rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// Days since 1970-01-01; years begin in March for the reckoning.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    (365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1).saturating_sub(719_468)
}

/// The date of a day since 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * of_year + 2) / 153;
    let day = of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written() {
        assert_eq!(Instant::read("19700101T000000Z"), Some(Instant(0)));
        assert_eq!(Instant::read("20130524T000000Z"), Some(Instant(1_369_353_600)));
        for bad in [
            "",
            "20130524T000000",
            "20131324T000000Z",
            "2013-524T000000Z",
            "20130524T240000Z",
            "+0130524T000000Z",
        ] {
            assert_eq!(Instant::read(bad), None, "{bad}");
        }
        for n in (0..250_000_000_000_u64).step_by(86_413 * 97) {
            let text = Instant(n).to_string();
            assert_eq!(Instant::read(&text), Some(Instant(n)), "{text}");
        }
    }
}
