//! Certificates for tests.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

/// An authority that only this test trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Those between it and one that is trusted, itself first; none of one that is trusted itself.
    chain: String,
}

/// A certificate and its key, both PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new authority.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(authority("towpath tests"), key);
        Self { issuer: issuer.expect("a certificate of its own"), chain: String::new() }
    }

    /// An authority below this one.
    pub fn issue_authority(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::signed_by(authority(name), key, &self.issuer).expect("a signature");
        let chain = format!("{}{}", issuer.pem(), self.chain);
        Self { issuer, chain }
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for names and addresses, with those between it and one that is trusted.
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.issue_for_days(names, 10_000)
    }

    /// One that ends after so many days; a negative number = it has ended.
    pub fn issue_for_days(&self, names: &[&str], days: i64) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let first = names.first().cloned().unwrap_or_default();
        let mut params = CertificateParams::new(names).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, first);
        params.not_after =
            (std::time::SystemTime::now() + Duration::from_secs(DAY * days.unsigned_abs())).into();
        if days < 0 {
            params.not_after =
                (std::time::SystemTime::now() - Duration::from_secs(DAY * days.unsigned_abs())).into();
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a signature");
        Certificate { certificate: format!("{}{}", certificate.pem(), self.chain), key: key.serialize_pem() }
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("no names are valid names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
