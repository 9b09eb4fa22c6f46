//! Tables, aligned by display width (a wide character counts two columns).

use super::Screen;
use super::style::{Paint, Style};
use unicode_width::UnicodeWidthStr;

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    /// Text aligned to the left.
    pub(crate) fn new(text: impl ToString) -> Self {
        Self { text: printable(&text.to_string()), style: Style::Plain, right: false }
    }

    /// A number, aligned to the right.
    pub(crate) fn number(text: impl ToString) -> Self {
        Self { right: true, ..Self::new(text) }
    }

    /// In a style.
    pub(crate) fn style(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// Names and reasons come from afar: control characters never reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    let harmful = |c: char| c.is_control() || super::plain::turns_direction(c);
    if text.chars().any(harmful) {
        text.chars().map(|c| if harmful(c) { ' ' } else { c }).collect()
    } else {
        text.to_owned()
    }
}

/// Rows under a head.
#[derive(Debug, Default)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
    optional: &'static [&'static str],
}

impl Table {
    /// An empty table.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), indent: 0, optional: &[] }
    }

    /// Columns that may be left out on a narrow terminal, the first of them first.
    pub(crate) fn optional(self, optional: &'static [&'static str]) -> Self {
        Self { optional, ..self }
    }

    /// Moves the whole table to the right.
    pub(crate) fn indent(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text for a screen: on a narrow terminal without its optional columns.
    pub(crate) fn shown(&self, screen: &Screen) -> String {
        self.within(screen.columns()).render(screen.paint())
    }

    /// Without columns that say nothing, and, as far as it is needed to fit, without optional ones.
    fn within(&self, columns: Option<usize>) -> Table {
        let empty =
            |at: usize| self.rows.iter().all(|row| row.get(at).is_none_or(|cell| cell.text.is_empty()));
        let all: Vec<usize> = (0..self.head.len()).collect();
        let mut kept: Vec<usize> = all.into_iter().filter(|at| self.rows.is_empty() || !empty(*at)).collect();
        let widths = self.widths();
        let width = |kept: &[usize]| -> usize {
            let text: usize = kept.iter().filter_map(|at| widths.get(*at)).sum();
            self.indent + text + 2 * kept.len().saturating_sub(1)
        };
        for name in self.optional {
            if columns.is_none_or(|columns| width(&kept) <= columns) {
                break;
            }
            kept.retain(|at| self.head.get(*at) != Some(name));
        }
        let pick = |row: &Vec<Cell>| kept.iter().filter_map(|at| row.get(*at).cloned()).collect();
        Table {
            head: kept.iter().filter_map(|at| self.head.get(*at).copied()).collect(),
            rows: self.rows.iter().map(pick).collect(),
            indent: self.indent,
            optional: &[],
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|text| text.width()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        widths
    }

    /// The whole table as text, each line ended.
    pub(crate) fn render(&self, paint: Paint) -> String {
        let widths = self.widths();
        let right: Vec<bool> = (0..widths.len())
            .map(|at| self.rows.iter().any(|row| row.get(at).is_some_and(|c| c.right)))
            .collect();
        let head: Vec<Cell> = self
            .head
            .iter()
            .zip(&right)
            .map(|(text, right)| Cell { text: (*text).to_owned(), style: Style::Dim, right: *right })
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            text += &" ".repeat(self.indent);
            text += &render_row(row, &widths, paint);
            text.push('\n');
        }
        text
    }
}

fn render_row(row: &[Cell], widths: &[usize], paint: Paint) -> String {
    let mut line = String::new();
    let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        if at > last {
            break;
        }
        let space = " ".repeat(width.saturating_sub(cell.text.width()));
        let text = paint.text(cell.style, &cell.text);
        if cell.right {
            line += &space;
            line += &text;
        } else {
            line += &text;
            if at < last {
                line += &space;
            }
        }
        if at < last {
            line += "  ";
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_fewer_columns_and_empty_ones_are_never_shown() {
        let mut table = Table::new(&["NAME", "WHY", "VERSION", "ADDRESS"]).optional(&["VERSION", "ADDRESS"]);
        table.row([Cell::new("shop"), Cell::new(""), Cell::new("0.1.0"), Cell::new("127.0.0.1:20001")]);
        let heads = |columns| table.within(columns).head.join(" ");
        assert_eq!(heads(None), "NAME VERSION ADDRESS");
        assert_eq!(heads(Some(30)), "NAME VERSION ADDRESS");
        assert_eq!(heads(Some(29)), "NAME ADDRESS");
        assert_eq!(heads(Some(20)), "NAME");
        assert_eq!(heads(Some(1)), "NAME", "the rest stays, whatever the width");
    }

    #[test]
    fn columns_line_up_by_display_width() {
        let mut table = Table::new(&["NAME", "N", "STATE"]);
        table.row([Cell::new("店"), Cell::number(7), Cell::new("ok")]);
        table.row([Cell::new("catalogue"), Cell::number(12), Cell::new("")]);
        table.row([Cell::new("a\x1b[2J"), Cell::number(1), Cell::new("x").style(Style::Bad)]);
        assert_eq!(
            table.render(Paint::Off),
            "NAME        N  STATE\n店          7  ok\ncatalogue  12\na [2J       1  x\n"
        );
        assert!(table.render(Paint::On).contains("\x1b[1;31mx\x1b[0m"));
    }
}
