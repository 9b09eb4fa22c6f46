//! `${{NAME}}` and `${{NAME:=default}}` in a file.

use super::{FileFault, at};
use std::borrow::Cow;

/// `text` with every variable filled in; comments are left alone.
pub(super) fn fill<'t>(
    text: &'t str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Cow<'t, str>, Vec<FileFault>> {
    if !text.contains("${{") {
        return Ok(Cow::Borrowed(text));
    }
    let mut filled = String::with_capacity(text.len());
    let mut faults = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_start().starts_with('#') {
            filled.push_str(line);
            continue;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("${{") {
            filled.push_str(before);
            let Some((inside, after)) = after.split_once("}}") else {
                faults.push(at(index + 1, "${{ without }}"));
                break;
            };
            let (name, default) = match inside.split_once(":=") {
                Some((name, default)) => (name.trim(), Some(default.trim())),
                None => (inside.trim(), None),
            };
            match variable(name).or_else(|| default.map(str::to_owned)) {
                Some(value) => filled.push_str(&value),
                None => faults.push(at(
                    index + 1,
                    format!("the environment has no variable {name}, and no default is given"),
                )),
            }
            rest = after;
        }
        filled.push_str(rest);
    }
    if faults.is_empty() { Ok(Cow::Owned(filled)) } else { Err(faults) }
}
