//! The reconciler of groups: load → plan → apply.

use super::Mailboxes;
use crate::core::Core;
use crate::core::keys::GroupRef;
use std::time::Duration;

/// Looks at one group once; says when to look again at the latest.
pub(crate) async fn reconcile(core: &Core, mailboxes: &Mailboxes, name: GroupRef) -> Option<Duration> {
    let _ = (core, mailboxes, name);
    None
}
