//! `towpath secrets`: secret variables of apps, and the keys that they are sealed with.

use super::arguments::WaitArg;
use super::deed::Deed;
use super::env::{Target, change, check_known};
use super::login::ask_password;
use super::operation;
use crate::api::view::{at, count, flag, list as items, text, texts};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::manifest::check_variable;
use crate::screen::live::Live;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Largest value that is read.
const MOST: u64 = 128 * 1024;

/// Arguments of `secrets`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath secrets set shop TOKEN                    Asks for the value\n  towpath secrets set shop TOKEN < token-file       Its whole standard input, without the last line end\n  towpath secrets set shop CERT --from server.pem   A file, as it is\n  towpath secrets list shop\n  towpath secrets status\n\nA value is never an argument, so it is in no shell history and no process list. Nobody is shown it again."
)]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the secret variables of an app, without values
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Set a secret variable; its value is asked for, or read from the standard input or a file
    Set {
        #[command(flatten)]
        target: Target,
        /// Name
        #[arg(value_name = "NAME", value_parser = variable_name)]
        name: String,
        /// Read the value from this file, as it is
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
        /// Make the app if it is not there yet, for a first push that requires the secret
        #[arg(long)]
        create: bool,
        #[command(flatten)]
        wait: WaitArg,
    },
    /// Remove secret variables
    Unset {
        #[command(flatten)]
        target: Target,
        /// Names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        wait: WaitArg,
    },
    /// Show the keys, and how many values are sealed with each
    Status,
    /// Seal everything with the newest key; makes one where the platform has one manager
    Rotate {
        #[command(flatten)]
        wait: WaitArg,
    },
    /// Make a key file, or put a new key first in one that is there
    NewKey {
        /// The file
        file: PathBuf,
    },
}

fn variable_name(text: &str) -> Result<String, String> {
    match check_variable(text) {
        _ if text.contains('=') => Err("give the name alone; the value is asked for".into()),
        Some(why) => Err(why.to_owned()),
        None => Ok(text.to_owned()),
    }
}

impl SecretsArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            Action::List { target } => list(context, &target).await,
            Action::Set { target, name, from, create, wait } => {
                let value = read_value(&name, from.as_deref())?;
                let path = format!("/v1/apps/{}", target.app);
                if create && !context.api.exists(&path).await? {
                    context.api.create(&path, &json!({})).await?;
                    context.screen.note(format!("App {} is made, with nothing in it yet", target.app));
                }
                let set = Map::from_iter([(name.clone(), json!({ "secret": value }))]);
                let deed = Deed::Env { set: vec![name], unset: vec![], everywhere: target.lane.is_none() };
                change(context, &target, set, wait.detach, &deed).await
            }
            Action::Unset { target, names, wait } => {
                check_known(context, &target, &names).await?;
                let unset = names.iter().map(|name| (name.clone(), Value::Null)).collect();
                let deed = Deed::Env { set: Vec::new(), unset: names, everywhere: target.lane.is_none() };
                change(context, &target, unset, wait.detach, &deed).await
            }
            Action::Status => {
                let found = context.api.get("/v1/secrets").await?;
                show_status(context, &found)
            }
            Action::Rotate { wait } => rotate(context, wait.detach).await,
            Action::NewKey { file } => new_key(context, &file),
        }
    }
}

/// The value: from the file, asked for, or all of the standard input.
fn read_value(name: &str, from: Option<&Path>) -> Outcome<String> {
    let read = |source: &mut dyn Read| {
        let mut value = String::new();
        source.take(MOST + 1).read_to_string(&mut value).map(|_| value)
    };
    let value = match from {
        Some(file) => std::fs::File::open(file)
            .and_then(|mut open| read(&mut open))
            .map_err(|error| Failure::io(format!("{} could not be read", file.display()), &error))?,
        None if std::io::stdin().is_terminal() => ask_password(&format!("Value of {name}"))?,
        None => {
            let value = read(&mut std::io::stdin().lock());
            let value = value.map_err(|error| Failure::io("the value could not be read", &error))?;
            let line = value.strip_suffix('\n').unwrap_or(&value);
            line.strip_suffix('\r').unwrap_or(line).to_owned()
        }
    };
    if value.is_empty() {
        let what = format!("the value of {name} is empty");
        return Err(Failure::hinted(Exit::Usage, what, "`towpath secrets unset` removes a secret"));
    }
    if value.len() as u64 > MOST {
        return Err(Failure::new(Exit::Usage, format!("the value of {name} is longer than 128 KiB")));
    }
    Ok(value)
}

