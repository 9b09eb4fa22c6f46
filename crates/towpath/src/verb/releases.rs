//! `towpath releases`.

use crate::api::view::{count, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::Args;
use serde_json::Value;
use towpath_types::AppName;

/// Arguments of `releases`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath releases shop\n  towpath rollback shop --to 1f3a9c    go back to one of them"
)]
pub(crate) struct ReleasesArgs {
    /// App
    app: AppName,
}

impl ReleasesArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let app = self.app.as_str();
        let found = context.api.list(&format!("/v1/apps/{app}/releases")).await;
        let releases = context.app_hint(app, found).await?;
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(releases));
        }
        if releases.is_empty() {
            context.screen.note(format!("{app} has no releases"));
            return Ok(());
        }
        let wide = context.screen.format == Format::Wide;
        let mut table =
            Table::new(&["RELEASE", "AGE", "RUNS IN", "BUILDER", "SIZE", "BY", "COMMAND", "NOTE"])
                .optional(&["SIZE", "BY", "COMMAND", "BUILDER"]);
        for release in &releases {
            let id = if wide { text(release, "release") } else { text(release, "short") };
            let command = text(release, "command");
            let command = command.strip_prefix(". ./.towpath/env; exec ").unwrap_or(command);
            let command: String = if wide { command.into() } else { shorten(command, 40) };
            table.row([
                Cell::new(id),
                Cell::number(time::ago(count(release, "created_ms"))),
                Cell::new(texts(release, "lanes").join(",")).style(Style::Good),
                Cell::new(text(release, "builder")),
                Cell::number(time::bytes(count(release, "artifact_bytes"))),
                Cell::new(text(release, "by")),
                Cell::new(command),
                Cell::new(text(release, "note")).style(Style::Dim),
            ]);
        }
        context.screen.write(&table.shown(&context.screen))
    }
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
