//! `towpath follow`.

use super::deed::Deed;
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
    #[arg(value_parser = parse_operation)]
    operation: OperationId,
}

fn parse_operation(text: &str) -> Result<OperationId, String> {
    text.parse().map_err(|_| {
        "it is no operation; Ctrl-C and --detach print ids like 0190b2f6-5c8e-7c3a-9d0e-3f1b5a7c9d11"
            .to_owned()
    })
}

impl FollowArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let begun = context.api.get(&format!("/v1/operations/{}", self.operation)).await?;
        operation::finish(context, begun, false, &Deed::Unknown).await
    }
}
