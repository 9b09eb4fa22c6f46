//! The managers as this one knows them: rows of the table, and what they say of themselves on the bus.
//!
//! Read by everybody, replaced as a whole: whoever iterates has a map that does not change under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;
use towpath_store::ManagerRow;
use towpath_types::{Incarnation, ManagerId, Revision};
use towpath_wire::manager::ManagerReport;
use towpath_wire::protocol::{PROTOCOL, find_protocol};

/// Silence after which a manager is suspected, milliseconds: a heartbeat and a half.
pub const SUSPECT_MS: u64 = 3_000;

/// How long after its last report it is believed what a manager says that it knows.
const BELIEVED: Duration = Duration::from_millis(2 * SUSPECT_MS);

/// Where a manager stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// Its heartbeats come.
    Live,
    /// A heartbeat is late.
    Suspect,
    /// It hands over and goes.
    Leaving,
    /// Silent for too long: nothing that it writes takes effect.
    Evicted,
}

/// A manager.
#[derive(Debug, Clone)]
pub struct Member {
    /// As in the table.
    pub row: ManagerRow,
    /// Where it stands.
    pub state: MemberState,
    /// What it said last of this start, and when.
    pub report: Option<(Arc<ManagerReport>, Instant)>,
}

/// All managers, in the order of their ids.
pub type MemberMap = BTreeMap<ManagerId, Member>;

/// The copy of the table.
#[derive(Debug, Default)]
pub struct Members {
    map: RwLock<Arc<MemberMap>>,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    reports: BTreeMap<ManagerId, (Arc<ManagerReport>, Instant)>,
    /// Those that said that they leave.
    leaving: BTreeSet<(ManagerId, Incarnation)>,
}

impl Members {
    /// All that are known now.
    pub fn all(&self) -> Arc<MemberMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the manager is in the table and was not evicted.
    pub fn is_member(&self, manager: ManagerId) -> bool {
        self.all().get(&manager).is_some_and(|member| member.state != MemberState::Evicted)
    }

    /// Takes over the table.
    pub(crate) fn set_rows(&self, rows: Vec<ManagerRow>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(&mut heard, rows);
    }

    fn replace(&self, heard: &mut Heard, rows: Vec<ManagerRow>) {
        let present: BTreeSet<_> = rows.iter().map(|row| (row.manager, row.incarnation)).collect();
        heard.leaving.retain(|who| present.contains(who));
        heard.reports.retain(|manager, (report, _)| present.contains(&(*manager, report.incarnation)));
        let member = |row: ManagerRow| {
            let state = state_of(&row, &heard.leaving);
            (row.manager, Member { report: heard.reports.get(&row.manager).cloned(), state, row })
        };
        let fresh = Arc::new(rows.into_iter().map(member).collect::<MemberMap>());
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    /// A manager leaves; its row is there a moment longer.
    pub(crate) fn note_leaving(&self, manager: ManagerId, incarnation: Incarnation) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.leaving.insert((manager, incarnation));
        let rows = self.all().values().map(|member| member.row.clone()).collect();
        self.replace(&mut heard, rows);
    }

    /// Takes what a manager says of itself. A report of a start that is not in the table counts for nothing.
    pub(crate) fn hear(&self, report: ManagerReport) {
        let manager = report.manager;
        let entry = (Arc::new(report), Instant::now());
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).reports.insert(manager, entry.clone());
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if map.get(&manager).is_some_and(|member| member.row.incarnation == entry.0.incarnation) {
            let mut fresh = MemberMap::clone(&map);
            if let Some(member) = fresh.get_mut(&manager) {
                member.report = Some(entry);
            }
            *map = Arc::new(fresh);
        }
    }

    /// Whether another manager has said that it knows more than this, in the table or not: who does not reach the store cannot
    /// know who is in the table. What one said that was not heard for two suspicions counts no more: it may be gone.
    pub(crate) fn know_more(&self, than: ManagerId, epoch: u64, revision: Revision) -> bool {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reports = heard.reports.values();
        reports.any(|(report, at)| {
            let more = report.epoch > epoch || report.revision > revision;
            more && report.manager != than && at.elapsed() < BELIEVED
        })
    }

    /// The protocol that all who are members read: the lowest of theirs.
    pub(crate) fn protocol(&self) -> u16 {
        let counts = |member: &&Member| member.state != MemberState::Evicted;
        let spoken = |member: &Member| find_protocol(&member.row.version);
        self.all().values().filter(counts).map(spoken).min().unwrap_or(PROTOCOL)
    }

    /// Those among whom ownership is divided, with their weights.
    pub(crate) fn owners(&self) -> BTreeMap<ManagerId, f32> {
        let counts = |member: &&Member| matches!(member.state, MemberState::Live | MemberState::Suspect);
        let weighed = |member: &Member| (member.row.manager, member.row.weight);
        self.all().values().filter(counts).map(weighed).collect()
    }
}

