//! Starting the program with less rights than the shim has.

use super::Why;
use super::output::Outputs;
use crate::kernel;
use crate::launch::{Launch, Mode};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Pid, Uid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Rise of the OOM score of apps and builds: when the machine runs out of memory they go before the platform.
const OOM_SCORE: &[u8] = b"400";
/// Niceness of builds, so that they give way to instances.
const BUILD_NICENESS: i32 = 10;

/// Starts the program. Its output is in the returned [`Outputs`] (instances) or goes to the shim's standard error (builds).
pub(super) fn spawn(launch: &Launch) -> Result<(Pid, Outputs), Why> {
    // Whatever can fail comes before the program runs: nothing would look after it then.
    let mut outputs = Outputs::open(&launch.mode)?;
    let mut command = Command::new(&launch.program);
    command.args(&launch.args).env_clear().envs(&launch.env).current_dir(&launch.dir).stdin(Stdio::null());
    match &launch.mode {
        Mode::Instance { .. } => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Mode::Build => {
            let error = |e: io::Error| format!("the output cannot be shared: {e}");
            let both = io::stderr().as_fd().try_clone_to_owned().map_err(error)?;
            command.stdout(both.try_clone().map_err(error)?).stderr(both);
        }
    }
    restrict(&mut command, launch);
    let mut child = command.spawn().map_err(|error| {
        format!("{} could not be started in {}: {error}", launch.program.display(), launch.dir.display())
    })?;
    let pid = Pid::from_raw(i32::try_from(child.id()).map_err(|e| e.to_string())?);
    outputs.read_from(child.stdout.take(), child.stderr.take());
    Ok((pid, outputs))
}

#[expect(unsafe_code, reason = "what a process may not do must be set between fork and exec")]
fn restrict(command: &mut Command, launch: &Launch) {
    let (user, files) = (launch.user, launch.files);
    let processes = launch.user.map(|_| launch.processes);
    let is_build = matches!(launch.mode, Mode::Build);
    // SAFETY: the shim has one thread, so its forked child is in no inconsistent state; the closure makes system calls only.
    unsafe {
        command.pre_exec(move || {
            nix::unistd::setsid()?;
            SigSet::empty().thread_set_mask()?;
            nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o027));
            lower(Resource::RLIMIT_CORE, 0)?;
            lower(Resource::RLIMIT_NOFILE, files)?;
            if let Some(processes) = processes {
                lower(Resource::RLIMIT_NPROC, processes)?;
            }
            // Where the kernel refuses, the score stays that of the shim: nothing is lost but an order.
            let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
            if is_build {
                kernel::be_nice(BUILD_NICENESS);
            }
            if let Some(user) = user {
                nix::unistd::setgroups(&[])?;
                nix::unistd::setgid(Gid::from_raw(user))?;
                nix::unistd::setuid(Uid::from_raw(user))?;
            }
            nix::sys::prctl::set_no_new_privs()?;
            Ok(())
        });
    }
}

/// Sets soft and hard limit, never above the hard limit that is there (raising it takes a capability).
fn lower(resource: Resource, wanted: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let limit = wanted.min(hard);
    setrlimit(resource, limit, limit)?;
    Ok(())
}

/// Lets go of the cell: its pipes are closed, standard streams lead nowhere.
pub(super) fn detach_standard_streams() {
    redirect(&[0, 1, 2]);
}

/// Lets the cell see the end of a build's output when the build's last process is gone.
pub(super) fn detach_standard_error() {
    redirect(&[2]);
}

fn redirect(streams: &[RawFd]) {
    let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") else { return };
    for stream in streams {
        replace(&null, *stream);
    }
}

#[expect(unsafe_code, reason = "the standard streams have no owner in the type system")]
fn replace(null: &std::fs::File, stream: RawFd) {
    // SAFETY: dup2 on two open descriptors; 0, 1 and 2 are never closed, only replaced.
    unsafe { libc::dup2(null.as_raw_fd(), stream) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs;
    use crate::settings::LogSettings;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn launch(dir: &Path, mark: &str) -> Launch {
        Launch {
            mode: Mode::Instance {
                control: dir.into(),
                logs: dir.join("logs"),
                bounds: LogSettings::default(),
            },
            program: "/bin/sleep".into(),
            args: vec!["1000".into()],
            dir: dir.into(),
            env: BTreeMap::from([("MARK".into(), mark.into())]),
            user: None,
            files: 64,
            processes: 64,
            memory: None,
        }
    }

    fn running(mark: &str) -> Vec<u32> {
        let entry = format!("MARK={mark}");
        procfs::pids().into_iter().filter(|pid| procfs::has_environment(*pid, &entry)).collect()
    }

    #[test]
    fn without_a_log_nothing_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().display().to_string();
        std::fs::write(dir.path().join("logs"), "no directory").unwrap();
        let refused = spawn(&launch(dir.path(), &mark)).is_err();
        let left = running(&mark);
        for pid in &left {
            let _ = nix::sys::signal::kill(Pid::from_raw(pid.cast_signed()), nix::sys::signal::SIGKILL);
        }
        assert!(refused);
        assert_eq!(left, Vec::<u32>::new());
    }
}
