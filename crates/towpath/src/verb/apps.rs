//! `towpath apps`.

use crate::api::view::{count, list, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::{Style, of_state};
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::Args;
use serde_json::Value;

/// Arguments of `apps`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath apps\n  towpath apps -o json")]
pub(crate) struct AppsArgs {}

impl AppsArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let apps = context.api.list("/v1/apps").await?;
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(apps));
        }
        if apps.is_empty() {
            // No apps, or no such space?
            context.api.get("/v1/space").await?;
            context.screen.note(format!(
                "No apps in {} yet. Deploy one: cd your-app && towpath push",
                context.api.space()
            ));
            return Ok(());
        }
        let mut table = Table::new(&["NAME", "STATE", "READY", "LANES", "URL", "CHANGED"])
            .optional(&["CHANGED", "LANES"]);
        for app in &apps {
            let state = text(app, "state");
            table.row([
                Cell::new(text(app, "name")).style(Style::Strong),
                Cell::new(state).style(of_state(state)),
                Cell::number(ready(app)),
                Cell::new(lanes(app, context.screen.format)),
                Cell::new(texts(app, "urls").first().copied().unwrap_or_default()).style(Style::Name),
                Cell::new(time::ago(changed(app))),
            ]);
        }
        context.screen.write(&table.shown(&context.screen))
    }
}

/// `2/3` over all groups.
fn ready(app: &Value) -> String {
    let groups = list(app, "groups");
    let ready: u64 = groups.iter().map(|group| count(group, "ready")).sum();
    let wanted: u64 = groups.iter().map(wanted).sum();
    format!("{ready}/{wanted}")
}

/// Instances that a group should have.
pub(super) fn wanted(group: &Value) -> u64 {
    if crate::api::view::flag(group, "stopped") { 0 } else { count(group, "count") }
}

fn lanes(app: &Value, format: Format) -> String {
    let mut lanes: Vec<&str> = list(app, "groups").iter().map(|group| text(group, "lane")).collect();
    lanes.sort_by_key(|lane| (*lane != "base", *lane));
    if format == Format::Wide || lanes.len() <= 4 {
        return lanes.join(",");
    }
    let shown = lanes.get(..3).unwrap_or_default();
    format!("{} and {} more", shown.join(","), lanes.len() - shown.len())
}

fn changed(app: &Value) -> u64 {
    list(app, "groups")
        .iter()
        .map(|group| count(group, "updated_ms"))
        .chain([count(app, "updated_ms")])
        .max()
        .unwrap_or_default()
}
