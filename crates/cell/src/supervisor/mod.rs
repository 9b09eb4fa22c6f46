//! One task looks after each instance; this is the set of them.

mod bring_up;
mod elsewhere;
mod life;
mod watching;

use crate::CellSettings;
use crate::artifact::Artifacts;
use crate::board::Board;
use crate::disk_limit::Looks;
use crate::driver::{Adopted, Driver, Exit, Process};
use crate::health::Crowd;
use crate::ledger::LedgerFile;
use crate::logs::EndedLogs;
use crate::plan::{Step, plan_steps};
use crate::ports::Ports;
use crate::secrets::Secrets;
use crate::users::Users;
use futures::FutureExt;
use life::Life;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use towpath_types::InstanceId;
use towpath_wire::cell::InstanceSpec;

/// In an instance's record directory: its ledger entry, for the case that the ledger is lost.
pub(crate) const ENTRY_FILE: &str = "entry.json";

/// So long an instance is without a supervisor after the death of its own, so that one that panics at once does no harm.
const AFTER_PANIC: Duration = Duration::from_millis(500);

/// What every supervisor uses.
pub(crate) struct Context {
    pub(crate) settings: Arc<CellSettings>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) artifacts: Artifacts,
    pub(crate) ledger: LedgerFile,
    pub(crate) secrets: Secrets,
    pub(crate) board: Board,
    pub(crate) ports: Ports,
    pub(crate) users: Arc<Users>,
    pub(crate) ended_logs: EndedLogs,
    /// At what instances write on the disk.
    pub(crate) disk_looks: Looks,
    /// Those that do not listen yet.
    pub(crate) starting: Crowd,
    /// The platform's binary, where every user can run it.
    pub(crate) binary: PathBuf,
}

/// What a supervisor shall achieve.
#[derive(Debug, Clone)]
enum Goal {
    /// Keep it as the spec says.
    Keep(Arc<InstanceSpec>),
    /// End it and remove what is there of it; sooner than its grace if that is longer than this.
    End(Duration),
}

/// How an instance comes under a supervisor.
pub(crate) enum Beginning {
    /// Nothing of it is there.
    Fresh,
    /// It runs; whether it was ready.
    Running(Box<dyn Process>, bool),
    /// It ended while nobody looked.
    Ended(Exit),
}

/// The supervisors.
pub(crate) struct Supervisors {
    context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The cell is stopping: nothing begins any more.
    is_closed: bool,
    known: BTreeMap<InstanceId, Known>,
}

struct Known {
    goal: watch::Sender<Goal>,
    /// `None` while it ends.
    spec: Option<Arc<InstanceSpec>>,
    task: JoinHandle<()>,
}

