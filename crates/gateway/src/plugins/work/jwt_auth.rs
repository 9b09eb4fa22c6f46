//! `jwt-auth`: a signed token tells who the consumer is.

use super::auth;
use crate::clock;
use crate::plugins::program::Known;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::HeaderValue;
use http::header::{COOKIE, HeaderName};
use ring::{hmac, signature};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use std::sync::Arc;
use towpath_resources::plugins::jwt_auth::{Algorithm, Claim, Config, Credential};

/// See the module.
pub(in crate::plugins) struct JwtAuth {
    config: Arc<Config>,
    header: Option<HeaderName>,
}

/// A token taken apart.
pub(super) struct Token<'a> {
    pub(super) signed: &'a str,
    pub(super) algorithm: String,
    pub(super) key_id: Option<String>,
    pub(super) claims: Value,
    pub(super) signature: Vec<u8>,
}

impl<'a> Token<'a> {
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let part = |text: &str| URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let head: Value = serde_json::from_slice(&part(head)?).ok()?;
        Some(Self {
            signed,
            algorithm: head.get("alg")?.as_str()?.to_owned(),
            key_id: head.get("kid").and_then(Value::as_str).map(str::to_owned),
            claims: serde_json::from_slice(&part(claims)?).ok()?,
            signature: part(signature)?,
        })
    }
}

/// Whether the signature is one of this credential's.
fn is_signed(token: &Token<'_>, credential: &Credential) -> bool {
    let (text, signature) = (token.signed.as_bytes(), token.signature.as_slice());
    if credential.algorithm.is_symmetric() {
        let Some(secret) = credential.secret.as_ref() else { return false };
        let secret = match credential.base64_secret {
            true => STANDARD.decode(secret).unwrap_or_default(),
            false => secret.clone().into_bytes(),
        };
        let algorithm = match credential.algorithm {
            Algorithm::HS384 => hmac::HMAC_SHA384,
            Algorithm::HS512 => hmac::HMAC_SHA512,
            _ => hmac::HMAC_SHA256,
        };
        return !secret.is_empty()
            && hmac::verify(&hmac::Key::new(algorithm, &secret), text, signature).is_ok();
    }
    let algorithm: &dyn signature::VerificationAlgorithm = match credential.algorithm {
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::ES256 => &signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &signature::ED25519,
        _ => &signature::RSA_PKCS1_2048_8192_SHA256,
    };
    let pem = credential.public_key.as_deref().unwrap_or_default();
    let Ok(info) = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()) else { return false };
    let Some(key) = key_of(&info) else { return false };
    signature::UnparsedPublicKey::new(algorithm, key).verify(text, signature).is_ok()
}

/// The key inside of a SubjectPublicKeyInfo (RFC 5280, 4.1): its second member, a bit string.
pub(super) fn key_of(info: &[u8]) -> Option<&[u8]> {
    let (_, inner, _) = der(info)?;
    let (_, _, rest) = der(inner)?;
    let (tag, bits, _) = der(rest)?;
    (tag == 3).then(|| bits.get(1..)).flatten()
}

