//! Starting, ending, and what is said when it cannot be.

use crate::platform::{BIN, FREE_ARGS, Role, Up, command, open_dir, run};
use nix::sys::signal::Signal;
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn up_says_where_things_are_and_ends_cleanly() {
    let mut up = Up::start();
    let screen = std::fs::read_to_string(&up.role.log).unwrap();
    for part in [up.role.url("api"), up.role.url("token_file"), "/docs", "towpath push"] {
        assert!(screen.contains(part), "{part} in {screen}");
    }
    use std::os::unix::fs::PermissionsExt;
    for file in ["token", "cell-token", "store.db"] {
        let mode = std::fs::metadata(up.role.data.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    up.towpath(&["status"]).ok();
    let healthz = crate::client::get(up.role.address("api"), "localhost", "/v1/healthz", &[]);
    assert_eq!(healthz.status, 200, "{healthz:?}");
    let metrics = crate::client::get(up.role.address("metrics"), "localhost", "/metrics", &[]);
    assert!(metrics.body.contains("towpath_gateway_"), "{metrics:?}");
    assert_eq!(up.role.terminate(), 0);
}

#[test]
fn sigint_ends_cleanly_too() {
    let mut up = Up::start();
    up.role.process.signal(Signal::SIGINT);
    assert_eq!(up.role.process.wait(Duration::from_secs(30)).code(), Some(0));
}

#[test]
fn nohup_is_respected() {
    let dir = open_dir();
    let mut role = Role::start_by(dir.path(), "data", "up", FREE_ARGS, Some("nohup"));
    role.process.signal(Signal::SIGHUP);
    let answer = crate::client::get(role.address("api"), "localhost", "/v1/healthz", &[]);
    assert_eq!(answer.status, 200);
    assert!(role.process.exited().is_none());
    assert_eq!(role.terminate(), 0);
}

#[test]
fn a_directory_that_was_there_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let dir = open_dir();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o750)).unwrap();
    let role = Role::start(dir.path(), "data", "up", FREE_ARGS);
    assert_eq!(std::fs::metadata(&role.data).unwrap().permissions().mode() & 0o777, 0o750);
}

#[test]
fn a_second_start_on_the_same_directory_is_refused_in_one_line() {
    let up = Up::start();
    let mut second = command(up.dir.path());
    second.args(["up", "--data-dir"]).arg(&up.role.data).args(FREE_ARGS);
    let output = run(second);
    let line = output.one_error_line();
    assert!(line.contains(up.role.data.to_str().unwrap()), "{line}");
    assert!(line.contains(&format!("process {}", up.role.process.pid())), "{line}");
    assert_eq!(output.code, 6);
}

#[test]
fn a_taken_port_is_said_in_one_line() {
    let dir = open_dir();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let mut up = command(dir.path());
    up.args(["up", "--admin-listen", &taken]).args(FREE_ARGS);
    assert!(run(up).one_error_line().contains("--admin-listen"));
    for (flag, other) in [("--listen", "--api-listen"), ("--api-listen", "--listen")] {
        let mut up = command(dir.path());
        up.args(["up", flag, &taken, other, "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        let output = run(up);
        let line = output.one_error_line();
        assert!(line.contains(&taken) && line.contains("is taken") && line.contains(flag), "{line}");
        assert_eq!(output.code, 6);
    }
}

#[test]
fn a_directory_that_is_not_writable_is_said_in_one_line() {
    let dir = open_dir();
    // A file where the directory should be: nobody can write there, not even root.
    std::fs::write(dir.path().join("file"), "").unwrap();
    let mut up = command(dir.path());
    up.args(["up", "--data-dir"]).arg(dir.path().join("file/data")).args(FREE_ARGS);
    let output = run(up);
    assert!(output.one_error_line().contains("is not writable"), "{output:?}");
    assert_eq!(output.code, 2);
}

#[test]
fn wrong_settings_are_all_said_with_file_and_line() {
    let dir = open_dir();
    let config = dir.path().join("towpath.toml");
    std::fs::write(&config, "data_dri = \"x\"\n").unwrap();
    let mut up = command(dir.path());
    up.args(["up", "--check", "--config"]).arg(&config);
    let output = run(up);
    let line = output.one_error_line();
    let expected =
        format!("error: {}:1: data_dri: unknown key; hint: did you mean \"data_dir\"?", config.display());
    assert_eq!(line, expected);
    assert_eq!(output.code, 2);

    std::fs::write(&config, "domain = 3\n[gateway]\nworkers = 0\nlimits = { head = \"1\" }\n").unwrap();
    let mut up = command(dir.path());
    up.args(["up", "--drain", "soon", "--config"]).arg(&config);
    let output = run(up);
    assert_eq!(output.stderr.lines().count(), 4, "{output:#?}");
    for part in [":1: domain: ", ":3: gateway.workers: ", ":4: gateway.limits.head: ", "--drain: "] {
        assert!(output.stderr.contains(part), "{part} in {output:#?}");
    }
}

#[test]
fn check_says_that_settings_are_fine() {
    let dir = open_dir();
    let mut up = command(dir.path());
    up.args(["up", "--check"]);
    let output = run(up).ok();
    assert_eq!(output.stdout, "The settings of towpath up are fine\n");
    assert!(!dir.path().join("share").exists(), "a check leaves nothing behind");
}

#[test]
fn roles_of_a_cluster_say_what_they_lack() {
    let dir = open_dir();
    for (role, parts) in [
        ("manager", vec!["bus.nats", "store.postgres"]),
        ("gateway", vec!["bus.nats"]),
        ("cell", vec!["bus.nats", "cell.api", "cell.token_file"]),
    ] {
        let mut command = command(dir.path());
        command.args([role, "--check"]);
        let output = run(command);
        assert_eq!(output.code, 2);
        for part in parts {
            assert!(output.stderr.contains(&format!("error: {part}: ")), "{part} in {output:#?}");
        }
    }
}

#[test]
fn no_api_is_said_in_one_line() {
    let dir = open_dir();
    let mut apps = command(dir.path());
    apps.args(["apps", "--api", "http://127.0.0.1:9"]);
    let output = run(apps);
    assert_eq!(
        output.one_error_line(),
        "error: no Towpath API at http://127.0.0.1:9 (connection refused); hint: start one with `towpath up`, or set TOWPATH_API"
    );
    assert_eq!(output.code, 3);
}

#[test]
fn a_wrong_token_is_said() {
    let up = Up::start();
    let output = up.towpath(&["apps", "--token", "twp_wrong"]);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.one_error_line().contains("hint: the token in --token is not one"), "{output:?}");
}

#[test]
fn every_command_has_help_with_examples() {
    let dir = open_dir();
    let mut top = command(dir.path());
    top.arg("--help");
    let help = run(top).ok().stdout;
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(verbs.len() > 25, "{verbs:?}");
    for verb in verbs {
        let mut one = command(dir.path());
        one.args([verb, "--help"]);
        let help = run(one).ok().stdout;
        assert!(help.contains("Example"), "{verb}: {help}");
    }
}

#[test]
fn completions_are_printed_for_every_shell() {
    let dir = open_dir();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut completions = command(dir.path());
        completions.args(["completions", shell]);
        assert!(run(completions).ok().stdout.contains("towpath"), "{shell}");
    }
}

#[test]
fn a_role_that_is_named_wrong_is_helped() {
    let dir = open_dir();
    let mut wrong = command(dir.path());
    wrong.arg("gatway");
    let output = run(wrong);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("'gateway'"), "{output:?} of {BIN}");
    let _ = Role::address;
}
