//! A new process of the binary takes over from a running gateway.

use crate::client;
use crate::load::Load;
use crate::platform::{Role, at_free_port, open_dir};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use towpath_testkit::HttpApp;
use towpath_testkit::process::log_tail;
use towpath_testkit::wait::block_until;

const LONG: Duration = Duration::from_secs(60);
const HOST: &str = "a.test";

/// Routes to an app under the paths that the load asks for.
fn routes(app: &HttpApp) -> String {
    let node = app.address();
    format!(
        "routes:
  - {{id: slow, uri: /slow/*, upstream_id: app, plugins: {{proxy-rewrite: {{regex_uri: [\"^/slow/(.*)\", \"/delay/$1\"]}}}}}}
  - {{id: echo, uri: /echo, upstream_id: app, plugins: {{proxy-rewrite: {{uri: /body}}}}}}
  - {{id: all, uri: /*, upstream_id: app}}
upstreams:
  - {{id: app, nodes: {{\"{node}\": 1}}}}
#END
"
    )
}

/// The process that serves now, by the ready file.
fn serving(ready_file: &Path) -> Option<u32> {
    let ready: Value = serde_json::from_slice(&std::fs::read(ready_file).ok()?).ok()?;
    u32::try_from(ready["pid"].as_u64()?).ok()
}

/// Waits until another process than this one serves, and gives it.
fn successor(ready_file: &Path, before: u32, log: &Path) -> u32 {
    let what = format!("another process than {before} serves; see {}", log.display());
    block_until(LONG, &what, || serving(ready_file).filter(|pid| *pid != before))
}

/// Waits for the end of a process that is no child of this one.
fn ends(pid: u32) {
    block_until(LONG, &format!("{pid} ends"), || (!is_alive(pid)).then_some(()));
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie waits for a parent that does not ask.
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Ends what a test leaves behind.
struct Left(PathBuf);

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(pid) = serving(&self.0) {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
}

struct Gateway {
    role: Role,
    ready_file: PathBuf,
    address: SocketAddr,
    _left: Left,
    _dir: towpath_testkit::TempDir,
}

/// A gateway that follows a file, started by way of a link that an upgrade may change.
fn start(app: &HttpApp, more: &[&str], notify: Option<&Path>) -> Gateway {
    let dir = open_dir();
    let (file, ready_file) = (dir.path().join("apisix.yaml"), dir.path().join("gw.ready"));
    std::fs::write(&file, routes(app)).unwrap();
    let listen = at_free_port();
    let mut args = vec!["--file", file.to_str().unwrap(), "--listen", &listen];
    args.extend(more);
    // Through `env`, so that the binary has a path of its own, as an installed one has.
    let link = dir.path().join("towpath");
    std::os::unix::fs::symlink(crate::platform::BIN, &link).unwrap();
    let notified = notify.map(|path| format!("NOTIFY_SOCKET={}", path.display()));
    let mut by = vec!["env".to_owned()];
    by.extend(notified);
    let role = Role::start_as(dir.path(), "gw", "gateway", &args, &by, &link);
    let address = role.address("gateway");
    Gateway { role, address, _left: Left(ready_file.clone()), ready_file, _dir: dir }
}

#[test]
fn an_upgrade_under_load_loses_nothing_and_again() {
    let app = HttpApp::start("a");
    let mut gateway = start(&app, &[], None);
    let load = Load::start(gateway.address, HOST, 2);
    load.goes_on(5);
    let first = gateway.role.process.pid();
    // Another binary stands in the place of the first one now.
    let link = gateway.role.log.with_file_name("towpath");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(crate::platform::BIN, &link).unwrap();
    gateway.role.process.signal(Signal::SIGUSR2);
    let second = successor(&gateway.ready_file, first, &gateway.role.log);
    load.goes_on(5);
    assert_eq!(gateway.role.process.wait(LONG).code(), Some(0), "{}", log_tail(&gateway.role.log));
    load.goes_on(5);
    let command = std::fs::read(format!("/proc/{second}/cmdline")).unwrap();
    assert!(
        command.starts_with(link.as_os_str().as_encoded_bytes()),
        "{}",
        String::from_utf8_lossy(&command)
    );
    // And from that one to a third.
    kill(Pid::from_raw(second.cast_signed()), Signal::SIGUSR2).unwrap();
    let third = successor(&gateway.ready_file, second, &gateway.role.log);
    load.goes_on(5);
    ends(second);
    load.goes_on(5);
    load.lost_nothing();
    // The last one ends as any gateway does.
    kill(Pid::from_raw(third.cast_signed()), Signal::SIGTERM).unwrap();
    ends(third);
    assert!(client::try_get(gateway.address, HOST, "/", &[]).is_err(), "nobody listens any more");
}

/// The child of a process, as soon as there is one.
fn child_of(parent: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(&parent.to_string()) && !fields.trim_start().starts_with('Z')
    })
}

#[test]
fn a_new_process_that_is_killed_before_it_serves_changes_nothing() {
    let app = HttpApp::start("a");
    let mut gateway = start(&app, &[], None);
    let load = Load::start(gateway.address, HOST, 1);
    load.goes_on(3);
    let pid = gateway.role.process.pid();
    for _ in 0..3 {
        gateway.role.process.signal(Signal::SIGUSR2);
        let child = block_until(LONG, "a new process", || child_of(pid));
        kill(Pid::from_raw(child.cast_signed()), Signal::SIGSTOP).unwrap();
        if serving(&gateway.ready_file) != Some(pid) {
            // It was quicker than this test; there is nothing to be seen then.
            kill(Pid::from_raw(child.cast_signed()), Signal::SIGCONT).unwrap();
            load.lost_nothing();
            return;
        }
        load.goes_on(3);
        kill(Pid::from_raw(child.cast_signed()), Signal::SIGKILL).unwrap();
        ends(child);
        load.goes_on(3);
        assert!(gateway.role.process.exited().is_none());
        block_until(LONG, "the end is told", || {
            let told = std::fs::read_to_string(&gateway.role.log).unwrap();
            told.contains("ended before it took over").then_some(())
        });
    }
    // A file with faults keeps the next one from starting, and the running one on.
    let file = gateway.role.log.with_file_name("apisix.yaml");
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, "routes:\n  - {id: a, uri: 7}\n#END\n").unwrap();
    gateway.role.process.signal(Signal::SIGUSR2);
    load.goes_on(5);
    std::fs::write(&file, good).unwrap();
    load.goes_on(5);
    block_until(LONG, "one that takes over", || {
        gateway.role.process.signal(Signal::SIGUSR2);
        serving(&gateway.ready_file).filter(|serving| *serving != pid)
    });
    load.goes_on(3);
    assert_eq!(gateway.role.process.wait(LONG).code(), Some(0));
    load.lost_nothing();
}

#[test]
fn a_supervisor_is_told_who_serves() {
    let app = HttpApp::start("a");
    let dir = open_dir();
    let path = dir.path().join("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(LONG)).unwrap();
    let heard = || {
        let mut bytes = [0; 1024];
        let length = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut gateway = start(&app, &[], Some(&path));
    let first = gateway.role.process.pid();
    assert_eq!(heard(), format!("READY=1\nMAINPID={first}\n"));
    gateway.role.process.signal(Signal::SIGUSR2);
    let second = successor(&gateway.ready_file, first, &gateway.role.log);
    let mut words = [heard(), heard()];
    words.sort();
    assert_eq!(words, [format!("MAINPID={second}\n"), format!("READY=1\nMAINPID={second}\n")]);
    assert_eq!(gateway.role.process.wait(LONG).code(), Some(0));
}

#[test]
fn there_has_to_be_somebody_to_take_over_from_and_a_second_one_without_the_flag_is_refused() {
    let app = HttpApp::start("a");
    let gateway = start(&app, &[], None);
    let start = |data: &Path, more: &[&str]| {
        let mut command = crate::platform::command(data.parent().unwrap());
        let file = gateway.role.log.with_file_name("apisix.yaml");
        command.args(["gateway", "--file"]).arg(file).arg("--data-dir").arg(data);
        command.args(["--listen", "127.0.0.1:0"]).args(more);
        crate::platform::run(command)
    };
    let nobody = start(&gateway.role.data.with_file_name("other"), &["--take-over"]);
    assert!(nobody.one_error_line().contains("no running gateway to take over"), "{nobody:?}");
    let second = start(&gateway.role.data, &[]);
    assert!(second.one_error_line().contains("is in use by"), "{second:?}");
}