/// The first element of DER: its tag, its content, what follows.
fn der(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=127 => (usize::from(first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 127).min(8))?;
            (digits.iter().fold(0, |length: usize, &byte| length << 8 | usize::from(byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

impl JwtAuth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self { header: HeaderName::from_bytes(config.header.as_bytes()).ok(), config: config.clone() }
    }

    fn token(&self, request: &mut Request<'_>) -> Option<String> {
        let hide = self.config.hide_credentials;
        let header = self.header.as_ref().and_then(|name| request.headers.get(name)?.to_str().ok());
        if let Some(text) = header {
            let bare = text.strip_prefix("Bearer ").or(text.strip_prefix("bearer ")).unwrap_or(text);
            let token = bare.trim().to_owned();
            if let Some(name) = self.header.as_ref().filter(|_| hide) {
                request.headers.remove(name);
            }
            return Some(token);
        }
        if let Some(token) = request.vars().argument(&self.config.query).map(std::borrow::Cow::into_owned) {
            if hide {
                request.record.hide_argument(|query| auth::without_argument(query, &self.config.query));
            }
            return Some(token);
        }
        let token = request.vars().cookie(&self.config.cookie)?.into_owned();
        if hide {
            let lines: Vec<_> = request.headers.get_all(COOKIE).iter().cloned().collect();
            request.headers.remove(COOKIE);
            for line in lines {
                let kept = without_cookie(&line, &self.config.cookie);
                kept.map(|line| request.headers.append(COOKIE, line));
            }
        }
        Some(token)
    }

    fn find(&self, request: &mut Request<'_>) -> Result<Known<Credential>, &'static str> {
        let text = self.token(request).ok_or("Missing JWT token in request")?;
        let token = Token::read(&text).ok_or("JWT token invalid")?;
        let key = token.claims.get(&self.config.key_claim_name).and_then(Value::as_str);
        let key = key.ok_or("missing user key in JWT token")?;
        let plugins = request.running().plugins.clone();
        let known = plugins.and_then(|plugins| plugins.consumers.by_token.get(key).cloned());
        let known = known.ok_or("Invalid user key in JWT token")?;
        let credential = &known.credential;
        if token.algorithm != credential.algorithm.as_str() || !is_signed(&token, credential) {
            return Err("failed to verify jwt");
        }
        let (now, grace) = (clock::unix_ms() as f64 / 1000.0, credential.lifetime_grace_period as f64);
        for (claim, name) in [(Claim::Exp, "exp"), (Claim::Nbf, "nbf")] {
            let wanted = self.config.claims_to_verify.iter().flatten().any(|one| *one == claim);
            let good = match token.claims.get(name).map(Value::as_f64) {
                Some(Some(end)) if claim == Claim::Exp => now < end + grace,
                Some(Some(begin)) => now >= begin - grace,
                Some(None) => false,
                None => !wanted,
            };
            if !good {
                return Err("failed to verify jwt");
            }
        }
        Ok(known)
    }
}

fn without_cookie(line: &HeaderValue, name: &str) -> Option<HeaderValue> {
    let text = line.to_str().ok()?;
    let kept = text.split(';').map(str::trim).filter(|pair| pair.split('=').next() != Some(name));
    let kept = kept.collect::<Vec<_>>().join("; ");
    if kept.is_empty() { None } else { HeaderValue::from_str(&kept).ok() }
}

impl Plugin for JwtAuth {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let challenge = format!("Bearer realm=\"{}\"", self.config.realm);
        let (consumer, credential) = match (self.find(request), self.config.anonymous_consumer.as_deref()) {
            (Ok(known), _) => (known.consumer, known.id),
            (Err(why), None) => return Step::answer(auth::refuse(why, &challenge)),
            (Err(_), anonymous) => match auth::anonymous(request, anonymous) {
                Some(consumer) => (consumer, None),
                None => return Step::answer(auth::refuse("Invalid user authorization", &challenge)),
            },
        };
        auth::attach(request, consumer, credential);
        Step::Next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(more: Value) -> Credential {
        let mut all = serde_json::json!({"key": "k"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_token_of_rfc_7515_is_verified_and_a_changed_one_is_not() {
        // RFC 7515, appendix A.1.
        let text = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt\
                    cGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let secret = STANDARD.encode(URL_SAFE_NO_PAD.decode(secret).unwrap());
        let credential = credential(serde_json::json!({"secret": secret, "base64_secret": true}));
        let token = Token::read(text).unwrap();
        assert!(is_signed(&token, &credential));
        let changed = text.replace("dBjf", "dBjg");
        assert!(!is_signed(&Token::read(&changed).unwrap(), &credential));
        for bad in ["", "a.b", "a.b.c", "..", "e30.e30."] {
            assert!(Token::read(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_public_key_verifies_what_its_private_one_has_signed() {
        use ring::rand::SystemRandom;
        use ring::signature::{Ed25519KeyPair, KeyPair};
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let mut info = vec![0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        info.extend_from_slice(pair.public_key().as_ref());
        let pem =
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(info));
        let credential = credential(serde_json::json!({"public_key": pem, "algorithm": "EdDSA"}));
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode("{\"alg\":\"EdDSA\"}"), URL_SAFE_NO_PAD.encode("{}"));
        let text = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes())));
        assert!(is_signed(&Token::read(&text).unwrap(), &credential));
        let other = text.replacen("e30", "e31", 1);
        assert!(Token::read(&other).is_none_or(|token| !is_signed(&token, &credential)));
    }
}
