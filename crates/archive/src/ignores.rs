//! Which files are left out of a source.
//!
//! In order, the first that has an opinion decides: `.towpathignore` (deepest directory first; `!` brings back what the
//! others leave out), `.gitignore` (likewise), then what builds make again: `node_modules` beside a `package.json`,
//! a virtual environment (a directory with `pyvenv.cfg`), `__pycache__`, `target` beside a `Cargo.toml` or `pom.xml`,
//! `.gradle`, `.DS_Store`, and Towpath's own `.towpath`. `.git`, `.hg` and `.svn` are always left out.
//! Ignore files above the packed directory do not count: the same directory is the same source wherever it lies.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::path::Path;

/// The ignore files of one directory.
pub(crate) struct DirRules {
    own: Gitignore,
    git: Gitignore,
}

impl DirRules {
    /// Reads the ignore files in `dir`; what is wrong with them comes back as texts.
    pub(crate) fn load(dir: &Path) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let mut read = |name: &str| {
            let file = dir.join(name);
            if !file.is_file() {
                return Gitignore::empty();
            }
            let mut builder = GitignoreBuilder::new(dir);
            if let Some(error) = builder.add(&file) {
                faults.push(error.to_string());
            }
            builder.build().unwrap_or_else(|error| {
                faults.push(error.to_string());
                Gitignore::empty()
            })
        };
        let rules = Self { own: read(".towpathignore"), git: read(".gitignore") };
        (rules, faults)
    }
}

/// Whether `path` (absolute, named `name`, in a directory whose rules are last in `stack`) is left out.
pub(crate) fn is_ignored(stack: &[DirRules], path: &Path, name: &OsStr, is_dir: bool) -> bool {
    if is_dir && [".git", ".hg", ".svn"].iter().any(|n| name == *n) {
        return true;
    }
    // A worktree or a submodule has a file here.
    if name == ".git" {
        return true;
    }
    let decided = |pick: fn(&DirRules) -> &Gitignore| {
        stack.iter().rev().map(pick).find_map(|rules| match rules.matched(path, is_dir) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        })
    };
    decided(|rules| &rules.own)
        .or_else(|| decided(|rules| &rules.git))
        .unwrap_or_else(|| is_made_again(path, name, is_dir))
}

fn is_made_again(path: &Path, name: &OsStr, is_dir: bool) -> bool {
    if !is_dir {
        return name == ".DS_Store";
    }
    let beside = |file: &str| path.parent().is_some_and(|dir| dir.join(file).is_file());
    match name.to_str() {
        Some("node_modules") => beside("package.json"),
        Some("target") => beside("Cargo.toml") || beside("pom.xml"),
        Some("__pycache__" | ".gradle" | ".towpath") => true,
        _ => path.join("pyvenv.cfg").is_file(),
    }
}
