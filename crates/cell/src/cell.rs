//! Starting and stopping a cell.

use crate::adoption;
use crate::announce::Announcer;
use crate::artifact::Artifacts;
use crate::board::Board;
use crate::build::BuildLauncher;
use crate::commands::Commands;
use crate::desired::{Desired, Known};
use crate::disk_limit::Looks;
use crate::driver::Driver;
use crate::driver::process::ProcessDriver;
use crate::health::Crowd;
use crate::identity::{self, Identity};
use crate::kept::{Troubles, keep};
use crate::ledger::{Found, LedgerFile};
use crate::logs::{EndedLogs, Followers};
use crate::managers::Managers;
use crate::places::Places;
use crate::ports::Ports;
use crate::sample::{HostSampler, total_memory};
use crate::secrets::Secrets;
use crate::staging::{Stager, StagingSeam};
use crate::supervisor::{Context, Supervisors};
use crate::sync::{Asking, load_desired};
use crate::users::{self, Users};
use crate::{BlobClient, CellError, CellSettings, disk};
use nix::fcntl::Flock;
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_bus::{Bus, Subscription};
use towpath_types::{ByteSize, CellId, Digest, Incarnation, Revision};
use towpath_wire::cell::{ANNOUNCE_INTERVAL_MS, CellPoke};
use towpath_wire::subject;

/// First pause after a manager did not answer; it doubles up to the settings' interval.
const RETRY: Duration = Duration::from_millis(50);
/// Requests for a revision that get no answer; after so many any revision will do.
const IN_VAIN: u32 = 2;

/// Pause after the bus has refused a subscription.
const REFUSED: Duration = Duration::from_secs(1);

/// A running node agent. Dropping it leaves the instances running.
pub struct Cell {
    id: CellId,
    announcer: Arc<Announcer>,
    supervisors: Arc<Supervisors>,
    stager: Stager,
    ledger: LedgerFile,
    troubles: Troubles,
    tasks: JoinSet<()>,
    runtime: PathBuf,
    _lock: Flock<File>,
}

/// What becomes of the instances when a cell stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// They run on, and the next start adopts them.
    LeaveRunning,
    /// They are ended, by force after this time; the next start brings them up again.
    StopInstances(Duration),
}

/// Users for instances, and a word where there are none.
fn make_users(settings: &CellSettings) -> Arc<Users> {
    let uids = settings.uids.clone().filter(|_| users::can_separate());
    let users = Arc::new(Users::new(uids, fastrand::u32(..), Path::new(users::LOCKS)));
    if !users.are_separate() {
        tracing::warn!(
            "instances run as the cell's own user: they are not protected from each other, nor the cell from them"
        );
    }
    users
}

