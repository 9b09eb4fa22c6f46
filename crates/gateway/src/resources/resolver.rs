//! Names of nodes and of services: DNS is asked again when an answer's time to live is over, so that an upstream follows what it
//! says. What cannot be answered changes nothing: the last addresses stay.

use crate::settings::DnsSettings;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, RData};
use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Longest wait for one server's answer, and how often a server is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;
/// What is valid for longer than this does not come from a server, but from the machine's own files.
const LOCAL: Duration = Duration::from_secs(12 * 3600);
/// When that is looked at again.
const LOCAL_AGAIN: Duration = Duration::from_secs(5);
/// Pauses after answers that failed.
const FAILED_FIRST: Duration = Duration::from_secs(1);
const FAILED_MOST: Duration = Duration::from_secs(30);
/// The machine's own settings.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// Most nodes of one name; more are left out.
const MOST: usize = 4096;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Question {
    /// The addresses of a host.
    Host(String),
    /// The SRV records of a name, or the addresses of a host where it has none.
    Service(String),
}

/// One of the addresses that a name has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) ip: IpAddr,
    /// From an SRV record.
    pub(crate) port: Option<u16>,
    /// From an SRV record.
    pub(crate) weight: Option<u32>,
    /// From an SRV record: the lower the earlier.
    pub(crate) priority: i32,
}

/// An answer, and for how long it holds.
struct Answer {
    found: Vec<Found>,
    valid: Duration,
}

/// The resolver, made anew when the machine's settings change.
pub(crate) struct Dns {
    settings: DnsSettings,
    made: RefCell<Option<(Vec<Option<SystemTime>>, TokioResolver)>>,
}

impl Dns {
    pub(crate) fn new(settings: DnsSettings) -> Self {
        Self { settings, made: RefCell::new(None) }
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let changed = |path: &&str| std::fs::metadata(path).and_then(|file| file.modified()).ok();
        let stamp: Vec<_> = FILES.iter().map(changed).collect();
        if let Some((of, made)) = &*self.made.borrow()
            && *of == stamp
        {
            return Ok(made.clone());
        }
        let made = make(&self.settings)?;
        *self.made.borrow_mut() = Some((stamp, made.clone()));
        Ok(made)
    }

    /// `srv` = which kind of record a service was last found by; it is tried first.
    async fn ask(&self, question: &Question, srv: &mut Option<bool>) -> Result<Answer, NetError> {
        let resolver = self.resolver()?;
        match question {
            Question::Host(name) => addresses(&resolver, name).await,
            Question::Service(name) if name.starts_with('_') => service(&resolver, name).await,
            Question::Service(name) if *srv == Some(false) => match addresses(&resolver, name).await {
                Ok(answer) => Ok(answer),
                Err(error) => {
                    *srv = None;
                    Err(error)
                }
            },
            Question::Service(name) => match service(&resolver, name).await {
                Ok(answer) => {
                    *srv = Some(true);
                    Ok(answer)
                }
                Err(error) if !error.is_no_records_found() => Err(error),
                Err(_) => {
                    let answer = addresses(&resolver, name).await?;
                    *srv = Some(false);
                    Ok(answer)
                }
            },
        }
    }

    /// When to ask again.
    fn again(&self, valid: Duration) -> Duration {
        if valid >= LOCAL { LOCAL_AGAIN } else { valid.clamp(self.settings.min_ttl, self.settings.max_ttl) }
    }
}

fn make(settings: &DnsSettings) -> Result<TokioResolver, NetError> {
    let none = || ResolverConfig::from_parts(None, Vec::new(), Vec::new());
    let (mut config, mut options) = if settings.servers.is_empty() {
        hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|error| {
            tracing::warn!(%error, "the machine's DNS settings cannot be read; only its hosts file is");
            (none(), ResolverOpts::default())
        })
    } else {
        (none(), ResolverOpts::default())
    };
    for server in &settings.servers {
        let mut named = NameServerConfig::udp_and_tcp(server.ip());
        named.connections.iter_mut().for_each(|connection| connection.port = server.port());
        config.add_name_server(named);
    }
    settings
        .search
        .iter()
        .filter_map(|domain| Name::from_utf8(domain).ok())
        .for_each(|domain| config.add_search(domain));
    // The times to live are kept here, by who asks.
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.use_hosts_file = ResolveHosts::Always;
    options.timeout = TIMEOUT;
    options.attempts = ATTEMPTS;
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(options).build()
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

async fn addresses(resolver: &TokioResolver, name: &str) -> Result<Answer, NetError> {
    let answer = resolver.lookup_ip(name).await?;
    let found =
        answer.iter().map(|ip| Found { ip: ip.to_canonical(), port: None, weight: None, priority: 0 });
    Ok(Answer { found: found.collect(), valid: left(answer.valid_until()) })
}

/// Each record's hosts share its weight evenly; so all weights are made that much larger that they stay whole.
async fn service(resolver: &TokioResolver, name: &str) -> Result<Answer, NetError> {
    let answer = resolver.srv_lookup(name).await?;
    let mut valid = left(answer.valid_until());
    let mut targets = Vec::new();
    let records = answer.answers().iter().filter_map(|record| match &record.data {
        RData::SRV(record) => Some(record),
        _ => None,
    });
    for record in records.take(MOST) {
        let of_host = addresses(resolver, &record.target.to_utf8()).await?;
        valid = valid.min(of_host.valid);
        targets.push((record, of_host.found));
    }
    let shares = targets.iter().map(|(_, hosts)| hosts.len().max(1) as u64).fold(1, least_common_multiple);
    let mut found = Vec::new();
    for (record, hosts) in targets {
        let weight = u64::from(record.weight.max(1)) * shares / hosts.len().max(1) as u64;
        found.extend(hosts.into_iter().map(|host| Found {
            port: Some(record.port).filter(|port| *port != 0),
            weight: Some(u32::try_from(weight).unwrap_or(u32::MAX)),
            priority: i32::from(record.priority),
            ..host
        }));
    }
    Ok(Answer { found, valid })
}

/// Bounded, so that weights stay in their range whatever a server says.
fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b).min(5040)
}

/// Asks until it is aborted.
pub(crate) async fn run(dns: Rc<Dns>, question: Question, tell: mpsc::UnboundedSender<super::Event>) {
    let (mut last, mut srv) = (Vec::new(), None);
    let mut pause = FAILED_FIRST;
    loop {
        let again = match dns.ask(&question, &mut srv).await {
            Ok(Answer { mut found, valid }) if !found.is_empty() => {
                found.sort_unstable();
                found.dedup();
                found.truncate(MOST);
                if last != found {
                    last.clone_from(&found);
                    if tell.send(super::Event::Answered(question.clone(), found)).is_err() {
                        return;
                    }
                }
                pause = FAILED_FIRST;
                dns.again(valid)
            }
            failed => {
                let error = failed.err().map(|error| error.to_string()).unwrap_or_default();
                tracing::debug!(?question, %error, "a name cannot be resolved");
                let now = pause;
                pause = (pause * 2).min(FAILED_MOST);
                now
            }
        };
        tokio::time::sleep(again).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_hold_as_long_as_they_say_within_bounds() {
        let dns = Dns::new(DnsSettings::default());
        let again = |seconds| dns.again(Duration::from_secs(seconds)).as_secs();
        assert_eq!([again(0), again(30), again(7200), again(86_400)], [1, 30, 3600, 5]);
    }

    #[test]
    fn weights_are_made_whole() {
        assert_eq!([1, 2, 3].into_iter().fold(1, least_common_multiple), 6);
        assert_eq!((1..100).fold(1, least_common_multiple), 5040);
    }
}
