//! Sessions in cookies: encrypted, in pieces where they are long.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use towpath_resources::plugins::openid_connect::{SameSite, Session as Settings};

/// Longest value of one cookie; browsers take 4096 bytes with name and attributes.
const PIECE: usize = 3500;
/// Most pieces.
const PIECES: usize = 6;

/// Who is logged in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Session {
    /// What the provider says of the user.
    pub(super) user: Value,
    /// Claims of the ID token.
    pub(super) id: Value,
    /// The ID token as it was signed, where somebody wants it.
    pub(super) raw: Option<String>,
    pub(super) access: Option<String>,
    pub(super) refresh: Option<String>,
    /// When the access token ends, seconds since 1970; 0 = not said.
    pub(super) access_ends: u64,
    pub(super) begun: u64,
    pub(super) seen: u64,
}

/// A login under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) state: String,
    pub(super) nonce: String,
    pub(super) verifier: Option<String>,
    /// Where the browser wanted to go.
    pub(super) uri: String,
    pub(super) begun: u64,
}

/// Makes cookies of values and values of cookies.
pub(super) struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    /// `whose` = what else has to be the same where a value is opened.
    pub(super) fn new(secret: &str, whose: &[u8]) -> Option<Self> {
        let digest = Sha256::new_with_prefix("towpath openid-connect cookie 2\0")
            .chain_update((secret.len() as u64).to_le_bytes())
            .chain_update(secret)
            .chain_update(whose)
            .finalize();
        Some(Self { key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &digest).ok()?) })
    }

    /// `purpose` = what the value is for; it opens for nothing else.
    pub(super) fn seal(&self, purpose: &str, value: &impl Serialize) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut sealed = serde_json::to_vec(value).ok()?;
        let given = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(given, Aad::from(purpose), &mut sealed).ok()?;
        Some(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &sealed].concat()))
    }

    pub(super) fn open<T: DeserializeOwned>(&self, purpose: &str, text: &str) -> Option<T> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.key.open_in_place(nonce, Aad::from(purpose), &mut sealed).ok()?;
        serde_json::from_slice(plain).ok()
    }
}

/// The cookies of a session, in order, joined.
pub(super) fn joined(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut text = cookie(headers, name)?.to_owned();
    for n in 2..=PIECES {
        match cookie(headers, &format!("{name}_{n}")) {
            Some(piece) => text.push_str(piece),
            None => break,
        }
    }
    Some(text)
}

/// The value of a cookie.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// Takes cookies of this name, and its pieces, out of a request.
pub(super) fn hide(headers: &mut HeaderMap, name: &str) {
    let is_ours = |pair: &str| {
        let own = pair.trim().split('=').next().unwrap_or_default();
        own.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let lines: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for line in lines {
        let Ok(text) = line.to_str() else {
            headers.append(COOKIE, line);
            continue;
        };
        let kept: Vec<&str> = text.split(';').filter(|pair| !is_ours(pair)).map(str::trim).collect();
        if let Ok(kept) = HeaderValue::from_str(&kept.join("; "))
            && !kept.is_empty()
        {
            headers.append(COOKIE, kept);
        }
    }
}

/// `Set-Cookie` lines that put a session there; none if it is too long. `None` for the value = it ends.
pub(super) fn set(settings: &Settings, secure: bool, value: Option<&str>) -> Vec<HeaderValue> {
    let name = &settings.cookie_name;
    let text = value.unwrap_or_default();
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(PIECE).collect();
    if pieces.len() > PIECES {
        tracing::warn!(bytes = text.len(), "a session is too long for cookies: ask for less in its scopes");
        return Vec::new();
    }
    let attributes = attributes(settings, secure, &settings.cookie_path);
    let line = |n: usize, piece: Option<&&[u8]>| {
        let name = if n == 0 { name.clone() } else { format!("{name}_{}", n + 1) };
        let line = match piece {
            Some(piece) => format!(
                "{name}={}; Max-Age={}{attributes}",
                String::from_utf8_lossy(piece),
                settings.absolute_timeout
            ),
            None => format!("{name}=; Max-Age=0{attributes}"),
        };
        HeaderValue::from_str(&line).ok()
    };
    // One more than there are pieces ends what a longer session has left.
    let lines = if value.is_some() { pieces.len() + 1 } else { PIECES };
    (0..lines.min(PIECES)).filter_map(|n| line(n, pieces.get(n))).collect()
}

/// The attributes of a cookie.
pub(super) fn attributes(settings: &Settings, secure: bool, path: &str) -> String {
    let mut text = format!("; Path={path}");
    if let Some(domain) = &settings.cookie_domain {
        text.push_str(&format!("; Domain={domain}"));
    }
    if settings.cookie_secure.unwrap_or(secure) {
        text.push_str("; Secure");
    }
    if settings.cookie_http_only {
        text.push_str("; HttpOnly");
    }
    text.push_str(match settings.cookie_same_site {
        SameSite::Strict => "; SameSite=Strict",
        SameSite::Lax => "; SameSite=Lax",
        SameSite::None => "; SameSite=None",
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_for_its_purpose_alone() {
        let sealer = Sealer::new("0123456789abcdef", b"one").unwrap();
        let sealed = sealer.seal("a", &vec![1, 2]).unwrap();
        assert_eq!(sealer.open::<Vec<u8>>("a", &sealed), Some(vec![1, 2]));
        assert_eq!(sealer.open::<Vec<u8>>("b", &sealed), None);
        for (secret, whose) in
            [("another secret..", "one"), ("0123456789abcdef", "two"), ("0123456789abcde", "fone")]
        {
            let other = Sealer::new(secret, whose.as_bytes()).unwrap();
            assert_eq!(other.open::<Vec<u8>>("a", &sealed), None, "{secret} {whose}");
        }
        for bad in ["", "AAAA", &sealed[1..], &format!("{sealed}A")] {
            assert_eq!(sealer.open::<Vec<u8>>("a", bad), None);
        }
    }

    #[test]
    fn long_sessions_are_cut_and_joined() {
        let settings: Settings =
            serde_json::from_value(serde_json::json!({"secret": "0123456789abcdef"})).unwrap();
        let text = "x".repeat(PIECE * 2 + 1);
        let lines = set(&settings, true, Some(&text));
        assert_eq!(lines.len(), 4, "three, and one that ends a fourth");
        let mut headers = HeaderMap::new();
        let pairs: Vec<&str> =
            lines.iter().take(3).map(|line| line.to_str().unwrap().split(';').next().unwrap()).collect();
        headers.insert(
            COOKIE,
            HeaderValue::from_str(&format!("a=1; {}; session2=x", pairs.join("; "))).unwrap(),
        );
        assert_eq!(joined(&headers, "session"), Some(text));
        hide(&mut headers, "session");
        assert_eq!(headers.get(COOKIE).unwrap(), "a=1; session2=x");
        assert!(set(&settings, true, Some(&"x".repeat(PIECE * PIECES + 1))).is_empty());
        assert_eq!(set(&settings, false, None).len(), PIECES);
    }
}
