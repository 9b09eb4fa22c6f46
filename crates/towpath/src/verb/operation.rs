//! Follows an operation to its end and says how it ended.

mod hint;

use super::deed::{Deed, lane_option};
use crate::api::view::{at, count, list, short_digest, text, texts};
use crate::api::{Event, Events};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::live::Live;
use crate::screen::plain::plain;
use crate::screen::style::Style;
use serde_json::Value;
use std::time::Duration;

/// Broken connections in a row after which following is given up.
const MAX_RECONNECTS: u32 = 20;

/// Goes through with an operation that the API has just accepted.
pub(super) async fn finish(context: &Context, begun: Value, detach: bool, deed: &Deed) -> Outcome {
    if detach {
        if context.screen.json() {
            return context.screen.json_document(&begun);
        }
        context.screen.note(how_to_follow(&begun, "Begun", deed));
        return Ok(());
    }
    let mut live = Live::new(&context.screen);
    let followed = follow(context, &mut live, &begun, deed).await?;
    drop(live);
    report(context, &followed, deed).await
}

/// An operation that has ended.
#[derive(Debug)]
pub(super) struct Followed {
    operation: Value,
    /// Whether lines of a build were shown.
    lines: bool,
}

impl Followed {
    /// Whether it ended badly.
    pub(super) fn has_failed(&self) -> bool {
        text(&self.operation, "phase") != "succeeded"
    }
}

