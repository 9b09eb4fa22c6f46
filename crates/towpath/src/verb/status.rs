//! `towpath status`.

use super::{cells, gateways, refused};
use crate::api::view::{count, flag, list, short_id, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::{Style, of_state};
use crate::screen::table::{Cell, Table};
use crate::screen::time;
use clap::Args;
use serde_json::Value;

/// Arguments of `status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath status\n  towpath status -o json | jq .revision")]
pub(crate) struct StatusArgs {}

impl StatusArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let status = context.api.get("/v1/status").await?;
        if context.screen.json() {
            return context.screen.json_document(&status);
        }
        context.screen.write(&overview(context, &status))?;
        for table in [
            managers(list(&status, "managers")),
            gateways::table(list(&status, "gateways"), context.screen.format),
            cells::table(list(&status, "cells"), context.screen.format),
        ] {
            if !table.is_empty() {
                context.screen.write(&format!("\n{}", table.shown(&context.screen)))?;
            }
        }
        cells::tell_troubles(context, list(&status, "cells"))?;
        context.screen.write(&refused::on_screen(list(&status, "gateways"), &context.screen))
    }
}

fn overview(context: &Context, status: &Value) -> String {
    let paint = context.screen.paint();
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        out += &format!("{}{value}\n", paint.text(Style::Dim, &format!("{name:<11}")))
    };
    line("Towpath", format!("{}, API {}", text(status, "version"), context.api.address()));
    let (ready, instances) = (count(status, "ready"), count(status, "instances"));
    let style = if ready == instances { Style::Good } else { Style::Warn };
    line(
        "Apps",
        format!(
            "{} with {}",
            count(status, "apps"),
            paint.text(style, &format!("{ready}/{instances} instances ready"))
        ),
    );
    line("Gateway", paint.text(Style::Name, text(status, "gateway_url")));
    let store = if flag(status, "store.ok") {
        paint.text(Style::Good, "ok")
    } else {
        paint.text(Style::Bad, &format!("not available: {}", text(status, "store.why")))
    };
    line("Store", format!("{store}, revision {}", count(status, "revision")));
    let bus = text(status, "bus");
    line("Bus", paint.text(of_state(bus), bus));
    out
}

fn managers(rows: &[Value]) -> Table {
    let mut table = Table::new(&["MANAGER", "ADDRESS", "STATE", "UP", "HEARD", "VERSION"])
        .optional(&["VERSION", "HEARD"]);
    for row in rows {
        let state = if flag(row, "evicted") { "lost" } else { "live" };
        let this = if flag(row, "this") { " (this one)" } else { "" };
        table.row([
            Cell::new(format!("{}{this}", short_id(text(row, "id")))),
            Cell::new(text(row, "address")),
            Cell::new(state).style(of_state(state)),
            Cell::number(time::ago(count(row, "started_ms"))),
            Cell::number(format!("{} ago", time::span(count(row, "silent_ms")))),
            Cell::new(text(row, "version")),
        ]);
    }
    table
}
