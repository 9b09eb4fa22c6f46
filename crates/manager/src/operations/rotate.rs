//! Sealing everything with another key: the keyring says so first, in one commit with this operation's step to `rolling`, then
//! record after record is sealed anew. Cut off anywhere, it goes on where it was, as what is left is read from what is.

use super::{Event, Failure, Job, Operations};
use crate::core::keys;
use crate::vault::{self, noted_done, reseal_left};
use std::time::Duration;
use towpath_store::{Expect, Write};
use towpath_types::secret::{KeyId, KeyringSpec};
use towpath_types::{AppName, AppRef, ErrorCode, NameError, OrgName, SpaceName};

/// Pause before what is left is looked at again: values of operations that have not made their change, or a key that this manager
/// waits for.
const AGAIN: Duration = Duration::from_millis(500);

/// What operations of the platform itself name as their app, since they have none.
pub(crate) fn platform() -> Result<AppRef, NameError> {
    Ok(AppRef {
        org: OrgName::new("towpath")?,
        space: SpaceName::new("platform")?,
        app: AppName::new("secrets")?,
    })
}

impl Operations {
    pub(super) async fn rotate_secrets(&self, job: &Job, to: &KeyId) -> Result<(), Failure> {
        if !job.resumed {
            self.apply(job, &[], |_| self.change_key(job, to)).await?;
        }
        let mut done = self.core.keyring().map_or(0, |spec| noted_done(&self.core, &spec));
        loop {
            let Some(spec) = self.core.keyring() else { return Err(Failure::unreadable("keyring")) };
            if spec.active != *to {
                return Err(Failure::new(ErrorCode::Superseded, "another rotation followed"));
            }
            if self.core.vault.ring().find(to).is_none() {
                tell(job, done, 0, &format!("this manager waits for key {to} in its key file"));
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let told = |pass: vault::Pass| tell(job, pass.done, pass.left, "sealed anew");
            match reseal_left(&self.core, &spec, done, &told).await {
                Ok(pass) if pass.left <= pass.stuck => {
                    if pass.stuck > 0 {
                        let stuck = format!("{} values could not be opened and stay as they are", pass.stuck);
                        job.set(|status| status.message = stuck);
                    }
                    return Ok(());
                }
                Ok(pass) => done = pass.done,
                // The store is away for a moment, or others write at the same time: nothing of it is lost.
                Err(error) => tracing::debug!(operation = %job.id, %error, "a rotation goes on in a moment"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The keyring with the key as the active one; nothing when it is already.
    fn change_key(&self, job: &Job, to: &KeyId) -> Result<Vec<Write>, Failure> {
        let unreadable = || Failure::unreadable("keyring");
        let record = self.core.cache.get(&keys::keyring_key()).ok_or_else(unreadable)?;
        let spec: KeyringSpec = record.spec().map_err(|_| unreadable())?;
        if spec.active == *to {
            return Ok(Vec::new());
        }
        let ring = self.core.vault.ring();
        let lacks =
            || Failure::new(ErrorCode::SecretsUnavailable, format!("this manager's key file lacks key {to}"));
        let next = vault::rotated(&self.core, &spec, ring.find(to).ok_or_else(lacks)?, &job.by)?;
        Ok(vec![Write::Put {
            key: record.key.clone(),
            id: record.id.clone(),
            expect: Expect::At(record.revision),
            spec: serde_json::to_value(&next).ok(),
            status: None,
        }])
    }
}

fn tell(job: &Job, done: u64, left: u64, message: &str) {
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let (ready, wanted) = (count(done), count(done.saturating_add(left)));
    job.live.events.push(Event::Progress { ready, wanted, message: message.to_owned() });
}