/// Follows an operation to its end. Ctrl-C leaves it alone and says how to follow on.
pub(super) async fn follow(
    context: &Context,
    live: &mut Live,
    begun: &Value,
    deed: &Deed,
) -> Outcome<Followed> {
    let path = format!("/v1/operations/{}/events", text(begun, "id"));
    let mut last_id: Option<String> = None;
    let mut lines = false;
    let mut broken = 0;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let stream = async {
            let mut events = context.api.events(&path, last_id.as_deref()).await?;
            read(&mut events, live, deed.doing(text(begun, "verb")), &mut lines, &mut last_id).await
        };
        let failure = tokio::select! {
            ended = stream => match ended {
                Ok(Some(operation)) => return Ok(Followed { operation, lines }),
                Ok(None) => Failure::new(Exit::Unreachable, "the API ended the stream of events"),
                Err(failure) => failure,
            },
            _ = &mut interrupted => {
                live.clear();
                context.screen.note(how_to_follow(begun, "Detached, it goes on", deed));
                return Err(Failure::silent(Exit::Interrupted));
            }
        };
        broken += 1;
        let lasting = !matches!(failure.exit, Exit::Unreachable | Exit::Unavailable);
        if lasting || broken > MAX_RECONNECTS {
            return Err(failure);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn how_to_follow(operation: &Value, before: &str, deed: &Deed) -> String {
    format!("{before}: {}. Follow it: towpath follow {}", deed.tried(operation), text(operation, "id"))
}

/// Reads events until `done`; `None` = the stream ended before. `doing` says what happens to instances.
async fn read(
    events: &mut Events,
    live: &mut Live,
    doing: &str,
    lines: &mut bool,
    last_id: &mut Option<String>,
) -> Outcome<Option<Value>> {
    while let Some(event) = events.next().await? {
        if event.name == "done" {
            live.clear();
            return Ok(Some(event.data));
        }
        *lines |= event.name == "line";
        show(&event, live, doing);
        if event.id.is_some() {
            last_id.clone_from(&event.id);
        }
    }
    Ok(None)
}

fn show(event: &Event, live: &mut Live, doing: &str) {
    match event.name.as_str() {
        "phase" => match event.text("phase") {
            "staging" => live.now("Building"),
            "rolling" => live.now(doing),
            _ => {}
        },
        "step" => {
            live.say(Style::Strong, &format!("→ {}", plain(event.text("title"))));
            live.busy(&plain(event.text("title")));
        }
        "line" => live.say(Style::Dim, &format!("  {}", plain(event.text("text")))),
        "progress" => {
            let progress = progress(
                count(&event.data, "ready"),
                count(&event.data, "wanted"),
                &plain(event.text("message")),
            );
            if !progress.is_empty() {
                live.now(&progress);
            }
        }
        "gap" => live.say(Style::Dim, &format!("  … {} lines are missing", count(&event.data, "missed"))),
        _ => {}
    }
}

/// How far a rollout is; empty: nothing worth telling.
fn progress(ready: u64, wanted: u64, message: &str) -> String {
    if message == "sealed anew" {
        return if wanted == 0 { String::new() } else { format!("{ready}/{wanted} values sealed anew") };
    }
    // The manager's own count says the same again, and what a group that ends was waiting for is of no interest any more.
    let message = match message.split_once(" ready, ").or_else(|| message.split_once(" ready; ")) {
        Some((count, rest)) if count.split(" of ").all(|n| n.parse::<u64>().is_ok()) => rest,
        _ => message,
    };
    let said = message.is_empty() || message.ends_with(" ready");
    match (wanted, said) {
        (0, _) if message.contains("draining") => message.to_owned(),
        (0, _) => String::new(),
        (_, true) => format!("{ready}/{wanted} ready"),
        (_, false) => format!("{ready}/{wanted} ready · {message}"),
    }
}

/// Says how an operation ended; a failed one is a failure.
pub(super) async fn report(context: &Context, followed: &Followed, deed: &Deed) -> Outcome {
    let operation = &followed.operation;
    let failed = followed.has_failed();
    if context.screen.json() {
        context.screen.json_document(operation)?;
        return if failed { Err(failure(context, followed, deed).await) } else { Ok(()) };
    }
    if failed {
        return Err(failure(context, followed, deed).await);
    }
    let verdict = deed.done(operation, &app_now(context, operation).await);
    let paint = context.screen.paint();
    let mark = if verdict.style == Style::Good { "✓" } else { "!" };
    context.screen.line(format!("{} {}", paint.text(verdict.style, mark), verdict.text))?;
    if verdict.with_urls {
        for url in texts(operation, "urls") {
            context.screen.line(format!("  {}", paint.text(Style::Strong, url)))?;
        }
    }
    Ok(())
}

/// The operation's app as it is now; null if it cannot be had.
async fn app_now(context: &Context, operation: &Value) -> Value {
    match text(operation, "verb") {
        "delete" | "delete-group" | "rotate-secrets" => Value::Null,
        _ => {
            let path = format!("/v1/apps/{}", text(operation, "app"));
            context.api.get(&path).await.unwrap_or(Value::Null)
        }
    }
}

async fn failure(context: &Context, followed: &Followed, deed: &Deed) -> Failure {
    let operation = &followed.operation;
    let (code, message) = (text(operation, "code"), text(operation, "message"));
    let (app, lane) = (text(operation, "app"), text(operation, "lane"));
    let now = app_now(context, operation).await;
    let group = list(&now, "groups").iter().find(|group| text(group, "lane") == lane);
    let log = texts(operation, "log");
    // What a build printed was shown line by line already.
    let shown = followed.lines && code != "start_failed";
    if !log.is_empty() && !shown && !context.screen.json() {
        context.screen.note("The last lines that the app printed:");
        for line in log {
            context.screen.note(format!("  {}", plain(line)));
        }
    }
    if let (Deed::Push(settings), "start_failed") = (deed, code)
        && !settings.is_empty()
    {
        let serves = group.is_some_and(|group| !text(group, "serving").is_empty());
        context.screen.note(kept(settings, app, lane, serves));
    }
    let message = if message.is_empty() { "it failed" } else { message };
    let message = message.lines().map(plain).collect::<Vec<_>>().join("\n");
    let tried = deed.tried(operation);
    // The code comes behind the first line; what follows it are details.
    let what = match message.split_once('\n') {
        Some((first, details)) => format!("{tried}: {first} ({code})\n{details}"),
        None => format!("{tried}: {message} ({code})"),
    };
    let failed = text(operation, "release");
    let served = group.and_then(|group| at(group, "serving")).and_then(Value::as_str).unwrap_or_default();
    let serving = if served == failed { String::new() } else { short_digest(served) };
    // A push without room is taken back, unless it was the first, and says so; other changes go on waiting.
    let waits = !message.contains("nothing was changed");
    let seen = hint::Seen { code, message: &message, app, lane, serving: &serving, waits };
    let exit = match code {
        "no_room" | "secrets_unavailable" | "store_unavailable" | "storage_full" | "busy" => {
            Exit::Unavailable
        }
        _ => Exit::Failed,
    };
    let failure = match hint::hint(seen) {
        Some(hint) => Failure::hinted(exit, what, hint),
        None => Failure::new(exit, what),
    };
    failure.coded(code)
}

/// What a failed push leaves behind: all it said holds for `env set` and `restart`, which try it again; the next push
/// begins with the limits that ran well.
fn kept(settings: &[String], app: &str, lane: &str, serves: bool) -> String {
    let is_limit = |setting: &&String| !setting.starts_with("env ") && !setting.starts_with("instances ");
    let (limits, others): (Vec<&String>, Vec<&String>) = settings.iter().partition(is_limit);
    let join = |settings: &[&String]| settings.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
    let mut said = Vec::new();
    if !others.is_empty() {
        said.push(format!("Kept for the next try: {}.", join(&others)));
    }
    if !limits.is_empty() {
        said.push(format!("Not kept for the next push: {}.", join(&limits)));
    }
    // Nothing to go back to behind a first push.
    if serves {
        said.push(format!("To go back to what ran well: towpath rollback {app}{}", lane_option(lane)));
    }
    said.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_push_says_which_settings_stay() {
        let settings = ["instances 3", "memory 4M", "env A"].map(str::to_owned);
        assert_eq!(
            kept(&settings, "shop", "blue", true),
            "Kept for the next try: instances 3, env A. Not kept for the next push: memory 4M. \
             To go back to what ran well: towpath rollback shop --lane blue"
        );
        assert!(!kept(&settings, "shop", "base", false).contains("rollback"));
    }

    #[test]
    fn progress_says_only_what_matters() {
        assert_eq!(progress(1, 2, "1 of 2 ready"), "1/2 ready");
        assert_eq!(progress(1, 2, "0 of 2 ready, 2 old still there"), "1/2 ready · 2 old still there");
        assert_eq!(progress(0, 1, "0 of 1 ready; instance 0 lags"), "0/1 ready · instance 0 lags");
        assert_eq!(progress(0, 2, "no room"), "0/2 ready · no room");
        assert_eq!(progress(0, 0, "no cell has 99T of memory left"), "");
        assert_eq!(progress(0, 0, "1 draining"), "1 draining");
        assert_eq!(progress(3, 5, "sealed anew"), "3/5 values sealed anew");
    }
}
