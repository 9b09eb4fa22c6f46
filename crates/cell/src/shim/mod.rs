//! The shim: a tiny single-threaded process that is the parent of one instance or one build.
//!
//! It is the same binary, re-executed with [`SHIM_COMMAND`]. It survives the cell, so it owns everything that must: the pipes of
//! the app's output, its exit status, and (as subreaper) whatever the app forks. See `docs/adr/0040`.
//!
//! Signals to the shim: TERM is passed to the app's process group, and the shim then waits until the whole tree has ended;
//! USR1 kills the whole tree; HUP says that the cell has a line for the log.

mod child;
mod output;
pub(crate) mod spawn;
mod tree;

use crate::kernel;
use crate::launch::{
    ENDED_FILE, Ended, HowEnded, Launch, Mode, NOTICE_FILE, STARTED_FILE, ShimSays, Started,
};
use crate::procfs::{self, ProcessRef};
use crate::records;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use output::Outputs;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tree::MemoryWatch;

/// First argument with which the binary becomes a shim.
pub const SHIM_COMMAND: &str = "__shim";

/// Longest sleep when nothing happens and nothing is due.
const IDLE: Duration = Duration::from_secs(30);

/// Runs the shim. Call it before the process has threads or opened files; `args` (after [`SHIM_COMMAND`]) only serve to be seen in
/// process lists. What to run comes as one line on standard input.
pub fn shim_main(_args: Vec<OsString>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&ShimSays::Refused(why));
            ExitCode::FAILURE
        }
    }
}

/// Why the shim gave up, for the cell's log.
type Why = String;

fn run() -> Result<(), Why> {
    kernel::close_inherited();
    // Fails only where the process leads a group already, as in some tests.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true).map_err(|e| format!("becoming a subreaper failed: {e}"))?;
    let signals = open_signals()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| format!("no launch came: {e}"))?;
    let launch: Launch = serde_json::from_str(&line).map_err(|e| format!("the launch is unreadable: {e}"))?;
    drop(line);
    let mut shim = Shim::start(launch, signals)?;
    shim.run_until_all_ended();
    shim.report()
}

/// Signals become readable events.
fn open_signals() -> Result<SignalFd, Why> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        set.add(signal);
    }
    set.thread_block().map_err(|e| format!("blocking signals failed: {e}"))?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(|e| format!("signalfd failed: {e}"))
}

/// Tells the cell. It may be gone; that is no reason to stop.
fn say(what: &ShimSays) {
    let Ok(mut text) = serde_json::to_vec(what) else { return };
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&text).and_then(|()| out.flush());
}

/// Writes a file so that a reader sees it whole or not at all.
fn write_file(dir: &Path, name: &str, content: &impl serde::Serialize) -> Result<(), Why> {
    let bytes = serde_json::to_vec(content).map_err(|e| e.to_string())?;
    records::write(dir, name, &bytes).map_err(|e| format!("writing {} failed: {e}", dir.join(name).display()))
}

/// Says who runs; of an instance, to whoever adopts it too.
fn record(launch: &Launch, app: Pid) -> Result<Started, Why> {
    let started = Started {
        shim: ProcessRef::of(std::process::id()).ok_or("no /proc")?,
        // A zombie keeps its entry until it is reaped, which has not happened yet.
        app: ProcessRef::of(app.as_raw().unsigned_abs()).ok_or("no /proc entry of the app")?,
        boot: procfs::boot_id(),
    };
    if let Mode::Instance { control, .. } = &launch.mode
        && let Err(why) = write_file(control, STARTED_FILE, &started)
    {
        // The cell hears it. Only its successor could not take the app over, and would begin it anew.
        let _ = writeln!(std::io::stderr(), "{why}");
    }
    Ok(started)
}

/// What the shim is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The program runs; when it ends, the rest of the tree is killed.
    Running,
    /// The tree was asked to end; it ends at its own pace.
    Asked,
    /// The tree is being killed.
    Killing,
}

struct Shim {
    launch: Launch,
    signals: SignalFd,
    app: Pid,
    began: Instant,
    phase: Phase,
    ended: Option<Ended>,
    outputs: Outputs,
    memory: Option<MemoryWatch>,
    /// Builds: the cell holds the other end.
    lifeline: Option<OwnedFd>,
}

