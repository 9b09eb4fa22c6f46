//! All light cells, one task each, over one connection.

use super::light::{LightCell, WantedSet};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use towpath_bus::{Bus, BusError, Message, Subscription};
use towpath_types::{CellId, ErrorCode, Place, Revision};
use towpath_wire::cell::{ANNOUNCE_INTERVAL_MS, CellCommand, CellPoke, CellReply, SyncPage, SyncRequest};
use towpath_wire::{decode, encode, subject};

/// Between two announcements.
const ANNOUNCE: Duration = Duration::from_millis(ANNOUNCE_INTERVAL_MS);
/// Between two looks at what is wanted without being asked to look, as the real cell does it.
const RESYNC: Duration = Duration::from_secs(10);
/// Longest wait for a page.
const PAGE: Duration = Duration::from_secs(5);
/// Changes within this time are announced together.
const TOGETHER: Duration = Duration::from_millis(10);

/// What all cells together run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) instances: u64,
    pub(super) ready: u64,
}

#[derive(Default)]
struct Sums {
    instances: AtomicU64,
    ready: AtomicU64,
}

/// What a cell was told last: the newest poke, and whether it is cordoned.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    epoch: u64,
    at_least: Revision,
    cordoned: bool,
}

type Inboxes = HashMap<CellId, watch::Sender<Told>>;

/// Cells at work.
pub(super) struct Fleet {
    bus: Arc<dyn Bus>,
    sums: Arc<Sums>,
    cells: Vec<Arc<Mutex<LightCell>>>,
    tasks: JoinSet<()>,
}

impl Fleet {
    pub(super) async fn start(
        bus: &Arc<dyn Bus>,
        count: u32,
        room: u32,
        zones: u32,
        start_time: Duration,
    ) -> Result<Self, BusError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or_default();
        let any = |what: &str| format!("towpath.cell.*.{what}");
        let (pokes, commands) = (bus.subscribe(&any("poke")).await?, bus.subscribe(&any("command")).await?);
        let (mut inboxes, mut cells, mut tasks) = (Inboxes::new(), Vec::new(), JoinSet::new());
        let sums = Arc::new(Sums::default());
        for n in 0..count {
            let mut random = [0; 10];
            fastrand::fill(&mut random);
            let id = CellId::mint(now_ms, random);
            let place =
                Place { zone: format!("zone-{}", n % zones), node: format!("light-{n}"), ..Place::default() };
            let cell = Arc::new(Mutex::new(LightCell::new(id, now_ms, place, room, start_time)));
            let (told, inbox) = watch::channel(Told::default());
            inboxes.insert(id, told);
            cells.push(cell.clone());
            // They are not to speak all at once.
            let first = Instant::now() + ANNOUNCE.mul_f64(f64::from(n) / f64::from(count));
            tasks.spawn(run(bus.clone(), cell, inbox, sums.clone(), first));
        }
        let inboxes = Arc::new(inboxes);
        tasks.spawn(take_pokes(pokes, inboxes.clone()));
        tasks.spawn(take_commands(bus.clone(), commands, inboxes));
        Ok(Self { bus: bus.clone(), sums, cells, tasks })
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Counts { instances: read(&self.sums.instances), ready: read(&self.sums.ready) }
    }

    /// All say that they leave.
    pub(super) async fn leave(mut self) {
        self.tasks.shutdown().await;
        for cell in &self.cells {
            say(&*self.bus, cell, true).await;
        }
    }
}

fn lock(cell: &Mutex<LightCell>) -> std::sync::MutexGuard<'_, LightCell> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn say(bus: &dyn Bus, cell: &Mutex<LightCell>, leaving: bool) {
    let announce = lock(cell).announce(leaving);
    // A lost announcement is made good by the next.
    drop(bus.publish(&subject::cell_announce(announce.cell), encode(&announce).into()).await);
}

