//! The command line over TLS, with an authority of one's own.

use crate::platform::{command, open_dir, run};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use towpath_testkit::tls::Authority;

/// Answers each connection with one JSON document.
fn serve(listener: TcpListener, config: Arc<ServerConfig>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(connection) = rustls::ServerConnection::new(config.clone()) else { continue };
            let mut tls = rustls::StreamOwned::new(connection, stream);
            let mut head = [0; 4096];
            if tls.read(&mut head).is_ok_and(|bytes| bytes > 0) {
                let body = r#"{"items":[],"revision":1}"#;
                let _ = write!(tls, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = tls.flush();
            }
        }
    });
}

#[test]
fn an_api_behind_tls_is_reached_and_a_foreign_certificate_refused() {
    let dir = open_dir();
    let authority = Authority::new();
    let issued = authority.issue(&["127.0.0.1"]);
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    serve(listener, Arc::new(config));
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();

    let mut trusted = command(dir.path());
    trusted.args(["apps", "--api", &url, "-o", "json"]).env("TOWPATH_CA", &ca);
    assert_eq!(run(trusted).ok().stdout, "[]\n");

    let mut foreign = command(dir.path());
    foreign.args(["apps", "--api", &url]);
    let refused = run(foreign);
    assert_eq!(refused.code, 3, "{refused:#?}");
    assert!(refused.one_error_line().contains("TOWPATH_CA"), "{refused:#?}");
}