impl Shim {
    fn start(launch: Launch, signals: SignalFd) -> Result<Self, Why> {
        let began = Instant::now();
        let (app, outputs) = child::spawn(&launch)?;
        // Nobody would look after the app if it ran on.
        let started = record(&launch, app).inspect_err(|_| {
            tree::kill(&launch, app);
        })?;
        let mut lifeline = None;
        match &launch.mode {
            Mode::Instance { .. } => {
                say(&ShimSays::Started(started));
                child::detach_standard_streams();
            }
            Mode::Build => {
                lifeline = std::io::stdin().as_fd().try_clone_to_owned().ok();
                say(&ShimSays::Started(started));
                child::detach_standard_error();
            }
        }
        let memory = launch.memory.map(MemoryWatch::new);
        Ok(Self {
            launch,
            signals,
            app,
            began,
            phase: Phase::Running,
            ended: None,
            outputs,
            memory,
            lifeline,
        })
    }

    fn run_until_all_ended(&mut self) {
        loop {
            self.reap();
            if self.phase == Phase::Killing || (self.phase == Phase::Running && self.ended.is_some()) {
                break;
            }
            if self.ended.is_some() && !has_children() {
                break;
            }
            self.wait();
            self.read_signals();
            self.outputs.pump();
            if self.lifeline_is_cut() {
                self.phase = Phase::Killing;
            }
            if self.memory.as_mut().is_some_and(|watch| watch.is_over(self.app)) && self.ended.is_none() {
                self.ended = Some(self.end(HowEnded::OutOfMemory));
                self.phase = Phase::Killing;
            }
        }
        if let Some(status) = tree::kill(&self.launch, self.app)
            && self.ended.is_none()
        {
            self.ended = Some(self.end(status));
        }
        self.outputs.finish();
    }

    fn end(&self, how: HowEnded) -> Ended {
        Ended { how, ran_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX) }
    }

    /// Sleeps until something happens or is due.
    fn wait(&self) {
        let due =
            [self.outputs.due(), self.memory.as_ref().map(MemoryWatch::due)].into_iter().flatten().min();
        let sleep = due.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()));
        let millis = u16::try_from(sleep.as_millis() + 1).unwrap_or(u16::MAX);
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.lifeline.iter().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.outputs.readable().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let _ = poll(&mut fds, PollTimeout::from(millis));
    }

    fn lifeline_is_cut(&self) -> bool {
        let Some(fd) = &self.lifeline else { return false };
        let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        // Nothing is ever written after the launch: readable means end of file.
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    fn read_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            match i32::try_from(info.ssi_signo).ok().and_then(|n| Signal::try_from(n).ok()) {
                Some(Signal::SIGUSR1) => self.phase = Phase::Killing,
                Some(Signal::SIGTERM | Signal::SIGINT) if matches!(self.launch.mode, Mode::Build) => {
                    self.phase = Phase::Killing;
                }
                Some(Signal::SIGTERM) => {
                    let _ = nix::sys::signal::killpg(self.app, Signal::SIGTERM);
                    self.phase = Phase::Asked;
                }
                Some(Signal::SIGHUP) => self.take_notice(),
                _ => {}
            }
        }
    }

    /// Puts the cell's line into the log.
    fn take_notice(&mut self) {
        let Mode::Instance { control, .. } = &self.launch.mode else { return };
        let path = control.join(NOTICE_FILE);
        if let Ok(text) = std::fs::read(&path) {
            self.outputs.note(&text);
            let _ = std::fs::remove_file(&path);
        }
    }

    /// Takes the status of every child that has ended.
    fn reap(&mut self) {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            match tree::how(status) {
                Some((pid, how)) if pid == self.app && self.ended.is_none() => {
                    self.ended = Some(self.end(how))
                }
                Some(_) => {}
                None if status == WaitStatus::StillAlive => return,
                None => {}
            }
        }
    }

    fn report(&self) -> Result<(), Why> {
        let ended = self.ended.unwrap_or_else(|| self.end(HowEnded::Signal(libc::SIGKILL)));
        match &self.launch.mode {
            Mode::Instance { control, .. } => write_file(control, ENDED_FILE, &ended),
            Mode::Build => {
                say(&ShimSays::Ended(ended));
                Ok(())
            }
        }
    }
}

/// Whether any child, adopted ones included, is left.
fn has_children() -> bool {
    !matches!(
        nix::sys::wait::waitid(
            nix::sys::wait::Id::All,
            WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT
        ),
        Err(Errno::ECHILD)
    )
}
