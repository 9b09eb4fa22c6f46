//! Sticky sessions: a cookie of the gateway's own that names an instance, opaque and signed, made only where the app
//! itself set a session cookie.
//!
//! Value: base64url of 16 bytes instance id, exclusive-or'ed with the first 16 bytes of an HMAC over app and a constant,
//! followed by 16 bytes of HMAC-SHA-256 over app, instance and attributes, followed by the cookie's attributes: a later
//! cookie replaces this one only with the same path and domain, and a request does not say them. The first hides the id
//! from whoever has not the key, the second keeps clients from choosing an instance or attributes.

use crate::files;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use http::header::{HeaderMap, HeaderValue, SET_COOKIE};
use sha2::Sha256;
use std::io;
use std::path::Path;
use towpath_types::upstream::Sticky;
use towpath_types::{AppRef, InstanceId};

/// Bytes of the sealed id and its signature.
const SEALED: usize = 32;
/// Most bytes of attributes that are kept.
const ATTRIBUTES: usize = 256;
/// Most characters of a value that can be ours.
const VALUE_CHARS: usize = (SEALED + ATTRIBUTES).div_ceil(3) * 4;
/// Attributes where none were kept.
const PLAIN: &[u8] = b"; Path=/; HttpOnly";

/// What a cookie of ours says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// The instance that the session is at.
    pub(crate) instance: InstanceId,
    /// The attributes that the cookie was set with.
    pub(crate) attributes: Vec<u8>,
}

/// Whether a file holds a key that gateways can share; the error says why not.
pub fn check_shared_key(path: &Path) -> io::Result<()> {
    StickyKey::shared(path).map(drop)
}

/// The key that signs cookies.
#[derive(Clone)]
pub(crate) struct StickyKey(Hmac<Sha256>);

impl StickyKey {
    /// A key of these bytes.
    pub(crate) fn new(key: &[u8; 32]) -> io::Result<Self> {
        Hmac::new_from_slice(key).map(Self).map_err(io::Error::other)
    }

    /// The key in a file that gateways of a cluster share: 32 bytes, or 64 hex digits as text. It is never made here: each would
    /// make its own.
    pub(crate) fn shared(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let key = match <[u8; 32]>::try_from(bytes.as_slice()) {
            Ok(key) => Some(key),
            Err(_) => std::str::from_utf8(bytes.trim_ascii()).ok().and_then(from_hex),
        };
        let wrong =
            || io::Error::other(format!("it has {} bytes; 32, or 64 hex digits, are right", bytes.len()));
        Self::new(&key.ok_or_else(wrong)?)
    }

    /// The key in `sticky.key`, made at the first start.
    pub(crate) fn load(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("sticky.key");
        let key = match files::read_own(&path)? {
            Some(bytes) => bytes.try_into().map_err(|_| {
                files::not_ours(&path, "no key (32 bytes)", "sessions may then move to another instance once")
            })?,
            None => {
                let mut key = [0; 32];
                let (first, second) = key.split_at_mut(16);
                first.copy_from_slice(uuid_bytes().as_slice());
                second.copy_from_slice(uuid_bytes().as_slice());
                files::write_private(&path, &key)?;
                key
            }
        };
        Self::new(&key)
    }

