//! Certificates and keys, as far as a document can be judged by them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// What is wrong with a certificate or its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wrong {
    Certificate(String),
    Key(String),
}

/// From when to when a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

/// When the first certificate of `pem` is valid.
pub(crate) fn validity(pem: &str) -> Result<Validity, String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|_| "has no certificate in PEM form".to_owned())?;
    validity_of(&der)
}

/// When a certificate is valid.
pub fn validity_of(der: &[u8]) -> Result<Validity, String> {
    let certificate = Certificate::from_der(der).map_err(|error| format!("cannot be read: {error}"))?;
    let validity = certificate.tbs_certificate.validity;
    let seconds =
        |time: x509_cert::time::Time| i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Ok(Validity { not_before: seconds(validity.not_before), not_after: seconds(validity.not_after) })
}

/// The OCSP response in `text`, DER in base64. Its form is looked at as far as the word of success (RFC 6960, 4.2.1).
pub(crate) fn ocsp_response(text: &str) -> Result<Vec<u8>, String> {
    let text: String = text.split_ascii_whitespace().collect();
    let der = STANDARD.decode(text).map_err(|_| "must be DER in base64".to_owned())?;
    let mut rest = der.iter().copied();
    let outer = rest.next();
    // Lengths below 128 are one byte; longer ones say in how many bytes they come.
    let more = rest.next().map_or(0, |length| if length < 0x80 { 0 } else { usize::from(length & 0x7f) });
    let status: Vec<u8> = rest.skip(more).take(3).collect();
    match (outer, status.as_slice()) {
        (Some(0x30), [0x0a, 1, 0]) => Ok(der),
        (Some(0x30), [0x0a, 1, status]) => Err(format!(
            "is an OCSP response without a certificate's status: the responder's answer was {status}"
        )),
        _ => Err("is no OCSP response".to_owned()),
    }
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