impl Cell {
    /// Adopts what an earlier process left, and begins to work in the background.
    pub async fn start(settings: CellSettings, bus: Arc<dyn Bus>) -> Result<Cell, CellError> {
        settings.validate().map_err(CellError::Settings)?;
        let settings = Arc::new(settings);
        std::fs::create_dir_all(&settings.data_dir).map_err(CellError::io(&settings.data_dir))?;
        let lock = identity::lock(&settings.data_dir)?;
        let identity = Identity::load(&settings.data_dir, unix_ms())?;
        let (id, incarnation) = (identity.cell, identity.incarnation);
        let users = make_users(&settings);
        let places = Places::make(&settings, id, users.are_separate())?;

        // Subscribed before anything is announced: nothing that follows an announcement may be missed.
        let pokes = bus.subscribe(&subject::cell_poke(id)).await?;
        let commands_in = bus.subscribe(&subject::cell_command(id)).await?;

        let (ledger, found) = LedgerFile::open(&settings.data_dir)?;
        let driver: Arc<dyn Driver> = Arc::new(ProcessDriver::new(
            places.instances.clone(),
            settings.shim.clone(),
            settings.logs,
            users.are_separate(),
        ));
        tokio::spawn(end_orphans(places.orphans.clone(), Arc::clone(&settings)));
        let managers = Managers::new(&settings.api);
        let blobs = BlobClient::of(managers.clone(), &settings.token);
        let stager = make_stager(&settings, &places, &bus, &users, blobs.clone());
        let context = make_context(&settings, &places, &ledger, &driver, users, blobs).await?;
        let token = Digest::from_bytes(Sha256::digest(settings.token.as_bytes()).into());
        let troubles = Troubles::default();
        let announcer = Arc::new(Announcer {
            troubles: troubles.clone(),
            cell: id,
            incarnation,
            driver: driver.name(),
            memory_bytes: settings.memory.unwrap_or(ByteSize(total_memory() / 10 * 8)).0,
            builders: stager.builders().await,
            bus: Arc::clone(&bus),
            board: context.board.clone(),
            host: Mutex::default(),
            cordoned: AtomicBool::new(identity.cordoned),
            desired: AtomicU64::new(ledger.read(|l| l.desired.revision.0)),
            seq: tokio::sync::Mutex::new(0),
            settings,
        });
        let supervisors = Arc::new(Supervisors::new(context));
        let mut tasks = JoinSet::new();
        let written = ledger.clone();
        let told = troubles.clone();
        tasks.spawn(keep("ledger", told.clone(), move || written.clone().run_writer(told.clone())));
        adoption::adopt(&supervisors, found).await;
        if found == Found::Whole {
            supervisors.apply(&ledger.read(|l| l.desired.instances.clone()));
        }

        let commands = Arc::new(Commands {
            followers: Followers::new(Arc::clone(&bus)),
            driver: Arc::clone(&driver),
            stager: stager.clone(),
            announcer: Arc::clone(&announcer),
            identity: Arc::new(Mutex::new(identity)),
            ended_logs: EndedLogs::new(places.ended_logs.clone()),
            bus: Arc::clone(&bus),
            ledger: ledger.clone(),
            obeyed: AtomicU64::new(0),
        });
        keep_answering(&mut tasks, &troubles, commands, commands_in, id);
        keep_hearing(&mut tasks, &troubles, managers, Arc::clone(&bus));
        keep_announcing(&mut tasks, &troubles, &announcer, driver);
        let syncer = Arc::new(Syncer {
            bus,
            cell: id,
            incarnation,
            supervisors: Arc::clone(&supervisors),
            announcer: Arc::clone(&announcer),
            token,
        });
        keep_syncing(&mut tasks, &troubles, syncer, pokes);
        tracing::info!(cell = %id, "cell started");
        let runtime = places.instances.parent().map(Path::to_path_buf).unwrap_or_default();
        Ok(Cell { id, announcer, supervisors, stager, ledger, troubles, tasks, runtime, _lock: lock })
    }

    /// Its id.
    pub fn id(&self) -> CellId {
        self.id
    }

    /// Where instances and builds have their files: in the data directory, or elsewhere if other users may not pass through
    /// that.
    pub fn runtime_dir(&self) -> &Path {
        &self.runtime
    }

    /// Waits until a part of the cell ends again and again, so that only a new process can help, and says which. The instances
    /// run on.
    pub fn failed(&self) -> impl Future<Output = &'static str> + Send + use<> {
        let troubles = self.troubles.clone();
        async move { troubles.dead().await }
    }

    /// Stops working. Builds are ended in either mode.
    pub async fn stop(mut self, mode: StopMode) {
        match mode {
            StopMode::LeaveRunning => {
                self.stager.stop().await;
                self.supervisors.abandon_all().await;
            }
            StopMode::StopInstances(within) => {
                tokio::join!(self.stager.stop(), self.supervisors.end_all(within));
            }
        }
        self.tasks.shutdown().await;
        if mode != StopMode::LeaveRunning {
            // Instances that run on are served on: gateways keep them until a new process announces, or they expire.
            self.announcer.announce(true).await;
        }
        if let Err(error) = self.ledger.save().await {
            tracing::error!(%error, "the ledger was not written");
        }
    }
}

async fn make_context(
    settings: &Arc<CellSettings>,
    places: &Places,
    ledger: &LedgerFile,
    driver: &Arc<dyn Driver>,
    users: Arc<Users>,
    blobs: BlobClient,
) -> Result<Arc<Context>, CellError> {
    let (dir, room, reserve) = (places.artifacts.clone(), settings.artifact_cache, settings.disk_reserve);
    // What an earlier process left half made is removed.
    let artifacts = tokio::task::spawn_blocking(move || Artifacts::open(dir, blobs, room, reserve))
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(CellError::io(&places.artifacts))?;
    Ok(Arc::new(Context {
        settings: Arc::clone(settings),
        driver: Arc::clone(driver),
        artifacts,
        ledger: ledger.clone(),
        secrets: Secrets::open(&settings.data_dir),
        board: Board::default(),
        ports: Ports::new(settings.ports.clone(), settings.address),
        users,
        ended_logs: EndedLogs::new(places.ended_logs.clone()),
        disk_looks: Looks::new(settings.disk_interval),
        starting: Crowd::default(),
        binary: places.binary.clone(),
    }))
}