async fn list(context: &Context, target: &Target) -> Outcome {
    let found = context.api.get(&target.path()).await;
    let found = context.app_hint(target.app.as_str(), found).await?;
    let secrets = at(&found, "secrets").cloned().unwrap_or_else(|| json!({}));
    if context.screen.json() {
        return context.screen.json_document(&json!({ "secrets": secrets }));
    }
    let mut table = Table::new(&["NAME", "VALUE", "KEY", "SET"]);
    for (name, secret) in secrets.as_object().into_iter().flatten() {
        table.row([
            Cell::new(name),
            Cell::new("(secret)").style(Style::Dim),
            Cell::new(text(secret, "key")),
            Cell::new(time::ago(count(secret, "set_ms"))),
        ]);
    }
    if table.is_empty() {
        context.screen.note(format!("{} has no secret variables here", target.app));
        return Ok(());
    }
    context.screen.write(&table.shown(&context.screen))
}

fn show_status(context: &Context, found: &Value) -> Outcome {
    if context.screen.json() {
        return context.screen.json_document(found);
    }
    let mut table = Table::new(&["KEY", "STATE", "VALUES", "MANAGERS"]);
    for key in items(found, "keys") {
        let state = match (flag(key, "active"), flag(key, "here"), flag(key, "removable")) {
            (true, true, _) => "active",
            (true, false, _) => "active, missing here",
            (false, false, _) => "missing here",
            (false, true, true) => "not used",
            (false, true, false) => "still used",
        };
        let style = if state.contains("missing") { Style::Bad } else { Style::Plain };
        table.row([
            Cell::new(text(key, "id")),
            Cell::new(state).style(style),
            Cell::number(count(key, "values") + count(key, "waiting")),
            Cell::number(items(key, "managers").len()),
        ]);
    }
    if !table.is_empty() {
        context.screen.write(&table.shown(&context.screen))?;
    }
    if let Some(why) = at(found, "trouble").and_then(Value::as_str) {
        context.screen.warn(format!("Secrets cannot be set: {why}"));
    }
    for key in items(found, "keys").iter().filter(|key| !items(key, "closed").is_empty()) {
        let apps = texts(key, "closed").join(", ");
        context
            .screen
            .warn(format!("Key {} is missing, so secrets of these are closed: {apps}", text(key, "id")));
    }
    if let Some(progress) = at(found, "progress").filter(|progress| !progress.is_null()) {
        context.screen.note(told(found, progress));
    }
    Ok(())
}

/// How far a rotation is.
fn told(found: &Value, progress: &Value) -> String {
    let (done, left, stuck) = (count(progress, "done"), count(progress, "left"), count(progress, "stuck"));
    let ended = at(progress, "ended_ms").is_some_and(|ended| !ended.is_null());
    let to = text(found, "rotation.to");
    match (ended, stuck) {
        (false, _) => format!("Rotating to key {to}: {done} values sealed anew, {left} left"),
        (true, 0) => format!("Rotated to key {to}: {done} values sealed anew"),
        (true, _) => {
            format!("Rotated to key {to}: {done} values sealed anew; {stuck} could not be opened and stay")
        }
    }
}

async fn rotate(context: &Context, detach: bool) -> Outcome {
    let begun = context.api.call(Method::POST, "/v1/secrets/rotate", None).await?;
    if detach {
        return operation::finish(context, begun, true, &Deed::Rotation).await;
    }
    let mut live = Live::new(&context.screen);
    let followed = operation::follow(context, &mut live, &begun, &Deed::Rotation).await?;
    drop(live);
    if followed.has_failed() {
        return operation::report(context, &followed, &Deed::Rotation).await;
    }
    let found = context.api.get("/v1/secrets").await?;
    show_status(context, &found)
}

fn new_key(context: &Context, file: &Path) -> Outcome {
    let there = file.exists();
    let made = if there { towpath_secrets::prepend(file) } else { towpath_secrets::create(file) };
    let ring = made.map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        Failure::new(Exit::Usage, format!("{error}{}", source.unwrap_or_default()))
    })?;
    let id = ring.newest().map(|key| key.id().to_string()).unwrap_or_default();
    let what = if there { "is the first of" } else { "is in the new file" };
    context.screen.done(
        format!("Key {id} {what} {}; every manager needs this file", file.display()),
        json!({"key": id, "file": file.display().to_string(), "keys": ring.keys().len()}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_no_arguments() {
        assert!(variable_name("TOKEN=x").unwrap_err().contains("name alone"));
        assert!(variable_name("1A").is_err() && variable_name("TOKEN").is_ok());
    }

    #[test]
    fn files_are_read_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("v");
        std::fs::write(&file, "a\nb\n").unwrap();
        assert_eq!(read_value("V", Some(&file)).unwrap(), "a\nb\n");
        std::fs::write(&file, "").unwrap();
        assert!(read_value("V", Some(&file)).is_err());
        std::fs::write(&file, "x".repeat(200_000)).unwrap();
        assert!(read_value("V", Some(&file)).is_err());
    }
}