impl Supervisors {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, state: Mutex::default() }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Takes the steps from what is looked after now to `desired`.
    pub(crate) fn apply(&self, desired: &[InstanceSpec]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return;
        }
        let known = &mut state.known;
        known.retain(|_, known| known.spec.is_some() || !known.task.is_finished());
        let now = known.iter().map(|(id, known)| (*id, known.spec.clone())).collect();
        for step in plan_steps(desired, &now) {
            match step {
                Step::Begin(spec) => self.begin_locked(known, spec, Beginning::Fresh),
                Step::Change(spec) => {
                    if let Some(known) = known.get_mut(&spec.instance) {
                        known.goal.send_replace(Goal::Keep(Arc::clone(&spec)));
                        known.spec = Some(spec);
                    }
                }
                Step::End(instance) => {
                    if let Some(known) = known.get_mut(&instance) {
                        known.spec = None;
                        known.goal.send_replace(Goal::End(Duration::MAX));
                    }
                }
            }
        }
    }

    /// Takes an instance over that an earlier cell process has left.
    pub(crate) fn begin(&self, spec: Arc<InstanceSpec>, beginning: Beginning) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.begin_locked(&mut state.known, spec, beginning);
    }

    fn begin_locked(
        &self,
        known: &mut BTreeMap<InstanceId, Known>,
        spec: Arc<InstanceSpec>,
        beginning: Beginning,
    ) {
        let (goal, seen) = watch::channel(Goal::Keep(Arc::clone(&spec)));
        let mut life = Life::new(Arc::clone(&self.context), Arc::clone(&spec), seen);
        let before = known.remove(&spec.instance).map(|known| known.task);
        if before.is_none() {
            // Here and not in the task: the first announcement tells of everything that was adopted.
            life.enter(&beginning);
        }
        let (context, spare) = (Arc::clone(&self.context), (Arc::clone(&spec), life.goal.clone()));
        let task = tokio::spawn(async move {
            // A supervisor that still ends the same instance finishes first: they share its files, and its place on the board.
            if let Some(before) = before {
                let _ = before.await;
                life.enter(&beginning);
            }
            let mut next = Some((life, beginning));
            while let Some((life, beginning)) = next.take() {
                if AssertUnwindSafe(life.run(beginning)).catch_unwind().await.is_err() {
                    tracing::error!(instance = %spare.0.instance, "the supervisor of an instance panicked; another one takes over");
                    tokio::time::sleep(AFTER_PANIC).await;
                    next = Some(take_over(&context, &spare.0, spare.1.clone()).await);
                }
            }
        });
        known.insert(spec.instance, Known { goal, spec: Some(spec), task });
    }

    /// Ends all instances and waits for it.
    pub(crate) async fn end_all(&self, within: Duration) {
        let all = self.close();
        for known in all.values() {
            known.goal.send_replace(Goal::End(within));
        }
        for known in all.into_values() {
            let _ = known.task.await;
        }
    }

    /// Lets go of all instances, as they are.
    pub(crate) async fn abandon_all(&self) {
        let all = self.close();
        for known in all.into_values() {
            known.task.abort();
            let _ = known.task.await;
        }
    }

    fn close(&self) -> BTreeMap<InstanceId, Known> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_closed = true;
        std::mem::take(&mut state.known)
    }
}

/// A new supervisor for an instance whose own has panicked, whatever that left.
async fn take_over(
    context: &Arc<Context>,
    first: &Arc<InstanceSpec>,
    goal: watch::Receiver<Goal>,
) -> (Life, Beginning) {
    let spec = match &*goal.borrow() {
        Goal::Keep(spec) => Arc::clone(spec),
        Goal::End(_) => Arc::clone(first),
    };
    let was_ready =
        |l: &crate::ledger::Ledger| l.instances.get(&spec.instance).is_some_and(|entry| entry.ready);
    let beginning = match context.driver.adopt(spec.instance).await {
        Adopted::Running(process) => Beginning::Running(process, context.ledger.read(was_ready)),
        Adopted::Ended(exit) => Beginning::Ended(exit),
        Adopted::Nothing => Beginning::Fresh,
    };
    let mut life = Life::new(Arc::clone(context), Arc::clone(&spec), goal);
    life.enter(&beginning);
    (life, beginning)
}