fn make_stager(
    settings: &CellSettings,
    places: &Places,
    bus: &Arc<dyn Bus>,
    users: &Arc<Users>,
    blobs: BlobClient,
) -> Stager {
    Stager::new(StagingSeam {
        blobs,
        bus: Arc::clone(bus),
        launcher: BuildLauncher::new(settings.shim.clone(), Arc::clone(users)),
        work_dir: places.builds.clone(),
        cache_dir: places.build_cache.clone(),
        path: settings.path.clone(),
        builds_at_once: settings.builds_at_once,
        disk_reserve: settings.disk_reserve,
        environment: settings.builds.clone(),
    })
}

/// Ends and removes what cells have left whose data directory is gone.
async fn end_orphans(dirs: Vec<PathBuf>, settings: Arc<CellSettings>) {
    for dir in dirs {
        tracing::warn!(dir = %dir.display(), "removing what a cell has left whose data directory is gone");
        let driver = ProcessDriver::new(dir.join("instances"), settings.shim.clone(), settings.logs, false);
        for instance in driver.found().await {
            if let Err(error) = driver.remove(instance).await {
                tracing::warn!(%instance, %error, "an orphaned instance could not be removed");
            }
        }
        let _ = tokio::task::spawn_blocking(move || disk::remove_tree(&dir)).await;
    }
}

fn keep_announcing(
    tasks: &mut JoinSet<()>,
    troubles: &Troubles,
    announcer: &Arc<Announcer>,
    driver: Arc<dyn Driver>,
) {
    let sampled = Arc::clone(announcer);
    tasks.spawn(keep("sampler", troubles.clone(), move || {
        run_sampler(Arc::clone(&sampled), Arc::clone(&driver))
    }));
    let announced = Arc::clone(announcer);
    tasks.spawn(keep("announcer", troubles.clone(), move || Arc::clone(&announced).run()));
}

fn keep_answering(
    tasks: &mut JoinSet<()>,
    troubles: &Troubles,
    commands: Arc<Commands>,
    subscription: Subscription,
    id: CellId,
) {
    let mut first = Some(subscription);
    tasks.spawn(keep("commands", troubles.clone(), move || {
        let (commands, first) = (Arc::clone(&commands), first.take());
        async move {
            let subscription = listen(&commands.bus, &subject::cell_command(id), first).await;
            commands.run(subscription).await;
        }
    }));
}

fn keep_hearing(tasks: &mut JoinSet<()>, troubles: &Troubles, managers: Managers, bus: Arc<dyn Bus>) {
    tasks.spawn(keep("managers", troubles.clone(), move || {
        let (managers, bus) = (managers.clone(), Arc::clone(&bus));
        async move {
            // A bus that refuses is no fault of this task.
            while let Err(error) = managers.listen(&*bus).await {
                tracing::debug!(%error, "managers cannot be heard now");
                tokio::time::sleep(REFUSED).await;
            }
        }
    }));
}

fn keep_syncing(tasks: &mut JoinSet<()>, troubles: &Troubles, syncer: Arc<Syncer>, pokes: Subscription) {
    let mut first = Some(pokes);
    tasks.spawn(keep("syncer", troubles.clone(), move || {
        let (syncer, first) = (Arc::clone(&syncer), first.take());
        async move {
            let pokes = listen(&syncer.bus, &subject::cell_poke(syncer.cell), first).await;
            syncer.run(pokes).await;
        }
    }));
}

/// The first subscription, or another one, once the bus gives it.
async fn listen(bus: &Arc<dyn Bus>, subject: &str, first: Option<Subscription>) -> Subscription {
    if let Some(first) = first {
        return first;
    }
    loop {
        match bus.subscribe(subject).await {
            Ok(subscription) => return subscription,
            Err(error) => tracing::debug!(%error, subject, "the bus refuses a subscription"),
        }
        tokio::time::sleep(REFUSED).await;
    }
}

