//! Which of the machine's own configuration builds may use: proxies, certificates, where packages come from.

use super::tools::ToolBox;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A configuration file that each build gets a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildFile {
    /// Where it is on the cell.
    pub from: PathBuf,
    /// Where it goes, relative to the build's home.
    pub to: PathBuf,
}

/// What builds take over from the machine. They see nothing else of the cell's environment.
///
/// Whatever is named here can be read by every app that is built on this cell: a password inside an index URL or a token
/// in a configuration file is then shared with all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildEnvironment {
    /// Names of environment variables; a final `*` stands for any ending.
    pub pass: Vec<String>,
    /// Configuration files. Those that are not there are passed over.
    pub files: Vec<BuildFile>,
}

/// Passed by default: where packages come from, and how to get there.
const STANDARD: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_*",
    "UV_INDEX*",
    "NPM_CONFIG_*",
    "npm_config_*",
    "YARN_*",
    "COMPOSER_*",
    "JAVA_HOME",
    "MAVEN_OPTS",
    "MAVEN_ARGS",
    "GOPROXY",
    "GOSUMDB",
    "GONOSUMDB",
    "GONOSUMCHECK",
    "GOPRIVATE",
    "GOINSECURE",
    "GOTOOLCHAIN",
    "CARGO_HTTP_*",
    "CARGO_NET_*",
    "CARGO_REGISTRIES_*",
    "CARGO_REGISTRY_*",
    "CARGO_SOURCE_*",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "LANG",
    "LC_ALL",
    "TZ",
];

/// Copied by default when builds run as the cell's own user, who could read them anyway.
const OWN_FILES: &[&str] = &[
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".cargo/config.toml",
    ".config/go/env",
    ".config/composer/auth.json",
    ".config/composer/config.json",
    ".gradle/gradle.properties",
];

/// Would put files where no recipe looks for them.
const NEVER: &[&str] = &[
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_PYTHON",
    "PIP_LOG",
    "PIP_CACHE_DIR",
    "NPM_CONFIG_PREFIX",
    "npm_config_prefix",
    "NPM_CONFIG_CACHE",
    "npm_config_cache",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_userconfig",
    "COMPOSER_HOME",
];

impl Default for BuildEnvironment {
    fn default() -> Self {
        let own = !nix::unistd::geteuid().is_root();
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let files = home.filter(|_| own).map(|home| {
            OWN_FILES
                .iter()
                .map(|name| BuildFile { from: home.join(name), to: PathBuf::from(name) })
                .collect()
        });
        Self {
            pass: STANDARD.iter().map(|name| (*name).to_owned()).collect(),
            files: files.unwrap_or_default(),
        }
    }
}

impl BuildEnvironment {
    /// Nothing of the machine.
    pub fn none() -> Self {
        Self { pass: Vec::new(), files: Vec::new() }
    }

    /// The variables to pass, out of `all`.
    pub(crate) fn select(&self, all: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
        all.filter(|(name, _)| self.passes(name)).collect()
    }

    fn passes(&self, name: &str) -> bool {
        !NEVER.contains(&name)
            && self.pass.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == pattern,
            })
    }

    /// Copies the configuration files into a build's home.
    pub(crate) fn copy_files(&self, home: &Path) -> std::io::Result<()> {
        for file in &self.files {
            let relative = file.to.components().all(|part| matches!(part, std::path::Component::Normal(_)));
            if !relative || !file.from.is_file() {
                continue;
            }
            let to = home.join(&file.to);
            if let Some(dir) = to.parent() {
                std::fs::create_dir_all(dir)?;
            }
            std::fs::copy(&file.from, to)?;
        }
        Ok(())
    }
}

/// Where rustup keeps its toolchains, if cargo is rustup's: rustup looks in the home, which is another one in a build.
pub(crate) fn rustup_home(tools: &ToolBox) -> Option<PathBuf> {
    let cargo = tools.find("cargo")?;
    let home = cargo.parent()?.parent()?.parent()?.join(".rustup");
    home.is_dir().then_some(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_variables_pass() {
        let pairs = [
            ("PIP_CERT", "x"),
            ("PIP_TARGET", "x"),
            ("HTTPS_PROXY", "x"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("HOME", "x"),
            ("LD_PRELOAD", "x"),
            ("npm_config_cafile", "x"),
            ("TOWPATH_TOKEN", "x"),
        ];
        let all = || pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let passed: Vec<String> = BuildEnvironment::default().select(all()).into_keys().collect();
        assert_eq!(passed, ["HTTPS_PROXY", "PIP_CERT", "npm_config_cafile"]);
        assert!(BuildEnvironment::none().select(all()).is_empty());
    }

    #[test]
    fn files_stay_in_the_home() {
        let (from, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(from.path().join("rc"), "x").unwrap();
        let file = |to: &str| BuildFile { from: from.path().join("rc"), to: to.into() };
        let files = vec![file(".config/pip/pip.conf"), file("../out"), file("/etc/towpath-test")];
        BuildEnvironment { pass: Vec::new(), files }.copy_files(home.path()).unwrap();
        assert!(home.path().join(".config/pip/pip.conf").is_file());
        assert!(!home.path().join("../out").exists());
    }
}
