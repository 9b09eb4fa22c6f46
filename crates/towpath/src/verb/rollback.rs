//! `towpath rollback`.

use super::arguments::{LaneArg, WaitArg};
use super::deed::Deed;
use super::operation;
use crate::cli::client::Context;
use crate::exit::Outcome;
use clap::Args;
use hyper::Method;
use serde_json::json;
use towpath_types::AppName;

/// Arguments of `rollback`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath rollback shop                 the release before the present one\n  towpath rollback shop 1f3a9c          one that `towpath releases shop` lists"
)]
pub(crate) struct RollbackArgs {
    /// App
    app: AppName,
    /// Release to go back to: its first digits, at least six; the one before the present if absent
    #[arg(value_name = "RELEASE")]
    release: Option<String>,
    /// The same
    #[arg(long, value_name = "RELEASE", conflicts_with = "release", hide = true)]
    to: Option<String>,
    #[command(flatten)]
    lane: LaneArg,
    #[command(flatten)]
    wait: WaitArg,
}

impl RollbackArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let mut body = json!({"lane": self.lane.lane});
        if let (Some(release), Some(map)) = (self.release.as_ref().or(self.to.as_ref()), body.as_object_mut())
        {
            map.insert("release".into(), json!(release));
        }
        let path = format!("/v1/apps/{}/rollback", self.app);
        let begun = context.api.call(Method::POST, &path, Some(&body)).await;
        let begun = context.app_hint(self.app.as_str(), begun).await?;
        operation::finish(context, begun, self.wait.detach, &Deed::Rollback).await
    }
}
