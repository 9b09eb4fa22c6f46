//! `mocking`: an invented answer instead of an upstream's.

use super::headers::value;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use crate::worker::Worker;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::mocking::Config;
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct Mocking {
    config: Arc<Config>,
    example: Option<Template>,
}

impl Mocking {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self { example: config.response_example.as_deref().map(Template::new), config: config.clone() }
    }

    fn body(&self, request: &Request<'_>) -> String {
        if let Some(example) = &self.example {
            return request.vars().fill(example).0;
        }
        let nothing = Map::new();
        let schema = self.config.response_schema.as_ref().unwrap_or(&nothing);
        let made = object(&request.record.conn.worker, schema, 0);
        let kind = self.config.content_type.split(';').next().unwrap_or_default().trim();
        if matches!(kind, "application/xml" | "text/xml") {
            let mut text = String::new();
            xml(&mut text, "data", &made);
            return text;
        }
        made.to_string()
    }

    fn answer(&self, request: &Request<'_>) -> Answer {
        let mut answer = Answer {
            status: self.config.response_status.max(200),
            headers: Vec::new(),
            body: Some(Bytes::from(self.body(request))),
        };
        if let Some(kind) = value(&self.config.content_type) {
            answer = answer.with(CONTENT_TYPE, kind);
        }
        if self.config.with_mock_header {
            let by = HeaderValue::from_static(concat!("towpath/", env!("CARGO_PKG_VERSION")));
            answer = answer.with(HeaderName::from_static("x-mock-by"), by);
        }
        for (name, text) in self.config.response_headers.iter().flatten() {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                let text = request.vars().fill(&Template::new(&text.to_string())).0;
                answer = answer.with_text(name, &text);
            }
        }
        answer
    }
}

/// Deepest nesting of what is made.
const DEEPEST: u32 = 16;

fn object(worker: &Worker, schema: &Map<String, Value>, depth: u32) -> Value {
    let properties = schema.get("properties").and_then(Value::as_object);
    let made =
        properties.into_iter().flatten().map(|(name, schema)| (name.clone(), one(worker, schema, depth + 1)));
    Value::Object(made.collect())
}

fn one(worker: &Worker, schema: &Value, depth: u32) -> Value {
    let Some(schema) = schema.as_object().filter(|_| depth < DEEPEST) else { return Value::Null };
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default().to_ascii_lowercase();
    let example = schema.get("example").filter(|example| !example.is_null());
    match (kind.as_str(), example) {
        ("object", _) => object(worker, schema, depth),
        ("array", _) => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let count = worker.random() % 3 + 1;
            Value::Array((0..count).map(|_| one(worker, items, depth + 1)).collect())
        }
        (_, Some(example)) => example.clone(),
        ("string", None) => {
            let letter = |_| char::from(b'a' + (worker.random() % 26) as u8);
            Value::String((0..worker.random() % 10 + 1).map(letter).collect())
        }
        ("number", None) => json!((worker.random() % 1_000_000) as f64 / 100.0),
        ("integer", None) => json!(worker.random() % 10_000),
        ("boolean", None) => json!(worker.random().is_multiple_of(2)),
        _ => Value::Null,
    }
}

fn xml(out: &mut String, name: &str, value: &Value) {
    let name: String = name.chars().filter(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).collect();
    match value {
        Value::Array(items) => items.iter().for_each(|item| xml(out, &name, item)),
        Value::Object(fields) => {
            let _ = write!(out, "<{name}>");
            fields.iter().for_each(|(field, value)| xml(out, field, value));
            let _ = write!(out, "</{name}>");
        }
        value => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = write!(out, "<{name}>{text}</{name}>");
        }
    }
}

impl Plugin for Mocking {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let answer = self.answer(request);
        if self.config.delay == 0 {
            return Step::answer(answer);
        }
        let time = Duration::from_secs(u64::from(self.config.delay));
        Step::Wait(Box::pin(async move {
            tokio::time::sleep(time).await;
            Box::new(move |_: &mut Request<'_>| Step::answer(answer)) as Resume
        }))
    }
}
