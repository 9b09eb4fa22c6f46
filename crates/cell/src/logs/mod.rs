//! Logs of instances on disk: numbered segments of text lines, the oldest removed.
//!
//! A segment is `<number>.log`. Its first line is `#<seq>`: the number of its first log line. A log line is
//! `<unix ms> <o|e|c> <text>`. At any time one process writes: the shim while it lives, else the cell.

mod bucket;
mod ended;
mod follow;
mod reader;
mod writer;

pub(crate) use bucket::Bucket;
pub(crate) use ended::EndedLogs;
pub(crate) use follow::Followers;
pub(crate) use reader::{Position, read_from, tail};
pub(crate) use writer::LogWriter;

use std::path::{Path, PathBuf};
use towpath_wire::log::{LogLine, LogSource};

/// Longest line in bytes; longer ones are cut into several.
pub(crate) const MAX_LINE: usize = 16 << 10;

fn letter(source: LogSource) -> u8 {
    match source {
        LogSource::Stdout => b'o',
        LogSource::Stderr => b'e',
        LogSource::Cell => b'c',
    }
}

/// The line; `None` for a segment's head. One that no writer of ours would write is kept as it is, so that numbers stay right.
fn parse_line(line: &[u8]) -> Option<LogLine> {
    if line.first().is_none_or(|b| *b == b'#') {
        return None;
    }
    Some(parse_fields(line).unwrap_or_else(|| LogLine {
        at_ms: 0,
        source: LogSource::Cell,
        text: String::from_utf8_lossy(line).into_owned(),
    }))
}

fn parse_fields(line: &[u8]) -> Option<LogLine> {
    let mut fields = line.splitn(3, |b| *b == b' ');
    let at_ms = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let source = match fields.next()? {
        b"o" => LogSource::Stdout,
        b"e" => LogSource::Stderr,
        b"c" => LogSource::Cell,
        _ => return None,
    };
    let text = String::from_utf8_lossy(fields.next()?).into_owned();
    Some(LogLine { at_ms, source, text })
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

/// Numbers of the segments that are there, lowest first.
fn segments(dir: &Path) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok();
    let mut found: Vec<u64> = entries.flatten().filter_map(number).collect();
    found.sort_unstable();
    found
}
