//! The API as a page for people: one HTML file from the OpenAPI document, with no script and nothing from elsewhere.

use serde_json::{Map, Value};
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
/// How deep an example follows references.
const DEPTH: usize = 6;

/// Renders the document.
pub(crate) fn render(document: &Value) -> String {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let groups = grouped(document);
    let mut html = String::from("<!doctype html><html lang=en><meta charset=utf-8>");
    html.push_str("<meta name=viewport content=\"width=device-width,initial-scale=1\"><meta name=color-scheme content=\"light dark\">");
    let _ = write!(html, "<title>{0} API</title><style>{STYLE}</style>", escape(text("/info/title")));
    let _ = write!(
        html,
        "<header><h1>{} <span>API {}</span></h1><p>{}</p><p><a href=/openapi.json>openapi.json</a></p>",
        escape(text("/info/title")),
        escape(text("/info/version")),
        inline(text("/info/description")),
    );
    html.push_str(
        "<pre># `towpath up` prints where its API and its first token are; these are the defaults\n\
         export TOWPATH_API=http://127.0.0.1:7700\nexport TOWPATH_TOKEN=$(cat ~/.local/share/towpath/token)\n\
         curl -H \"Authorization: Bearer $TOWPATH_TOKEN\" $TOWPATH_API/v1/status</pre></header><nav>",
    );
    for (tag, _, endpoints) in &groups {
        let _ = write!(html, "<a href=#{0}>{0}</a><ul>", escape(tag));
        for endpoint in endpoints {
            let _ = write!(
                html,
                "<li><a href=#{} title=\"{3}\"><b class={}>{}</b> {}</a>",
                endpoint.anchor(),
                endpoint.method,
                endpoint.method.to_uppercase(),
                escape(endpoint.path),
            );
        }
        html.push_str("</ul>");
    }
    html.push_str("</nav><main>");
    for (tag, about, endpoints) in &groups {
        let _ = write!(html, "<h2 id={0}>{0}</h2><p>{1}</p>", escape(tag), inline(about));
        for endpoint in endpoints {
            write_endpoint(&mut html, document, endpoint);
        }
    }
    html.push_str("<h2 id=errors>Errors</h2><p>Every status of 400 and above has this form:</p><pre>");
    let problem = serde_json::json!({"$ref": "#/components/schemas/ProblemBody"});
    html.push_str(&escape(&pretty(&example(document, &problem, 0))));
    html.push_str("</pre></main></html>");
    html
}

/// One method of one path.
struct Endpoint<'a> {
    method: &'a str,
    path: &'a str,
    operation: &'a Map<String, Value>,
}

impl Endpoint<'_> {
    fn anchor(&self) -> String {
        let path: String =
            self.path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        format!("{}{path}", self.method)
    }

    fn text(&self, field: &str) -> &str {
        self.operation.get(field).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Endpoints by tag, in the order of the document's tags: name, description, endpoints.
fn grouped(document: &Value) -> Vec<(&str, &str, Vec<Endpoint<'_>>)> {
    let tags = document.get("tags").and_then(Value::as_array);
    let mut endpoints = Vec::new();
    for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            if let Some(operation) = operation.as_object() {
                endpoints.push(Endpoint { method, path, operation });
            }
        }
    }
    let tag_of = |endpoint: &Endpoint<'_>| {
        endpoint
            .operation
            .get("tags")
            .and_then(|tags| tags.get(0))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut groups: Vec<(&str, &str, Vec<Endpoint<'_>>)> = tags
        .into_iter()
        .flatten()
        .filter_map(|tag| {
            let about = tag.get("description").and_then(Value::as_str).unwrap_or_default();
            Some((tag.get("name")?.as_str()?, about, Vec::new()))
        })
        .collect();
    for endpoint in endpoints {
        let tag = tag_of(&endpoint);
        if let Some((_, _, list)) = groups.iter_mut().find(|(name, _, _)| *name == tag) {
            list.push(endpoint);
        }
    }
    groups.retain(|(_, _, list)| !list.is_empty());
    groups
}

fn write_endpoint(html: &mut String, document: &Value, endpoint: &Endpoint<'_>) {
    let _ = write!(
        html,
        "<section id={}><h3><b class={}>{}</b> <code>{}</code></h3>",
        endpoint.anchor(),
        endpoint.method,
        endpoint.method.to_uppercase(),
        escape(endpoint.path),
    );
    let (summary, description) = (endpoint.text("summary"), endpoint.text("description"));
    if !summary.is_empty() && !description.starts_with(summary) {
        let _ = write!(html, "<p>{}</p>", inline(summary));
    }
    for paragraph in description.split("\n\n").filter(|text| !text.is_empty()) {
        let _ = write!(html, "<p>{}</p>", inline(paragraph));
    }
    write_parameters(html, endpoint);
    let body =
        endpoint.operation.get("requestBody").and_then(|body| body.get("content")).and_then(Value::as_object);
    let sent = body.and_then(|content| content.iter().next());
    let _ = write!(html, "<pre>{}</pre>", escape(&curl(document, endpoint, sent)));
    for (status, response) in
        endpoint.operation.get("responses").and_then(Value::as_object).into_iter().flatten()
    {
        write_response(html, document, status, response);
    }
    html.push_str("</section>");
}

