//! `towpath cells`.

mod change;

use crate::api::view::{count, number, short_id, text, texts};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::style::of_state;
use crate::screen::table::{Cell, Table};
use crate::screen::{Format, time};
use clap::{Args, Subcommand};
use serde_json::Value;

/// Arguments of `cells`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath cells\n  towpath cells -o wide\n  towpath cells drain node-7\n  towpath cells uncordon node-7"
)]
pub(crate) struct CellsArgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Give a cell no new instances; those that it has stay
    Cordon(change::Target),
    /// Give a cell new instances again
    Uncordon(change::Target),
    /// Empty a cell: its instances are started elsewhere first, then they go
    Drain(change::Drain),
}

impl CellsArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        match self.what {
            None => {}
            Some(What::Cordon(target)) => return target.run(context, "cordoned").await,
            Some(What::Uncordon(target)) => return target.run(context, "open").await,
            Some(What::Drain(drain)) => return drain.run(context).await,
        }
        let cells = context.api.list("/v1/cells").await?;
        if context.screen.json() {
            return context.screen.json_document(&Value::Array(cells));
        }
        if cells.is_empty() {
            context.screen.note("No cells");
            return Ok(());
        }
        context.screen.write(&table(&cells, context.screen.format).shown(&context.screen))?;
        tell_troubles(context, &cells)
    }
}

/// `region/zone/node`, as far as said.
pub(super) fn place(value: &Value) -> String {
    let parts = ["place.region", "place.zone", "place.node"].map(|part| text(value, part));
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// What cells say is wrong with themselves.
pub(super) fn tell_troubles(context: &Context, cells: &[Value]) -> Outcome {
    for cell in cells {
        for trouble in texts(cell, "troubles") {
            context.screen.write(&format!("\ncell {}: {trouble}\n", short_id(text(cell, "id"))))?;
        }
    }
    Ok(())
}

/// A table of cells.
pub(super) fn table(cells: &[Value], format: Format) -> Table {
    let wide = format == Format::Wide;
    let mut head = vec![
        "CELL",
        "PLACE",
        "STATE",
        "INSTANCES",
        "CPU",
        "MEM",
        "I/O",
        "MEMORY",
        "PROMISED",
        "CORES",
        "DRIVER",
        "VERSION",
    ];
    if wide {
        head.extend(["ADDRESS", "BUILDERS", "NOTE"]);
    }
    let mut table = Table::new(&head).optional(&["VERSION", "CORES", "I/O", "MEMORY", "PLACE"]);
    for cell in cells {
        let state = text(cell, "state");
        let id = text(cell, "id");
        let mut row = vec![
            Cell::new(if wide { id.to_owned() } else { short_id(id) }),
            Cell::new(place(cell)),
            Cell::new(state).style(of_state(state)),
            Cell::number(format!("{}/{}", count(cell, "ready"), count(cell, "instances"))),
            Cell::number(time::percent(number(cell, "cpu"))),
            Cell::number(time::percent(number(cell, "mem"))),
            Cell::number(time::percent(number(cell, "io"))),
            Cell::number(format!(
                "{}/{}",
                time::bytes(count(cell, "memory_used_bytes")),
                time::bytes(count(cell, "memory_bytes"))
            )),
            Cell::number(time::bytes(count(cell, "memory_promised_bytes"))),
            Cell::number(count(cell, "cores")),
            Cell::new(text(cell, "driver")),
            Cell::new(text(cell, "version")),
        ];
        if wide {
            row.extend([
                Cell::new(text(cell, "address")),
                Cell::new(texts(cell, "builders").join(",")),
                Cell::new(text(cell, "note")),
            ]);
        }
        table.row(row);
    }
    table
}
