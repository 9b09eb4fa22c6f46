//! Node.js.

use super::static_site::{serve, site_root};
use crate::staging::Refusal;
use crate::staging::command::{ENV_FILE, is_plain};
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step, no_command};
use std::collections::BTreeMap;
use towpath_types::ErrorCode;

pub(super) struct Node;

static CARD: Card = Card { name: "node", looks_for: "package.json", tools: &["node", "npm"] };

const ENV: &str = "export PATH=\"$PWD/node_modules/.bin:$PATH\"\n";

/// What may start an app that does not say how.
const ENTRIES: &[&str] = &[
    "server.js",
    "app.js",
    "index.js",
    "main.js",
    "server.mjs",
    "index.mjs",
    "src/server.js",
    "src/index.js",
];

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Package {
    main: Option<String>,
    scripts: BTreeMap<String, String>,
    dependencies: BTreeMap<String, serde_json::Value>,
    dev_dependencies: BTreeMap<String, serde_json::Value>,
    optional_dependencies: BTreeMap<String, serde_json::Value>,
    workspaces: Option<serde_json::Value>,
}

impl Recipe for Node {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        bench.source.has_file("package.json").then(|| "package.json".to_owned())
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        bench.tools.need("node")?;
        let package = package(bench)?;
        // Before anything is installed, where nothing but the source can say it.
        const MAKERS: [&str; 6] = ["build", "prepare", "prepublish", "preinstall", "install", "postinstall"];
        if !MAKERS.iter().any(|script| package.scripts.contains_key(*script)) {
            self.launch(bench)?;
        }
        let mut steps = Vec::new();
        let builds = package.scripts.contains_key("build");
        let keeps_dev = starts_with_dev_tool(&package);
        if needs_install(&package) {
            steps.extend(install(bench, builds || keeps_dev)?);
        }
        if builds {
            steps.push(with_npm(bench, Step::tool("Running the build script", "npm", &["run", "build"])));
            if needs_install(&package)
                && !package.dev_dependencies.is_empty()
                && manager(bench) == Manager::Npm
            {
                let prune = ["prune", "--omit=dev", "--no-audit", "--no-fund"];
                steps.push(with_npm(bench, Step::tool("Removing what only the build needed", "npm", &prune)));
            }
        }
        steps.push(Step::write(ENV_FILE, ENV));
        Ok(steps)
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        let package = package(bench)?;
        if let Some(command) = bench.command {
            return Ok(production(Launch::new(command)));
        }
        if let Some(start) = package.scripts.get("start") {
            return Ok(production(Launch::new(start_command(start, &package))));
        }
        let main = package.main.as_deref().filter(|main| is_plain(main) && bench.source.has_file(main));
        let entry = ENTRIES.iter().copied().find(|entry| bench.source.has_file(entry));
        // A library's main is not a server; a built site is likelier then.
        if package.scripts.contains_key("build")
            && entry.is_none()
            && let Some(root) = site_root(bench, &["dist", "build", "out", "public"])
        {
            return Ok(serve(&root).note("there is no start script, so the built files are served"));
        }
        match main.or(entry) {
            Some(entry) => Ok(production(Launch::new(format!("node {entry}")))),
            None => {
                Err(no_command("a package.json without a start script, and no server.js, app.js or index.js"))
            }
        }
    }
}

fn production(launch: Launch) -> Launch {
    launch.env("NODE_ENV", "production").env_file()
}

/// The start script itself, so that signals reach the program and not npm; through npm where it needs more of npm.
fn start_command(start: &str, package: &Package) -> String {
    let hooks = package.scripts.contains_key("prestart") || package.scripts.contains_key("poststart");
    if hooks || start.contains("npm_") || start.contains('\n') {
        "npm start --silent".to_owned()
    } else {
        start.trim().to_owned()
    }
}

/// Whether the start script calls something (nodemon, ts-node, vite) that is listed as needed for development only.
fn starts_with_dev_tool(package: &Package) -> bool {
    let start = package.scripts.get("start").map(String::as_str).unwrap_or_default();
    let tool = start.split_whitespace().find(|word| !word.contains('='));
    tool.is_some_and(|tool| {
        package.dev_dependencies.contains_key(tool) && !package.dependencies.contains_key(tool)
    })
}

fn package(bench: &Bench<'_>) -> Result<Package, Refusal> {
    let text = bench.source.read("package.json").unwrap_or_default();
    serde_json::from_str(&text).map_err(|error| Refusal {
        code: ErrorCode::BuildFailed,
        message: format!("package.json cannot be read: {error}"),
    })
}

fn needs_install(package: &Package) -> bool {
    !package.dependencies.is_empty()
        || !package.dev_dependencies.is_empty()
        || !package.optional_dependencies.is_empty()
        || package.workspaces.is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manager {
    Npm,
    Yarn,
    Pnpm,
}

/// Who made the lock file, as far as it is installed.
fn manager(bench: &Bench<'_>) -> Manager {
    let npm_lock = bench.source.has_file("package-lock.json") || bench.source.has_file("npm-shrinkwrap.json");
    if npm_lock {
        Manager::Npm
    } else if bench.source.has_file("pnpm-lock.yaml") && bench.tools.find("pnpm").is_some() {
        Manager::Pnpm
    } else if bench.source.has_file("yarn.lock") && bench.tools.find("yarn").is_some() {
        Manager::Yarn
    } else {
        Manager::Npm
    }
}

/// Installs packages, with those for development if they are needed.
fn install(bench: &Bench<'_>, dev: bool) -> Result<Vec<Step>, Refusal> {
    let title = "Installing Node packages";
    let step = match manager(bench) {
        Manager::Pnpm => {
            let mut args = vec!["install", "--frozen-lockfile"];
            args.extend((!dev).then_some("--prod"));
            Step::tool(title, "pnpm", &args)
                .env("CI", "true")
                .env("npm_config_store_dir", bench.places.cache.join("pnpm").to_string_lossy())
        }
        Manager::Yarn => Step::tool(title, "yarn", &["install", "--frozen-lockfile", "--non-interactive"])
            .env("YARN_CACHE_FOLDER", bench.places.cache.join("yarn").to_string_lossy()),
        Manager::Npm => {
            bench.tools.need("npm")?;
            let locked =
                bench.source.has_file("package-lock.json") || bench.source.has_file("npm-shrinkwrap.json");
            let mut args =
                vec![if locked { "ci" } else { "install" }, "--no-audit", "--no-fund", "--progress=false"];
            args.push(if dev { "--include=dev" } else { "--omit=dev" });
            with_npm(bench, Step::tool(title, "npm", &args))
        }
    };
    Ok(vec![step])
}

fn with_npm(bench: &Bench<'_>, step: Step) -> Step {
    step.env("npm_config_cache", bench.places.cache.join("npm").to_string_lossy())
        .env("npm_config_update_notifier", "false")
        .env("npm_config_userconfig", bench.places.home.join(".npmrc").to_string_lossy())
}
