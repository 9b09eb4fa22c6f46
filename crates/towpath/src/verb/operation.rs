//! Follows an operation to its end and says how it ended.

use crate::api::view::{count, short_digest, text, texts};
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
pub(super) async fn finish(context: &Context, begun: Value, detach: bool) -> Outcome {
    if detach {
        if context.screen.json() {
            return context.screen.json_document(&begun);
        }
        context.screen.note(how_to_follow(&begun, "Started"));
        return Ok(());
    }
    let mut live = Live::new(&context.screen);
    let (operation, last) = follow(context, &mut live, &begun).await?;
    drop(live);
    report(context, &operation, &last)
}

/// The last that was said of a rollout.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    ready: u64,
    wanted: u64,
    known: bool,
}

/// Follows an operation to its end. Ctrl-C leaves it alone and says how to follow on.
pub(super) async fn follow(context: &Context, live: &mut Live, begun: &Value) -> Outcome<(Value, Rollout)> {
    let path = format!("/v1/operations/{}/events", text(begun, "id"));
    let mut last_id: Option<String> = None;
    let mut rollout = Rollout::default();
    let mut broken = 0;
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let stream = async {
            let mut events = context.api.events(&path, last_id.as_deref()).await?;
            read(&mut events, live, text(begun, "verb"), &mut rollout, &mut last_id).await
        };
        let failure = tokio::select! {
            ended = stream => match ended {
                Ok(Some(operation)) => return Ok((operation, rollout)),
                Ok(None) => Failure::new(Exit::Unreachable, "the API ended the stream of events"),
                Err(failure) => failure,
            },
            _ = &mut interrupted => {
                live.clear();
                context.screen.note(how_to_follow(begun, "Detached; it goes on"));
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

fn how_to_follow(operation: &Value, before: &str) -> String {
    let (verb, app) = (text(operation, "verb"), text(operation, "app"));
    format!("{before}: {verb} of {app}. Follow it: towpath follow {}", text(operation, "id"))
}

/// Reads events until `done`; `None` = the stream ended before.
async fn read(
    events: &mut Events,
    live: &mut Live,
    verb: &str,
    rollout: &mut Rollout,
    last_id: &mut Option<String>,
) -> Outcome<Option<Value>> {
    while let Some(event) = events.next().await? {
        if event.name == "done" {
            live.clear();
            return Ok(Some(event.data));
        }
        show(&event, live, verb, rollout);
        if event.id.is_some() {
            last_id.clone_from(&event.id);
        }
    }
    Ok(None)
}

fn show(event: &Event, live: &mut Live, verb: &str, rollout: &mut Rollout) {
    match event.name.as_str() {
        "phase" => match event.text("phase") {
            "staging" => live.now("Building"),
            "rolling" => live.now(match verb {
                "delete" | "delete-group" => "Draining instances",
                "scale" | "update" => "Changing instances",
                _ => "Starting instances",
            }),
            _ => {}
        },
        "step" => {
            live.say(Style::Strong, &format!("→ {}", plain(event.text("title"))));
            live.busy(&plain(event.text("title")));
        }
        "line" => live.say(Style::Dim, &format!("  {}", plain(event.text("text")))),
        "progress" => {
            let (ready, wanted) = (count(&event.data, "ready"), count(&event.data, "wanted"));
            *rollout = Rollout { ready, wanted, known: true };
            let message = plain(event.text("message"));
            // The manager's own count says the same again.
            let said = message.is_empty() || message.ends_with(" ready");
            let message = if said { String::new() } else { format!(" · {message}") };
            live.now(&format!("{ready}/{wanted} ready{message}"));
        }
        "gap" => live.say(Style::Dim, &format!("  … {} lines are missing", count(&event.data, "missed"))),
        _ => {}
    }
}

/// Says how an operation ended; a failed one is a failure.
pub(super) fn report(context: &Context, operation: &Value, rollout: &Rollout) -> Outcome {
    let failed = text(operation, "phase") != "succeeded";
    if context.screen.json() {
        context.screen.json_document(operation)?;
        return if failed { Err(Failure::silent(Exit::Failed)) } else { Ok(()) };
    }
    if failed {
        return Err(failure(context, operation));
    }
    let paint = context.screen.paint();
    let (app, lane) = (text(operation, "app"), text(operation, "lane"));
    let tick = paint.text(Style::Good, "✓");
    let ready =
        if rollout.known { format!(": {}/{} ready", rollout.ready, rollout.wanted) } else { String::new() };
    match text(operation, "verb") {
        "push" | "rollback" => {
            let release = short_digest(text(operation, "release"));
            let reused = if text(operation, "verb") == "push" && operation["reused"] == true {
                " (built before)"
            } else {
                ""
            };
            context
                .screen
                .line(format!("{tick} {app} runs release {release}{reused} in lane {lane}{ready}"))?;
            for url in texts(operation, "urls") {
                context.screen.line(format!("  {}", paint.text(Style::Strong, url)))?;
            }
            Ok(())
        }
        "delete" => context.screen.line(format!("{tick} {app} is deleted")),
        "delete-group" => context.screen.line(format!("{tick} {app} is deleted from lane {lane}")),
        verb => context.screen.line(format!("{tick} {verb} of {app} in lane {lane} is done{ready}")),
    }
}

fn failure(context: &Context, operation: &Value) -> Failure {
    let (code, message) = (text(operation, "code"), text(operation, "message"));
    let (app, lane) = (text(operation, "app"), text(operation, "lane"));
    let log = texts(operation, "log");
    // What a build printed was shown line by line already.
    if !log.is_empty() && !code.starts_with("build_") {
        context.screen.note("The last lines that the app printed:");
        for line in log {
            context.screen.note(format!("  {}", plain(line)));
        }
    }
    let message = if message.is_empty() { "it failed" } else { message };
    let what = format!("{} of {app} in lane {lane}: {} ({code})", text(operation, "verb"), plain(message));
    match hint(code, app, lane) {
        Some(hint) => Failure::hinted(Exit::Failed, what, hint),
        None => Failure::new(Exit::Failed, what),
    }
}

/// What a person can do about a failure.
fn hint(code: &str, app: &str, lane: &str) -> Option<String> {
    Some(match code {
        "no_builder" => {
            "say how it is built with --builder, or how it starts with --command or a Procfile".into()
        }
        "tool_missing" => "install the tool on the cell, or push a built app with --builder binary".into(),
        "build_failed" | "build_timeout" => "what the build printed is above".into(),
        "start_failed" => format!(
            "an app has to listen on the port in $PORT, at 0.0.0.0 or 127.0.0.1; see `towpath logs {app} --lane {lane}`; \
             what ran before still runs"
        ),
        "no_room" => "`towpath cells` shows the room; ask for less with --memory or --instances".into(),
        "superseded" => format!("`towpath app {app}` shows what runs now"),
        _ => return None,
    })
}
