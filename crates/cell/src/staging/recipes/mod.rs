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
        let cards = RECIPES.iter().map(|recipe| recipe.card());
        let looked: Vec<String> = cards.map(|card| format!("{} ({})", card.looks_for, card.name)).collect();
        let names: Vec<String> = bench.source.list("").into_iter().take(20).map(|entry| entry.name).collect();
        let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
        let looked = looked.join("; ");
        let message = format!(
            "no builder recognises this source: in its top directory there is {there}; looked for {looked}"
        );
        Refusal { code: ErrorCode::NoBuilder, message }
    })
}

#[cfg(test)]
mod tests;
