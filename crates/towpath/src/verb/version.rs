//! `towpath version`.

use crate::api::view::text;
use crate::cli::client::Context;
use crate::exit::Outcome;
use clap::Args;
use serde_json::json;

/// Arguments of `version`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath version\n  towpath version -o json")]
pub(crate) struct VersionArgs {}

impl VersionArgs {
    /// The platform's part is left out when it cannot be reached: the program's own version is always told.
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let own = env!("CARGO_PKG_VERSION");
        let platform = context.api.get("/v1/version").await;
        if context.screen.json() {
            return context.screen.json_document(&json!({"client": own, "platform": platform.ok()}));
        }
        context.screen.line(format!("towpath {own}"))?;
        match platform {
            Ok(platform) => {
                let version = text(&platform, "version");
                context.screen.line(format!("platform {version} at {}", context.api.address()))
            }
            Err(_) => {
                context.screen.note(format!("no platform at {}", context.api.address()));
                Ok(())
            }
        }
    }
}
