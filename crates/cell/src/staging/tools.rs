//! The programs that builds call: whether they are here, and how to get them.

use super::Refusal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use towpath_types::ErrorCode;

/// Debian's package for each tool.
const PACKAGES: &[(&str, &str)] = &[
    ("python3", "python3"),
    ("pip3", "python3-pip"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("yarn", "yarnpkg"),
    ("java", "default-jre-headless"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("php", "php-cli"),
    ("composer", "composer"),
    ("go", "golang-go"),
    ("cargo", "cargo"),
];

/// Finds tools on a path, as the user who would run them.
#[derive(Debug, Clone)]
pub(crate) struct ToolBox {
    path: String,
    /// Tools run as another user than the cell, so everybody must be able to run them.
    for_others: bool,
    /// The cell's own path, to say where a tool is that builds do not see.
    own_path: String,
}

enum Found {
    Usable(PathBuf),
    Closed(PathBuf),
    No,
}

impl ToolBox {
    pub(crate) fn new(path: &str, for_others: bool) -> Self {
        let own_path = std::env::var("PATH").unwrap_or_default();
        Self { path: path.to_owned(), for_others, own_path }
    }

    /// Where the tool is, if it can be run.
    pub(crate) fn find(&self, tool: &str) -> Option<PathBuf> {
        match self.look(tool) {
            Found::Usable(path) => Some(path),
            _ => None,
        }
    }

    /// Where the tool is; an error that says how to get it if it is nowhere.
    pub(crate) fn need(&self, tool: &str) -> Result<PathBuf, Refusal> {
        match self.look(tool) {
            Found::Usable(path) => Ok(path),
            Found::Closed(path) => Err(Refusal {
                code: ErrorCode::ToolMissing,
                message: format!(
                    "{tool} is at {}, where only its owner may run it, and builds run as another user; \
                     install it for all users: {}",
                    path.display(),
                    install(tool)
                ),
            }),
            Found::No => Err(Refusal { code: ErrorCode::ToolMissing, message: self.nowhere(tool) }),
        }
    }

    fn nowhere(&self, tool: &str) -> String {
        let mut elsewhere = self.own_path.split(':').map(|dir| Path::new(dir).join(tool));
        match elsewhere.find(|path| path.is_absolute() && is_executable(path)) {
            Some(path) => format!(
                "{tool} is at {}, where builds do not look (their path is {}); install it for all users: {}",
                path.display(),
                self.path,
                install(tool)
            ),
            None => format!("{tool} is not installed on the cell; on Debian or Ubuntu: {}", install(tool)),
        }
    }

    fn look(&self, tool: &str) -> Found {
        let mut closed = None;
        for dir in self.path.split(':').filter(|dir| dir.starts_with('/')) {
            let path = Path::new(dir).join(tool);
            if !is_executable(&path) {
                continue;
            }
            if !self.for_others || open_to_all(&path) {
                return Found::Usable(path);
            }
            closed.get_or_insert(path);
        }
        closed.map_or(Found::No, Found::Closed)
    }
}

/// The command that installs a tool.
pub(crate) fn install(tool: &str) -> String {
    let package = PACKAGES.iter().find(|(name, _)| *name == tool).map_or(tool, |(_, package)| package);
    format!("apt-get install {package}")
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Whether everybody may run it, by the real path and by the path with links.
fn open_to_all(path: &Path) -> bool {
    let passable = |path: &Path| {
        path.ancestors()
            .all(|part| fs::metadata(part).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0))
    };
    passable(path) && path.canonicalize().is_ok_and(|real| passable(&real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_in_a_closed_directory_is_not_for_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let tool = dir.path().join("cargo");
        fs::write(&tool, "").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("relative:{}", dir.path().display());
        assert_eq!(ToolBox::new(&path, false).find("cargo"), Some(tool));
        let error = ToolBox::new(&path, true).need("cargo").unwrap_err();
        assert!(error.message.contains("apt-get install cargo"), "{}", error.message);
        let elsewhere = ToolBox { own_path: path.clone(), ..ToolBox::new("/nowhere", true) };
        let error = elsewhere.need("cargo").unwrap_err();
        assert!(error.message.contains("where builds do not look"), "{}", error.message);
        let nowhere = ToolBox { own_path: String::new(), ..ToolBox::new(&path, true) };
        let error = nowhere.need("mvn").unwrap_err();
        assert_eq!(error.code, ErrorCode::ToolMissing);
        assert!(error.message.contains("apt-get install maven"), "{}", error.message);
    }
}
