//! Rust packages.

use crate::staging::Refusal;
use crate::staging::environment::rustup_home;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step};
use towpath_types::ErrorCode;

pub(super) struct Rust;

static CARD: Card = Card { name: "rust", looks_for: "Cargo.toml", tools: &["cargo"] };

const PROGRAM: &str = ".towpath/bin/app";

impl Recipe for Rust {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        bench.source.has_file("Cargo.toml").then(|| "Cargo.toml".to_owned())
    }

    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        let program = program(bench)?;
        let mut args = vec!["build", "--release", "--bin", &program];
        if bench.source.has_file("Cargo.lock") {
            args.push("--locked");
        }
        let target = bench.places.cache.join("target");
        let mut build = Step::tool(&format!("Building the Rust program {program}"), "cargo", &args)
            .env("CARGO_HOME", bench.places.cache.join("cargo").to_string_lossy())
            .env("CARGO_TARGET_DIR", target.to_string_lossy())
            .env("CARGO_TERM_PROGRESS_WHEN", "never");
        if let Some(home) = rustup_home(bench.tools) {
            build = build.env("RUSTUP_HOME", home.to_string_lossy());
        }
        let keep = Step::script(None, "mkdir -p .towpath/bin; cp -- \"$FROM\" \"$TO\"")
            .env("FROM", target.join("release").join(&program).to_string_lossy())
            .env("TO", PROGRAM);
        Ok(vec![build, keep])
    }

    fn launch(&self, _: &Bench<'_>) -> Result<Launch, Refusal> {
        Ok(Launch::new(format!("./{PROGRAM}")))
    }
}

#[derive(serde::Deserialize)]
struct Manifest {
    package: Option<Package>,
    #[serde(default)]
    bin: Vec<Bin>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    #[serde(rename = "default-run")]
    default_run: Option<String>,
}

#[derive(serde::Deserialize)]
struct Bin {
    name: String,
}

/// The program to build: `default-run`, the only one, the one with the app's name, or the one with the package's name.
fn program(bench: &Bench<'_>) -> Result<String, Refusal> {
    let failed = |message: String| Refusal { code: ErrorCode::BuildFailed, message };
    let text = bench.source.read("Cargo.toml").unwrap_or_default();
    let manifest: Manifest = toml::from_str(&text)
        .map_err(|error| failed(format!("Cargo.toml cannot be read: {}", error.message())))?;
    let Some(package) = manifest.package else {
        return Err(failed(
            "Cargo.toml is a workspace without a package; push the directory of the program's package"
                .to_owned(),
        ));
    };
    if let Some(run) = package.default_run {
        return checked(run);
    }
    let mut programs: Vec<String> = manifest.bin.into_iter().map(|bin| bin.name).collect();
    programs.extend(
        bench
            .source
            .files_ending("src/bin", ".rs")
            .iter()
            .map(|name| name.trim_end_matches(".rs").to_owned()),
    );
    if bench.source.has_file("src/main.rs") && programs.is_empty() {
        programs.push(package.name.clone());
    }
    programs.sort();
    programs.dedup();
    let pick = |name: &str| programs.iter().find(|program| *program == name);
    match (programs.as_slice(), pick(bench.app).or_else(|| pick(&package.name))) {
        ([one], _) | (_, Some(one)) => checked(one.clone()),
        ([], None) => {
            Err(failed("the package has no program: neither src/main.rs nor src/bin/*.rs".to_owned()))
        }
        (many, None) => Err(failed(format!(
            "the package has several programs ({}); say which one with default-run in Cargo.toml",
            many.join(", ")
        ))),
    }
}

/// A name that is no option and no path.
fn checked(name: String) -> Result<String, Refusal> {
    let plain =
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') && !name.starts_with('-');
    if plain && !name.is_empty() {
        Ok(name)
    } else {
        let message = format!("Cargo.toml names a program {name:?}, which is no valid name");
        Err(Refusal { code: ErrorCode::BuildFailed, message })
    }
}
