//! A certificate at work: the configurations that handshakes go on with, and what its clients have to show.

use super::client_auth::ClientRule;
use super::tickets::TicketKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoClientAuth, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};
use std::cmp::Reverse;
use std::sync::Arc;
use towpath_resources::model::{Ssl, TlsVersion};
use towpath_resources::{Id, Validity};

/// Versions that are spoken where nothing is said.
const VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// See the module.
#[derive(Debug)]
pub(crate) struct Served {
    /// Of which resource; `None` = of a listener's own files.
    pub(crate) id: Option<Id>,
    /// What it was made of.
    pub(crate) ssl: Option<Arc<Ssl>>,
    /// When all its certificates are valid.
    pub(crate) validity: Validity,
    /// What clients have to show; `None` = nothing.
    pub(crate) client: Option<ClientRule>,
    /// For HTTP: with `h2` and `http/1.1`.
    pub(crate) http: Arc<ServerConfig>,
    /// For streams: no protocol is negotiated.
    pub(crate) stream: Arc<ServerConfig>,
}

impl Served {
    /// Of a resource; `Err` says why it cannot serve.
    pub(crate) fn of_resource(id: &Id, ssl: &Arc<Ssl>, keys: &Arc<TicketKeys>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut pairs = Vec::new();
        for ((cert, key), staple) in ssl.pairs().zip(ssl.staples().chain(std::iter::repeat(None))) {
            let mut pair = certified(cert, key, &provider)?;
            pair.ocsp = staple;
            pairs.push(Arc::new(pair));
        }
        let client = ssl.client.as_ref().map(|client| ClientRule::new(client, &provider)).transpose()?;
        let versions = ssl.ssl_protocols.iter().flatten().map(|version| match version {
            TlsVersion::Tls12 => &TLS12,
            TlsVersion::Tls13 => &TLS13,
        });
        let versions: Vec<_> = versions.collect();
        let versions = if versions.is_empty() { VERSIONS.to_vec() } else { versions };
        let validity = ssl.validity().ok_or("cert: cannot be read")?;
        Self::make(Some((id, ssl)), pairs, client, &versions, validity, keys, provider)
    }

    /// Of a listener's own certificate and key.
    pub(crate) fn of_files(pair: CertifiedKey, keys: &Arc<TicketKeys>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let first = pair.cert.first().ok_or("there is no certificate")?;
        let validity = towpath_resources::validity_of(first)?;
        Self::make(None, vec![Arc::new(pair)], None, VERSIONS, validity, keys, provider)
    }

    fn make(
        of: Option<(&Id, &Arc<Ssl>)>,
        pairs: Vec<Arc<CertifiedKey>>,
        client: Option<ClientRule>,
        versions: &[&'static SupportedProtocolVersion],
        validity: Validity,
        keys: &Arc<TicketKeys>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let verifier = client.as_ref().map_or_else(|| Arc::new(NoClientAuth) as _, ClientRule::verifier);
        let mut http = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| format!("ssl_protocols: {error}"))?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(Pairs(pairs)));
        http.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Sessions live in tickets alone, whose keys differ with what clients have to show: who was let in by one rule does not
        // come back under another.
        http.session_storage = Arc::new(NoServerSessionStorage {});
        http.ticketer = Arc::new(keys.of_scope(client.as_ref().map(ClientRule::scope)));
        let mut stream = http.clone();
        stream.alpn_protocols.clear();
        Ok(Self {
            id: of.map(|(id, _)| id.clone()),
            ssl: of.map(|(_, ssl)| ssl.clone()),
            validity,
            client,
            http: Arc::new(http),
            stream: Arc::new(stream),
        })
    }

    /// The names of its resource.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.ssl.iter().flat_map(|ssl| ssl.names()).map(|name| name.as_str())
    }

    /// The highest one serves a name that several have: one that asks for clients' certificates before one that does not, one
    /// that is valid now before one that is not, then the one that is valid longest, then the one with the lowest id.
    pub(super) fn rank(&self, now: i64) -> (bool, bool, i64, Reverse<Option<&Id>>) {
        let valid = (self.validity.not_before..=self.validity.not_after).contains(&now);
        (self.client.is_some(), valid, self.validity.not_after, Reverse(self.id.as_ref()))
    }
}

fn certified(cert: &str, key: &str, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
    let chain = chain.map_err(|error| format!("cert: cannot be read: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|error| format!("key: cannot be read: {error}"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| format!("cert and key: {error}"))
}

/// The certificates of one resource. The first whose key can sign what the client can verify is shown, those with elliptic
/// curves before RSA: they cost less on both sides.
#[derive(Debug)]
struct Pairs(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for Pairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let can = |pair: &&Arc<CertifiedKey>| pair.key.choose_scheme(hello.signature_schemes()).is_some();
        let is_rsa = |pair: &&Arc<CertifiedKey>| pair.key.algorithm() == rustls::SignatureAlgorithm::RSA;
        let mut fitting = self.0.iter().filter(can);
        let first = fitting.clone().find(|pair| !is_rsa(pair)).or_else(|| fitting.next());
        first.or_else(|| self.0.first()).cloned()
    }
}
