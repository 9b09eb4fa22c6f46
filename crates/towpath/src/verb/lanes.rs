//! `towpath lanes`.

use crate::api::view::{count, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};
use towpath_types::LaneName;

/// Arguments of `lanes`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath lanes list\n  towpath lanes add blue\n  towpath push --lane blue       (makes the lane too)\n  towpath lanes remove blue"
)]
pub(crate) struct LanesArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List lanes
    List,
    /// Make a lane
    Add {
        /// Lane
        lane: LaneName,
        /// What sort it is
        #[arg(long, value_enum, default_value = "feature")]
        kind: Kind,
    },
    /// Remove a lane that has no apps in it
    Remove {
        /// Lane
        lane: LaneName,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Holds what differs from base
    Feature,
    /// Developers' own machines
    Local,
}

impl LanesArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            Action::List => show(context).await,
            Action::Add { lane, kind } => {
                let kind = match kind {
                    Kind::Feature => "feature",
                    Kind::Local => "local",
                };
                let path = format!("/v1/lanes/{lane}?wait=revision");
                let added = context.api.call(Method::PUT, &path, Some(&json!({"kind": kind}))).await?;
                if context.screen.json() {
                    return context.screen.json_document(&added);
                }
                context
                    .screen
                    .note(format!("Lane {lane} is there. Put an app in it: towpath push --lane {lane}"));
                Ok(())
            }
            Action::Remove { lane } => {
                context.api.call(Method::DELETE, &format!("/v1/lanes/{lane}?wait=revision"), None).await?;
                context.screen.note(format!("Removed lane {lane}"));
                Ok(())
            }
        }
    }
}

async fn show(context: &Context) -> Outcome {
    let lanes = context.api.list("/v1/lanes").await?;
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(lanes));
    }
    let mut table = Table::new(&["LANE", "KIND", "APPS", "AGE"]);
    for lane in &lanes {
        table.row([
            Cell::new(text(lane, "name")).style(Style::Strong),
            Cell::new(text(lane, "kind")),
            Cell::new(texts(lane, "apps").join(", ")),
            Cell::number(time::ago(count(lane, "created_ms"))),
        ]);
    }
    context.screen.write(&table.render(context.screen.paint()))
}
