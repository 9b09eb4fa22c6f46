//! `towpath audit`.

use crate::api::encode;
use crate::api::view::{count, list, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::Style;
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::Args;
use serde_json::Value;
use towpath_types::Millis;

/// Arguments of `audit`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath audit\n  towpath audit --org acme --since 24h\n  towpath audit --by ann --action group\n  towpath audit --name shop -o json"
)]
pub(crate) struct AuditArgs {
    /// By this user or token alone
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Actions that begin so, for example group or app.push
    #[arg(long, value_name = "TEXT")]
    action: Option<String>,
    /// Of this app, lane, user, … alone
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Not older than this
    #[arg(long, value_name = "TIME")]
    since: Option<Millis>,
    /// Most entries
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl AuditArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let mut path = format!("/v1/audit?limit={}", self.limit.clamp(1, 1000));
        for (name, value) in [("by", &self.by), ("action", &self.action), ("name", &self.name)] {
            if let Some(value) = value {
                path += &format!("&{name}={}", encode(value));
            }
        }
        if let Some(since) = self.since {
            path += &format!("&since={}", time::now_ms().saturating_sub(since.0));
        }
        let page = context.api.get(&path).await?;
        let entries = list(&page, "items");
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(entries.to_vec()));
        }
        if entries.is_empty() {
            context.screen.note("No such changes");
            return Ok(());
        }
        let mut table = Table::new(&["WHEN", "BY", "ACTION", "WHERE", "WHAT", "REVISION", "CHANGED"])
            .optional(&["REVISION", "CHANGED"]);
        for entry in entries {
            let place = [text(entry, "org"), text(entry, "space")];
            let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
            let when = time::moment(count(entry, "at_ms"));
            table.row([
                Cell::new(when.split('.').next().unwrap_or_default()),
                Cell::new(text(entry, "by.name")).style(Style::Strong),
                Cell::new(text(entry, "action")),
                Cell::new(place.join("/")),
                Cell::new(text(entry, "name")),
                Cell::number(count(entry, "to")),
                Cell::new(fields(entry)),
            ]);
        }
        context.screen.write(&table.shown(&context.screen))
    }
}

/// The first of what became different, in short.
fn fields(entry: &Value) -> String {
    let fields = list(entry, "fields");
    let shown: Vec<String> = fields
        .iter()
        .take(3)
        .map(|field| format!("{}={}", text(field, "field"), field.get("to").unwrap_or(&Value::Null)))
        .collect();
    let more = if fields.len() > 3 { " …" } else { "" };
    format!("{}{more}", shown.join(" "))
}
