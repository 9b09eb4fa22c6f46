//! `towpath delete`.

use super::arguments::WaitArg;
use super::deed::Deed;
use super::operation;
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use clap::Args;
use hyper::Method;
use std::io::{BufRead, IsTerminal, Write};
use towpath_types::{AppName, LaneName};

/// Arguments of `delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath delete shop\n  towpath delete shop --lane blue --yes")]
pub(crate) struct DeleteArgs {
    /// App
    app: AppName,
    /// Only its part in this lane
    #[arg(short, long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    wait: WaitArg,
}

impl DeleteArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let app = self.app.as_str();
        let (path, what) = match &self.lane {
            Some(lane) => (format!("/v1/apps/{app}/groups/{lane}"), format!("{app} in lane {lane}")),
            None => (format!("/v1/apps/{app}"), format!("{app} with all its lanes, releases and routes")),
        };
        if !self.yes {
            // Nobody is asked about what is not there.
            let found = context.api.get(&format!("/v1/apps/{app}")).await;
            context.app_hint(app, found).await?;
            confirm(&what)?;
        }
        let begun = context.api.call(Method::DELETE, &path, None).await;
        let begun = context.app_hint(app, begun).await?;
        operation::finish(context, begun, self.wait.detach, &Deed::Delete).await
    }
}

/// Asks a person. Where nobody can be asked, it is an error not to have said `--yes`.
fn confirm(what: &str) -> Outcome {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::hinted(Exit::Usage, format!("not sure whether to delete {what}"), "add --yes"));
    }
    let mut err = std::io::stderr().lock();
    let _ = write!(err, "Delete {what}? [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    let _ = writeln!(err, "Nothing was deleted.");
    Err(Failure::silent(Exit::Failed))
}
