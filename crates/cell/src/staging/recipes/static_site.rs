//! Files that are served as they are, by the platform's own file server.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step, no_command};

pub(super) struct StaticSite;

static CARD: Card = Card {
    name: "static",
    looks_for: "index.html, in the top directory or in public, dist, build, site or _site",
    tools: &[],
};

/// Directories that may hold the site, in order.
pub(super) const ROOTS: &[&str] = &[".", "public", "dist", "build", "out", "site", "_site", "www", "htdocs"];

impl Recipe for StaticSite {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        if bench.command.is_some() {
            None
        } else {
            site_root(bench, ROOTS).map(|root| format!("index.html in {root}"))
        }
    }

    fn steps(&self, _: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        Ok(Vec::new())
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        let root =
            site_root(bench, ROOTS).or_else(|| bench.source.has_dir("public").then(|| "public".to_owned()));
        root.map(|root| serve(&root)).ok_or_else(|| no_command("no index.html"))
    }
}

/// The first of these directories that has an index page.
pub(super) fn site_root(bench: &Bench<'_>, roots: &[&str]) -> Option<String> {
    roots
        .iter()
        .find(|root| bench.source.has_file(&format!("{root}/index.html")))
        .map(|root| (*root).to_owned())
}

/// Starts the file server; the cell says where the platform's program is.
pub(super) fn serve(root: &str) -> Launch {
    Launch::new(format!("\"$TOWPATH_BIN\" {} {root}", crate::static_server::STATIC_COMMAND))
}
