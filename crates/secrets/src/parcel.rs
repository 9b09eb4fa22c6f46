//! What a cell is sent: sealed to a key that it made for this one question, by somebody who knows the cells' token.
//!
//! The bus may be read and written by others. Reading is of no use, since each question has a fresh X25519 key; asking in a
//! cell's name takes a proof (HMAC) that only the hash of the cells' token makes; answering does, too, since that hash goes
//! into the key of the parcel. Neither the token nor its hash travels.

use crate::Secret;
use crate::keyring::{SALT, decrypt, encrypt, joined};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use towpath_types::Digest;
use zeroize::Zeroizing;

/// Why a parcel was not made or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParcelError {
    /// The system gave no randomness, or the other side's key is none.
    #[error("no key could be agreed on")]
    Agreement,
    /// It was changed, or comes from somebody who does not know the cells' token.
    #[error("it was changed, or its sender does not know the cells' token")]
    Refused,
}

/// What a cell shows with its question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Its public key for this question, base64url.
    pub public: String,
    /// That it knows the cells' token, base64url.
    pub proof: String,
}

/// Sealed values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// The sender's public key, base64url.
    pub public: String,
    /// Random, and what is sealed, base64url.
    pub sealed: String,
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn proof_text(who: &str, public: &str) -> Vec<u8> {
    joined(&["towpath cell proof v1", who, public])
}

fn mac_key(token: &Digest) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())
}

/// The one who asks; good for one parcel.
pub struct Recipient {
    private: EphemeralPrivateKey,
    public: String,
    token: Digest,
}

impl Recipient {
    /// With a fresh key. `token`: SHA-256 of the cells' token.
    pub fn new(token: Digest) -> Result<Self, ParcelError> {
        let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new());
        let private = private.map_err(|_| ParcelError::Agreement)?;
        let public = text(private.compute_public_key().map_err(|_| ParcelError::Agreement)?.as_ref());
        Ok(Self { private, public, token })
    }

    /// What goes with the question of `who`.
    pub fn proof(&self, who: &str) -> Proof {
        let proof = hmac::sign(&mac_key(&self.token), &proof_text(who, &self.public));
        Proof { public: self.public.clone(), proof: text(proof.as_ref()) }
    }

    /// Opens the answer.
    pub fn open(self, who: &str, parcel: &Parcel) -> Result<Secret, ParcelError> {
        let bytes = URL_SAFE_NO_PAD.decode(&parcel.sealed).map_err(|_| ParcelError::Refused)?;
        let (salt, sealed) = bytes.split_at_checked(SALT).ok_or(ParcelError::Refused)?;
        let key = agree(self.private, &parcel.public, &self.token)?;
        let aad = joined(&["towpath parcel v1", who, &self.public, &parcel.public]);
        let plain = decrypt(&key, salt, &aad, sealed).ok_or(ParcelError::Refused)?;
        std::str::from_utf8(&plain).map(|text| Secret::new(text.to_owned())).map_err(|_| ParcelError::Refused)
    }
}

/// The one who answers a question whose proof is right.
pub struct Sender {
    who: String,
    to: String,
    token: Digest,
}

impl Sender {
    /// Checks the proof; `None` = it is not made with this token.
    pub fn check(who: &str, shown: &Proof, token: &Digest) -> Option<Self> {
        let proof = URL_SAFE_NO_PAD.decode(&shown.proof).ok()?;
        hmac::verify(&mac_key(token), &proof_text(who, &shown.public), &proof).ok()?;
        Some(Self { who: who.to_owned(), to: shown.public.clone(), token: *token })
    }

    /// Seals values for it.
    pub fn seal(&self, plain: &Secret) -> Result<Parcel, ParcelError> {
        let random = SystemRandom::new();
        let private = EphemeralPrivateKey::generate(&X25519, &random).map_err(|_| ParcelError::Agreement)?;
        let public = text(private.compute_public_key().map_err(|_| ParcelError::Agreement)?.as_ref());
        let mut salt = [0; SALT];
        random.fill(&mut salt).map_err(|_| ParcelError::Agreement)?;
        let key = agree(private, &self.to, &self.token)?;
        let aad = joined(&["towpath parcel v1", &self.who, &self.to, &public]);
        let sealed = encrypt(&key, &salt, &aad, plain.expose().as_bytes());
        let mut bytes = salt.to_vec();
        bytes.extend(sealed.map_err(|_| ParcelError::Agreement)?);
        Ok(Parcel { public, sealed: text(&bytes) })
    }
}

/// The key that both sides come to: what they agree on, and the token's hash.
fn agree(
    private: EphemeralPrivateKey,
    public: &str,
    token: &Digest,
) -> Result<Zeroizing<Vec<u8>>, ParcelError> {
    let public = URL_SAFE_NO_PAD.decode(public).map_err(|_| ParcelError::Agreement)?;
    agree_ephemeral(private, &UnparsedPublicKey::new(&X25519, public), |shared| {
        let mut key = Zeroizing::new(Vec::with_capacity(64));
        key.extend_from_slice(shared);
        key.extend_from_slice(token.as_bytes());
        key
    })
    .map_err(|_| ParcelError::Agreement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(n: u8) -> Digest {
        Digest::from_bytes([n; 32])
    }

    #[test]
    fn a_parcel_reaches_the_one_who_asked_alone() {
        let (cell, other) = (Recipient::new(token(1)).unwrap(), Recipient::new(token(1)).unwrap());
        let shown = cell.proof("cell-1");
        let sender = Sender::check("cell-1", &shown, &token(1)).unwrap();
        let parcel = sender.seal(&Secret::new("hunter2".into())).unwrap();
        assert!(!serde_json::to_string(&parcel).unwrap().contains("hunter2"));
        assert_eq!(other.open("cell-1", &parcel), Err(ParcelError::Refused));
        assert_eq!(cell.open("cell-1", &parcel).unwrap().expose(), "hunter2");
    }

    #[test]
    fn proofs_of_others_are_refused() {
        let cell = Recipient::new(token(1)).unwrap();
        let shown = cell.proof("cell-1");
        assert!(Sender::check("cell-2", &shown, &token(1)).is_none(), "in another's name");
        assert!(Sender::check("cell-1", &shown, &token(2)).is_none(), "with another token");
        let swapped = Proof { public: Recipient::new(token(1)).unwrap().public, ..shown.clone() };
        assert!(Sender::check("cell-1", &swapped, &token(1)).is_none(), "with another key");
    }

    #[test]
    fn answers_of_who_does_not_know_the_token_are_refused() {
        let cell = Recipient::new(token(1)).unwrap();
        let shown = cell.proof("cell-1");
        let stranger = Sender { who: "cell-1".into(), to: shown.public, token: token(2) };
        let parcel = stranger.seal(&Secret::new("{}".into())).unwrap();
        assert_eq!(cell.open("cell-1", &parcel), Err(ParcelError::Refused));
    }
}
