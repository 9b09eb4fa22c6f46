//! `towpath lanes`.

mod policy;

use crate::api::view::{count, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use policy::PolicyArgs;
use serde_json::{Value, json};
use towpath_types::LaneName;

/// Arguments of `lanes`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath lanes\n  towpath lanes add blue\n  towpath push --lane blue       (makes the lane too)\n  towpath lanes remove blue\n  towpath lanes policy --mode strict\n  towpath lanes policy --header trafficenv"
)]
pub(crate) struct LanesArgs {
    #[command(subcommand)]
    action: Option<Action>,
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
    /// Show where requests carry their lane, or change it
    Policy(Box<PolicyArgs>),
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
            None | Some(Action::List) => show(context).await,
            Some(Action::Policy(args)) => args.run(context).await,
            Some(Action::Add { lane, kind }) => {
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
            Some(Action::Remove { lane }) => {
                context.api.call(Method::DELETE, &format!("/v1/lanes/{lane}?wait=revision"), None).await?;
                context.screen.done(format!("Removed lane {lane}"), json!({"removed": {"lane": lane}}))
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
    context.screen.write(&table.shown(&context.screen))
}