fn state_of(row: &ManagerRow, leaving: &BTreeSet<(ManagerId, Incarnation)>) -> MemberState {
    match row {
        row if row.evicted => MemberState::Evicted,
        row if leaving.contains(&(row.manager, row.incarnation)) => MemberState::Leaving,
        row if row.silent_ms > SUSPECT_MS => MemberState::Suspect,
        _ => MemberState::Live,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ManagerId {
        ManagerId::mint(1, [n; 10])
    }

    fn owning(members: &Members) -> BTreeSet<ManagerId> {
        members.owners().into_keys().collect()
    }

    fn row(n: u8, incarnation: u64) -> ManagerRow {
        ManagerRow {
            manager: id(n),
            incarnation: Incarnation(incarnation),
            address: format!("http://10.0.0.{n}:{incarnation}"),
            version: "1".into(),
            weight: 1.0,
            started_ms: 0,
            silent_ms: 0,
            evicted: false,
        }
    }

    fn report(n: u8, incarnation: u64) -> ManagerReport {
        ManagerReport {
            manager: id(n),
            incarnation: Incarnation(incarnation),
            epoch: 1,
            revision: towpath_types::Revision(1),
            lag: 0,
            queue: 0,
            operations: 0,
            ring: 1,
            address: String::new(),
        }
    }

    #[test]
    fn an_address_is_that_of_the_last_registration() {
        let members = Members::default();
        members.set_rows(vec![row(1, 7)]);
        members.hear(report(1, 7));
        members.set_rows(vec![row(1, 8)]);
        let all = members.all();
        assert_eq!(all[&id(1)].row.address, "http://10.0.0.1:8");
        assert!(all[&id(1)].report.is_none(), "what it said before it was started again is no longer true");
        members.hear(report(1, 7));
        assert!(members.all()[&id(1)].report.is_none(), "a late report of the old start");
        members.hear(report(1, 8));
        assert!(members.all()[&id(1)].report.is_some());
    }

    #[test]
    fn who_leaves_owns_nothing_until_it_comes_back() {
        let members = Members::default();
        members.set_rows(vec![row(1, 1), row(2, 1)]);
        members.note_leaving(id(1), Incarnation(1));
        assert_eq!(owning(&members), [id(2)].into());
        assert!(members.is_member(id(1)), "it is there until its row is gone");
        members.set_rows(vec![row(1, 1), row(2, 1)]);
        assert_eq!(owning(&members), [id(2)].into());
        members.set_rows(vec![row(2, 1)]);
        members.set_rows(vec![row(1, 2), row(2, 1)]);
        assert_eq!(owning(&members), [id(1), id(2)].into());
    }

    #[test]
    fn all_speak_what_the_oldest_member_reads() {
        let members = Members::default();
        let of = |n: u8, version: &str| ManagerRow { version: version.into(), ..row(n, 1) };
        assert_eq!(members.protocol(), PROTOCOL);
        members.set_rows(vec![of(1, "0.2.0+protocol.2"), of(2, "0.3.0+protocol.3")]);
        assert_eq!(members.protocol(), 2);
        members.set_rows(vec![of(1, "0.2.0+protocol.2"), of(2, "0.1.0")]);
        assert_eq!(members.protocol(), 1);
        members.note_leaving(id(2), Incarnation(1));
        assert_eq!(members.protocol(), 1, "it is there until its row is gone");
        members.set_rows(vec![of(1, "0.2.0+protocol.2"), ManagerRow { evicted: true, ..of(2, "0.1.0") }]);
        assert_eq!(members.protocol(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_for_long_knows_nothing_more() {
        let members = Members::default();
        members.hear(report(1, 1));
        assert!(members.know_more(id(2), 0, Revision(1)) && members.know_more(id(2), 1, Revision(0)));
        assert!(!members.know_more(id(1), 0, Revision(0)), "of itself");
        tokio::time::advance(BELIEVED).await;
        assert!(!members.know_more(id(2), 0, Revision(1)));
        members.hear(report(1, 1));
        assert!(members.know_more(id(2), 0, Revision(1)));
    }

    #[test]
    fn who_iterates_sees_one_state_while_members_come_and_go() {
        let members = Arc::new(Members::default());
        members.set_rows(vec![row(1, 1), row(2, 1), row(3, 1)]);
        let changing = {
            let members = members.clone();
            std::thread::spawn(move || {
                for n in 0..2_000 {
                    let rows =
                        if n % 2 == 0 { vec![row(1, 1)] } else { vec![row(1, 1), row(2, 1), row(3, 1)] };
                    members.set_rows(rows);
                    members.hear(report(2, 1));
                }
            })
        };
        while !changing.is_finished() {
            let all = members.all();
            let count = all.len();
            assert!(count == 1 || count == 3);
            assert_eq!(all.iter().count(), count);
        }
        changing.join().unwrap();
    }

    #[test]
    fn lateness_is_suspected_and_eviction_is_final() {
        let late = ManagerRow { silent_ms: SUSPECT_MS + 1, ..row(1, 1) };
        let members = Members::default();
        members.set_rows(vec![late.clone()]);
        assert_eq!(members.all()[&id(1)].state, MemberState::Suspect);
        assert_eq!(owning(&members), [id(1)].into(), "it still owns what it owns");
        members.set_rows(vec![ManagerRow { evicted: true, ..late }]);
        assert_eq!(members.all()[&id(1)].state, MemberState::Evicted);
        assert!(!members.is_member(id(1)) && owning(&members).is_empty());
    }
}
