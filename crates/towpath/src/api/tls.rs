//! TLS to an API behind `https://`, with the system's certificates or those in `TOWPATH_CA`.

use super::Address;
use crate::exit::{Exit, Failure, Outcome};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Does the handshake.
pub(super) async fn wrap(address: &Address, stream: TcpStream) -> Outcome<TlsStream<TcpStream>> {
    let name = ServerName::try_from(address.host().to_owned())
        .map_err(|_| Failure::new(Exit::Usage, format!("{address} has no host name that TLS can check")))?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::new(Exit::Failed, format!("TLS: {error}")))?
        .with_root_certificates(roots()?)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| {
        Failure::hinted(
            Exit::Unreachable,
            format!("no TLS with {address}: {error}"),
            "name the authority's certificate in TOWPATH_CA if it is one of your own",
        )
    })
}

fn roots() -> Outcome<RootCertStore> {
    let mut store = RootCertStore::empty();
    if let Some(file) = std::env::var_os("TOWPATH_CA") {
        let shown = file.to_string_lossy().into_owned();
        let wrong = |why: String| Failure::new(Exit::Usage, format!("TOWPATH_CA: {shown}: {why}"));
        let certificates = CertificateDer::pem_file_iter(&file).map_err(|error| wrong(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            store.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        return Ok(store);
    }
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Ok(store)
}
