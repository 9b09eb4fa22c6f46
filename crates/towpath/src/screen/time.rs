//! Times and sizes as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970, now.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// How long something takes: `3s`, `5m`, `2h`, `4d`.
pub(crate) fn span(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// How long ago a moment was; empty for an unknown one.
pub(crate) fn ago(then_ms: u64) -> String {
    if then_ms == 0 { String::new() } else { span(now_ms().saturating_sub(then_ms)) }
}

/// A moment as `2024-05-01 13:07:09.123`, UTC.
pub(crate) fn moment(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = date(days);
    let (h, m, s, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{ms:03}")
}

/// Year, month and day of a day counted from 1970-01-01 (Gregorian calendar, from Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// A size as `512B`, `1.5K`, `20M`, `3.2G`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1_u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    match units.into_iter().find(|(unit, _)| n >= *unit) {
        None => format!("{n}B"),
        Some((unit, name)) => {
            let value = n as f64 / unit as f64;
            if value < 10.0 { format!("{value:.1}{name}") } else { format!("{value:.0}{name}") }
        }
    }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_sizes_and_spans() {
        assert_eq!(moment(0), "1970-01-01 00:00:00.000");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(moment(1_735_689_599_123), "2024-12-31 23:59:59.123");
        assert_eq!([0, 1023, 1536, 20 << 20, 3 << 30].map(bytes), ["0B", "1023B", "1.5K", "20M", "3.0G"]);
        assert_eq!([999, 59_000, 60_000, 7_200_000, 200_000_000].map(span), ["0s", "59s", "1m", "2h", "2d"]);
    }
}
