//! `real-ip`: the client's address is what a variable says.

use super::ip_restriction::networks;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use towpath_resources::plugins::real_ip::Config;
use towpath_route::Networks;
use towpath_route::vars::Name;

/// See the module.
pub(in crate::plugins) struct RealIp {
    source: Name,
    trusted: Option<Networks>,
    recursive: bool,
}

impl RealIp {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self {
            source: Name::new(&config.source),
            trusted: config.trusted_addresses.as_deref().map(networks),
            recursive: config.recursive,
        }
    }

    fn address(&self, request: &Request<'_>) -> Option<(IpAddr, Option<u16>)> {
        if self.source.as_str() != "http_x_forwarded_for" {
            return parse(&request.vars().text(&self.source)?);
        }
        let last = request.headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
        let mut hops = last.rsplit(',').map(str::trim);
        match (&self.trusted, self.recursive) {
            (Some(trusted), true) => {
                let is_trusted = |hop: &str| parse(hop).is_some_and(|(ip, _)| trusted.contains(ip));
                let hops: Vec<_> = hops.collect();
                let first = hops.iter().find(|hop| !is_trusted(hop)).or(hops.last())?;
                parse(first)
            }
            _ => parse(hops.next()?),
        }
    }
}

/// An address, perhaps with a port.
fn parse(text: &str) -> Option<(IpAddr, Option<u16>)> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip().to_canonical(), Some(address.port()).filter(|port| *port > 0)));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().ok().map(|ip| (ip.to_canonical(), None))
}

impl Plugin for RealIp {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let peer = request.record.client();
        if self.trusted.as_ref().is_some_and(|trusted| !trusted.contains(peer)) {
            return Step::Next;
        }
        if let Some((address, port)) = self.address(request) {
            let port = port.unwrap_or(request.record.client_port());
            request.running().client = Some((address, port));
        }
        Step::Next
    }
}
