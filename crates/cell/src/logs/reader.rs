//! Reading the segments, from the end or on from a position.

use super::writer::count;
use super::{parse_line, segment_path, segments};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use towpath_wire::log::LogLine;

/// Bytes read in one go when following.
const TURN: u64 = 512 << 10;

/// Where reading goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    segment: u64,
    offset: u64,
    /// Number of the next line.
    pub(crate) next: u64,
}

/// The last `lines` lines of at most `bytes` bytes of text, oldest first, and the position after them.
pub(crate) fn tail(dir: &Path, lines: usize, bytes: usize) -> (Vec<LogLine>, Position) {
    let mut newest_first = Vec::new();
    let mut used = 0;
    let mut position = None;
    for segment in segments(dir).into_iter().rev() {
        let Ok(content) = std::fs::read(segment_path(dir, segment)) else { continue };
        let whole = content.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let content = content.get(..whole).unwrap_or_default();
        position.get_or_insert_with(|| {
            let (first, count) = count(content);
            Position { segment, offset: content.len() as u64, next: first + count }
        });
        for line in content.split(|b| *b == b'\n').rev().filter_map(parse_line) {
            used += line.text.len() + 64;
            if newest_first.len() >= lines || used > bytes {
                newest_first.reverse();
                return (newest_first, position.unwrap_or_default());
            }
            newest_first.push(line);
        }
    }
    newest_first.reverse();
    (newest_first, position.unwrap_or(Position { next: 1, ..Position::default() }))
}

/// Lines after the position (a bounded number), the number of the first of them, and the position after them.
pub(crate) fn read_from(dir: &Path, from: Position) -> (Vec<LogLine>, u64, Position) {
    let there = segments(dir);
    let mut at = from;
    if !there.contains(&at.segment)
        && let Some(next) = there.iter().copied().find(|number| *number > from.segment)
    {
        // It was removed before it was read: the gap shows in the numbers.
        at = Position { segment: next, offset: 0, next: at.next };
    }
    let (lines, first, after) = read_segment(dir, at);
    if lines.is_empty()
        && let Some(next) = there.into_iter().find(|number| *number > at.segment)
        // The writer may have added to the segment between the read above and the look at what comes after it.
        && read_segment(dir, after).0.is_empty()
    {
        return read_segment(dir, Position { segment: next, offset: 0, next: after.next });
    }
    (lines, first, after)
}

fn read_segment(dir: &Path, from: Position) -> (Vec<LogLine>, u64, Position) {
    let nothing = (Vec::new(), from.next, from);
    let Ok(mut file) = File::open(segment_path(dir, from.segment)) else { return nothing };
    let mut content = Vec::new();
    if file.seek(SeekFrom::Start(from.offset)).is_err() || file.take(TURN).read_to_end(&mut content).is_err()
    {
        return nothing;
    }
    let whole = content.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let content = content.get(..whole).unwrap_or_default();
    if content.is_empty() {
        return nothing;
    }
    let (first, counted) = if from.offset == 0 {
        count(content)
    } else {
        (from.next, content.iter().filter(|b| **b == b'\n').count() as u64)
    };
    let lines = content.split(|b| *b == b'\n').filter_map(parse_line).collect();
    let after =
        Position { segment: from.segment, offset: from.offset + content.len() as u64, next: first + counted };
    (lines, first, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::LogWriter;
    use crate::settings::LogSettings;
    use towpath_wire::log::LogSource;

    fn bounds() -> LogSettings {
        LogSettings { segment_bytes: 4096, segments: 3, ..LogSettings::default() }
    }

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_tail_crosses_segments_and_old_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::open(dir.path(), bounds()).unwrap();
        for n in 0..1000 {
            writer.write(n, LogSource::Stdout, format!("line {n}\n").as_bytes());
        }
        drop(writer);
        assert_eq!(segments(dir.path()).len(), 3);
        let (lines, position) = tail(dir.path(), 300, 1 << 20);
        assert_eq!(lines.len(), 300);
        assert_eq!(lines[0].text, "line 700");
        assert_eq!(position.next, 1001);
        let (few, _) = tail(dir.path(), 300, 200);
        assert!(few.len() < 4 && few.last().unwrap().text == "line 999");
        assert_eq!(tail(&dir.path().join("none"), 5, 100).0, []);
    }

    #[test]
    fn following_sees_every_line_once_across_segments_and_writers() {
        let dir = tempfile::tempdir().unwrap();
        let (_, mut at) = tail(dir.path(), 0, 0);
        let mut seen = Vec::new();
        for round in 0..20 {
            // A new writer each time, as after a restart.
            let mut writer = LogWriter::open(dir.path(), bounds()).unwrap();
            for n in 0..10 {
                writer.write(1, LogSource::Stderr, format!("{round}-{n} {}", "x".repeat(60)).as_bytes());
            }
            drop(writer);
            loop {
                let (lines, first, after) = read_from(dir.path(), at);
                if lines.is_empty() {
                    break;
                }
                assert_eq!(first, seen.len() as u64 + 1);
                seen.extend(lines);
                at = after;
            }
        }
        assert_eq!(seen.len(), 200);
        assert!(seen[199].text.starts_with("19-9 "));
    }

    #[test]
    fn a_reader_left_behind_sees_the_gap_in_the_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::open(dir.path(), bounds()).unwrap();
        writer.write(1, LogSource::Stdout, b"first");
        writer.flush();
        let (lines, at) = tail(dir.path(), 10, 1000);
        assert_eq!(texts(&lines), ["first"]);
        for n in 0..5000 {
            writer.write(1, LogSource::Stdout, format!("{n}").as_bytes());
        }
        writer.flush();
        let (lines, first, _) = read_from(dir.path(), at);
        assert!(first > 100, "{first}");
        assert_eq!(lines[0].text, format!("{}", first - 2));
    }

    #[test]
    fn half_lines_wait_and_binary_is_made_readable() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("00000000.log"), b"#1\n5 o a\xffb\r\n6 e ha").unwrap();
        let (lines, at) = tail(dir.path(), 10, 1000);
        assert_eq!(texts(&lines), ["a\u{fffd}b\r"]);
        assert!(read_from(dir.path(), at).0.is_empty());
        // A new writer ends the half line first.
        let mut writer = LogWriter::open(dir.path(), bounds()).unwrap();
        writer.write(7, LogSource::Cell, b"next");
        writer.flush();
        let (lines, first, _) = read_from(dir.path(), at);
        assert_eq!((texts(&lines), first), (vec!["ha", "next"], 2));
    }
}
