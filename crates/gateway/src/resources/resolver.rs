//! Names of nodes: asked again and again, so that an upstream follows what DNS says.

use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time between two questions for a name. The system's resolver tells no time to live; it may keep answers itself.
const AGAIN: Duration = Duration::from_secs(5);

/// A name has these addresses now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Sorted.
    pub(crate) addresses: Vec<IpAddr>,
}

/// Asks until it is aborted. What cannot be answered changes nothing: the last addresses stay.
pub(crate) async fn run(name: String, tell: mpsc::UnboundedSender<super::Event>) {
    let mut last: Option<Vec<IpAddr>> = None;
    loop {
        match tokio::net::lookup_host((name.as_str(), 0)).await {
            Ok(found) => {
                let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).collect();
                addresses.sort_unstable();
                addresses.dedup();
                if !addresses.is_empty() && last.as_ref() != Some(&addresses) {
                    last = Some(addresses.clone());
                    if tell.send(super::Event::Addresses(Found { name: name.clone(), addresses })).is_err() {
                        return;
                    }
                }
            }
            Err(error) => tracing::debug!(%name, %error, "a node's name cannot be resolved"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
