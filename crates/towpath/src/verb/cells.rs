//! `towpath cells`.

use crate::api::view::{count, flag, number, short_id, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::of_state;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::Args;
use serde_json::Value;

/// Arguments of `cells`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  towpath cells\n  towpath cells -o wide")]
pub(crate) struct CellsArgs {}

impl CellsArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let cells = context.api.list("/v1/cells").await?;
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(cells));
        }
        if cells.is_empty() {
            context.screen.note("No cells");
            return Ok(());
        }
        context.screen.write(&table(&cells, context.screen.format).shown(&context.screen))
    }
}

/// `region/zone/node`, as far as said.
pub(super) fn place(value: &Value) -> String {
    let parts = ["place.region", "place.zone", "place.node"].map(|part| text(value, part));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// A table of cells.
pub(super) fn table(cells: &[Value], format: Format) -> Table {
    let wide = format == Format::Wide;
    let mut head =
        vec!["CELL", "PLACE", "STATE", "INSTANCES", "CPU", "MEM", "I/O", "MEMORY", "CORES", "VERSION"];
    if wide {
        head.extend(["ADDRESS", "DRIVER", "BUILDERS"]);
    }
    let mut table = Table::new(&head).optional(&["VERSION", "CORES", "I/O", "MEMORY", "PLACE"]);
    for cell in cells {
        let state = match (flag(cell, "lost"), flag(cell, "cordoned")) {
            (true, _) => "lost",
            (false, true) => "cordoned",
            (false, false) => "live",
        };
        let id = text(cell, "id");
        let mut row = vec![
            Cell::new(if wide { id.to_owned() } else { short_id(id) }),
            Cell::new(place(cell)),
            Cell::new(state).style(of_state(state)),
            Cell::number(format!("{}/{}", count(cell, "ready"), count(cell, "instances"))),
            Cell::number(time::percent(number(cell, "cpu"))),
            Cell::number(time::percent(number(cell, "mem"))),
            Cell::number(time::percent(number(cell, "io"))),
            Cell::number(time::bytes(count(cell, "memory_bytes"))),
            Cell::number(count(cell, "cores")),
            Cell::new(text(cell, "version")),
        ];
        if wide {
            row.extend([
                Cell::new(text(cell, "address")),
                Cell::new(text(cell, "driver")),
                Cell::new(texts(cell, "builders").join(",")),
            ]);
        }
        table.row(row);
    }
    table
}
