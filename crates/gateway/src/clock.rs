//! One monotonic clock of the process, and wall-clock time for logs.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the first use in this process.
pub(crate) fn now_ns() -> u64 {
    let elapsed = START.get_or_init(Instant::now).elapsed();
    elapsed.as_secs().wrapping_mul(1_000_000_000).wrapping_add(u64::from(elapsed.subsec_nanos()))
}

/// Milliseconds since the first use in this process.
pub(crate) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// Wall-clock milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes `2024-05-01T12:30:00` for wall-clock seconds since 1970.
pub(crate) fn write_second(out: &mut Vec<u8>, unix_s: u64) {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    put_digits(out, year, 4);
    for (before, value) in
        [(b'-', month), (b'-', day), (b'T', seconds / 3600), (b':', seconds / 60 % 60), (b':', seconds % 60)]
    {
        out.push(before);
        put_digits(out, value, 2);
    }
}

/// Writes `.123Z`.
pub(crate) fn put_fraction(out: &mut Vec<u8>, ms: u64) {
    out.push(b'.');
    put_digits(out, ms, 3);
    out.push(b'Z');
}

/// Days since 1970 as year, month and day (Howard Hinnant's `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn put_digits(out: &mut Vec<u8>, value: u64, width: u32) {
    for n in (0..width).rev() {
        let digit = value / 10_u64.pow(n) % 10;
        out.push(b'0' + u8::try_from(digit).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_times_are_written_as_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696_007, "2000-02-29T12:34:56.007Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
        ] {
            let mut out = Vec::new();
            write_second(&mut out, ms / 1000);
            put_fraction(&mut out, ms % 1000);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
