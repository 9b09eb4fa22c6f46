//! `towpath orgs` and `towpath spaces`.

use crate::api::view::{at, count, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use towpath_types::{ByteSize, OrgName, SpaceName};

/// Arguments of `orgs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath orgs\n  towpath orgs create acme\n  towpath orgs quota acme --memory 4G --instances 20\n  towpath orgs quota acme --unlimited\n  towpath orgs delete acme"
)]
pub(crate) struct OrgsArgs {
    #[command(subcommand)]
    action: Option<OrgAction>,
}

#[derive(Debug, Subcommand)]
enum OrgAction {
    /// List the orgs that you may know of
    List,
    /// Make an org, with its space `default`
    Create {
        /// Org
        name: OrgName,
    },
    /// Delete an org that has no apps
    Delete {
        /// Org
        name: OrgName,
    },
    /// Show what an org may use and uses, or change what it may
    Quota(QuotaArgs),
}

#[derive(Debug, Args)]
struct QuotaArgs {
    /// Org
    name: OrgName,
    /// Memory limits of all wanted instances together
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Wanted instances
    #[arg(long, value_name = "N")]
    instances: Option<u64>,
    /// Routes
    #[arg(long, value_name = "N")]
    routes: Option<u64>,
    /// Lanes beside the base lanes
    #[arg(long, value_name = "N")]
    lanes: Option<u64>,
    /// What is not named is unlimited from now on, instead of as it is
    #[arg(long)]
    unlimited: bool,
}

/// Arguments of `spaces`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath spaces\n  towpath spaces create test --org acme\n  towpath spaces delete test --org acme"
)]
pub(crate) struct SpacesArgs {
    #[command(subcommand)]
    action: Option<SpaceAction>,
}

#[derive(Debug, Subcommand)]
enum SpaceAction {
    /// List the spaces of the org
    List,
    /// Make a space
    Create {
        /// Space
        name: SpaceName,
    },
    /// Delete a space that has no apps
    Delete {
        /// Space
        name: SpaceName,
    },
}

impl OrgsArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            None | Some(OrgAction::List) => {
                let orgs = context.api.list("/v1/orgs").await?;
                show(context, &orgs)
            }
            Some(OrgAction::Create { name }) => {
                let made =
                    context.api.call(Method::PUT, &format!("/v1/orgs/{name}"), Some(&json!({}))).await?;
                if context.screen.json() {
                    return context.screen.json_document(&made);
                }
                context.screen.note(format!("Org {name} is there. Work in it: towpath target {name}"));
                Ok(())
            }
            Some(OrgAction::Delete { name }) => {
                context.api.call(Method::DELETE, &format!("/v1/orgs/{name}"), None).await?;
                context.screen.note(format!("Deleted org {name}"));
                Ok(())
            }
            Some(OrgAction::Quota(args)) => args.run(context).await,
        }
    }
}

impl QuotaArgs {
    async fn run(self, context: &Context) -> Outcome {
        let path = format!("/v1/orgs/{}", self.name);
        let named = [
            ("memory", self.memory.map(|memory| json!(memory))),
            ("instances", self.instances.map(|n| json!(n))),
            ("routes", self.routes.map(|n| json!(n))),
            ("lanes", self.lanes.map(|n| json!(n))),
        ];
        let changes = self.unlimited || named.iter().any(|(_, value)| value.is_some());
        let mut org = context.api.get(&path).await?;
        if changes {
            let present = if self.unlimited { None } else { at(&org, "quota").and_then(Value::as_object) };
            let mut quota = present.cloned().unwrap_or_default();
            for (name, value) in named {
                quota.extend(value.map(|value| (name.to_owned(), value)));
            }
            org =
                context.api.call(Method::PUT, &format!("{path}/quota"), Some(&Value::Object(quota))).await?;
        }
        if context.screen.json() {
            return context.screen.json_document(&org);
        }
        let mut table = Table::new(&["WHAT", "USED", "LIMIT"]);
        for what in ["memory", "instances", "routes", "lanes"] {
            let shown = |side: &str| match at(&org, &format!("{side}.{what}")) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => "unlimited".to_owned(),
            };
            table.row([
                Cell::new(what).style(Style::Strong),
                Cell::number(shown("usage")),
                Cell::number(shown("quota")),
            ]);
        }
        context.screen.write(&table.shown(&context.screen))
    }
}

fn show(context: &Context, orgs: &[Value]) -> Outcome {
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(orgs.to_vec()));
    }
    if orgs.is_empty() {
        context.screen.note("No orgs that you are a member of");
        return Ok(());
    }
    let mut table = Table::new(&["ORG", "YOU ARE", "SPACES", "INSTANCES", "MEMORY", "AGE"]);
    for org in orgs {
        table.row([
            Cell::new(text(org, "name")).style(Style::Strong),
            Cell::new(text(org, "role")),
            Cell::new(texts(org, "spaces").join(", ")),
            Cell::number(count(org, "usage.instances")),
            Cell::number(text(org, "usage.memory")),
            Cell::number(time::ago(count(org, "created_ms"))),
        ]);
    }
    context.screen.write(&table.shown(&context.screen))
}

impl SpacesArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let path = format!("/v1/orgs/{}/spaces", context.api.org());
        match self.action {
            None | Some(SpaceAction::List) => {
                let spaces = context.api.list(&path).await?;
                if context.screen.json() {
                    return context.screen.json_document(&Value::Array(spaces));
                }
                let mut table = Table::new(&["SPACE", "LANES", "AGE"]);
                for space in &spaces {
                    table.row([
                        Cell::new(text(space, "space")).style(Style::Strong),
                        Cell::new(text(space, "lanes.mode")),
                        Cell::number(time::ago(count(space, "created_ms"))),
                    ]);
                }
                context.screen.write(&table.shown(&context.screen))
            }
            Some(SpaceAction::Create { name }) => {
                let made = context.api.call(Method::PUT, &format!("{path}/{name}"), None).await?;
                if context.screen.json() {
                    return context.screen.json_document(&made);
                }
                let org = context.api.org();
                context
                    .screen
                    .note(format!("Space {org}/{name} is there. Work in it: towpath target {org}/{name}"));
                Ok(())
            }
            Some(SpaceAction::Delete { name }) => {
                context.api.call(Method::DELETE, &format!("{path}/{name}"), None).await?;
                context.screen.note(format!("Deleted space {}/{name}", context.api.org()));
                Ok(())
            }
        }
    }
}
