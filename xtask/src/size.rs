//! Files stay small: over 500 lines without tests needs a reason in the file's head (`//! Long because …`).

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Non-test lines over which a reason is wanted.
const LIMIT: usize = 500;
/// Median of all files over which the check warns.
const MEDIAN: usize = 200;

/// Checks every Rust file below `crates/` and `xtask/`.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root.join(folder), &mut files)?;
    }
    let mut sizes = Vec::with_capacity(files.len());
    let mut wrong = 0;
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let lines = code_lines(&text);
        if lines > LIMIT && !has_reason(&text) {
            wrong += 1;
            let shown = path.strip_prefix(root).unwrap_or(&path).display();
            println!(
                "{shown}: {lines} lines without tests; split it, or say in its head `//! Long because …`"
            );
        }
        sizes.push(lines);
    }
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    println!(
        "size: {} files, median {median} lines, largest {}",
        sizes.len(),
        sizes.last().copied().unwrap_or(0)
    );
    if median > MEDIAN {
        println!("size: the median is over {MEDIAN}; think about smaller concepts");
    }
    if wrong > 0 {
        bail!("{wrong} files are too long");
    }
    Ok(())
}

/// Lines before the tests.
fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        matches!(pair, [first, second] if first.trim() == "#[cfg(test)]" && second.trim_start().starts_with("mod ") && second.contains('{'))
    });
    tests.unwrap_or(lines.len())
}

fn has_reason(text: &str) -> bool {
    text.lines().take(30).any(|line| line.starts_with("//! Long because"))
}

/// Rust sources that are not tests or targets of their own.
fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !matches!(name, "target" | "tests" | "benches" | "fixtures") {
            collect(&path, into)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            into.push(path);
        }
    }
    Ok(())
}
