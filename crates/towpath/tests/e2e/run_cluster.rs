//! "Run a cluster", as it stands in the guide: its commands in one shell, with the ports and addresses that it names.

use crate::documents::{Block, blocks, root};
use crate::platform::{BIN, open_dir, processes_below, run_within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use towpath_testkit::postgres::{programs, server_user};

/// PostgreSQL where its packages have it: at the usual port, and reached as its own user.
const AROUND: &str = r#"
set -euo pipefail
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
command -v ip >/dev/null && ip link set lo up
as_server() { if [ -n "$SERVER_USER" ]; then setpriv --reuid "$SERVER_USER" --regid "$SERVER_GROUP" --clear-groups "$@"; else "$@"; fi; }
mkdir pg && { [ -z "$SERVER_USER" ] || chown "$SERVER_USER" pg; }
as_server "$PROGRAMS/initdb" -D pg/data -U postgres -A trust -E UTF8 --locale=C >/dev/null
as_server "$PROGRAMS/postgres" -D pg/data -c listen_addresses=127.0.0.1 -c unix_socket_directories= >pg.log 2>&1 &
until "$PROGRAMS/pg_isready" -q -h 127.0.0.1; do sleep 0.1; done
sudo() { shift 3; "$PROGRAMS/psql" -X -h 127.0.0.1 -U postgres "$@"; }
curl() { command curl --fail --silent --show-error "$@"; }
set -x
"#;

/// Nothing that was said is left out, and where one waits for something it is looked at.
const LOOK: &str = r#"
towpath managers -o json | python3 -c 'import json, sys; assert [row["state"] for row in json.load(sys.stdin)] == ["live"] * 3'
towpath cells -o json | python3 -c 'import json, sys; assert len(json.load(sys.stdin)) == 3'
"#;

#[test]
fn run_a_cluster_can_be_followed() {
    let dir = open_dir();
    std::os::unix::fs::symlink(root().join("examples"), dir.path().join("examples")).unwrap();
    let text = std::fs::read_to_string(root().join("docs/guide/cluster-operations.md")).unwrap();
    let run: Vec<Block> = blocks(&text).into_iter().filter(|block| block.kind == "sh run").collect();
    assert_eq!(run.len(), 3, "start, use, end");
    let script = format!("{AROUND}{}{}{LOOK}{}", run[0].text, run[1].text, run[2].text);
    // The guide names ports: root has a network of its own, where all of them are free.
    let is_root = nix::unistd::geteuid().is_root();
    let mut bash = Command::new(if is_root { "unshare" } else { "bash" });
    bash.args(if is_root { &["--net", "bash"][..] } else { &[] });
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOWPATH_")) {
        bash.env_remove(name);
    }
    let path = std::env::var("PATH").unwrap();
    let binaries = Path::new(BIN).parent().unwrap().display().to_string();
    let (user, group) = server_user().map_or_else(Default::default, |(user, group)| {
        (user.as_raw().to_string(), group.as_raw().to_string())
    });
    bash.env("HOME", dir.path()).env("PATH", format!("{binaries}:{path}:/usr/sbin"));
    bash.env("PROGRAMS", programs()).env("SERVER_USER", user).env("SERVER_GROUP", group);
    bash.args(["-c", &script]).current_dir(dir.path());
    bash.stdin(std::process::Stdio::null());
    let ran = run_within(bash, Duration::from_secs(240));
    for pid in processes_below(dir.path()) {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    let logs = || {
        let files = std::fs::read_dir(dir.path().join("cluster")).into_iter().flatten().flatten();
        let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "log");
        files
            .map(|file| file.path())
            .filter(is_log)
            .map(|path| format!("{}:\n{}\n", path.display(), towpath_testkit::process::log_tail(&path)))
            .collect::<String>()
    };
    assert_eq!(ran.code, 0, "{}\n{}\n{}", ran.stdout, ran.stderr, logs());
}
