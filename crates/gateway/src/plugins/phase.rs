//! The phases of a request.

/// A phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Rewrite = 1,
    Access = 2,
    BeforeProxy = 4,
    ResponseHead = 8,
    ResponseBody = 16,
    Log = 32,
}

/// A set of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Phases(u8);

impl Phases {
    /// These.
    pub(crate) const fn of<const N: usize>(phases: [Phase; N]) -> Self {
        let mut bits = 0;
        let mut rest: &[Phase] = &phases;
        while let [first, tail @ ..] = rest {
            bits |= *first as u8;
            rest = tail;
        }
        Self(bits)
    }

    /// Whether it is in there.
    pub(crate) const fn has(self, phase: Phase) -> bool {
        self.0 & phase as u8 != 0
    }

    /// Both together.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
