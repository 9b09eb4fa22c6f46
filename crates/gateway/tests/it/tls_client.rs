//! A TLS client that tells what it was shown.

use crate::support::Answer;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, SignatureScheme, StreamOwned, SupportedProtocolVersion,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towpath_testkit::tls::Certificate;

/// Takes what it is shown, and keeps the OCSP response.
#[derive(Debug)]
struct Anyone {
    schemes: Vec<SignatureScheme>,
    staple: Mutex<Vec<u8>>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.staple.lock().unwrap() = staple.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// A client, with the sessions that it may resume.
pub struct Dialer {
    config: Arc<ClientConfig>,
    verifier: Arc<Anyone>,
    parts: Parts,
}

#[derive(Clone, Default)]
struct Parts {
    schemes: Option<Vec<SignatureScheme>>,
    version: Option<&'static SupportedProtocolVersion>,
    showing: Option<Certificate>,
}

impl Dialer {
    pub fn new() -> Self {
        Self::of(Parts::default())
    }

    fn of(parts: Parts) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let all = provider.signature_verification_algorithms.supported_schemes();
        let verifier =
            Arc::new(Anyone { schemes: parts.schemes.clone().unwrap_or(all), staple: Mutex::default() });
        let versions = parts.version.map_or_else(|| rustls::ALL_VERSIONS.to_vec(), |version| vec![version]);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let config = match &parts.showing {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes()).map(Result::unwrap);
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain.collect(), key).unwrap()
            }
        };
        Self { config: Arc::new(config), verifier, parts }
    }

    /// Says that it can verify these only.
    pub fn schemes(self, schemes: &[SignatureScheme]) -> Self {
        Self::of(Parts { schemes: Some(schemes.to_vec()), ..self.parts })
    }

    pub fn version(self, version: &'static SupportedProtocolVersion) -> Self {
        Self::of(Parts { version: Some(version), ..self.parts })
    }

    /// Shows a certificate of its own.
    pub fn showing(self, certificate: &Certificate) -> Self {
        Self::of(Parts { showing: Some(certificate.clone()), ..self.parts })
    }

    /// A handshake, for a name or for none.
    pub fn visit(&self, address: SocketAddr, name: Option<&str>) -> Result<Visit, String> {
        let mut config = self.config.clone();
        if name.is_none() {
            Arc::make_mut(&mut config).enable_sni = false;
        }
        let server = ServerName::try_from(name.unwrap_or("none.test").to_owned()).unwrap();
        let mut connection = ClientConnection::new(config, server).unwrap();
        let mut socket = TcpStream::connect(address).map_err(|error| error.to_string())?;
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|error| format!("{error:?}"))?;
        }
        let staple = self.verifier.staple.lock().unwrap().clone();
        Ok(Visit { stream: BufReader::new(StreamOwned::new(connection, socket)), staple })
    }
}

/// A connection.
pub struct Visit {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    /// The OCSP response that came with the certificate.
    pub staple: Vec<u8>,
}

impl Visit {
    /// Whether this is the certificate that the gateway has shown.
    pub fn shows(&self, certificate: &Certificate) -> bool {
        let wanted = CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap();
        self.stream.get_ref().conn.peer_certificates().unwrap()[0] == wanted
    }

    pub fn kind(&self) -> Option<HandshakeKind> {
        self.stream.get_ref().conn.handshake_kind()
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.stream.get_ref().sock.local_addr().unwrap().port()
    }

    /// A GET, its answer read to the end.
    pub fn get(&mut self, host: &str, path: &str) -> Answer {
        self.try_get(host, path).expect("an answer")
    }

    /// The status of a GET, on another connection where this one has ended.
    pub fn get_again(&mut self, address: SocketAddr, host: &str) -> u16 {
        let answer = self.try_get(host, "/").expect("an answer");
        if answer.status == 421 {
            assert!(self.try_get(host, "/").is_none(), "the connection ends with it");
            assert!(
                Dialer::new()
                    .visit(address, Some(host))
                    .is_ok_and(|mut next| next.try_get(host, "/").is_none())
            );
        }
        answer.status
    }

    pub fn try_get(&mut self, host: &str, path: &str) -> Option<Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        self.stream.get_mut().flush().ok()?;
        let mut line = || {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
            Some(line.trim_end().to_owned())
        };
        let status = line()?.split(' ').nth(1)?.parse().unwrap();
        let mut headers = Vec::new();
        while let Some((name, value)) = line()?.split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .map(|(_, value)| value.parse().unwrap());
        let mut body = vec![0; length.expect("a length")];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer { status, headers, body })
    }
}

/// The status of a request for `host` over HTTP/2, on a connection for `name`.
pub async fn h2_status(address: SocketAddr, dialer: &Dialer, name: &str, host: &str) -> u16 {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let mut config = dialer.config.clone();
    Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request =
        http::Request::get(format!("https://{host}/")).body(http_body_util::Empty::<bytes::Bytes>::new());
    send.send_request(request.unwrap()).await.unwrap().status().as_u16()
}