fn write_parameters(html: &mut String, endpoint: &Endpoint<'_>) {
    let Some(parameters) = endpoint.operation.get("parameters").and_then(Value::as_array) else { return };
    let queries: Vec<&Value> = parameters
        .iter()
        .filter(|parameter| parameter.get("in").and_then(Value::as_str) != Some("path"))
        .collect();
    if queries.is_empty() {
        return;
    }
    html.push_str("<dl>");
    for parameter in queries {
        let field = |name: &str| parameter.get(name).and_then(Value::as_str).unwrap_or_default();
        let _ = write!(
            html,
            "<dt><code>{}</code> <i>{}</i><dd>{}",
            escape(field("name")),
            escape(field("in")),
            inline(field("description"))
        );
    }
    html.push_str("</dl>");
}

fn write_response(html: &mut String, document: &Value, status: &str, response: &Value) {
    let content =
        response.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let about = response.get("description").and_then(Value::as_str).unwrap_or_default();
    if status == "default" {
        return;
    }
    let Some((kind, body)) = content else {
        let _ = write!(html, "<p class=r><b>{}</b> {}</p>", escape(status), inline(about));
        return;
    };
    let _ = write!(
        html,
        "<details><summary><b>{}</b> {} {}</summary>",
        escape(status),
        escape(kind),
        inline(about)
    );
    if let (true, Some(schema)) = (kind.contains("json"), body.get("schema")) {
        let _ = write!(html, "<pre>{}</pre>", escape(&pretty(&example(document, schema, 0))));
    }
    html.push_str("</details>");
}

/// A command that can be copied.
fn curl(document: &Value, endpoint: &Endpoint<'_>, sent: Option<(&String, &Value)>) -> String {
    let path =
        endpoint.path.replace("{app}", "shop").replace("{lane}", "base").replace('{', "$").replace('}', "");
    let mut text = String::from("curl");
    match endpoint.method {
        "get" => {}
        "head" => text.push_str(" -I"),
        method => {
            let _ = write!(text, " -X {}", method.to_uppercase());
        }
    }
    if endpoint.text("description").contains("no token needed") {
        let _ = write!(text, " $TOWPATH_API{path}");
        return text;
    }
    let _ = write!(text, " -H \"Authorization: Bearer $TOWPATH_TOKEN\" $TOWPATH_API{path}");
    match sent {
        Some((kind, body)) if kind.contains("json") => {
            let given = body.get("example").cloned();
            let body = given.or_else(|| Some(example(document, body.get("schema")?, 0))).unwrap_or_default();
            let _ = write!(text, " \\\n  -H 'Content-Type: application/json' -d '{}'", pretty(&body));
        }
        Some(_) => text.push_str(" \\\n  -T file.tar.zst"),
        None => {}
    }
    text
}

/// A value that fits a schema.
fn example(document: &Value, schema: &Value, depth: usize) -> Value {
    if let Some(given) =
        schema.get("example").or_else(|| schema.get("default")).filter(|value| !value.is_null())
    {
        return given.clone();
    }
    if depth > DEPTH {
        return Value::Null;
    }
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let found = document.pointer(reference.trim_start_matches('#'));
        return found.map(|schema| example(document, schema, depth + 1)).unwrap_or_default();
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        let mut whole = Map::new();
        for part in parts {
            if let Value::Object(fields) = example(document, part, depth + 1) {
                whole.extend(fields);
            }
        }
        return Value::Object(whole);
    }
    for choice in ["oneOf", "anyOf"] {
        let choices = schema.get(choice).and_then(Value::as_array).into_iter().flatten();
        let is_null = |schema: &&Value| schema.get("type").and_then(Value::as_str) == Some("null");
        if let Some(first) = choices.into_iter().find(|schema| !is_null(schema)) {
            return example(document, first, depth + 1);
        }
    }
    if let Some(first) = schema.get("enum").and_then(|choices| choices.get(0)) {
        return first.clone();
    }
    by_type(document, schema, depth)
}

fn by_type(document: &Value, schema: &Value, depth: usize) -> Value {
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        other => other.and_then(Value::as_str),
    };
    match kind.unwrap_or_default() {
        "string" if schema.get("format").and_then(Value::as_str) == Some("uuid") => {
            "0197f3a2-5c1e-7c40-9d3b-2f1a6b7c8d9e".into()
        }
        "string" if schema.get("pattern").and_then(Value::as_str).is_some_and(|p| p.contains("sha256")) => {
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into()
        }
        "string" => "…".into(),
        "integer" => 0.into(),
        "number" => serde_json::json!(0.5),
        "boolean" => false.into(),
        "array" => match schema.get("items") {
            Some(items) => Value::Array(vec![example(document, items, depth + 1)]),
            None => Value::Array(Vec::new()),
        },
        _ => {
            let mut fields = Map::new();
            for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                fields.insert(name.clone(), example(document, field, depth + 1));
            }
            Value::Object(fields)
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Escaped text in which `…` is code.
fn inline(text: &str) -> String {
    let mut html = String::new();
    for (index, part) in escape(text).split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(html, "<code>{part}</code>");
        } else {
            html.push_str(part);
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_endpoint_and_nothing_from_elsewhere() {
        let document = crate::api::openapi();
        let html = render(&document);
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(html.contains(&escape(path)), "{path}");
        }
        for foreign in ["<script", "src=", "@import", "url(", "https://"] {
            let found = html.replace("https://towpath.dev/problems", "");
            assert!(!found.contains(foreign), "{foreign}");
        }
        assert!(html.contains("Least role: operator."));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(inline("a `b<c` & d"), "a <code>b&lt;c</code> &amp; d");
    }
}
