//! A listener's own certificate, from files that its settings name.

use crate::settings::TlsSettings;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("{path} cannot be read as PEM: {why}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        why: String,
    },
    /// Certificate and key do not fit, or are of a kind that is not supported.
    #[error("the certificate and key of {listen} cannot be used: {why}")]
    Unusable {
        /// The listener.
        listen: SocketAddr,
        /// What was wrong.
        why: String,
    },
    /// There are no random numbers for keys.
    #[error("keys of session tickets cannot be made")]
    Random(#[source] std::io::Error),
}

/// The certificate that a listener has besides those of resources.
pub(super) fn load(settings: &TlsSettings) -> Result<Option<CertifiedKey>, TlsError> {
    let Some((certificate, key)) = &settings.own else { return Ok(None) };
    let unreadable = |path: &PathBuf, why: String| TlsError::File { path: path.clone(), why };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(certificate, "there is no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error.to_string()))?;
    let provider = rustls::crypto::ring::default_provider();
    let unusable =
        |error: rustls::Error| TlsError::Unusable { listen: settings.listen, why: error.to_string() };
    CertifiedKey::from_der(chain, key, &provider).map(Some).map_err(unusable)
}
