//! `docs/guide/gateway-resources.md` is written by this test: `UPDATE_GUIDE=1 cargo nextest run -p towpath-resources guide`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use serde_json::Value;
use std::fmt::Write;
use towpath_resources::{Kind, plugins, refused_fields, schema_of, unserved};

const HEAD: &str = "\
# Resources of the gateway

<!-- Written by crates/resources/tests/guide.rs from the types that are read; UPDATE_GUIDE=1 writes it anew. -->

Names, defaults and limits are those of Apache APISIX's public documentation. A field that is not in these tables, or that they call
refused, is a fault of the resource: it is told by its path and the resource is not taken. *Ours* marks what APISIX does not have,
*secret* what is sealed where it is kept (`x-secret` in the schemas; see [Secrets](secrets.md)).
The same tables as JSON Schema are at `/apisix/admin/schema/{kind}` and `/apisix/admin/schema/plugins/{name}`.

**Ids**: letters, digits, `-`, `_`, `.`, at most 64; an integer stands for its digits. A consumer's id is its `username`, plugin metadata's the
name of the plugin, a secret's `vault/…`, `aws/…` or `gcp/…`. **References to secrets** (`$secret://…`, `$env://…`) are refused: give the value.
**Regular expressions** are matched in linear time: no look-around, no back-references.

**Plugins merge** as wholes, by name: consumer over consumer group over route over plugin configuration over service. Global rules run for
themselves, before. Every plugin takes `_meta`: `disable`, `priority`, `filter` (conditions as in `vars`), `error_response`;
`_meta.pre_function` is Lua and refused.
";

#[test]
fn the_guide_says_what_is_taken() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/gateway-resources.md");
    let text = guide();
    if std::env::var_os("UPDATE_GUIDE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == text, "{path} is outdated: run with UPDATE_GUIDE=1");
}

fn guide() -> String {
    let mut text = HEAD.to_owned();
    for kind in Kind::ALL {
        write!(text, "\n## `{kind}`\n\n").unwrap();
        if kind == Kind::PluginMetadata {
            text.push_str("The id is the name of a plugin; the fields are in the section of the plugin.\n");
            continue;
        }
        if let Some(reason) = unserved(kind) {
            write!(text, "**Refused**: {reason}.\n\n").unwrap();
        }
        text.push_str("| field | value | default | |\n|---|---|---|---|\n");
        rows(&mut text, "", schema_of(kind), kind != Kind::Upstream);
        for (field, reason) in refused_fields(kind) {
            writeln!(text, "| `{field}` | | | **refused**: {reason} |").unwrap();
        }
    }
    text.push_str("\n## Plugins that run\n");
    for plugin in plugins::all() {
        write!(text, "\n### `{}`\n\nPriority {}.\n\n", plugin.name, plugin.priority).unwrap();
        let parts = [
            (Some(&plugin.schema), ""),
            (plugin.credential_schema.as_ref(), "In a consumer or credential"),
            (plugin.metadata_schema.as_ref(), "Metadata"),
        ];
        for (schema, title) in parts.into_iter().filter_map(|(schema, title)| Some((schema?, title))) {
            if !title.is_empty() {
                write!(text, "\n{title}:\n\n").unwrap();
            }
            text.push_str("| field | value | default | |\n|---|---|---|---|\n");
            rows(&mut text, "", schema, true);
        }
    }
    text.push_str("\n## Plugins of APISIX that are refused\n\nEach is refused by its name, `plugin … is not supported`.\n\n");
    let names: Vec<_> = plugins::all_refused().map(|name| format!("`{name}`")).collect();
    writeln!(text, "{}.", names.join(", ")).unwrap();
    text
}

fn rows(text: &mut String, before: &str, schema: &Value, upstream_elsewhere: bool) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{before}{name}");
        let link = name == "upstream" && upstream_elsewhere;
        let mut about =
            field["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        if let Some(rest) = about.strip_prefix("Ours: ") {
            about = format!("*Ours*: {rest}");
        }
        if field["x-secret"] == true {
            about.push_str(" *Secret*.");
        }
        if link {
            about.push_str(" See [`upstreams`](#upstreams).");
        }
        let default = match &field["default"] {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => String::new(),
            Value::Object(_) => String::new(),
            value => format!("`{value}`"),
        };
        writeln!(text, "| `{path}` | {} | {default} | {about} |", value_of(field)).unwrap();
        if link {
            continue;
        }
        rows(text, &format!("{path}."), field, upstream_elsewhere);
        let shapes = field["anyOf"].as_array().into_iter().flatten().chain(std::iter::once(field));
        for items in shapes.map(|shape| &shape["items"]).filter(|items| items["properties"].is_object()) {
            rows(text, &format!("{path}[]."), items, upstream_elsewhere);
        }
    }
}

fn value_of(field: &Value) -> String {
    if let Some(shapes) = field["anyOf"].as_array() {
        return shapes.iter().map(value_of).collect::<Vec<_>>().join(" or ");
    }
    if let Some(choices) = field["enum"].as_array() {
        return choices
            .iter()
            .map(|choice| format!("`{}`", choice.to_string().trim_matches('"')))
            .collect::<Vec<_>>()
            .join(" ");
    }
    let (least, most) = (&field["minimum"], &field["maximum"]);
    let range = match (least, most, &field["exclusiveMinimum"]) {
        (Value::Null, Value::Null, Value::Null) => String::new(),
        (Value::Null, Value::Null, above) => format!(" > {above}"),
        (least, Value::Null, _) => format!(" ≥ {least}"),
        (Value::Null, most, _) => format!(" ≤ {most}"),
        (least, _, _) if least.as_f64().is_some_and(|least| least < -1e9) => String::new(),
        (least, most, _) => format!(" {least}–{most}"),
    };
    match (field["type"].as_str(), field["format"].as_str()) {
        (Some("string"), Some("ip-or-cidr")) => "address or network".into(),
        (Some("string"), Some("regex")) => "regular expression".into(),
        (Some("string"), Some("host")) => "host".into(),
        (Some("string"), Some("id")) => "id".into(),
        (Some("array"), Some("condition")) => "conditions".into(),
        (Some("string"), _) => "text".into(),
        (Some("array"), _) => format!("list of {}", value_of(&field["items"])),
        (Some("boolean"), _) => "true, false".into(),
        (Some(kind), _) => format!("{kind}{range}"),
        (None, _) => "anything".into(),
    }
}
