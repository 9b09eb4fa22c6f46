//! What gateways do not serve, and why.

use crate::api::view::{at, list, short_id, text};
use crate::cli::client::Context;
use crate::screen::Screen;
use crate::screen::style::{Paint, Style};
use crate::screen::table::printable;
use serde_json::Value;
use std::collections::BTreeMap;

/// What live gateways refuse: for each item and reason, who.
fn found(gateways: &[Value]) -> BTreeMap<(&str, &str), Vec<String>> {
    let mut found: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for gateway in gateways {
        for (item, why) in at(gateway, "refused").and_then(Value::as_object).into_iter().flatten() {
            let by = short_id(text(gateway, "id"));
            found.entry((item, why.as_str().unwrap_or_default())).or_default().push(by);
        }
    }
    found
}

/// A paragraph on what gateways refuse; empty when that is nothing.
pub(super) fn paragraph(gateways: &[Value], paint: Paint, fit: impl Fn(&str, usize) -> String) -> String {
    let found = found(gateways);
    if found.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{}\n", paint.text(Style::Warn, "Refused by gateways:"));
    for ((item, why), by) in found {
        let by = if by.len() == gateways.len() { String::new() } else { format!(" ({})", by.join(", ")) };
        out += &format!("  {}\n", fit(&printable(item), 2));
        out += &format!("    {}\n", paint.text(Style::Dim, &fit(&format!("{}{by}", printable(why)), 4)));
    }
    out
}

/// The same for the screen.
pub(super) fn on_screen(gateways: &[Value], screen: &Screen) -> String {
    paragraph(gateways, screen.paint(), |text, indent| screen.fit(text, indent))
}

/// Warns when gateways have something against a resource.
pub(super) fn warn(context: &Context, what: &str, resource: &Value) {
    for refusal in list(resource, "refused") {
        context.screen.warn(format!("gateways do not serve {what}: {}", text(refusal, "why")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_refused_item_is_named_with_its_reason_within_eighty_columns() {
        let why = "path \"/%2f\" is written \"/%2F\" and this goes on and on, so that it takes more than one line of them";
        let gateways = [
            json!({"id": "0190a5e0-0000-7000-8000-00000000000a", "refused": {"route a.example/%2f": why, "space default/default": "bad"}}),
            json!({"id": "0190a5e0-0000-7000-8000-00000000000b", "refused": {"route a.example/%2f": why}}),
        ];
        let shown = paragraph(&gateways, Paint::Off, |text, indent| crate::screen::wrapped(text, 80, indent));
        assert!(shown.contains("\n  route a.example/%2f\n    path \"/%2f\" is written"), "{shown}");
        assert!(
            shown.contains(&format!(
                "  space default/default\n    bad ({})\n",
                short_id("0190a5e0-0000-7000-8000-00000000000a")
            )),
            "{shown}"
        );
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert_eq!(paragraph(&[json!({"refused": {}})], Paint::Off, |text, _| text.to_owned()), "");
    }
}
