//! TLS towards static upstreams.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use towpath_resources::ResolvedUpstream;
use towpath_resources::model::Scheme;
use towpath_types::upstream::Protocol;

/// The configuration for an upstream, and a number that differs where it differs.
pub(crate) fn config(
    resolved: &ResolvedUpstream,
    protocol: Protocol,
) -> Result<(Arc<ClientConfig>, u64), String> {
    let tls = resolved.spec.tls.as_ref();
    let (verify, ca) = tls.map_or((false, None), |tls| (tls.verify, tls.ca.as_deref()));
    let own = tls.and_then(|tls| Some((tls.client_cert.as_deref()?, tls.client_key.as_deref()?)));
    let shown = resolved.client_certificate.as_deref();
    let own = own.or_else(|| shown.map(|(certificate, key)| (certificate.as_str(), key.as_str())));
    let mut hash = DefaultHasher::new();
    (verify, ca, own, protocol == Protocol::H2c, resolved.spec.scheme == Scheme::Tls).hash(&mut hash);
    let mut config = client_config(verify, ca, own)?;
    // What is spoken inside a stream is for its two ends to say.
    if resolved.spec.scheme != Scheme::Tls {
        let wanted: &[u8] = if protocol == Protocol::H2c { b"h2" } else { b"http/1.1" };
        config.alpn_protocols = vec![wanted.to_vec()];
    }
    Ok((Arc::new(config), hash.finish()))
}

/// With or without verification, trusting `ca` or the system's authorities, showing `own`.
pub(crate) fn client_config(
    verify: bool,
    ca: Option<&str>,
    own: Option<(&str, &str)>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("tls: {error}"))?;
    let builder = if verify {
        builder.with_root_certificates(roots(ca)?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
    };
    let Some((certificate, key)) = own else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("tls.client_cert", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("tls.client_key cannot be read: {error}"))?;
    builder.with_client_auth_cert(chain, key).map_err(|error| format!("tls.client_cert: {error}"))
}

fn certificates(field: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("{field} cannot be read: {error}"))?;
    if chain.is_empty() { Err(format!("{field} has no certificate in it")) } else { Ok(chain) }
}

fn roots(ca: Option<&str>) -> Result<Arc<RootCertStore>, String> {
    static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let Some(ca) = ca else {
        return Ok(SYSTEM
            .get_or_init(|| {
                let mut store = RootCertStore::empty();
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                Arc::new(store)
            })
            .clone());
    };
    let mut store = RootCertStore::empty();
    for certificate in certificates("tls.ca", ca)? {
        store.add(certificate).map_err(|error| format!("tls.ca: {error}"))?;
    }
    Ok(Arc::new(store))
}

/// Takes every certificate, as upstreams are spoken to that are not verified. What the peer signs is verified all the same.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