    /// A key for another purpose, of which this one cannot be told.
    pub(crate) fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(purpose).finalize().into_bytes().into()
    }

    fn tag(&self, app: &AppRef, purpose: &[u8], content: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        for part in
            [purpose, app.org.as_str().as_bytes(), app.space.as_str().as_bytes(), app.app.as_str().as_bytes()]
        {
            mac.update(part);
            mac.update(&[0]);
        }
        mac.update(content);
        mac
    }

    fn mask(&self, app: &AppRef, id: &mut [u8]) {
        let mask = self.tag(app, b"mask", b"").finalize().into_bytes();
        id.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }

    /// The cookie's value for an instance.
    fn seal(&self, app: &AppRef, instance: InstanceId, attributes: &[u8]) -> String {
        let kept = if attributes.len() <= ATTRIBUTES { attributes } else { &[] };
        let mut id = *instance.0.as_bytes();
        let tag = self.tag(app, b"sign", &id).chain_update(kept).finalize().into_bytes();
        self.mask(app, &mut id);
        let mut bytes = Vec::with_capacity(SEALED + kept.len());
        bytes.extend_from_slice(&id);
        bytes.extend(tag.iter().take(SEALED - id.len()));
        bytes.extend_from_slice(kept);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What a cookie's value says, if we made it for this app. The comparison takes constant time.
    pub(crate) fn open(&self, app: &AppRef, value: &[u8]) -> Option<Named> {
        if value.len() > VALUE_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(value).ok()?;
        let (sealed, attributes) = bytes.split_at_checked(SEALED)?;
        let (id, tag) = sealed.split_at_checked(16)?;
        let mut id: [u8; 16] = id.try_into().ok()?;
        self.mask(app, &mut id);
        self.tag(app, b"sign", &id).chain_update(attributes).verify_truncated_left(tag).ok()?;
        Some(Named { instance: InstanceId(uuid::Uuid::from_bytes(id)), attributes: attributes.to_vec() })
    }

    /// What the request's cookies of ours say, in order: there may be several, of different paths.
    pub(crate) fn find(&self, app: &AppRef, sticky: &Sticky, headers: &HeaderMap) -> Vec<Named> {
        if sticky.session_cookies.is_empty() {
            return Vec::new();
        }
        let lines = headers.get_all(http::header::COOKIE);
        let values = lines.iter().flat_map(|line| cookie_values(line.as_bytes(), sticky.cookie.as_bytes()));
        values.filter_map(|value| self.open(app, value)).collect()
    }

    /// If the response sets one of the session cookies: our cookie, with that cookie's attributes. With `rebind` (the
    /// session goes on at another instance than our last cookie says; its attributes) also without one.
    pub(crate) fn follow(
        &self,
        app: &AppRef,
        sticky: &Sticky,
        headers: &HeaderMap,
        instance: InstanceId,
        rebind: Option<&[u8]>,
    ) -> Option<HeaderValue> {
        let session = headers.get_all(SET_COOKIE).iter().find(|line| {
            let name = line.as_bytes().split(|&b| b == b'=').next().unwrap_or_default().trim_ascii();
            sticky.session_cookies.iter().any(|cookie| cookie.as_bytes() == name)
        });
        let attributes = match session.map(HeaderValue::as_bytes) {
            Some(session) => {
                let at = session.iter().position(|&b| b == b';');
                at.and_then(|at| session.get(at..)).unwrap_or_default()
            }
            None => match rebind? {
                [] => PLAIN,
                attributes => attributes,
            },
        };
        let mut cookie = format!("{}={}", sticky.cookie, self.seal(app, instance, attributes)).into_bytes();
        cookie.extend_from_slice(attributes);
        HeaderValue::from_maybe_shared(bytes::Bytes::from(cookie)).ok()
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in key.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
    }
    Some(key)
}

fn uuid_bytes() -> [u8; 16] {
    // 122 random bits each; two of them are more than the 128 that are needed.
    *uuid::Uuid::new_v4().as_bytes()
}