/// Samples machine and instances at the pace of announcements; never returns.
async fn run_sampler(announcer: Arc<Announcer>, driver: Arc<dyn Driver>) {
    let mut host = HostSampler::default();
    let mut tick = tokio::time::interval(Duration::from_millis(ANNOUNCE_INTERVAL_MS));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        *announcer.host.lock().unwrap_or_else(PoisonError::into_inner) = host.sample();
        let usages = driver.sample(&announcer.board.running()).await;
        announcer.board.note_usage(&usages);
    }
}

/// Keeps the desired set fresh.
struct Syncer {
    bus: Arc<dyn Bus>,
    cell: CellId,
    incarnation: Incarnation,
    supervisors: Arc<Supervisors>,
    announcer: Arc<Announcer>,
    /// SHA-256 of the cells' token.
    token: Digest,
}

impl Syncer {
    async fn run(&self, mut pokes: Subscription) {
        let interval = self.supervisors.context().settings.sync_interval;
        let (mut at_least, mut pause) = (Revision(0), Duration::ZERO);
        let (mut retry, mut in_vain) = (RETRY, 0);
        let mut known = Known::default();
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                poke = pokes.next() => match poke.map(|message| towpath_wire::decode::<CellPoke>(&message.payload)) {
                    Some(Ok(poke)) if self.is_stale(&poke) => continue,
                    Some(Ok(poke)) => at_least = at_least.max(poke.revision),
                    Some(Err(error)) => {
                        tracing::warn!(%error, "a poke cannot be read");
                        continue;
                    }
                    None => return,
                },
            }
            let epoch = self.supervisors.context().ledger.read(|ledger| ledger.desired.epoch);
            let (cell, incarnation, token) = (self.cell, self.incarnation, self.token);
            let asking = Asking { cell, incarnation, epoch, token, known: &known };
            match load_desired(&*self.bus, &asking, at_least).await {
                Ok((desired, stamps, told)) => {
                    let is_behind = desired.revision < at_least;
                    in_vain = 0;
                    let next = Known::of(&desired, stamps);
                    if self.accept(desired, told).await {
                        known = next;
                    }
                    // A manager that lost its memory never gets there: asked ever more seldom.
                    pause = if is_behind { retry } else { interval };
                    retry = if is_behind { (retry * 2).min(interval) } else { RETRY };
                }
                Err(error) => {
                    tracing::debug!(%error, "what should run could not be read; running on with what is known");
                    pause = retry;
                    retry = (retry * 2).min(interval);
                    in_vain += 1;
                    if in_vain >= IN_VAIN && at_least > Revision(0) {
                        // Nobody has it, or nobody is there; a poke is no reason to do without what there is.
                        tracing::warn!(revision = %at_least, "no manager gives the revision that a poke told of; asking for any");
                        (at_least, in_vain, pause) = (Revision(0), 0, Duration::ZERO);
                    }
                }
            }
        }
    }

    fn is_stale(&self, poke: &CellPoke) -> bool {
        self.supervisors.context().ledger.read(|ledger| poke.epoch < ledger.desired.epoch)
    }

    /// Obeys a set, unless it is older than what was obeyed; says whether it does.
    async fn accept(&self, desired: Desired, told: crate::secrets::Told) -> bool {
        let context = self.supervisors.context();
        if !context.ledger.read(|ledger| ledger.desired.yields_to(&desired)) {
            tracing::warn!(epoch = desired.epoch, revision = %desired.revision, "a stale desired set was refused");
            return false;
        }
        let is_new = context.ledger.read(|ledger| ledger.desired != desired);
        let wanted = desired.instances.iter().map(|spec| spec.instance).collect();
        // Before anything is started that needs them.
        if context.secrets.take(told, &wanted)
            && let Err(error) = context.secrets.save().await
        {
            tracing::warn!(%error, "instances' secrets are not kept over a restart of the cell");
        }
        if is_new {
            context.ledger.change(|ledger| ledger.desired = desired.clone());
        }
        self.supervisors.apply(&desired.instances);
        if self.announcer.desired.swap(desired.revision.0, Ordering::Relaxed) != desired.revision.0 {
            self.announcer.board.mark_changed();
        }
        if is_new {
            let wanted: HashSet<_> = desired.instances.iter().map(|spec| spec.artifact).collect();
            context.artifacts.collect(&wanted).await;
        }
        true
    }
}

/// Only for ids and the incarnation.
fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
