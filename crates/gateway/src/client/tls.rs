//! TLS towards clients.

use crate::settings::TlsSettings;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;

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
    #[error("the certificate and key of {listen} cannot be used")]
    Unusable {
        /// The listener.
        listen: std::net::SocketAddr,
        /// The library's reason.
        #[source]
        source: rustls::Error,
    },
}

/// Makes the configuration of one listener.
pub(crate) fn load(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let unreadable = |path: &PathBuf, why: String| TlsError::File { path: path.clone(), why };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&settings.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(&settings.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(unreadable(&settings.certificate, "there is no certificate in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&settings.key)
        .map_err(|error| unreadable(&settings.key, error.to_string()))?;
    let unusable = |source| TlsError::Unusable { listen: settings.listen, source };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
