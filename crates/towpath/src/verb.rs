//! The verbs of the command line, one a file: arguments and what is done with them.

pub(crate) mod app;
pub(crate) mod apps;
mod arguments;
pub(crate) mod audit;
pub(crate) mod cells;
pub(crate) mod completions;
mod deed;
pub(crate) mod delete;
pub(crate) mod env;
pub(crate) mod explain;
pub(crate) mod follow;
pub(crate) mod gateways;
pub(crate) mod instances;
pub(crate) mod lanes;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod managers;
mod operation;
pub(crate) mod orgs;
pub(crate) mod push;
mod refused;
pub(crate) mod releases;
pub(crate) mod restart;
pub(crate) mod rollback;
pub(crate) mod routes;
pub(crate) mod scale;
pub(crate) mod secrets;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod target;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod users;
pub(crate) mod version;

use crate::cli::client::Context;
use crate::exit::{Exit, HINT, Outcome};
use crate::suggest::did_you_mean;

impl Context {
    /// Adds "did you mean" to a failure that says that there is no such app.
    async fn app_hint<T>(&self, app: &str, outcome: Outcome<T>) -> Outcome<T> {
        let mut failure = match outcome {
            Err(failure) if failure.exit == Exit::NotFound => failure,
            other => return other,
        };
        if let Ok(apps) = self.api.list("/v1/apps").await {
            let names: Vec<&str> = apps.iter().map(|app| crate::api::view::text(app, "name")).collect();
            if !names.contains(&app)
                && let Some(first) = failure.lines.first_mut()
            {
                let hint = did_you_mean(app, names.iter().copied())
                    .unwrap_or_else(|| format!("`towpath apps` lists the apps of {}", self.api.space()));
                *first = format!("{first}; hint: {hint}");
            } else if let Some(first) = failure.lines.first_mut()
                && !first.contains(HINT)
                && first.contains(" lane ")
            {
                *first = format!("{first}{HINT}`towpath app {app}` shows its lanes");
            }
        }
        Err(failure)
    }
}
