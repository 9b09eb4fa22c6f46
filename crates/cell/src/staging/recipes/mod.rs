//! The recipes, in the order in which they are asked.

mod binary;
mod go;
mod java;
mod node;
mod php;
mod procfile;
mod python;
mod python_needs;
mod python_start;
mod rust;
mod static_site;

use super::Refusal;
use super::recipe::{Bench, Recipe};
use super::tools::ToolBox;
use towpath_types::ErrorCode;

/// All recipes. An earlier one wins, so those that are sure come before those that guess: a compiled language's project file,
/// then Python and Node, then ready things, then a mere command.
static RECIPES: &[&dyn Recipe] = &[
    &java::Java,
    &go::Go,
    &rust::Rust,
    &python::Python,
    &node::Node,
    &php::Php,
    &static_site::StaticSite,
    &binary::Binary,
    &procfile::Procfile,
];

/// Names of the recipes whose tools are here.
pub(crate) fn available(tools: &ToolBox) -> Vec<String> {
    let there = |recipe: &&&dyn Recipe| recipe.card().tools.iter().all(|tool| tools.find(tool).is_some());
    RECIPES.iter().filter(there).map(|recipe| recipe.card().name.to_owned()).collect()
}

/// The recipe for a source: the named one, or the first that recognises it; and by what.
pub(crate) fn choose(
    name: Option<&str>,
    bench: &Bench<'_>,
) -> Result<(&'static dyn Recipe, String), Refusal> {
    if let Some(name) = name {
        let Some(recipe) = RECIPES.iter().find(|recipe| recipe.card().name == name) else {
            let names: Vec<&str> = RECIPES.iter().map(|recipe| recipe.card().name).collect();
            let message = format!("there is no builder {name:?}; there are {}", names.join(", "));
            return Err(Refusal { code: ErrorCode::NoBuilder, message });
        };
        let by = recipe.detect(bench).unwrap_or_else(|| "as asked".to_owned());
        return Ok((*recipe, by));
    }
    let found = RECIPES.iter().find_map(|recipe| recipe.detect(bench).map(|by| (*recipe, by)));
    found.ok_or_else(|| {
        let names: Vec<String> = bench.source.list("").into_iter().map(|entry| entry.name).collect();
        Refusal { code: ErrorCode::NoBuilder, message: unknown_source(&names) }
    })
}

/// Files of a source that are named.
const NAMED: usize = 20;

/// What was found and what was looked for, a line for each builder.
fn unknown_source(names: &[String]) -> String {
    let mut message = String::from("no builder recognises what is in the top directory");
    let shown = names.get(..names.len().min(NAMED)).unwrap_or_default().join(", ");
    let there = match names.len() {
        0 => "nothing".to_owned(),
        n if n > NAMED => format!("{shown}, and {} more", n - NAMED),
        _ => shown,
    };
    column(&mut message, "found", &there);
    message.push_str("\nlooked for");
    for card in RECIPES.iter().map(|recipe| recipe.card()) {
        column(&mut message, &format!("  {}", card.name), card.looks_for);
    }
    message
}

/// Adds a titled text, broken between words so that it fits into 80 columns.
fn column(message: &mut String, title: &str, text: &str) {
    const AT: usize = 13;
    const WIDTH: usize = 76;
    message.push_str(&format!("\n{title:<AT$}"));
    let mut used = AT;
    for (at, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if at > 0 && used + 1 + width > WIDTH {
            message.push_str(&format!("\n{:AT$}", ""));
            used = AT;
        } else if at > 0 {
            message.push(' ');
            used += 1;
        }
        message.push_str(word);
        used += width;
    }
}

#[cfg(test)]
mod tests;
