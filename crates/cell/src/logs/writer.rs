//! Appending to the segments.

use super::{letter, segment_path, segments};
use crate::settings::LogSettings;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use towpath_wire::log::LogSource;

/// Bytes that are gathered before a write.
const GATHER: usize = 32 << 10;

/// Appends lines; begins new segments and removes old ones. A full disk loses lines, never the app.
pub(crate) struct LogWriter {
    dir: PathBuf,
    bounds: LogSettings,
    number: u64,
    /// `None` after a failure to open; tried again with the next segment.
    file: Option<File>,
    size: u64,
    /// Number of the next line.
    next: u64,
    gathered: Vec<u8>,
}

impl LogWriter {
    /// Goes on where the last writer stopped.
    pub(crate) fn open(dir: &Path, bounds: LogSettings) -> io::Result<Self> {
        let number = segments(dir).last().copied().unwrap_or(0);
        let mut content = Vec::new();
        match File::open(segment_path(dir, number)) {
            Ok(file) => {
                file.take(bounds.segment_bytes.saturating_mul(2)).read_to_end(&mut content)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let (first, lines) = count(&content);
        let mut writer = Self {
            dir: dir.to_owned(),
            bounds,
            number,
            file: None,
            size: content.len() as u64,
            next: first + lines,
            gathered: Vec::new(),
        };
        let file = File::options().create(true).append(true).open(segment_path(dir, number))?;
        writer.file = Some(file);
        match content.last() {
            None => writer.begin_header(),
            // A writer was killed inside a line.
            Some(last) if *last != b'\n' => writer.gathered.push(b'\n'),
            Some(_) => {}
        }
        Ok(writer)
    }

    /// Adds a line; an end of line at its end is cut off.
    pub(crate) fn write(&mut self, at_ms: u64, source: LogSource, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let _ = write!(self.gathered, "{at_ms} {} ", char::from(letter(source)));
        self.gathered.extend_from_slice(text);
        self.gathered.push(b'\n');
        self.next += 1;
        if self.size + self.gathered.len() as u64 >= self.bounds.segment_bytes {
            self.flush();
            self.begin_segment();
        } else if self.gathered.len() >= GATHER {
            self.flush();
        }
    }

    /// Hands everything to the kernel.
    pub(crate) fn flush(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        if let Some(file) = &mut self.file {
            let _ = file.write_all(&self.gathered);
        }
        self.size += self.gathered.len() as u64;
        self.gathered.clear();
        self.gathered.shrink_to(GATHER * 2);
    }

    fn begin_header(&mut self) {
        let _ = writeln!(self.gathered, "#{}", self.next);
    }

    fn begin_segment(&mut self) {
        self.number += 1;
        self.size = 0;
        let path = segment_path(&self.dir, self.number);
        self.file = File::options().create(true).append(true).open(path).ok();
        self.begin_header();
        let oldest_kept = (self.number + 1).saturating_sub(u64::from(self.bounds.segments));
        for old in segments(&self.dir).into_iter().filter(|number| *number < oldest_kept) {
            let _ = std::fs::remove_file(segment_path(&self.dir, old));
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The number of a segment's first line, and how many whole or broken lines follow.
pub(super) fn count(content: &[u8]) -> (u64, u64) {
    let mut lines = content.split_inclusive(|b| *b == b'\n');
    let header =
        lines.next().and_then(|line| std::str::from_utf8(line.strip_prefix(b"#")?).ok()?.trim().parse().ok());
    match header {
        Some(first) => (first, lines.count() as u64),
        None => (1, content.split_inclusive(|b| *b == b'\n').count() as u64),
    }
}