impl Drop for Supervisors {
    fn drop(&mut self) {
        for known in self.close().into_values() {
            known.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlobClient;
    use crate::driver::process::ProcessDriver;
    use crate::driver::{DriverError, StartRequest, Usage};
    use crate::launch::Started;
    use crate::plan::tests::spec;
    use crate::procfs::ProcessRef;
    use towpath_types::ByteSize;
    use towpath_wire::cell::InstanceState;

    /// A context in `dir`; with this driver, or the real one.
    fn context(dir: &std::path::Path, driver: Option<Arc<dyn Driver>>) -> Arc<Context> {
        let settings = CellSettings::new(dir, "http://127.0.0.1:1", "t");
        let blobs = BlobClient::new("http://127.0.0.1:1", &settings.token);
        let path = |name: &str| {
            let path = dir.join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let artifacts = Artifacts::open(path("artifacts"), blobs, ByteSize(0), ByteSize(0)).unwrap();
        let (ledger, _) = LedgerFile::open(dir).unwrap();
        let real = ProcessDriver::new(path("instances"), settings.shim.clone(), settings.logs, false);
        Arc::new(Context {
            driver: driver.unwrap_or(Arc::new(real)),
            artifacts,
            ledger,
            secrets: Secrets::open(dir),
            board: Board::default(),
            ports: Ports::new(settings.ports.clone(), settings.address),
            users: Arc::new(Users::new(None, 0, dir)),
            ended_logs: EndedLogs::new(path("ended-logs")),
            disk_looks: Looks::new(settings.disk_interval),
            starting: Crowd::default(),
            binary: "/bin/true".into(),
            settings: Arc::new(settings),
        })
    }

    #[tokio::test]
    async fn what_is_begun_is_on_the_board_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path(), None);
        let supervisors = Supervisors::new(Arc::clone(&context));
        supervisors.begin(Arc::new(spec(1)), Beginning::Fresh);
        supervisors.apply(&[spec(1), spec(2)]);
        // No task has run yet.
        let shown: Vec<_> = context.board.reports().iter().map(|r| (r.instance, r.state)).collect();
        let starting = |n| (spec(n).instance, InstanceState::Starting);
        assert_eq!(shown, [starting(1), starting(2)]);
    }

    /// An instance that runs; the first who waits for its end panics.
    struct Trap {
        waits: Arc<std::sync::atomic::AtomicU32>,
        started: Started,
    }

    #[async_trait::async_trait]
    impl Process for Trap {
        fn started(&self) -> &Started {
            &self.started
        }
        async fn main_has_ended(&self) {
            std::future::pending().await
        }
        async fn wait(&self) -> Exit {
            assert!(
                self.waits.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 0,
                "a fault in a supervisor"
            );
            std::future::pending().await
        }
        async fn terminate(&self) {}
        async fn note(&self, _: &str) {}
        async fn kill(&self) {}
    }

    #[async_trait::async_trait]
    impl Driver for Trap {
        fn name(&self) -> &'static str {
            "trap"
        }
        async fn prepare(
            &self,
            _: InstanceId,
            _: &std::path::Path,
            _: Option<u32>,
        ) -> Result<(), DriverError> {
            Ok(())
        }
        async fn start(&self, _: StartRequest) -> Result<Box<dyn Process>, DriverError> {
            Err(DriverError::NoUser)
        }
        async fn adopt(&self, _: InstanceId) -> Adopted {
            Adopted::Running(Box::new(self.again()))
        }
        async fn found(&self) -> Vec<InstanceId> {
            Vec::new()
        }
        async fn sample(&self, _: &[(InstanceId, Started)]) -> std::collections::HashMap<InstanceId, Usage> {
            std::collections::HashMap::new()
        }
        async fn remove(&self, _: InstanceId) -> Result<(), DriverError> {
            Ok(())
        }
        fn log_dir(&self, _: InstanceId) -> PathBuf {
            "/nowhere".into()
        }
        fn app_dir(&self, _: InstanceId) -> PathBuf {
            "/nowhere".into()
        }
        fn record_dir(&self, _: InstanceId) -> PathBuf {
            "/nowhere".into()
        }
    }

    impl Trap {
        fn again(&self) -> Self {
            Self { waits: Arc::clone(&self.waits), started: self.started.clone() }
        }
    }

    #[tokio::test]
    async fn an_instance_whose_supervisor_panics_gets_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let me = ProcessRef::of(std::process::id()).unwrap();
        let trap =
            Trap { waits: Arc::default(), started: Started { shim: me, app: me, boot: String::new() } };
        let context = context(dir.path(), Some(Arc::new(trap.again())));
        let supervisors = Supervisors::new(Arc::clone(&context));
        supervisors.begin(Arc::new(spec(1)), Beginning::Running(Box::new(trap.again()), true));
        while trap.waits.load(std::sync::atomic::Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(context.board.reports().len(), 1);
    }
}
