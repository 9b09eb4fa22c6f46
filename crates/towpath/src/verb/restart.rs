//! `towpath restart`.

use super::arguments::{LaneArg, WaitArg};
use super::deed::Deed;
use super::operation;
use crate::cli::client::Context;
use crate::exit::Outcome;
use clap::Args;
use hyper::Method;
use towpath_types::AppName;

/// Arguments of `restart`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath restart shop\n  towpath restart shop --lane blue")]
pub(crate) struct RestartArgs {
    /// App
    app: AppName,
    #[command(flatten)]
    lane: LaneArg,
    #[command(flatten)]
    wait: WaitArg,
}

impl RestartArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let path = format!("/v1/apps/{}/groups/{}/restart", self.app, self.lane.lane);
        let begun = context.api.call(Method::POST, &path, None).await;
        let begun = context.app_hint(self.app.as_str(), begun).await?;
        operation::finish(context, begun, self.wait.detach, &Deed::Restart).await
    }
}
