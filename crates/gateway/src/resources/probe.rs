//! Active health checks: one task a node on the control thread, ended with the node.

use super::tls;
use crate::framing::proxy_protocol::{self, Version};
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use towpath_resources::model::{Active, CheckKind};
use towpath_route::health::{Checker, Report, Thresholds};
use towpath_route::{Address, Statuses};
use towpath_types::InstanceId;

/// What is to be asked, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) upstream: String,
    pub(crate) instance: InstanceId,
    pub(crate) address: Address,
    /// What the node is called.
    pub(crate) host: String,
    pub(crate) checks: Arc<Active>,
    /// The node expects to be told who the client is.
    pub(crate) announce: Option<Version>,
}

/// A node's health has changed; its checker knows to what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) upstream: String,
    pub(crate) instance: InstanceId,
}

/// When probes turn a node over.
pub(super) fn thresholds(checks: &Active) -> Thresholds {
    let (good, bad) = (&checks.healthy, &checks.unhealthy);
    Thresholds {
        good: Statuses::of(&good.http_statuses),
        successes: good.successes,
        bad: Statuses::of(&bad.http_statuses),
        http_failures: bad.http_failures,
        tcp_failures: bad.tcp_failures,
        timeouts: bad.timeouts,
    }
}

/// Asks until it is aborted. `woken` = requests have turned the node over, so that another interval holds.
pub(crate) async fn run(
    target: Target,
    checker: Arc<Checker>,
    mut woken: mpsc::UnboundedReceiver<()>,
    tell: mpsc::UnboundedSender<super::Event>,
) {
    let thresholds = thresholds(&target.checks);
    loop {
        let checks = &target.checks;
        let seconds = if checker.healthy() { checks.healthy.interval } else { checks.unhealthy.interval };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(u64::from(seconds.max(1)))) => {}
            Some(()) = woken.recv() => continue,
        }
        let report = ask(&target).await;
        if let Some(healthy) = checker.report(report, &thresholds) {
            tracing::info!(upstream = %target.upstream, node = %target.address, healthy, ?report, "a node's health changed");
            let told = Judged { upstream: target.upstream.clone(), instance: target.instance };
            if tell.send(super::Event::Judged(told)).is_err() {
                return;
            }
        }
    }
}

async fn ask(target: &Target) -> Report {
    let time = Duration::try_from_secs_f64(target.checks.timeout).unwrap_or(Duration::from_secs(1));
    match tokio::time::timeout(time, exchange(target)).await {
        Ok(Ok(Some(status))) => Report::Status(status),
        Ok(Ok(None)) => Report::Connected,
        Ok(Err(_)) => Report::Failed,
        Err(_) => Report::TimedOut,
    }
}

async fn exchange(target: &Target) -> io::Result<Option<u16>> {
    let mut stream = match (&target.address, target.checks.port) {
        (Address::Socket(address), port) => {
            TcpStream::connect((address.ip(), port.unwrap_or(address.port()))).await?
        }
        (Address::Name(name, own), port) => TcpStream::connect((name.as_str(), port.unwrap_or(*own))).await?,
    };
    if let (Some(version), None) = (target.announce, target.checks.port) {
        // The gateway asks for itself.
        let mut header = Vec::new();
        proxy_protocol::write(&mut header, version, None);
        stream.write_all(&header).await?;
    }
    match target.checks.r#type {
        CheckKind::Tcp => Ok(None),
        CheckKind::Http => status(stream, target).await.map(Some),
        CheckKind::Https => {
            let config = tls::client_config(target.checks.https_verify_certificate, None, None);
            let config = Arc::new(config.map_err(io::Error::other)?);
            let host = target.checks.host.as_ref().map_or(target.host.as_str(), |host| host.as_str());
            let name = host.split(':').next().unwrap_or(host).to_owned();
            let name = ServerName::try_from(name).map_err(io::Error::other)?;
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            status(stream, target).await.map(Some)
        }
    }
}

/// Sends the request and reads the status line.
async fn status(mut stream: impl AsyncRead + AsyncWrite + Unpin, target: &Target) -> io::Result<u16> {
    let checks = &target.checks;
    let host = checks.host.as_ref().map_or(target.host.as_str(), |host| host.as_str());
    let mut head = format!(
        "{} {} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\nuser-agent: towpath-health\r\n",
        checks.http_method.as_str(),
        checks.http_path,
    );
    for line in checks.req_headers.iter().flatten() {
        head.push_str(line.trim());
        head.push_str("\r\n");
    }
    if !checks.http_req_body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", checks.http_req_body.len()));
    }
    head.push_str("\r\n");
    head.push_str(&checks.http_req_body);
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut line = Vec::with_capacity(64);
    while line.len() < 12 {
        if stream.read_buf(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let text = String::from_utf8_lossy(&line);
    let code =
        text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    code.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
