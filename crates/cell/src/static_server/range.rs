//! The `Range` header: one range of bytes.

/// What a `Range` header asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Everything: there is no header, or one that need not be followed.
    All,
    /// From the first to the last byte, both included.
    Part(u64, u64),
    /// Something outside the file.
    Nothing,
}

/// Reads the header's value for a file of this length. More than one range counts as all.
pub(super) fn wanted(header: Option<&str>, length: u64) -> Wanted {
    let Some(set) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else { return Wanted::All };
    let Some((first, last)) = set.trim().split_once('-').filter(|_| !set.contains(',')) else {
        return Wanted::All;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = |text: &str| digits(text).then(|| text.parse().unwrap_or(u64::MAX));
    let end = length.saturating_sub(1);
    match (first, last) {
        ("", last) => match number(last) {
            None => Wanted::All,
            Some(0) => Wanted::Nothing,
            Some(_) if length == 0 => Wanted::Nothing,
            Some(count) => Wanted::Part(length.saturating_sub(count), end),
        },
        (first, last) => match (number(first), if last.is_empty() { Some(u64::MAX) } else { number(last) }) {
            (Some(first), Some(last)) if last < first => Wanted::All,
            (Some(first), Some(_)) if first >= length => Wanted::Nothing,
            (Some(first), Some(last)) => Wanted::Part(first, last.min(end)),
            _ => Wanted::All,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_says() {
        for (header, wanted_part) in [
            ("bytes=0-0", Wanted::Part(0, 0)),
            ("bytes=2-", Wanted::Part(2, 9)),
            ("bytes=2-99", Wanted::Part(2, 9)),
            ("bytes=-3", Wanted::Part(7, 9)),
            ("bytes=-99", Wanted::Part(0, 9)),
            ("bytes=10-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=99999999999999999999-", Wanted::Nothing),
            ("bytes=3-2", Wanted::All),
            ("bytes=0-1,3-4", Wanted::All),
            ("bytes=a-b", Wanted::All),
            ("bytes=-", Wanted::All),
            ("lines=0-1", Wanted::All),
        ] {
            assert_eq!(wanted(Some(header), 10), wanted_part, "{header}");
        }
        assert_eq!(wanted(None, 10), Wanted::All);
        assert_eq!(wanted(Some("bytes=0-"), 0), Wanted::Nothing);
        assert_eq!(wanted(Some("bytes=-1"), 0), Wanted::Nothing);
    }
}
