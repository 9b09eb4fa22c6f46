//! `towpath routes`.

use super::refused;
use crate::api::encode;
use crate::api::view::{flag, list, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::manifest::{RouteWish, parse_route};
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use towpath_types::AppName;

/// Arguments of `routes`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath routes\n  towpath routes shop\n  towpath routes add shop shop.example.com\n  towpath routes add shop example.com/shop --strip-path\n  towpath routes remove example.com/shop"
)]
pub(crate) struct RoutesArgs {
    /// App whose routes are listed; all of the space if absent
    app: Option<AppName>,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List routes
    List {
        /// Only those of this app
        app: Option<AppName>,
    },
    /// Let a host, or a path of it, lead to an app
    Add {
        /// App
        app: AppName,
        /// HOST[/PATH], for example shop.example.com/api or *.example.com
        #[arg(value_parser = parse_route, value_name = "HOST[/PATH]")]
        route: RouteWish,
        /// Cut PATH off before a request is sent on
        #[arg(long)]
        strip_path: bool,
    },
    /// Remove a route
    Remove {
        /// HOST[/PATH]
        #[arg(value_parser = parse_route, value_name = "HOST[/PATH]")]
        route: RouteWish,
    },
}

impl RoutesArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            None => show(context, self.app).await,
            Some(Action::List { app }) => show(context, app).await,
            Some(Action::Add { app, route, strip_path }) => {
                let route = RouteWish { strip_path, ..route };
                let added = context.app_hint(app.as_str(), put(context, &app, &route).await).await?;
                if context.screen.json() {
                    return context.screen.json_document(&added);
                }
                context.screen.line(format!("{} leads to {app}", text(&added, "url")))
            }
            Some(Action::Remove { route }) => {
                let path = format!("/v1/routes?host={}&path={}", encode(&route.host), encode(&route.path));
                context.api.call(Method::DELETE, &format!("{path}&wait=revision"), None).await?;
                context.screen.done(
                    format!("Removed {}{}", route.host, route.path),
                    json!({"removed": {"host": route.host, "path": route.path}}),
                )
            }
        }
    }
}

/// Makes a route and waits until all gateways serve it.
pub(super) async fn put(context: &Context, app: &AppName, route: &RouteWish) -> Outcome<Value> {
    let mut body = json!(route);
    if let Some(map) = body.as_object_mut() {
        map.insert("app".into(), json!(app));
    }
    context.api.call(Method::PUT, "/v1/routes?wait=revision", Some(&body)).await
}

async fn show(context: &Context, app: Option<AppName>) -> Outcome {
    let path = app.as_ref().map_or_else(|| "/v1/routes".to_owned(), |app| format!("/v1/routes?app={app}"));
    let found = context.api.list(&path).await;
    let routes = found?;
    if let (Some(app), true) = (&app, routes.is_empty()) {
        // No routes, or no such app?
        let known = context.api.get(&format!("/v1/apps/{app}")).await;
        context.app_hint(app.as_str(), known).await?;
    }
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(routes));
    }
    if routes.is_empty() {
        context.screen.note("No routes");
        return Ok(());
    }
    let mut table = Table::new(&["HOST", "PATH", "APP", "OPTIONS", "URL"]).optional(&["URL", "OPTIONS"]);
    for route in &routes {
        table.row([
            Cell::new(text(route, "host")).style(Style::Strong),
            Cell::new(text(route, "path")),
            Cell::new(text(route, "app.app")),
            Cell::new(options(route)).style(Style::Dim),
            Cell::new(text(route, "url")).style(Style::Name),
        ]);
    }
    context.screen.write(&table.shown(&context.screen))?;
    for route in &routes {
        refused::warn(context, &format!("{}{}", text(route, "host"), text(route, "path")), route);
    }
    Ok(())
}

fn options(route: &Value) -> String {
    let mut options = Vec::new();
    if flag(route, "automatic") {
        options.push("automatic".to_owned());
    }
    if flag(route, "strip_path") {
        options.push("strips path".to_owned());
    }
    for rule in list(route, "entry") {
        let percent = crate::api::view::number(rule, "percent");
        options.push(format!("{percent}% to lane {}", text(rule, "lane")));
    }
    options.join(", ")
}
