//! Certificates and keys, as far as a document can be judged by them.

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// What is wrong with a certificate or its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    Certificate(String),
    Key(String),
}

/// Judges a chain of certificates and the key of its first.
pub(crate) fn check_pair(cert: &str, key: &str) -> Result<(), Wrong> {
    let chain = check_chain(cert).map_err(Wrong::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| {
        Wrong::Key("has no private key in PEM form (PRIVATE KEY, RSA PRIVATE KEY, EC PRIVATE KEY)".to_owned())
    })?;
    match CertifiedKey::from_der(chain, key, &default_provider()) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err(Wrong::Key("is not the key of the certificate".to_owned())),
        Err(rustls::Error::InvalidCertificate(_)) => {
            Err(Wrong::Certificate("has a certificate that cannot be read".to_owned()))
        }
        Err(_) => Err(Wrong::Key("is a key that cannot be used: give RSA of 2048 bits or more, ECDSA P-256, P-384, P-521, or Ed25519".to_owned())),
    }
}

/// Every certificate of `pem`, at least one.
pub(crate) fn check_chain(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| "has a damaged PEM block".to_owned())?;
    if chain.is_empty() {
        return Err("has no certificate in PEM form".to_owned());
    }
    for certificate in &chain {
        rustls::server::ParsedCertificate::try_from(certificate)
            .map_err(|_| "has a certificate that cannot be read".to_owned())?;
    }
    Ok(chain)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A certificate for `name`, and its key.
    pub(crate) fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_pair_fits_or_the_culprit_is_told() {
        let (cert, key) = pair("a.test");
        let (other, _) = pair("b.test");
        assert_eq!(check_pair(&cert, &key), Ok(()));
        assert_eq!(check_pair(&format!("{cert}{other}"), &key), Ok(()));
        assert_eq!(check_pair(&other, &key), Err(Wrong::Key("is not the key of the certificate".to_owned())));
        assert!(matches!(
            check_pair("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key),
            Err(Wrong::Certificate(_))
        ));
        assert!(matches!(check_pair(&key, &key), Err(Wrong::Certificate(_))));
        assert!(matches!(check_pair(&cert, &cert), Err(Wrong::Key(_))));
    }
}
