//! `towpath follow`.

use super::operation;
use crate::cli::client::Context;
use crate::exit::Outcome;
use clap::Args;
use towpath_types::OperationId;

/// Arguments of `follow`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  towpath follow 0190b2f6-5c8e-7c3a-9d0e-3f1b5a7c9d11")]
pub(crate) struct FollowArgs {
    /// Operation, as Ctrl-C or --detach printed it
    operation: OperationId,
}

impl FollowArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let begun = context.api.get(&format!("/v1/operations/{}", self.operation)).await?;
        operation::finish(context, begun, false).await
    }
}
