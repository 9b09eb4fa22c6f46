//! `towpath env`.

use super::arguments::{Variable, WaitArg};
use super::deed::Deed;
use super::operation;
use crate::api::view::at;
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::suggest::did_you_mean;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Map, Value};
use towpath_types::{AppName, LaneName};

/// Arguments of `env`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath env shop --show\n  towpath env set shop LEVEL=debug\n  towpath env set shop LEVEL=debug --lane blue\n  towpath env unset shop LEVEL\n\nA change replaces the instances, one after the other, without losing a request.\nValues that nobody is to see: towpath secrets set."
)]
pub(crate) struct EnvArgs {
    /// App whose variables are listed
    app: Option<AppName>,
    /// Those of this lane alone
    #[arg(short, long, value_name = "LANE")]
    lane: Option<LaneName>,
    /// Show the values
    #[arg(long)]
    show: bool,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List variables; values are hidden unless --show
    List {
        #[command(flatten)]
        target: Target,
        /// Show the values
        #[arg(long)]
        show: bool,
    },
    /// Set variables
    Set {
        #[command(flatten)]
        target: Target,
        /// NAME=VALUE
        #[arg(required = true, value_name = "NAME=VALUE")]
        variables: Vec<Variable>,
        #[command(flatten)]
        wait: WaitArg,
    },
    /// Remove variables
    Unset {
        #[command(flatten)]
        target: Target,
        /// Names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        wait: WaitArg,
    },
}

#[derive(Debug, Args)]
pub(super) struct Target {
    /// App
    pub(super) app: AppName,
    /// Only in this lane; in all lanes if absent
    #[arg(short, long, value_name = "LANE")]
    pub(super) lane: Option<LaneName>,
}

impl Target {
    pub(super) fn path(&self) -> String {
        match &self.lane {
            Some(lane) => format!("/v1/apps/{}/env?lane={lane}", self.app),
            None => format!("/v1/apps/{}/env", self.app),
        }
    }
}

impl EnvArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            None => match self.app {
                Some(app) => list(context, &Target { app, lane: self.lane }, self.show).await,
                None => Err(Failure::hinted(
                    Exit::Usage,
                    "it is not said of which app",
                    "name it: towpath env APP, or towpath env set APP NAME=VALUE",
                )),
            },
            Some(Action::List { target, show }) => list(context, &target, show).await,
            Some(Action::Set { target, variables, wait }) => {
                let names = variables.iter().map(|v| v.name.clone()).collect();
                let set = variables.into_iter().map(|v| (v.name, Value::String(v.value)));
                let deed = Deed::Env { set: names, unset: Vec::new(), everywhere: target.lane.is_none() };
                change(context, &target, set.collect(), wait.detach, &deed).await
            }
            Some(Action::Unset { target, names, wait }) => {
                check_known(context, &target, &names).await?;
                let unset = names.iter().map(|name| (name.clone(), Value::Null)).collect();
                let deed = Deed::Env { set: Vec::new(), unset: names, everywhere: target.lane.is_none() };
                change(context, &target, unset, wait.detach, &deed).await
            }
        }
    }
}

/// A name that is not set is most likely a slip, and instances would be replaced for nothing.
pub(super) async fn check_known(context: &Context, target: &Target, names: &[String]) -> Outcome {
    let found = context.api.get(&target.path()).await;
    let found = context.app_hint(target.app.as_str(), found).await?;
    let (env, secrets) = (at(&found, "env"), at(&found, "secrets"));
    let both = [env, secrets].into_iter().flatten().filter_map(Value::as_object);
    let known: Vec<&str> = both.flatten().map(|(name, _)| name.as_str()).collect();
    let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let place = target.lane.as_ref().map_or(String::new(), |lane| format!(" in lane {lane} alone"));
    let what = format!("{} has no variable {unknown}{place}; nothing was changed", target.app);
    let hint = did_you_mean(unknown, known.iter().copied());
    Err(match (hint, known.as_slice()) {
        (Some(hint), _) => Failure::hinted(Exit::NotFound, what, hint),
        (None, []) => Failure::new(Exit::NotFound, what),
        (None, known) => Failure::hinted(Exit::NotFound, what, format!("it has {}", known.join(", "))),
    })
}

async fn list(context: &Context, target: &Target, show: bool) -> Outcome {
    let found = context.api.get(&target.path()).await;
    let mut found = context.app_hint(target.app.as_str(), found).await?;
    if !show && let Some(Value::Object(env)) = found.get_mut("env") {
        for value in env.values_mut() {
            *value = Value::String("hidden; add --show".into());
        }
    }
    if context.screen.json() {
        return context.screen.json_document(&found);
    }
    let mut table = Table::new(&["NAME", "VALUE"]);
    for (name, value) in at(&found, "env").and_then(Value::as_object).into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let cell = if show { Cell::new(value) } else { Cell::new("•••").style(Style::Dim) };
        table.row([Cell::new(name), cell]);
    }
    for (name, _) in at(&found, "secrets").and_then(Value::as_object).into_iter().flatten() {
        table.row([Cell::new(name), Cell::new("(secret)").style(Style::Dim)]);
    }
    if table.is_empty() {
        let place = target.lane.as_ref().map_or(String::new(), |lane| format!(" in lane {lane} alone"));
        context.screen.note(format!("No variables are set for {}{place}", target.app));
        return Ok(());
    }
    context.screen.write(&table.shown(&context.screen))
}

pub(super) async fn change(
    context: &Context,
    target: &Target,
    change: Map<String, Value>,
    detach: bool,
    deed: &Deed,
) -> Outcome {
    let begun = context.api.call(Method::PATCH, &target.path(), Some(&Value::Object(change))).await;
    let begun = context.app_hint(target.app.as_str(), begun).await?;
    operation::finish(context, begun, detach, deed).await
}
