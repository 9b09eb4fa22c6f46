//! Sets of networks.

use std::net::IpAddr;
use std::sync::Arc;

/// A set of addresses and networks, in any number: a look-up is a binary search. IPv4 addresses are the same as those mapped
/// into IPv6. A clone is one pointer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks {
    /// First and last address of each range, sorted; ranges neither touch nor overlap.
    ranges: Arc<[(u128, u128)]>,
}

impl Networks {
    /// Reads addresses (`10.0.0.1`, `::1`) and networks (`10.0.0.0/8`); `Err` says what would be right.
    pub fn parse(texts: &[impl AsRef<str>]) -> Result<Self, String> {
        let mut ranges = Vec::with_capacity(texts.len());
        for text in texts {
            ranges.push(range(text.as_ref())?);
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Ok(Self { ranges: merged.into() })
    }

    /// Checks one address or network.
    pub fn check(text: &str) -> Result<(), String> {
        range(text).map(|_| ())
    }

    /// Whether an address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        let number = number(address);
        let after = self.ranges.partition_point(|(first, _)| *first <= number);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| number <= *last)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn range(text: &str) -> Result<(u128, u128), String> {
    let wrong = || format!("{text:?} is no address or network; write for example 10.0.0.1 or 10.0.0.0/8");
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => {
            let digits =
                !length.is_empty() && length.len() <= 3 && length.bytes().all(|b| b.is_ascii_digit());
            (address, Some(length.parse::<u32>().ok().filter(|_| digits).ok_or_else(wrong)?))
        }
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(width);
    let free = width.checked_sub(length).ok_or_else(wrong)?;
    let mask = u128::MAX.checked_shr(128 - free).unwrap_or(0);
    let first = number(address) & !mask;
    Ok((first, first | mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(networks: &[&str], address: &str) -> bool {
        Networks::parse(networks).unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn addresses_are_in_their_networks() {
        assert!(has(&["10.0.0.0/8"], "10.255.255.255") && !has(&["10.0.0.0/8"], "11.0.0.0"));
        assert!(has(&["10.1.2.3/8"], "10.0.0.0"), "bits after the length do not count");
        assert!(has(&["127.0.0.1"], "127.0.0.1") && !has(&["127.0.0.1"], "127.0.0.2"));
        assert!(has(&["0.0.0.0/0"], "1.2.3.4") && !has(&["0.0.0.0/0"], "::1"));
        assert!(has(&["::/0"], "1.2.3.4"), "mapped addresses are part of all of IPv6");
        assert!(has(&["10.0.0.0/8"], "::ffff:10.0.0.1"), "mapped or not is the same");
        assert!(has(&["2001:db8::/32"], "2001:db8:ffff::1") && !has(&["2001:db8::/32"], "2001:db9::"));
        assert!(has(&["255.255.255.255", "ffff::/16", "10.0.0.1/32"], "10.0.0.1"));
        assert!(!Networks::default().contains("::1".parse().unwrap()));
    }

    #[test]
    fn overlaps_and_neighbours_become_one_and_lose_nothing() {
        let set = Networks::parse(&["10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "12.0.0.0/8"]).unwrap();
        assert_eq!(set.ranges.len(), 2);
        assert_eq!(set, Networks::parse(&["12.0.0.0/8", "10.0.0.0/8"]).unwrap());
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "a",
            "10.0.0.0/8/8",
            "10.0.0.0/-1",
        ] {
            assert!(Networks::check(bad).unwrap_err().contains("10.0.0.0/8"), "{bad}");
        }
    }
}
