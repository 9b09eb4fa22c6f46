//! `towpath managers`.

use crate::api::view::{at, count, flag, number, short_id, text};
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::style::of_state;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::{Args, Subcommand};
use serde_json::Value;

/// Arguments of `managers`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath managers\n  towpath managers owner shop\n  towpath managers owner shop:base"
)]
pub(crate) struct ManagersArgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Which manager works for an app, a group (APP:LANE), an operation or an instance
    Owner {
        /// App, APP:LANE, or the id of an operation or instance
        #[arg(value_name = "ID")]
        id: String,
    },
}

impl ManagersArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.what {
            None => list(context).await,
            Some(What::Owner { id }) => owner(context, &id).await,
        }
    }
}

async fn list(context: &Context) -> Outcome {
    let managers = context.api.list("/v1/managers").await?;
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(managers));
    }
    context.screen.write(&table(&managers, context.screen.format).render(context.screen.paint()))
}

async fn owner(context: &Context, id: &str) -> Outcome {
    let path = format!("/v1/managers/owner/{}", crate::api::encode(id));
    let owner = context.api.get(&path).await?;
    if !exists(&owner) {
        return Err(Failure::hinted(
            Exit::NotFound,
            format!("there is no {}", text(&owner, "resource")),
            format!(
                "manager {} at {} would work for it",
                short_id(text(&owner, "manager")),
                text(&owner, "address")
            ),
        ));
    }
    if context.screen.json() {
        return context.screen.json_document(&owner);
    }
    context.screen.line(format!(
        "manager {} at {} works for {}",
        short_id(text(&owner, "manager")),
        text(&owner, "address"),
        text(&owner, "resource")
    ))
}

/// Whether there is what was asked about. Managers of earlier versions do not say; then there is.
fn exists(owner: &Value) -> bool {
    at(owner, "exists").and_then(Value::as_bool).unwrap_or(true)
}

/// A table of managers.
fn table(managers: &[Value], format: Format) -> Table {
    let wide = format == Format::Wide;
    let mut head =
        vec!["MANAGER", "STATE", "SHARE", "QUEUE", "OPERATIONS", "LAG", "SILENT", "ADDRESS", "VERSION"];
    if wide {
        head.extend(["WEIGHT", "INCARNATION", "EPOCH", "REVISION"]);
    }
    let mut table = Table::new(&head);
    for manager in managers {
        let id = text(manager, "id");
        let known = |name: &str| match at(manager, name) {
            Some(_) => count(manager, name).to_string(),
            None => "-".to_owned(),
        };
        let mark = if flag(manager, "this") { "*" } else { "" };
        let state = text(manager, "state");
        let mut row = vec![
            Cell::new(format!("{}{mark}", if wide { id.to_owned() } else { short_id(id) })),
            Cell::new(state).style(of_state(state)),
            Cell::number(time::percent(number(manager, "share"))),
            Cell::number(known("queue")),
            Cell::number(known("operations")),
            Cell::number(known("lag")),
            Cell::number(time::span(count(manager, "silent_ms"))),
            Cell::new(text(manager, "address")),
            Cell::new(text(manager, "version")),
        ];
        if wide {
            row.extend([
                Cell::number(format!("{}", number(manager, "weight"))),
                Cell::number(count(manager, "incarnation")),
                Cell::number(known("epoch")),
                Cell::number(known("revision")),
            ]);
        }
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manager_that_does_not_say_whether_a_resource_exists_means_that_it_does() {
        assert!(exists(&json!({"resource": "app shop", "exists": true})));
        assert!(!exists(&json!({"resource": "app shop", "exists": false})));
        assert!(exists(&json!({"resource": "app shop"})));
    }
}
