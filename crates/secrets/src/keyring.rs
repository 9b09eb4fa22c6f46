//! The keys, and what is done with them.
//!
//! Each sealing draws 24 random bytes, derives from them and the key (HKDF-SHA256) a key for this one value and its nonce,
//! and encrypts with ChaCha20-Poly1305. What the value belongs to is authenticated with it, so that a sealed value that is
//! moved to another resource or another name does not open.

use crate::Secret;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use towpath_types::secret::{KeyId, Sealed};
use zeroize::Zeroizing;

/// Random bytes of one sealing.
pub(crate) const SALT: usize = 24;
/// Bytes of a key.
pub(crate) const KEY: usize = 32;
const NONCE: usize = 12;

/// Why a value could not be sealed: the system gave no randomness, or the value is too long for the cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// There is no such key.
    #[error("there is no key to seal it with")]
    NoKey,
    /// The library refused.
    #[error("it could not be sealed")]
    Failed,
}

/// Why a value could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is sealed with a key that is not here.
    #[error("it is sealed with key {0}, which is not in the key file")]
    UnknownKey(KeyId),
    /// It was changed, or belongs to something else.
    #[error("its sealed form was changed, or belongs to something else")]
    Tampered,
}

/// What a value belongs to. Equal places, equal bytes; different places, different bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// Kind of the resource.
    pub kind: &'a str,
    /// Its id.
    pub id: &'a str,
    /// Name of the value in it.
    pub name: &'a str,
}

impl<'a> Place<'a> {
    /// Of what is secret in a resource of the gateway. `id`: `routes/1`; `name`: the path of its field.
    pub fn in_resource(id: &'a str, name: &'a str) -> Self {
        Self { kind: "resource", id, name }
    }
}

/// One key.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    bytes: Zeroizing<[u8; KEY]>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

impl Key {
    /// From its bytes. Its id is a fingerprint of them, so equal ids mean equal keys.
    pub fn from_bytes(bytes: [u8; KEY]) -> Self {
        let bytes = Zeroizing::new(bytes);
        let tag =
            ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &*bytes), b"towpath key id v1");
        let id = tag.as_ref().iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Self { id: KeyId::new(id), bytes }
    }

    /// A new one.
    pub fn generate() -> Result<Self, SealError> {
        let mut bytes = [0; KEY];
        SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Failed)?;
        Ok(Self::from_bytes(bytes))
    }

    /// From the 64 hex digits of [`Key::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 2 * KEY || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = Zeroizing::new([0; KEY]);
        for (byte, at) in bytes.iter_mut().zip((0..text.len()).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self::from_bytes(*bytes))
    }

    /// Its bytes in hex.
    pub fn to_hex(&self) -> Secret {
        let mut text = String::with_capacity(2 * KEY);
        for byte in self.bytes.iter() {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
            }
        }
        Secret::new(text)
    }

    /// Its fingerprint.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// Encrypts.
    pub fn seal(&self, place: Place<'_>, plain: &Secret) -> Result<Sealed, SealError> {
        let mut salt = [0; SALT];
        SystemRandom::new().fill(&mut salt).map_err(|_| SealError::Failed)?;
        let mut bytes = salt.to_vec();
        bytes.extend(encrypt(&*self.bytes, &salt, &self.aad(place), plain.expose().as_bytes())?);
        Ok(Sealed::from_parts(&self.id, &URL_SAFE_NO_PAD.encode(bytes)))
    }

    fn open(&self, place: Place<'_>, body: &str) -> Result<Secret, OpenError> {
        let bytes = URL_SAFE_NO_PAD.decode(body).map_err(|_| OpenError::Tampered)?;
        let (salt, sealed) = bytes.split_at_checked(SALT).ok_or(OpenError::Tampered)?;
        let plain = decrypt(&*self.bytes, salt, &self.aad(place), sealed).ok_or(OpenError::Tampered)?;
        let text = std::str::from_utf8(&plain).map_err(|_| OpenError::Tampered)?;
        Ok(Secret::new(text.to_owned()))
    }

    fn aad(&self, place: Place<'_>) -> Vec<u8> {
        joined(&["towpath sealed v1", self.id.as_str(), place.kind, place.id, place.name])
    }
}

/// Parts that cannot run into each other.
pub(crate) fn joined(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The key and nonce of one sealing.
fn derive(key: &[u8], salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
    let mut derived = Zeroizing::new([0; KEY + NONCE]);
    let prk = Salt::new(HKDF_SHA256, salt).extract(key);
    prk.expand(&[b"towpath sealed v1"], Length(KEY + NONCE)).ok()?.fill(&mut *derived).ok()?;
    let (key, nonce) = derived.split_at_checked(KEY)?;
    let key = UnboundKey::new(&CHACHA20_POLY1305, key).ok()?;
    Some((LessSafeKey::new(key), Nonce::try_assume_unique_for_key(nonce).ok()?))
}

/// `salt` must be fresh, or `key` used for nothing else.
pub(crate) fn encrypt(key: &[u8], salt: &[u8], aad: &[u8], plain: &[u8]) -> Result<Vec<u8>, SealError> {
    let (key, nonce) = derive(key, salt).ok_or(SealError::Failed)?;
    // The whole room at once: a vector that grows would leave copies of the plain value behind.
    let mut bytes = Vec::with_capacity(plain.len() + CHACHA20_POLY1305.tag_len());
    bytes.extend_from_slice(plain);
    key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut bytes).map_err(|_| SealError::Failed)?;
    Ok(bytes)
}

