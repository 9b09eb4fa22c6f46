//! Users and sessions on the command line.

use crate::platform::{Output, Up, run};
use std::process::Command;

/// Runs a command with a line on its standard input.
fn with_line(up: &Up, mut command: Command, line: &str) -> Output {
    let file = up.dir.path().join("line");
    std::fs::write(&file, format!("{line}\n")).unwrap();
    command.stdin(std::fs::File::open(file).unwrap());
    run(command)
}

/// A command that says no token.
fn as_session(up: &Up, args: &[&str]) -> Command {
    let mut command = up.command(args);
    command.env_remove("TOWPATH_TOKEN_FILE");
    command
}

#[test]
fn users_are_made_once_and_logout_ends_the_remembered_session() {
    let up = Up::start();
    let create = |args: &[&str], password: &str| {
        let mut all = vec!["users", "create", "ann"];
        all.extend(args);
        with_line(&up, up.command(&all), password)
    };
    create(&["--operator"], "the first password").ok();
    let again = create(&[], "another password");
    assert_eq!(again.code, 6, "{again:?}");
    let line = again.one_error_line();
    assert!(line.contains("there is a user ann already") && line.contains("--replace"), "{line}");
    with_line(&up, as_session(&up, &["login", "ann"]), "the first password").ok();
    let me = run(as_session(&up, &["whoami", "-o", "json"])).ok().json();
    assert_eq!((&me["name"], &me["role"]), (&"ann".into(), &"operator".into()), "rights and password stay");

    let remembered = std::fs::read_to_string(up.dir.path().join("config/towpath/client.json")).unwrap();
    let book: serde_json::Value = serde_json::from_str(&remembered).unwrap();
    let session = book.as_object().unwrap().values().next().unwrap()["token"].as_str().unwrap().to_owned();
    let whoami = || run(up.command(&["whoami", "--token", &session]));
    whoami().ok();
    // Another token is said: it is the session that ends all the same.
    up.towpath(&["logout"]).ok();
    assert_eq!(whoami().code, 5);
    create(&["--replace"], "another password").ok();
    with_line(&up, as_session(&up, &["login", "ann"]), "another password").ok();
    let me = run(as_session(&up, &["whoami", "-o", "json"])).ok().json();
    assert_eq!(me["role"], "member");
}
