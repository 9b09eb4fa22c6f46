//! Sticky sessions: a cookie of the gateway's own that names an instance, opaque and signed, made only where the app
//! itself set a session cookie.
//!
//! Value: base64url of 16 bytes instance id, exclusive-or'ed with the first 16 bytes of an HMAC over app and a constant,
//! followed by 16 bytes of HMAC-SHA-256 over app and instance. The first hides the id from whoever has not the key, the
//! second keeps clients from choosing an instance.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use http::header::{HeaderMap, HeaderValue, SET_COOKIE};
use sha2::Sha256;
use std::io;
use std::path::Path;
use towpath_types::upstream::Sticky;
use towpath_types::{AppRef, InstanceId};

/// Length of the cookie's value in characters.
const VALUE_CHARS: usize = 43;

/// The key that signs cookies.
#[derive(Clone)]
pub(crate) struct StickyKey(Hmac<Sha256>);

impl StickyKey {
    /// A key of these bytes.
    pub(crate) fn new(key: &[u8; 32]) -> io::Result<Self> {
        Hmac::new_from_slice(key).map(Self).map_err(io::Error::other)
    }

    /// The key in `sticky.key`, made at the first start. Gateways that share a key file share sessions.
    pub(crate) fn load(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("sticky.key");
        let key = match std::fs::read(&path) {
            Ok(bytes) => bytes.try_into().map_err(|_| io::Error::other("sticky.key is not 32 bytes long"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0; 32];
                let (first, second) = key.split_at_mut(16);
                first.copy_from_slice(uuid_bytes().as_slice());
                second.copy_from_slice(uuid_bytes().as_slice());
                crate::files::write_private(&path, &key)?;
                key
            }
            Err(error) => return Err(error),
        };
        Self::new(&key)
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
    fn seal(&self, app: &AppRef, instance: InstanceId) -> String {
        let mut bytes = [0; 32];
        let (id, tag) = bytes.split_at_mut(16);
        id.copy_from_slice(instance.0.as_bytes());
        tag.iter_mut()
            .zip(self.tag(app, b"sign", id).finalize().into_bytes())
            .for_each(|(to, from)| *to = from);
        self.mask(app, id);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The instance that a cookie's value names, if we made it for this app. The comparison takes constant time.
    pub(crate) fn open(&self, app: &AppRef, value: &[u8]) -> Option<InstanceId> {
        let mut bytes = [0; 32];
        if value.len() != VALUE_CHARS || URL_SAFE_NO_PAD.decode_slice(value, &mut bytes).ok()? != 32 {
            return None;
        }
        let (id, tag) = bytes.split_at_mut(16);
        self.mask(app, id);
        self.tag(app, b"sign", id).verify_truncated_left(tag).ok()?;
        Some(InstanceId(uuid::Uuid::from_slice(id).ok()?))
    }

    /// The instance that a request's cookies name.
    pub(crate) fn find(&self, app: &AppRef, sticky: &Sticky, headers: &HeaderMap) -> Option<InstanceId> {
        if sticky.session_cookies.is_empty() {
            return None;
        }
        let lines = headers.get_all(http::header::COOKIE);
        let mut values =
            lines.iter().flat_map(|line| cookie_values(line.as_bytes(), sticky.cookie.as_bytes()));
        values.find_map(|value| self.open(app, value))
    }

    /// If the response sets one of the session cookies: our cookie, with that cookie's attributes. With `rebind` (the
    /// session goes on at another instance than our last cookie says) also without one.
    pub(crate) fn follow(
        &self,
        app: &AppRef,
        sticky: &Sticky,
        headers: &HeaderMap,
        instance: InstanceId,
        rebind: bool,
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
            None if rebind => b"; Path=/; HttpOnly",
            None => return None,
        };
        let mut cookie = format!("{}={}", sticky.cookie, self.seal(app, instance)).into_bytes();
        cookie.extend_from_slice(attributes);
        HeaderValue::from_maybe_shared(bytes::Bytes::from(cookie)).ok()
    }
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
        let value = key.seal(&app("shop"), instance);
        assert_eq!(value.len(), VALUE_CHARS);
        assert_eq!(key.open(&app("shop"), value.as_bytes()), Some(instance));
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
        assert_eq!(key.follow(&shop, &sticky, &headers, instance, false), None);
        headers
            .append(SET_COOKIE, HeaderValue::from_static("JSESSIONID=x; Path=/shop; HttpOnly; SameSite=Lax"));
        let cookie = key.follow(&shop, &sticky, &headers, instance, false).unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(
            cookie.starts_with("towpath_sticky=") && cookie.ends_with("; Path=/shop; HttpOnly; SameSite=Lax")
        );
        let mut request = HeaderMap::new();
        let sent = format!("a=b; {}", cookie.split(';').next().unwrap());
        request.append(http::header::COOKIE, HeaderValue::from_str(&sent).unwrap());
        assert_eq!(key.find(&shop, &sticky, &request), Some(instance));
        let off = Sticky { session_cookies: Vec::new(), ..sticky };
        assert_eq!(key.find(&shop, &off, &request), None);
    }

    #[test]
    fn the_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = StickyKey::load(dir.path()).unwrap();
        let second = StickyKey::load(dir.path()).unwrap();
        let instance = InstanceId::mint(5, [9; 10]);
        assert_eq!(second.open(&app("a"), first.seal(&app("a"), instance).as_bytes()), Some(instance));
    }
}
