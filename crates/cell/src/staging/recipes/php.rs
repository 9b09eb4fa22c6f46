//! PHP, served by PHP's own web server.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, Card, HOST, Launch, Recipe, Step, no_command};
use towpath_types::ErrorCode;

pub(super) struct Php;

static CARD: Card = Card {
    name: "php",
    looks_for: "composer.json, or index.php in the top directory or in public, web, htdocs or www",
    tools: &["php"],
};

const ROOTS: &[&str] = &["public", "web", "htdocs", "www", "."];

impl Recipe for Php {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        if bench.source.has_file("composer.json") {
            return Some("composer.json".to_owned());
        }
        root(bench).map(|root| format!("index.php in {root}"))
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        bench.tools.need("php")?;
        if !bench.source.has_file("composer.json") || bench.source.has_file("vendor/autoload.php") {
            return Ok(Vec::new());
        }
        if bench.tools.find("composer").is_none() {
            if !needs_packages(&bench.source.read("composer.json").unwrap_or_default())? {
                return Ok(Vec::new());
            }
            bench.tools.need("composer")?;
        }
        let args = [
            "install",
            "--no-dev",
            "--no-interaction",
            "--no-progress",
            "--prefer-dist",
            "--optimize-autoloader",
        ];
        let cache = bench.places.cache.join("composer");
        let step = Step::tool("Installing PHP packages", "composer", &args)
            .env("COMPOSER_CACHE_DIR", cache.to_string_lossy())
            .env("COMPOSER_HOME", bench.places.home.join(".config/composer").to_string_lossy());
        Ok(vec![step])
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        let launch = match (bench.command, root(bench)) {
            (Some(command), _) => Launch::new(command),
            (None, Some(root)) => Launch::new(format!("php -S \"{HOST}:$PORT\" -t {root}")),
            (None, None) => return Err(no_command("no index.php")),
        };
        Ok(launch.env("PHP_CLI_SERVER_WORKERS", "4"))
    }
}

fn root(bench: &Bench<'_>) -> Option<&'static str> {
    ROOTS.iter().find(|root| bench.source.has_file(&format!("{root}/index.php"))).copied()
}

/// Whether composer.json asks for more than PHP itself and its extensions.
fn needs_packages(text: &str) -> Result<bool, Refusal> {
    #[derive(serde::Deserialize)]
    struct Composer {
        #[serde(default)]
        require: serde_json::Map<String, serde_json::Value>,
        autoload: Option<serde_json::Value>,
    }
    let composer: Composer = serde_json::from_str(text).map_err(|error| Refusal {
        code: ErrorCode::BuildFailed,
        message: format!("composer.json cannot be read: {error}"),
    })?;
    let platform = |name: &String| name == "php" || name.starts_with("ext-") || name.starts_with("lib-");
    Ok(composer.autoload.is_some() || composer.require.keys().any(|name| !platform(name)))
}
