//! `towpath cells cordon`, `uncordon` and `drain`.

use crate::api::view::{at, count, list, text};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How often a drain is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// A drain that did not get on for so long, and knows why, is told about.
const STUCK: Duration = Duration::from_secs(5);

/// Which cell, and why.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// Cell: its id as `towpath cells` shows it, or its node's name
    #[arg(value_name = "NAME")]
    cell: String,
    /// Why, for those who look at the list later
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Arguments of `cells drain`.
#[derive(Debug, Args)]
pub(super) struct Drain {
    #[command(flatten)]
    target: Target,
    /// Return at once; the drain goes on
    #[arg(short, long)]
    detach: bool,
}

impl Target {
    /// Changes what is wanted; gives the cell as it is then.
    async fn set(&self, context: &Context, scheduling: &str) -> Outcome<Value> {
        let note = self.note.as_deref().unwrap_or_default();
        let body = json!({"scheduling": scheduling, "note": note});
        let path = format!("/v1/cells/{}", crate::api::encode(&self.cell));
        context.api.call(Method::PATCH, &path, Some(&body)).await
    }

    /// Cordons or uncordons.
    pub(super) async fn run(self, context: &Context, scheduling: &str) -> Outcome {
        let cell = self.set(context, scheduling).await?;
        if context.screen.json() {
            return context.screen.json_document(&cell);
        }
        let says = match scheduling {
            "open" => "takes new instances again",
            _ => "takes no new instances; those that it has stay",
        };
        context.screen.line(format!("{} {says}", self.cell))
    }
}

impl Drain {
    pub(super) async fn run(self, context: &Context) -> Outcome {
        let mut cell = self.target.set(context, "draining").await?;
        if !self.detach {
            cell = self.follow(context, cell).await?;
        }
        if context.screen.json() {
            return context.screen.json_document(&cell);
        }
        let name = &self.target.cell;
        match count(&cell, "drain.left") {
            0 => context.screen.line(format!(
                "{name} is empty; it takes new instances after: towpath cells uncordon {name}"
            )),
            left => context.screen.line(format!("{name} is draining; {} left", instances(left))),
        }
    }

    /// Shows how far it is until nothing is left, or until it is known why it cannot get on.
    async fn follow(&self, context: &Context, mut cell: Value) -> Outcome<Value> {
        let path = format!("/v1/cells/{}", crate::api::encode(text(&cell, "id")));
        let (mut told, mut moved) = (None, Instant::now());
        loop {
            if text(&cell, "scheduling") != "draining" {
                return Err(Failure::new(
                    Exit::Conflict,
                    format!("{} was uncordoned meanwhile", self.target.cell),
                ));
            }
            let left = count(&cell, "drain.left");
            if left == 0 && at(&cell, "drain").is_some() {
                return Ok(cell);
            }
            if told != Some(left) {
                context.screen.note(format!("{} left", instances(left)));
                (told, moved) = (Some(left), Instant::now());
            }
            let waits = list(&cell, "drain.waits");
            if !waits.is_empty() && moved.elapsed() >= STUCK {
                return Err(stuck(&self.target.cell, left, waits));
            }
            tokio::time::sleep(LOOK).await;
            cell = context.api.get(&path).await?;
        }
    }
}

/// Why a drain does not get on.
fn stuck(cell: &str, left: u64, waits: &[Value]) -> Failure {
    let mut what = format!("{cell} cannot be emptied: {} left, and no place elsewhere", instances(left));
    for wait in waits {
        let (app, lane, why) = (text(wait, "app"), text(wait, "lane"), text(wait, "message"));
        what += &format!("\n{app} in lane {lane}: {why}");
    }
    let hint = format!(
        "it goes on by itself as soon as there is a place; to give it up: towpath cells uncordon {cell}"
    );
    Failure::hinted(Exit::Unavailable, what, hint)
}

fn instances(n: u64) -> String {
    if n == 1 { "1 instance".to_owned() } else { format!("{n} instances") }
}
