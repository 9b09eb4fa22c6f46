//! `towpath gateways`.

use super::cells::place;
use crate::api::view::{at, count, flag, short_id, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::of_state;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::Args;
use serde_json::Value;

/// Arguments of `gateways`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath gateways\n  towpath gateways -o json")]
pub(crate) struct GatewaysArgs {}

impl GatewaysArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let gateways = context.api.list("/v1/gateways").await?;
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(gateways));
        }
        if gateways.is_empty() {
            context.screen.note("No gateways");
            return Ok(());
        }
        context.screen.write(&table(&gateways, context.screen.format).shown(&context.screen))?;
        context.screen.write(&super::refused::on_screen(&gateways, &context.screen))
    }
}

/// A table of gateways.
pub(super) fn table(gateways: &[Value], format: Format) -> Table {
    let mut table =
        Table::new(&["GATEWAY", "PLACE", "STATE", "REVISION", "HEARD", "REFUSED", "LISTENS ON", "VERSION"])
            .optional(&["VERSION", "HEARD", "PLACE"]);
    for gateway in gateways {
        let state = if flag(gateway, "lost") { "lost" } else { "live" };
        let id = text(gateway, "id");
        let refused = at(gateway, "refused").and_then(Value::as_object).map_or(0, serde_json::Map::len);
        table.row([
            Cell::new(if format == Format::Wide { id.to_owned() } else { short_id(id) }),
            Cell::new(place(gateway)),
            Cell::new(state).style(of_state(state)),
            Cell::number(count(gateway, "revision")),
            Cell::number(format!("{} ago", time::span(count(gateway, "heard_ms")))),
            Cell::number(if refused == 0 { String::new() } else { refused.to_string() }),
            Cell::new(texts(gateway, "listeners").join(", ")),
            Cell::new(text(gateway, "version")),
        ]);
    }
    table
}