async fn run(
    bus: Arc<dyn Bus>,
    cell: Arc<Mutex<LightCell>>,
    mut inbox: watch::Receiver<Told>,
    sums: Arc<Sums>,
    first: Instant,
) {
    let (mut announce_at, mut sync_at) = (first, first);
    let mut counted = (0, 0);
    loop {
        let due = lock(&cell).due();
        let wake = due.map_or(announce_at, |due| (due + TOGETHER).min(announce_at)).min(sync_at);
        tokio::select! {
            () = tokio::time::sleep_until(wake) => {}
            Ok(()) = inbox.changed() => sync_at = Instant::now(),
        }
        let told = *inbox.borrow_and_update();
        let mut changed = std::mem::replace(&mut lock(&cell).cordoned, told.cordoned) != told.cordoned;
        if Instant::now() >= sync_at {
            let obeyed = sync(&*bus, &cell, told).await;
            changed |= obeyed;
            let pause = if obeyed { RESYNC } else { Duration::from_millis(500) };
            sync_at = Instant::now() + pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        }
        changed |= lock(&cell).live();
        let counts = lock(&cell).counts();
        count(&sums.instances, counted.0, counts.0);
        count(&sums.ready, counted.1, counts.1);
        counted = counts;
        if changed || Instant::now() >= announce_at {
            say(&*bus, &cell, false).await;
            announce_at = Instant::now() + ANNOUNCE;
        }
    }
}

fn count(sum: &AtomicU64, before: usize, now: usize) {
    sum.fetch_add(now as u64, Ordering::Relaxed);
    sum.fetch_sub(before as u64, Ordering::Relaxed);
}

/// Asks what to run, page by page; `true` = it was obeyed.
async fn sync(bus: &dyn Bus, cell: &Mutex<LightCell>, told: Told) -> bool {
    let (mut set, mut cursor, mut of) = (WantedSet::default(), None, None);
    loop {
        let request = {
            let cell = lock(cell);
            let (id, incarnation, epoch) = (cell.id, cell.incarnation, cell.epoch);
            let (at_least, known) = (told.at_least, cell.known());
            SyncRequest { cell: id, incarnation, cursor, at_least, epoch, proof: None, known }
        };
        let Ok(answer) = bus.request(subject::CELL_SYNC, encode(&request).into(), PAGE).await else {
            return false;
        };
        let Ok(page) = decode::<SyncPage>(&answer) else { return false };
        if *of.get_or_insert((page.epoch, page.revision)) != (page.epoch, page.revision) {
            return false;
        }
        set.specs.extend(page.instances);
        set.kept.extend(page.kept);
        set.stamps.extend(page.stamps);
        cursor = page.next;
        if cursor.is_none() {
            return lock(cell).obey(page.epoch, page.revision, set);
        }
    }
}

/// The cell that a subject names, if it is one of these.
fn inbox_of<'a>(inboxes: &'a Inboxes, message: &Message) -> Option<&'a watch::Sender<Told>> {
    inboxes.get(&message.subject.split('.').nth(2)?.parse().ok()?)
}

async fn take_pokes(mut pokes: Subscription, inboxes: Arc<Inboxes>) {
    while let Some(message) = pokes.next().await {
        let (Some(inbox), Ok(poke)) = (inbox_of(&inboxes, &message), decode::<CellPoke>(&message.payload))
        else {
            continue;
        };
        inbox.send_if_modified(|told| {
            let heed = poke.epoch >= told.epoch;
            if heed {
                (told.epoch, told.at_least) = (poke.epoch, told.at_least.max(poke.revision));
            }
            heed
        });
    }
}

/// Light cells take a cordon, and nothing else.
async fn take_commands(bus: Arc<dyn Bus>, mut commands: Subscription, inboxes: Arc<Inboxes>) {
    while let Some(message) = commands.next().await {
        let Some(inbox) = inbox_of(&inboxes, &message) else { continue };
        let reply = match decode::<CellCommand>(&message.payload) {
            Ok(CellCommand::Cordon { on }) => {
                inbox.send_modify(|told| told.cordoned = on);
                CellReply::Accepted
            }
            _ => CellReply::Refused {
                code: ErrorCode::Busy,
                message: "a simulated cell neither builds nor has logs".into(),
            },
        };
        if let Some(to) = message.reply {
            drop(bus.publish(&to, encode(&reply).into()).await);
        }
    }
}