/// The values of the cookie `name` in a `Cookie` line.
fn cookie_values<'a>(line: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    line.split(|&b| b == b';').filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"=")?;
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::SpaceRef;
    use towpath_types::name::AppName;

    fn app(name: &str) -> AppRef {
        AppRef::new(&SpaceRef::first(), AppName::new(name).unwrap())
    }

    #[test]
    fn a_cookie_opens_only_unchanged_with_its_key_and_for_its_app() {
        let key = StickyKey::new(&[7; 32]).unwrap();
        let instance = InstanceId::mint(5, [9; 10]);
        let value = key.seal(&app("shop"), instance, b"; Path=/a");
        let named = Named { instance, attributes: b"; Path=/a".to_vec() };
        assert_eq!(key.open(&app("shop"), value.as_bytes()), Some(named));
        assert_eq!(key.open(&app("other"), value.as_bytes()), None);
        assert_eq!(StickyKey::new(&[8; 32]).unwrap().open(&app("shop"), value.as_bytes()), None);
        for at in 0..value.len() {
            let mut changed = value.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(key.open(&app("shop"), &changed), None, "{at}");
        }
        let decoded = URL_SAFE_NO_PAD.decode(value).unwrap();
        assert!(!decoded.windows(4).any(|part| instance.0.as_bytes().starts_with(part)), "the id shows");
    }

    #[test]
    fn our_cookie_follows_a_session_cookie_with_its_attributes_and_nothing_else() {
        let key = StickyKey::new(&[7; 32]).unwrap();
        let (shop, sticky, instance) = (app("shop"), Sticky::default(), InstanceId::mint(5, [9; 10]));
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, HeaderValue::from_static("theme=dark; Path=/"));
        assert_eq!(key.follow(&shop, &sticky, &headers, instance, None), None);
        headers
            .append(SET_COOKIE, HeaderValue::from_static("JSESSIONID=x; Path=/shop; HttpOnly; SameSite=Lax"));
        let cookie = key.follow(&shop, &sticky, &headers, instance, None).unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(
            cookie.starts_with("towpath_sticky=") && cookie.ends_with("; Path=/shop; HttpOnly; SameSite=Lax")
        );
        let mut request = HeaderMap::new();
        let sent = format!("a=b; {}", cookie.split(';').next().unwrap());
        request.append(http::header::COOKIE, HeaderValue::from_str(&sent).unwrap());
        let attributes = b"; Path=/shop; HttpOnly; SameSite=Lax".to_vec();
        assert_eq!(key.find(&shop, &sticky, &request), [Named { instance, attributes: attributes.clone() }]);
        let later = InstanceId::mint(6, [9; 10]);
        let moved = key.follow(&shop, &sticky, &HeaderMap::new(), later, Some(&attributes)).unwrap();
        assert!(
            moved.to_str().unwrap().ends_with("; Path=/shop; HttpOnly; SameSite=Lax"),
            "it replaces the one before"
        );
        let off = Sticky { session_cookies: Vec::new(), ..sticky };
        assert!(key.find(&shop, &off, &request).is_empty());
    }

    #[test]
    fn the_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = StickyKey::load(dir.path()).unwrap();
        let second = StickyKey::load(dir.path()).unwrap();
        let instance = InstanceId::mint(5, [9; 10]);
        let value = first.seal(&app("a"), instance, b"");
        assert_eq!(second.open(&app("a"), value.as_bytes()).map(|named| named.instance), Some(instance));
    }

    #[test]
    fn a_shared_key_is_bytes_or_hex_and_never_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert_eq!(StickyKey::shared(&path).map(drop).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
        let instance = InstanceId::mint(5, [9; 10]);
        std::fs::write(&path, [0xab; 32]).unwrap();
        let value = StickyKey::shared(&path).unwrap().seal(&app("a"), instance, b"");
        std::fs::write(&path, format!("{}\n", "Ab".repeat(32))).unwrap();
        let named = StickyKey::shared(&path).unwrap().open(&app("a"), value.as_bytes());
        assert_eq!(named.map(|named| named.instance), Some(instance));
        for wrong in ["", "short", &"+f".repeat(32), &"ab".repeat(31), &"ä".repeat(32)] {
            std::fs::write(&path, wrong).unwrap();
            let error = StickyKey::shared(&path).map(drop).unwrap_err().to_string();
            assert!(error.contains("64 hex digits"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_emptied_key_is_made_again_and_one_of_another_length_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sticky.key");
        std::fs::write(&path, "").unwrap();
        StickyKey::load(dir.path()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap().len(), 32);
        std::fs::write(&path, "short").unwrap();
        let text = StickyKey::load(dir.path()).map(drop).unwrap_err().to_string();
        assert!(
            text.contains("sticky.key") && text.contains("32 bytes") && text.contains("delete it"),
            "{text}"
        );
    }
}
