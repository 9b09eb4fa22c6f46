//! Go modules.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step};
use towpath_types::ErrorCode;

pub(super) struct Go;

static CARD: Card = Card { name: "go", looks_for: "go.mod", tools: &["go"] };

const PROGRAM: &str = ".towpath/bin/app";

impl Recipe for Go {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        bench.source.has_file("go.mod").then(|| "go.mod".to_owned())
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        let package = main_package(bench)?;
        let cache = &bench.places.cache;
        let build = Step::tool(
            &format!("Building the Go program {package}"),
            "go",
            &["build", "-trimpath", "-buildvcs=false", "-o", PROGRAM, &package],
        );
        let build = build
            .env("GOPATH", cache.join("go").to_string_lossy())
            .env("GOCACHE", cache.join("go-build").to_string_lossy())
            // Read-only module files could not be cleared away.
            .env("GOFLAGS", "-modcacherw");
        Ok(vec![build])
    }

    fn launch(&self, _: &Bench<'_>) -> Result<Launch, Refusal> {
        Ok(Launch::new(format!("./{PROGRAM}")))
    }
}

/// The package to build: the top directory, or the only one (or the one with the app's name) in `cmd`.
fn main_package(bench: &Bench<'_>) -> Result<String, Refusal> {
    if has_main(bench, ".") {
        return Ok(".".to_owned());
    }
    let dirs = bench.source.list("cmd").into_iter().filter(|entry| entry.dir).map(|entry| entry.name);
    let commands: Vec<String> = dirs.filter(|name| has_main(bench, &format!("cmd/{name}"))).collect();
    let named = commands.iter().find(|name| *name == bench.app);
    match (commands.as_slice(), named) {
        ([one], _) | (_, Some(one)) => Ok(format!("./cmd/{one}")),
        ([], None) => {
            Err(failed("there is no Go file with 'package main' in the top directory or in cmd/*".to_owned()))
        }
        (many, None) => Err(failed(format!(
            "there are several programs in cmd ({}) and none has the app's name; push the one's directory, or name the app like it",
            many.join(", ")
        ))),
    }
}

fn failed(message: String) -> Refusal {
    Refusal { code: ErrorCode::BuildFailed, message }
}

fn has_main(bench: &Bench<'_>, dir: &str) -> bool {
    bench.source.files_ending(dir, ".go").iter().filter(|name| !name.ends_with("_test.go")).any(|name| {
        let text = bench.source.read(&format!("{dir}/{name}")).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| line == "package main" || line.starts_with("package main "))
    })
}
