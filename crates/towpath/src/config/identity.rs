//! The `[logins]` and `[audit]` tables.

use crate::document::fields::Fields;
use towpath_manager::ApiLimits;

/// Settings of logins and of the audit log; `None` = the manager's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct IdentitySettings {
    /// Wrong passwords for one user in a minute.
    wrong_per_user: Option<u32>,
    /// Wrong passwords from one address in a minute.
    wrong_per_address: Option<u32>,
    /// Right ones of one user in a minute.
    right_per_user: Option<u32>,
    /// Sessions of one user.
    sessions_per_user: Option<usize>,
    /// Entries of an org, and of the platform.
    entries: Option<usize>,
    /// Entries of one user's own logins.
    own_logins: Option<usize>,
    /// How long entries are kept.
    days: Option<u32>,
}

/// Reads both tables.
pub(super) fn read(logins: &Fields<'_>, audit: &Fields<'_>) -> IdentitySettings {
    let a_minute = |name| logins.count(name, 1..=1_000_000).and_then(|n| u32::try_from(n).ok());
    let kept = |name| audit.count(name, 1..=100_000_000).and_then(|n| usize::try_from(n).ok());
    let settings = IdentitySettings {
        wrong_per_user: a_minute("wrong_per_user"),
        wrong_per_address: a_minute("wrong_per_address"),
        right_per_user: a_minute("right_per_user"),
        sessions_per_user: logins
            .count("sessions_per_user", 1..=10_000)
            .and_then(|n| usize::try_from(n).ok()),
        entries: kept("entries"),
        own_logins: kept("own_logins"),
        days: audit.count("days", 1..=36_500).and_then(|n| u32::try_from(n).ok()),
    };
    logins.refuse_rest();
    audit.refuse_rest();
    settings
}

impl IdentitySettings {
    /// Puts what was set in the place of defaults.
    pub(crate) fn apply(&self, limits: &mut ApiLimits) {
        fn set<T: Copy>(to: &mut T, value: Option<T>) {
            *to = value.unwrap_or(*to);
        }
        set(&mut limits.wrong_per_user_per_minute, self.wrong_per_user);
        set(&mut limits.wrong_per_address_per_minute, self.wrong_per_address);
        set(&mut limits.right_per_user_per_minute, self.right_per_user);
        set(&mut limits.sessions_per_user, self.sessions_per_user);
        set(&mut limits.audit_entries, self.entries);
        set(&mut limits.audit_logins_per_user, self.own_logins);
        set(&mut limits.audit_days, self.days);
    }
}
