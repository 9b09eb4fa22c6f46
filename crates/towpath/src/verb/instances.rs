//! `towpath instances`.

use crate::api::view::{at, count, number, short_digest, short_id, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::{Style, of_state};
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::Args;
use serde_json::Value;
use towpath_types::{AppName, LaneName};

/// Arguments of `instances`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath instances\n  towpath instances shop --lane blue -o wide")]
pub(crate) struct InstancesArgs {
    /// App; all apps of the space if absent
    app: Option<AppName>,
    /// Lane; all lanes if absent
    #[arg(short, long, value_name = "LANE")]
    lane: Option<LaneName>,
}

impl InstancesArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let mut found = match &self.app {
            Some(app) => {
                let path = format!("/v1/apps/{app}/instances");
                context.app_hint(app.as_str(), context.api.list(&path).await).await?
            }
            None => context.api.list("/v1/instances").await?,
        };
        if let Some(lane) = &self.lane {
            found.retain(|instance| text(instance, "lane") == lane.as_str());
        }
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(found));
        }
        if found.is_empty() {
            context.screen.note("No instances");
            return Ok(());
        }
        let table = table(&found, self.app.is_none(), context.screen.format);
        context.screen.write(&table.shown(&context.screen))
    }
}

/// A table of instances, ordered by app, lane and number.
pub(super) fn table(instances: &[Value], with_app: bool, format: Format) -> Table {
    let mut sorted: Vec<&Value> = instances.iter().collect();
    sorted.sort_by_key(|i| {
        (
            text(i, "app").to_owned(),
            text(i, "lane") != "base",
            text(i, "lane").to_owned(),
            count(i, "ordinal"),
        )
    });
    rows(&sorted, with_app, format)
}

/// A table of instances in their order.
pub(super) fn table_as_given(instances: &[Value], format: Format) -> Table {
    rows(&instances.iter().collect::<Vec<_>>(), true, format)
}

fn rows(instances: &[&Value], with_app: bool, format: Format) -> Table {
    let wide = format == Format::Wide;
    let mut head = vec!["INSTANCE"];
    if with_app {
        head.push("APP");
    }
    head.extend(["LANE", "#", "STATE", "FOR", "CPU", "MEMORY", "RESTARTS", "ADDRESS"]);
    if wide {
        head.extend(["NODE", "RELEASE", "PID"]);
    }
    head.push("WHY");
    let mut table = Table::new(&head).optional(&["RESTARTS", "ADDRESS", "MEMORY", "CPU", "#"]);
    for instance in instances {
        let state = text(instance, "state");
        let id = text(instance, "id");
        let mut row = vec![Cell::new(if wide { id.to_owned() } else { short_id(id) })];
        if with_app {
            row.push(Cell::new(text(instance, "app")).style(Style::Strong));
        }
        row.extend([
            Cell::new(text(instance, "lane")),
            Cell::number(
                at(instance, "ordinal").and_then(Value::as_u64).map_or(String::new(), |n| n.to_string()),
            ),
            Cell::new(state).style(of_state(state)),
            Cell::number(time::span(count(instance, "state_ms"))),
            Cell::number(time::percent(number(instance, "cpu"))),
            Cell::number(time::bytes(count(instance, "memory_bytes"))),
            Cell::number(count(instance, "restarts")),
            Cell::new(text(instance, "address")),
        ]);
        if wide {
            row.extend([
                Cell::new(text(instance, "node")),
                Cell::new(short_digest(text(instance, "release"))),
                Cell::number(count(instance, "pid")),
            ]);
        }
        row.push(Cell::new(text(instance, "reason")).style(Style::Dim));
        table.row(row);
    }
    table
}
