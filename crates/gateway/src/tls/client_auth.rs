//! What clients of a name have to show (`client` of an `ssls` resource).

use regex::Regex;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use towpath_resources::model::SslClient;

/// A rule for clients.
#[derive(Debug)]
pub(crate) struct ClientRule {
    /// The same for rules that let the same clients in.
    pub(crate) trust: [u8; 32],
    /// Paths that need no certificate.
    skip: Vec<Regex>,
    verifier: Arc<Verifier>,
}

impl ClientRule {
    /// Of what a resource says; `Err` says what is wrong.
    pub(crate) fn new(client: &SslClient, provider: &CryptoProvider) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(client.ca.as_bytes()) {
            let certificate = certificate.map_err(|error| format!("client.ca: cannot be read: {error}"))?;
            roots.add(certificate).map_err(|error| format!("client.ca: {error}"))?;
        }
        if roots.is_empty() {
            return Err("client.ca: has no certificate in it".to_owned());
        }
        let skip = client.skip_mtls_uri_regex.iter().flatten().map(|text| Regex::new(&text.0));
        let skip: Result<Vec<_>, _> = skip.collect();
        let skip = skip.map_err(|error| format!("client.skip_mtls_uri_regex: {error}"))?;
        let trust =
            Sha256::new().chain_update(client.depth.to_be_bytes()).chain_update(&client.ca).finalize();
        Ok(Self {
            trust: trust.into(),
            verifier: Arc::new(Verifier {
                hints: roots.subjects(),
                roots,
                depth: client.depth as usize,
                mandatory: skip.is_empty(),
                algorithms: provider.signature_verification_algorithms,
            }),
            skip,
        })
    }

    /// Of session tickets: those of one rule are nothing under another.
    pub(super) fn scope(&self) -> [u8; 32] {
        Sha256::new()
            .chain_update(self.trust)
            .chain_update([u8::from(self.skip.is_empty())])
            .finalize()
            .into()
    }

    /// What judges certificates in handshakes.
    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.verifier.clone()
    }

    /// Whether a path, in the form that rules see, needs no certificate.
    pub(super) fn skips(&self, path: &[u8]) -> bool {
        std::str::from_utf8(path).is_ok_and(|path| self.skip.iter().any(|regex| regex.is_match(path)))
    }
}

/// As rustls's own, with a bound on the certificates between the client's and the authority's. Where some paths need no
/// certificate, none has to be shown, but one that is shown has to be right.
#[derive(Debug)]
struct Verifier {
    roots: RootCertStore,
    hints: Vec<DistinguishedName>,
    depth: usize,
    mandatory: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let certificate =
            webpki::EndEntityCert::try_from(end_entity).map_err(|_| CertificateError::BadEncoding)?;
        let short = |path: &webpki::VerifiedPath<'_>| {
            let between = path.intermediate_certificates().count();
            if between <= self.depth { Ok(()) } else { Err(webpki::Error::MaximumPathDepthExceeded) }
        };
        let path = certificate.verify_for_usage(
            self.algorithms.all,
            &self.roots.roots,
            intermediates,
            now,
            webpki::KeyUsage::client_auth(),
            None,
            Some(&short),
        );
        path.map(|_| ClientCertVerified::assertion()).map_err(|error| match error {
            webpki::Error::CertExpired { .. } => CertificateError::Expired.into(),
            webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer.into(),
            error => CertificateError::Other(rustls::OtherError(Arc::new(error))).into(),
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
