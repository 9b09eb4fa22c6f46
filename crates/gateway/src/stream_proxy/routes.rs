//! Stream routes, compiled: which one takes a connection.

use super::gate::Gate;
use crate::plugins::program::Plugins;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use towpath_resources::model::Address;
use towpath_resources::{ResolvedStream, Target};
use towpath_route::{Networks, Route};
use towpath_types::AppRef;

/// What is known of a connection before it has a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    /// Where the client came to.
    pub(crate) local: SocketAddr,
    /// The client.
    pub(crate) peer: SocketAddr,
    /// The server name that it asked for.
    pub(crate) sni: Option<&'a str>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its id.
    pub(crate) id: String,
    /// Where it leads, as the table looks at it.
    pub(crate) route: Arc<Route>,
    /// Key of its upstream.
    pub(crate) upstream: Arc<str>,
    /// Who may come.
    pub(crate) gate: Gate,
    sni: Option<Sni>,
    port: Option<u16>,
    server: Option<Networks>,
    remote: Option<Networks>,
    /// Of those that take the same connection the smallest wins.
    rank: (Reverse<Option<u8>>, Reverse<Option<u8>>),
}

#[derive(Debug)]
enum Sni {
    Exact(Box<str>),
    /// `.example.com`, or nothing for all names.
    Below(Box<str>),
}

impl Stream {
    /// Compiles a route; `None` = it leads nowhere.
    pub(crate) fn compile(resolved: &ResolvedStream, plugins: &Plugins) -> Option<Self> {
        let spec = &resolved.spec;
        let (app, lane, upstream) = match &resolved.target {
            Target::Upstream(key) => (AppRef::of_upstream(key.as_str()), None, key),
            Target::App { app, lane, upstream } => (app.clone(), lane.clone(), upstream),
            Target::Nowhere => return None,
        };
        let networks = |address: &Address| Networks::parse(&[address.to_string()]).ok();
        let bits = |address: Option<&Address>| Reverse(address.map(|address| address.bits));
        Some(Self {
            id: resolved.id.as_str().to_owned(),
            route: Route::to(format!("stream_routes/{}", resolved.id), app, lane),
            upstream: upstream.as_str().into(),
            gate: Gate::compile(&resolved.plugins, plugins),
            sni: spec.sni.as_ref().map(|sni| match sni.wildcard() {
                Some(below) => Sni::Below(below.into()),
                None => Sni::Exact(sni.as_str().into()),
            }),
            port: spec.server_port,
            server: spec.server_addr.as_ref().and_then(networks),
            remote: spec.remote_addr.as_ref().and_then(networks),
            rank: (bits(spec.server_addr.as_ref()), bits(spec.remote_addr.as_ref())),
        })
    }

    fn takes(&self, asking: &Asking<'_>) -> bool {
        self.port.is_none_or(|port| port == asking.local.port())
            && self.server.as_ref().is_none_or(|server| server.contains(asking.local.ip()))
            && self.remote.as_ref().is_none_or(|remote| remote.contains(asking.peer.ip()))
    }
}

type List = Vec<Arc<Stream>>;

/// All of them.
///
/// The server name decides first (itself, the longest wildcard, none), then the port, then the longer network of the server's
/// address, then that of the client's, then the smaller id.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    named: HashMap<Box<str>, List>,
    below: HashMap<Box<str>, List>,
    with_port: HashMap<u16, List>,
    others: List,
}

impl Streams {
    pub(crate) fn new(all: impl IntoIterator<Item = Arc<Stream>>) -> Self {
        let mut made = Self::default();
        for stream in all {
            let list = match (&stream.sni, stream.port) {
                (Some(Sni::Exact(name)), _) => made.named.entry(name.clone()).or_default(),
                (Some(Sni::Below(name)), _) => made.below.entry(name.clone()).or_default(),
                (None, Some(port)) => made.with_port.entry(port).or_default(),
                (None, None) => &mut made.others,
            };
            list.push(stream);
        }
        let named = made.named.values_mut().chain(made.below.values_mut());
        for list in named.chain(made.with_port.values_mut()).chain([&mut made.others]) {
            list.sort_by(|a, b| {
                let key = |stream: &Stream| (stream.port.is_none(), stream.rank);
                key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
            });
        }
        made
    }

    /// The route of a connection.
    pub(crate) fn find(&self, asking: &Asking<'_>) -> Option<&Arc<Stream>> {
        if let Some(name) = asking.sni {
            if let Some(found) = taken(self.named.get(name), asking) {
                return Some(found);
            }
            let dots = name.match_indices('.').map(|(at, _)| name.get(at..).unwrap_or_default());
            for below in dots.chain([""]) {
                if let Some(found) = taken(self.below.get(below), asking) {
                    return Some(found);
                }
            }
        }
        taken(self.with_port.get(&asking.local.port()), asking).or_else(|| taken(Some(&self.others), asking))
    }
}

fn taken<'s>(list: Option<&'s List>, asking: &Asking<'_>) -> Option<&'s Arc<Stream>> {
    list?.iter().find(|stream| stream.takes(asking))
}
