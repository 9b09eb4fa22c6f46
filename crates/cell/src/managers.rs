//! Where managers are: those that the settings name, and those that the bus told of.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use towpath_bus::{Bus, BusError};
use towpath_types::ManagerId;
use towpath_wire::manager::{ManagerEvent, ManagerReport, Membership};
use towpath_wire::subject;

/// Addresses that were heard; of more, the one that was silent for longest goes.
const HEARD: usize = 32;
/// One that failed so lately is asked after the others.
const LATELY: Duration = Duration::from_secs(30);

/// The managers' addresses, best first. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Managers {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    named: Vec<String>,
    heard: BTreeMap<ManagerId, (String, Instant)>,
    failed: HashMap<String, Instant>,
    /// The one that served last.
    good: Option<String>,
}

impl Managers {
    /// Those that the settings name.
    pub(crate) fn new(named: &[String]) -> Self {
        let named = named.iter().map(|address| plain(address)).collect();
        Self { state: Arc::new(Mutex::new(State { named, ..State::default() })) }
    }

    /// Who is to be asked, in this order: who served last, who is named, who was heard last; who failed a moment ago comes at the end.
    pub(crate) fn in_order(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut heard: Vec<_> = state.heard.values().collect();
        heard.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        let all = state.good.iter().chain(&state.named).chain(heard.into_iter().map(|(address, _)| address));
        let mut order: Vec<String> = Vec::new();
        for address in all {
            if !order.contains(address) {
                order.push(address.clone());
            }
        }
        // Stable: among equals the order above holds.
        order.sort_by_key(|address| state.failed.get(address).is_some_and(|at| at.elapsed() < LATELY));
        order
    }

    /// It served.
    pub(crate) fn note_good(&self, address: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed.remove(address);
        if state.good.as_deref() != Some(address) {
            state.good = Some(address.to_owned());
        }
    }

    /// It could not be reached, or was unable to serve.
    pub(crate) fn note_failed(&self, address: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.good.as_deref() == Some(address) {
            state.good = None;
        }
        state.failed.retain(|_, at| at.elapsed() < LATELY);
        state.failed.insert(address.to_owned(), Instant::now());
    }

    /// Takes over what managers tell until the subscriptions end.
    pub(crate) async fn listen(&self, bus: &dyn Bus) -> Result<(), BusError> {
        let mut reports = bus.subscribe(subject::MANAGER_REPORT).await?;
        let mut events = bus.subscribe(subject::MANAGER_EVENT).await?;
        loop {
            tokio::select! {
                report = reports.next() => match report {
                    Some(message) => if let Ok(report) = towpath_wire::decode(&message.payload) {
                        self.hear(&report);
                    },
                    None => return Ok(()),
                },
                event = events.next() => match event {
                    Some(message) => if let Ok(event) = towpath_wire::decode(&message.payload) {
                        self.note_event(&event);
                    },
                    None => return Ok(()),
                },
            }
        }
    }

    fn hear(&self, report: &ManagerReport) {
        let address = plain(&report.address);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_of_use(&address, &state.named) {
            return;
        }
        state.heard.insert(report.manager, (address, Instant::now()));
        if state.heard.len() > HEARD {
            let oldest = state.heard.iter().min_by_key(|(_, (_, at))| *at).map(|(manager, _)| *manager);
            oldest.and_then(|manager| state.heard.remove(&manager));
        }
    }

    fn note_event(&self, event: &ManagerEvent) {
        if matches!(event.event, Membership::Left | Membership::Evicted) {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).heard.remove(&event.manager);
        }
    }
}

fn plain(address: &str) -> String {
    address.trim_end_matches('/').to_owned()
}

/// Whether a cell can do anything with an address: plain HTTP at a host. One of the manager's own machine only says something to a
/// cell that reaches managers there too.
fn is_of_use(address: &str, named: &[String]) -> bool {
    let Some(host) = host_of(address) else { return false };
    let is_local = |host: &str| {
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
    };
    let is_everywhere = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    !is_everywhere
        && (!is_local(&host) || named.iter().filter_map(|named| host_of(named)).any(|host| is_local(&host)))
}

fn host_of(address: &str) -> Option<String> {
    let uri: http::Uri = address.parse().ok()?;
    (uri.scheme_str() == Some("http")).then_some(())?;
    Some(uri.host()?.trim_matches(['[', ']']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::{Incarnation, Revision};

    fn manager(n: u8) -> ManagerId {
        ManagerId::mint(1, [n; 10])
    }

    fn report(n: u8, address: &str) -> ManagerReport {
        ManagerReport {
            manager: manager(n),
            incarnation: Incarnation(1),
            epoch: 1,
            revision: Revision(1),
            lag: 0,
            queue: 0,
            operations: 0,
            ring: 1,
            address: address.to_owned(),
        }
    }

    #[test]
    fn who_served_comes_first_and_who_failed_last() {
        let managers = Managers::new(&["http://10.0.0.1:7700/".into(), "http://10.0.0.2:7700".into()]);
        managers.hear(&report(3, "http://10.0.0.3:7700"));
        managers.hear(&report(1, "http://10.0.0.1:7700"));
        let hosts = || managers.in_order().iter().filter_map(|a| host_of(a)).collect::<Vec<_>>();
        assert_eq!(hosts(), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        managers.note_failed("http://10.0.0.1:7700");
        managers.note_good("http://10.0.0.3:7700");
        assert_eq!(hosts(), ["10.0.0.3", "10.0.0.2", "10.0.0.1"]);
        managers.note_failed("http://10.0.0.3:7700");
        assert_eq!(hosts(), ["10.0.0.2", "10.0.0.1", "10.0.0.3"]);
        let left =
            ManagerEvent { manager: manager(3), incarnation: Incarnation(1), event: Membership::Evicted };
        managers.note_event(&left);
        assert_eq!(hosts(), ["10.0.0.2", "10.0.0.1"]);
    }

    #[test]
    fn addresses_that_lead_nowhere_are_not_taken() {
        let remote = Managers::new(&["http://10.0.0.1:7700".into()]);
        for address in
            ["", "https://10.0.0.9:1", "http://127.0.0.1:7700", "http://[::1]:1", "http://0.0.0.0:1", "x"]
        {
            remote.hear(&report(9, address));
        }
        assert_eq!(remote.in_order().len(), 1);
        let local = Managers::new(&["http://127.0.0.1:7700".into()]);
        local.hear(&report(9, "http://127.0.0.1:7701"));
        local.hear(&report(8, "http://0.0.0.0:1"));
        assert_eq!(local.in_order(), ["http://127.0.0.1:7700", "http://127.0.0.1:7701"]);
        for n in 0..100 {
            local.hear(&report(n, &format!("http://10.0.0.{n}:1")));
        }
        assert_eq!(local.in_order().len(), HEARD + 1);
    }

    #[tokio::test]
    async fn managers_are_heard_on_the_bus() {
        let bus = towpath_bus::MemoryBus::new();
        let managers = Managers::new(&["http://10.0.0.1:7700".into()]);
        let (listening, telling) = (managers.clone(), bus.clone());
        let listener = tokio::spawn(async move { listening.listen(&bus).await });
        while managers.in_order().len() < 2 {
            let payload = towpath_wire::encode(&report(2, "http://10.0.0.2:7700")).into();
            telling.publish(subject::MANAGER_REPORT, payload).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        listener.abort();
    }
}
