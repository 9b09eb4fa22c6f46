//! Decisions have one number each, the same in the file's name and in its title.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Checks `docs/adr`.
pub(crate) fn check(root: &Path) -> Result<()> {
    let folder = root.join("docs/adr");
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        files.push((name, text.lines().next().unwrap_or_default().to_owned()));
    }
    files.sort();
    let wrong = find_wrong(&files);
    println!("adrs: {} decisions", files.len());
    for line in &wrong {
        println!("{line}");
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("{} decisions are not numbered as they should be", wrong.len())
    }
}

/// What is wrong with files, given as name and first line.
fn find_wrong(files: &[(String, String)]) -> Vec<String> {
    let mut by_number: BTreeMap<&str, &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, title) in files {
        let number = name.split('-').next().unwrap_or_default();
        if number.len() != 4 || !number.bytes().all(|b| b.is_ascii_digit()) {
            wrong.push(format!("{name}: it has no number of four digits"));
            continue;
        }
        if !title.strip_prefix("# ").is_some_and(|title| title.starts_with(number)) {
            wrong.push(format!("{name}: its title does not begin with {number}"));
        }
        if let Some(other) = by_number.insert(number, name) {
            wrong.push(format!("{name}: {other} has this number already; take a free one"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_of_one_decision() {
        let file = |name: &str, title: &str| (name.to_owned(), title.to_owned());
        let right = [file("0001-a.md", "# 0001: A"), file("0002-b.md", "# 0002: B")];
        assert_eq!(find_wrong(&right), [""; 0]);
        let wrong = [
            file("0001-a.md", "# 0001: A"),
            file("0001-b.md", "# 0001: B"),
            file("0002-c.md", "# 0003: C"),
            file("x.md", "# x"),
        ];
        let told = find_wrong(&wrong);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("0001-a.md has this number already"), "{told:?}");
    }
}
