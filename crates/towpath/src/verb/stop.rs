//! `towpath stop` and `towpath start`.

use super::arguments::{LaneArg, WaitArg};
use super::deed::Deed;
use super::operation;
use crate::cli::client::Context;
use crate::exit::Outcome;
use clap::Args;
use hyper::Method;
use serde_json::json;
use towpath_types::AppName;

/// Arguments of `stop`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath stop shop\n  towpath start shop")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    target: Target,
}

/// Arguments of `start`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath stop shop\n  towpath start shop")]
pub(crate) struct StartArgs {
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct Target {
    /// App
    app: AppName,
    #[command(flatten)]
    lane: LaneArg,
    #[command(flatten)]
    wait: WaitArg,
}

impl StopArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.target.set(context, true).await
    }
}

impl StartArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.target.set(context, false).await
    }
}

impl Target {
    async fn set(self, context: &Context, stopped: bool) -> Outcome {
        let path = format!("/v1/apps/{}/groups/{}", self.app, self.lane.lane);
        let begun = context.api.call(Method::PATCH, &path, Some(&json!({"stopped": stopped}))).await;
        let begun = context.app_hint(self.app.as_str(), begun).await?;
        let deed = if stopped { Deed::Stop } else { Deed::Start };
        operation::finish(context, begun, self.wait.detach, &deed).await
    }
}
