//! `towpath target`.

use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::remembered;
use clap::Args;
use serde_json::json;
use towpath_types::{OrgName, SpaceName};

/// Arguments of `target`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath target\n  towpath target acme\n  towpath target acme/prod\n\n--org, --space, TOWPATH_ORG and TOWPATH_SPACE go before it."
)]
pub(crate) struct TargetArgs {
    /// Org and space that other commands work in from now on; shows them if absent
    #[arg(value_name = "ORG[/SPACE]")]
    target: Option<String>,
}

impl TargetArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        if let Some(target) = &self.target {
            let (org, space) = target.split_once('/').unwrap_or((target, "default"));
            let wrong = |error: towpath_types::NameError| Failure::new(Exit::Usage, error);
            let (org, space) = (OrgName::new(org).map_err(wrong)?, SpaceName::new(space).map_err(wrong)?);
            // It has to be there, and to be seen.
            let there = context.api.in_place(org.as_str(), space.as_str());
            there.get("/v1/space").await?;
            remembered::change(context.api.address(), |entry| {
                entry.org = Some(org.to_string());
                entry.space = Some(space.to_string());
            })?;
            return self.show(context, there.space());
        }
        self.show(context, context.api.space())
    }

    fn show(&self, context: &Context, space: String) -> Outcome {
        if context.screen.json() {
            let (org, space) = space.split_once('/').unwrap_or_default();
            let api = context.api.address().to_string();
            return context.screen.json_document(&json!({"api": api, "org": org, "space": space}));
        }
        context.screen.line(format!("{space} at {}", context.api.address()))
    }
}
