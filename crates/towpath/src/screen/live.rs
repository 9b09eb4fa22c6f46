//! The changing last line of a long piece of work, on stderr: a spinner or a bar on a terminal, plain lines elsewhere,
//! nothing when results are JSON.

use super::Screen;
use super::style::{Paint, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::time::Duration;

/// The line.
#[derive(Debug)]
pub(crate) struct Live {
    bar: Option<ProgressBar>,
    silent: bool,
    paint: Paint,
    last: String,
}

impl Live {
    /// A line that says nothing yet.
    pub(crate) fn new(screen: &Screen) -> Self {
        let silent = screen.json();
        let bar = (screen.err_terminal && !silent).then(new_bar);
        Self { bar, silent, paint: screen.err, last: String::new() }
    }

    /// A finished line, above the changing one.
    pub(crate) fn say(&self, style: Style, text: &str) {
        if self.silent {
            return;
        }
        let text = self.paint.text(style, text);
        match &self.bar {
            Some(bar) => bar.println(text),
            None => {
                let _ = writeln!(std::io::stderr().lock(), "{text}");
            }
        }
    }

    /// What is going on now. Without a terminal it is written when it changes.
    pub(crate) fn now(&mut self, text: &str) {
        if self.silent || text == self.last {
            return;
        }
        text.clone_into(&mut self.last);
        match &self.bar {
            Some(bar) => {
                bar.set_style(spinner());
                bar.set_message(text.to_owned());
                bar.enable_steady_tick(Duration::from_millis(100));
            }
            None => self.say(Style::Plain, text),
        }
    }

    /// What is going on now, too small to be told anywhere but on a terminal.
    pub(crate) fn busy(&mut self, text: &str) {
        if self.bar.is_some() {
            self.now(text);
        }
    }

    /// A bar of so many bytes. Without a terminal it is one line.
    pub(crate) fn bytes(&mut self, text: &str, total: u64) {
        match &self.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(0);
                if let Ok(style) =
                    ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}")
                {
                    bar.set_style(style.progress_chars("━━─"));
                }
                bar.set_message(text.to_owned());
            }
            None => self.now(text),
        }
    }

    /// How far the bar is; a handle that other threads can use.
    pub(crate) fn position(&self) -> impl Fn(u64) + Send + 'static {
        let bar = self.bar.clone();
        move |bytes| {
            if let Some(bar) = &bar {
                bar.set_position(bytes);
            }
        }
    }

    /// Takes the changing line away.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.disable_steady_tick();
            bar.finish_and_clear();
            // Not `reset()`: it draws the spinner again, alone, and nothing would take it away at the end.
            *bar = new_bar();
        }
        self.last.clear();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(15));
    bar.set_style(spinner());
    bar
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ")
}
