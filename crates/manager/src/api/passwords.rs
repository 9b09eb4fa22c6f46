//! Passwords: hashed with Argon2id, a bounded number at once, and never told from a user who is not there.

use super::problem::{Outcome, Problem};
use crate::settings::ManagerSettings;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use std::time::Duration;
use tokio::sync::Semaphore;
use towpath_types::ErrorCode;

/// Memory of one hash in KiB, passes, lanes: what OWASP recommends for Argon2id (2024: 19 MiB, 2, 1).
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// Hashes that are worked on at the same time.
const AT_ONCE: usize = 2;
/// Requests that wait for one; further ones are told to come back.
const WAITING: usize = 32;
/// Shortest and longest password in bytes.
pub(crate) const LENGTH: std::ops::RangeInclusive<usize> = 8..=256;

/// The one who hashes.
#[derive(Debug)]
pub(crate) struct Passwords {
    slots: Semaphore,
    waiting: Semaphore,
    /// A hash of nobody's password, so that the answer about a user who is not there takes as long.
    nobody: tokio::sync::OnceCell<String>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self {
            slots: Semaphore::new(AT_ONCE),
            waiting: Semaphore::new(AT_ONCE + WAITING),
            nobody: tokio::sync::OnceCell::new(),
        }
    }
}

impl Passwords {
    /// The PHC text that is stored of a password.
    pub(crate) async fn hash(&self, settings: &ManagerSettings, password: String) -> Outcome<String> {
        self.work(settings, move || hash(&password)).await?
    }

    /// Whether a password is that of a user; `None` = there is no such user, which takes as long to find out.
    pub(crate) async fn verify(
        &self,
        settings: &ManagerSettings,
        stored: Option<String>,
        password: String,
    ) -> Outcome<bool> {
        let nobody = self
            .nobody
            .get_or_try_init(|| async { self.work(settings, || hash("nobody's password")).await? })
            .await?
            .clone();
        let there = stored.is_some();
        let stored = stored.unwrap_or(nobody);
        let same = self.work(settings, move || verify(&stored, &password)).await?;
        Ok(same && there)
    }

    /// Hex digest of a text with a password in it, as slow to try guesses with as the stored hash of one.
    pub(crate) async fn digest(
        &self,
        settings: &ManagerSettings,
        text: bytes::Bytes,
        salt: String,
    ) -> Outcome<String> {
        let work = move || {
            let mut digest = [0_u8; 32];
            argon2().hash_password_into(&text, salt.as_bytes(), &mut digest).map(|()| digest)
        };
        let digest = self.work(settings, work).await?;
        let failed = |_| Problem::new(ErrorCode::Internal, "the body could not be hashed");
        Ok(towpath_types::Digest::from_bytes(digest.map_err(failed)?).hex())
    }

    async fn work<T: Send + 'static>(
        &self,
        settings: &ManagerSettings,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Outcome<T> {
        let _waiting = self.waiting.try_acquire().map_err(|_| {
            Problem::new(ErrorCode::Busy, "too many logins at the moment").retry_after(Duration::from_secs(2))
        })?;
        let broken = || Problem::new(ErrorCode::Internal, "the password could not be worked on");
        let _slot = self.slots.acquire().await.map_err(|_| broken())?;
        settings.file_work(work).await.map_err(|_| broken())
    }
}

fn argon2() -> Argon2<'static> {
    let (memory, passes, lanes) = COST;
    let params = Params::new(memory, passes, lanes, None).unwrap_or_default();
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn hash(password: &str) -> Outcome<String> {
    let failed = || Problem::new(ErrorCode::Internal, "the password could not be hashed");
    let mut salt = [0_u8; 16];
    getrandom::fill(&mut salt).map_err(|_| failed())?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| failed())?;
    let hash = argon2().hash_password(password.as_bytes(), &salt).map_err(|_| failed())?;
    Ok(hash.to_string())
}

/// By the parameters in the stored text; the comparison takes the same time wherever the difference is.
fn verify(stored: &str, password: &str) -> bool {
    PasswordHash::new(stored)
        .is_ok_and(|stored| argon2().verify_password(password.as_bytes(), &stored).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_argon2id_with_a_salt_of_its_own_and_knows_its_password() {
        let (a, b) = (hash("correct horse").unwrap(), hash("correct horse").unwrap());
        assert!(a.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{a}");
        assert_ne!(a, b);
        assert!(verify(&a, "correct horse") && !verify(&a, "correct horsf") && !verify("", "correct horse"));
    }

    #[tokio::test]
    async fn nobody_has_no_password() {
        let passwords = Passwords::default();
        let settings = ManagerSettings::new("/nowhere");
        for password in ["nobody's password", "", "x"] {
            assert!(!passwords.verify(&settings, None, password.to_owned()).await.unwrap());
        }
    }
}
