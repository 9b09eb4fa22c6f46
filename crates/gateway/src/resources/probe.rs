//! Active health checks: one task a node on the control thread, ended with the node.

use super::tls;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use towpath_resources::model::{Active, CheckKind};
use towpath_route::Address;
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
}

/// A node's health has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) upstream: String,
    pub(crate) instance: InstanceId,
    pub(crate) healthy: bool,
}

/// Why a node did not answer well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    Status(u16),
    Connected,
    Broken,
    Late,
}

/// Answers in a row.
#[derive(Debug, Default)]
struct Streak {
    good: u8,
    http: u8,
    tcp: u8,
    late: u8,
}

impl Streak {
    /// The new judgement, if this finding brings one about.
    fn take(&mut self, finding: Finding, checks: &Active) -> Option<bool> {
        let (bad, good) = (&checks.unhealthy, &checks.healthy);
        let add = |count: &mut u8, most: u8| {
            *count = count.saturating_add(1);
            *count >= most
        };
        let fell = match finding {
            Finding::Status(status) if bad.http_statuses.contains(&status) => {
                add(&mut self.http, bad.http_failures)
            }
            Finding::Broken => add(&mut self.tcp, bad.tcp_failures),
            Finding::Late => add(&mut self.late, bad.timeouts),
            Finding::Status(status) if !good.http_statuses.contains(&status) => return None,
            Finding::Status(_) | Finding::Connected => {
                *self = Self { good: self.good.saturating_add(1), ..Self::default() };
                return (self.good >= good.successes).then_some(true);
            }
        };
        self.good = 0;
        fell.then_some(false)
    }
}

/// Asks until it is aborted. `healthy` = how the node begins.
pub(crate) async fn run(
    target: Target,
    mut healthy: bool,
    mut fallen: mpsc::UnboundedReceiver<()>,
    tell: mpsc::UnboundedSender<super::Event>,
) {
    let mut streak = Streak::default();
    loop {
        let seconds = if healthy { target.checks.healthy.interval } else { target.checks.unhealthy.interval };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(u64::from(seconds.max(1)))) => {}
            Some(()) = fallen.recv() => {
                (healthy, streak) = (false, Streak::default());
                continue;
            }
        }
        let finding = ask(&target).await;
        if let Some(judged) = streak.take(finding, &target.checks)
            && judged != healthy
        {
            (healthy, streak) = (judged, Streak::default());
            tracing::info!(upstream = %target.upstream, node = %target.address, healthy, ?finding, "a node's health changed");
            let told = Judged { upstream: target.upstream.clone(), instance: target.instance, healthy };
            if tell.send(super::Event::Judged(told)).is_err() {
                return;
            }
        }
    }
}

async fn ask(target: &Target) -> Finding {
    let time = Duration::try_from_secs_f64(target.checks.timeout).unwrap_or(Duration::from_secs(1));
    match tokio::time::timeout(time, exchange(target)).await {
        Ok(Ok(Some(status))) => Finding::Status(status),
        Ok(Ok(None)) => Finding::Connected,
        Ok(Err(_)) => Finding::Broken,
        Err(_) => Finding::Late,
    }
}

async fn exchange(target: &Target) -> io::Result<Option<u16>> {
    let stream = match (&target.address, target.checks.port) {
        (Address::Socket(address), port) => {
            TcpStream::connect((address.ip(), port.unwrap_or(address.port()))).await?
        }
        (Address::Name(name, own), port) => TcpStream::connect((name.as_str(), port.unwrap_or(*own))).await?,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_judged_by_answers_in_a_row() {
        let checks = Active::default();
        let mut streak = Streak::default();
        let mut take = |finding| streak.take(finding, &checks);
        assert_eq!(take(Finding::Broken), None);
        assert_eq!(take(Finding::Status(200)), None);
        assert_eq!(take(Finding::Broken), None);
        assert_eq!(take(Finding::Broken), Some(false));
        assert_eq!(take(Finding::Status(200)), None);
        assert_eq!(take(Finding::Status(418)), None, "neither good nor bad");
        assert_eq!(take(Finding::Status(302)), Some(true));
        for _ in 0..4 {
            assert_eq!(take(Finding::Status(500)), None);
        }
        assert_eq!(take(Finding::Status(500)), Some(false));
    }
}