pub(crate) fn decrypt(key: &[u8], salt: &[u8], aad: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (key, nonce) = derive(key, salt)?;
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let length = key.open_in_place(nonce, Aad::from(aad), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

/// The keys of an installation, newest first.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    keys: Vec<Key>,
}

impl Keyring {
    /// These keys, newest first; one that is there twice counts once.
    pub fn new(keys: Vec<Key>) -> Self {
        let mut ring = Self::default();
        for key in keys {
            if ring.find(key.id()).is_none() {
                ring.keys.push(key);
            }
        }
        ring
    }

    /// The newest.
    pub fn newest(&self) -> Option<&Key> {
        self.keys.first()
    }

    /// A key by its id.
    pub fn find(&self, id: &KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// All, newest first.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Opens what any of the keys has sealed for this place.
    pub fn open(&self, place: Place<'_>, sealed: &Sealed) -> Result<Secret, OpenError> {
        let (id, body) = sealed.parts().ok_or(OpenError::Tampered)?;
        self.find(&id).ok_or(OpenError::UnknownKey(id))?.open(place, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Place<'_> = Place { kind: "app", id: "a1", name: "TOKEN" };

    fn secret(text: &str) -> Secret {
        Secret::new(text.into())
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let key = Key::generate().unwrap();
        let ring = Keyring::new(vec![Key::generate().unwrap(), key.clone()]);
        for text in ["", "hunter2", "ü\n\0", &"x".repeat(200_000)] {
            let sealed = key.seal(HERE, &secret(text)).unwrap();
            assert_eq!(ring.open(HERE, &sealed).unwrap().expose(), text);
            assert_eq!(sealed.key_id().as_ref(), Some(key.id()));
            for other in [
                Place { kind: "group", ..HERE },
                Place { id: "a2", ..HERE },
                Place { name: "TOKEN2", ..HERE },
                // Parts do not run into each other.
                Place { id: "a1T", name: "OKEN", ..HERE },
                Place { kind: "ap", id: "pa1", ..HERE },
            ] {
                assert_eq!(ring.open(other, &sealed), Err(OpenError::Tampered), "{other:?}");
            }
        }
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let key = Key::generate().unwrap();
        let ring = Keyring::new(vec![key.clone()]);
        let sealed = key.seal(HERE, &secret("hunter2")).unwrap();
        let text = sealed.as_str().to_owned();
        for at in 0..text.len() {
            let mut changed: Vec<u8> = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // Unused bits of the last character are refused by the decoder.
            assert!(
                changed.parse::<Sealed>().map_or(true, |sealed| ring.open(HERE, &sealed).is_err()),
                "{changed}"
            );
        }
        for cut in 0..text.len() {
            assert!(text[..cut].parse::<Sealed>().map_or(true, |sealed| ring.open(HERE, &sealed).is_err()));
        }
    }

    #[test]
    fn an_unknown_key_is_named_and_equal_values_do_not_look_alike() {
        let (one, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let sealed = one.seal(HERE, &secret("v")).unwrap();
        let ring = Keyring::new(vec![other]);
        assert_eq!(ring.open(HERE, &sealed), Err(OpenError::UnknownKey(one.id().clone())));
        assert_ne!(one.seal(HERE, &secret("v")).unwrap(), sealed);
        assert!(!format!("{one:?} {sealed:?}").contains(sealed.as_str()));
    }

    #[test]
    fn keys_do_not_print_themselves_and_are_told_apart_by_fingerprint() {
        let key = Key::from_bytes([7; KEY]);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.id()));
        assert_eq!(key.id(), Key::from_bytes([7; KEY]).id());
        assert_ne!(key.id(), Key::from_bytes([8; KEY]).id());
        let ring = Keyring::new(vec![key.clone(), Key::from_bytes([8; KEY]), key.clone()]);
        assert_eq!(ring.keys().len(), 2);
        assert_eq!(ring.newest().unwrap().id(), key.id());
        assert_eq!(Key::from_hex(key.to_hex().expose()).unwrap().id(), key.id());
        for odd in ["", "07", &"zz".repeat(32), &"ü".repeat(32), &"07".repeat(33)] {
            assert!(Key::from_hex(odd).is_none(), "{odd}");
        }
    }
}
