//! `towpath token`.

use crate::api::encode;
use crate::api::view::{count, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};
use towpath_types::{Millis, SpaceName};

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath token\n  towpath token create ci --role developer\n  towpath token create deploy --org acme --only-in prod --ttl 720h\n  towpath token revoke ci"
)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List tokens
    List,
    /// Make a token and print it: this once
    Create {
        /// Name
        name: String,
        /// What it may do
        #[arg(long, value_enum, default_value = "developer")]
        role: Role,
        /// In this space of the org alone
        #[arg(long, value_name = "SPACE")]
        only_in: Option<SpaceName>,
        /// How long it is valid; until it is revoked if absent
        #[arg(long, value_name = "TIME")]
        ttl: Option<Millis>,
    },
    /// Take a token back
    Revoke {
        /// Name
        name: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Role {
    /// Everything
    Operator,
    /// Everything inside the org
    Owner,
    /// Apps, lanes, routes, environment
    Developer,
    /// Reading
    Viewer,
    /// For a cell
    Cell,
    /// For a gateway
    Gateway,
}

impl TokenArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.action {
            None | Some(Action::List) => show(context).await,
            Some(Action::Create { name, role, only_in, ttl }) => {
                let role = match role {
                    Role::Operator => "operator",
                    Role::Owner => "owner",
                    Role::Developer => "developer",
                    Role::Viewer => "viewer",
                    Role::Cell => "cell",
                    Role::Gateway => "gateway",
                };
                let body = json!({"name": name, "role": role, "space": only_in, "ttl": ttl});
                let made = context.api.call(Method::POST, "/v1/tokens", Some(&body)).await?;
                if context.screen.json() {
                    return context.screen.json_document(&made);
                }
                context.screen.note(format!("Token {name} ({role}); it is not shown again:"));
                context.screen.line(text(&made, "token"))
            }
            Some(Action::Revoke { name }) => {
                context.api.call(Method::DELETE, &format!("/v1/tokens/{}", encode(&name)), None).await?;
                context.screen.note(format!("Token {name} is not valid any more"));
                Ok(())
            }
        }
    }
}

async fn show(context: &Context) -> Outcome {
    let tokens = context.api.list("/v1/tokens").await?;
    if context.screen.json() {
        return context.screen.json_document(&Value::Array(tokens));
    }
    let mut table = Table::new(&["NAME", "ROLE", "WHERE", "ENDS IN", "AGE"]);
    for token in &tokens {
        let place = [text(token, "org"), text(token, "space")];
        let place = place.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
        let ends = match count(token, "expires_ms") {
            0 => String::new(),
            end if end <= time::now_ms() => "ended".to_owned(),
            end => time::span(end - time::now_ms()),
        };
        table.row([
            Cell::new(text(token, "name")).style(Style::Strong),
            Cell::new(text(token, "role")),
            Cell::new(place),
            Cell::number(ends),
            Cell::number(time::ago(count(token, "created_ms"))),
        ]);
    }
    context.screen.write(&table.shown(&context.screen))
}
