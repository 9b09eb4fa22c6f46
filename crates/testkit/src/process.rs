//! Child processes that cannot outlive the test.

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Pid, Uid, setgid, setgroups, setuid};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

/// A child process; killed and reaped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

/// How a child is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// The signal that the kernel sends it when the test process dies.
    pub at_parents_death: Signal,
    /// Become this user first (only root can).
    pub user: Option<(Uid, Gid)>,
}

impl Default for Start {
    fn default() -> Self {
        Self { at_parents_death: Signal::SIGKILL, user: None }
    }
}

type Launch = Box<dyn FnOnce() + Send>;

/// The kernel takes the end of the *thread* that forked for the parent's death. So all children are forked by one thread
/// that lives as long as the process.
fn on_launcher<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    static LAUNCHER: OnceLock<Mutex<mpsc::Sender<Launch>>> = OnceLock::new();
    let launcher = LAUNCHER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Launch>();
        let serve = move || receiver.into_iter().for_each(|launch| launch());
        std::thread::Builder::new().name("launcher".to_owned()).spawn(serve).expect("a thread");
        Mutex::new(sender)
    });
    let (answer, answered) = mpsc::channel();
    let launch: Launch = Box::new(move || drop(answer.send(work())));
    launcher.lock().unwrap().send(launch).expect("the launcher lives");
    answered.recv().expect("the launcher answers")
}

impl Process {
    /// Starts the command.
    pub fn spawn(command: Command) -> Self {
        Self::spawn_as(command, Start::default())
    }

    /// Starts the command in some way.
    pub fn spawn_as(mut command: Command, start: Start) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        let parent = nix::unistd::getpid();
        let prepare = move || {
            if let Some((uid, gid)) = start.user {
                setgroups(&[gid])?;
                setgid(gid)?;
                setuid(uid)?;
            }
            // After the change of user, which clears it.
            nix::sys::prctl::set_pdeathsig(start.at_parents_death)?;
            if nix::unistd::getppid() != parent {
                return Err(std::io::Error::other("the test process is gone already"));
            }
            Ok(())
        };
        #[expect(unsafe_code, reason = "pre_exec is how a child sets its own death signal and user")]
        // SAFETY: the closure makes plain system calls only; it allocates nothing unless it fails.
        unsafe {
            command.pre_exec(prepare);
        }
        let child = on_launcher(move || command.spawn());
        let child = child.unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { child, name }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"));
        kill(pid, signal).unwrap_or_else(|error| panic!("{signal} to {}: {error}", self.name));
    }

    /// How it ended, if it has.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    pub fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.name);
        let child = &mut self.child;
        crate::wait::block_until(deadline, &what, || child.try_wait().expect("a child can be waited for"))
    }

    /// SIGKILL, and reaped.
    pub fn kill(&mut self) {
        // Killing what has ended already is an error, and no matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Finds a program in PATH and where Debian keeps servers; panics with the package to install.
pub fn find_program(name: &str, more: &[PathBuf], package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .chain(more.iter().cloned())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
        .unwrap_or_else(|| panic!("this test needs {name}: install it with `apt-get install {package}`"))
}

/// A command whose output goes into a file.
pub fn logged(program: &Path, log: &Path) -> Command {
    let file = std::fs::File::options().create(true).append(true).open(log).expect("a log file");
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("a file handle")).stderr(file);
    command
}

/// The end of a log file, for messages about what went wrong.
pub fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
