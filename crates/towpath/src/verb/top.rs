//! `towpath top`: instances by load, refreshed on a terminal.

use super::{cells, instances};
use crate::api::view::{number, text};
use crate::cli::client::Context;
use crate::exit::Outcome;
use crate::screen::Format;
use crate::screen::style::Style;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;
use towpath_types::Millis;

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath top\n  towpath top --interval 5s\n  towpath top -o json        (once)"
)]
pub(crate) struct TopArgs {
    /// Pause between two looks
    #[arg(long, default_value = "2s", value_name = "TIME")]
    interval: Millis,
    /// Look once, as without a terminal
    #[arg(long)]
    once: bool,
}

impl TopArgs {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        if context.screen.json() {
            let (cells, instances) = look(context).await?;
            return context.screen.json_document(&json!({"cells": cells, "instances": instances}));
        }
        if self.once || !context.screen.terminal {
            return context.screen.write(&page(context, usize::MAX).await?);
        }
        let _alternate = Alternate::enter(context)?;
        let pause = self.interval.duration().max(Duration::from_millis(200));
        loop {
            let text = page(context, rows()).await?;
            context.screen.write(&format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")))?;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }
}

async fn look(context: &Context) -> Outcome<(Vec<Value>, Vec<Value>)> {
    Ok((context.api.list("/v1/cells").await?, context.api.list("/v1/instances").await?))
}

async fn page(context: &Context, rows: usize) -> Outcome<String> {
    let (cells, mut instances) = look(context).await?;
    let busy = |instance: &Value| number(instance, "cpu");
    instances.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    let paint = context.screen.paint();
    let ready = instances.iter().filter(|instance| text(instance, "state") == "ready").count();
    let mut text = format!(
        "{}  {} {}, {ready}/{} instances ready{}\n\n",
        paint.text(Style::Strong, "Towpath"),
        cells.len(),
        if cells.len() == 1 { "cell" } else { "cells" },
        instances.len(),
        if context.screen.terminal { paint.text(Style::Dim, " · Ctrl-C leaves") } else { String::new() }
    );
    text += &cells::table(&cells, Format::Table).shown(&context.screen);
    text.push('\n');
    text += &instances::table_as_given(&instances, Format::Table).shown(&context.screen);
    if rows < text.lines().count() {
        let kept: Vec<&str> = text.lines().take(rows.saturating_sub(1)).collect();
        text = kept.join("\n");
    }
    Ok(text)
}

/// Lines of the terminal.
fn rows() -> usize {
    let (rows, _) = console::Term::stdout().size();
    usize::from(rows).max(10)
}

/// The terminal's other screen; left again whatever happens.
struct Alternate;

impl Alternate {
    fn enter(context: &Context) -> Outcome<Self> {
        context.screen.write("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[H")?;
        Ok(Self)
    }
}

impl Drop for Alternate {
    fn drop(&mut self) {
        let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), b"\x1b[?7h\x1b[?25h\x1b[?1049l");
        let _ = std::io::Write::flush(&mut std::io::stdout().lock());
    }
}
