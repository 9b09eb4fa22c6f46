//! Sets of HTTP statuses.

/// A set of statuses from 100 to 611.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statuses([u64; 8]);

/// The lowest status.
const FIRST: u16 = 100;

impl Statuses {
    /// The set of these.
    pub fn of(statuses: &[u16]) -> Self {
        let mut set = Self::default();
        for at in statuses.iter().filter_map(|status| status.checked_sub(FIRST)) {
            if let Some(word) = set.0.get_mut(usize::from(at / 64)) {
                *word |= 1 << (at % 64);
            }
        }
        set
    }

    /// Whether a status is in the set.
    pub fn contains(&self, status: u16) -> bool {
        let Some(at) = status.checked_sub(FIRST) else { return false };
        self.0.get(usize::from(at / 64)).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_and_nothing_else() {
        let set = Statuses::of(&[100, 200, 299, 503, 599, 0, 99, 65_535]);
        let all: Vec<u16> = (0..=u16::MAX).filter(|status| set.contains(*status)).collect();
        assert_eq!(all, [100, 200, 299, 503, 599]);
    }
}
