//! Keys of a provider, and what they have signed.

use super::super::jwt_auth::{Token, key_of};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;

/// Most keys of a provider that are looked at.
const MOST: usize = 64;

/// A key.
#[derive(Debug, Clone)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// The only algorithm that it is for, if it says so.
    algorithm: Option<String>,
    key: Key,
}

#[derive(Debug, Clone)]
enum Key {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// As `ring` takes it: an RSA key in DER, a point, 32 bytes.
    Raw(Vec<u8>),
}

impl PublicKey {
    /// The keys of a JWK set (RFC 7517). Those that are of no use here are left out.
    pub(super) fn set(keys: &Value) -> Vec<Self> {
        let list = keys.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Self::of_jwk).take(MOST).collect()
    }

    fn of_jwk(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|used| used != "sig") {
            return None;
        }
        let key = match text("kty")? {
            "RSA" => Key::Rsa { n: bytes("n")?, e: bytes("e")? },
            "EC" => Key::Raw([vec![4], bytes("x")?, bytes("y")?].concat()),
            "OKP" if text("crv") == Some("Ed25519") => Key::Raw(bytes("x")?),
            _ => return None,
        };
        let own = |name| text(name).map(str::to_owned);
        Some(Self { id: own("kid"), algorithm: own("alg"), key })
    }

    /// A key in PEM.
    pub(super) fn of_pem(pem: &str) -> Option<Self> {
        let info = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok()?;
        Some(Self { id: None, algorithm: None, key: Key::Raw(key_of(&info)?.to_vec()) })
    }

    /// Whether the token says that it is signed with it: always, where one of both names none.
    fn is_meant(&self, token: &Token<'_>) -> bool {
        self.id.is_none() || token.key_id.is_none() || self.id == token.key_id
    }

    fn has_signed(&self, token: &Token<'_>) -> bool {
        if self.algorithm.as_ref().is_some_and(|algorithm| *algorithm != token.algorithm) {
            return false;
        }
        let (text, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let rsa: &signature::RsaParameters = match token.algorithm.as_str() {
            "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
            "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
            "RS512" => &signature::RSA_PKCS1_2048_8192_SHA512,
            "PS256" => &signature::RSA_PSS_2048_8192_SHA256,
            "PS384" => &signature::RSA_PSS_2048_8192_SHA384,
            "PS512" => &signature::RSA_PSS_2048_8192_SHA512,
            other => {
                let algorithm: &dyn signature::VerificationAlgorithm = match other {
                    "ES256" => &signature::ECDSA_P256_SHA256_FIXED,
                    "ES384" => &signature::ECDSA_P384_SHA384_FIXED,
                    "EdDSA" => &signature::ED25519,
                    // `none`, and those with a secret that a public key could be taken for
                    _ => return false,
                };
                return match &self.key {
                    Key::Raw(key) => UnparsedPublicKey::new(algorithm, key).verify(text, signature).is_ok(),
                    Key::Rsa { .. } => false,
                };
            }
        };
        match &self.key {
            Key::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(rsa, text, signature).is_ok(),
            Key::Raw(key) => UnparsedPublicKey::new(rsa, key).verify(text, signature).is_ok(),
        }
    }
}

/// Whether one of the keys has signed the token.
pub(super) fn is_signed(token: &Token<'_>, keys: &[PublicKey]) -> bool {
    keys.iter().any(|key| key.is_meant(token) && key.has_signed(token))
}
