//! Answers in APISIX's shapes.

use crate::api::problem::{Problem, ProblemBody};
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use towpath_resources::{Fault, Key, Kind};
use towpath_types::Record;

/// An answer, or why there is none.
pub(super) type Answered<T> = Result<T, Failed>;

/// Why something was not done.
pub(super) enum Failed {
    /// In APISIX's way.
    Refused(StatusCode, String, Vec<Fault>),
    /// In this API's: the edge puts it in APISIX's shape.
    Problem(Box<Problem>),
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl Failed {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self::Refused(status, message.into(), Vec::new())
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Key not found")
    }

    pub(super) fn method(method: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("not supported `{method}` method here"))
    }

    /// A document that cannot be taken.
    pub(super) fn faults(faults: Vec<Fault>) -> Self {
        let told: Vec<String> = faults.iter().map(Fault::to_string).collect();
        Self::Refused(StatusCode::BAD_REQUEST, format!("invalid configuration: {}", told.join("; ")), faults)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        match self {
            Failed::Problem(problem) => (*problem).into_response(),
            Failed::Refused(status, message, faults) => {
                let errors: Vec<Value> = faults
                    .iter()
                    .map(|fault| json!({"field": fault.path, "message": fault.message}))
                    .collect();
                let mut body = json!({"error_msg": message});
                with_errors(&mut body, errors.into());
                (status, Json(body)).into_response()
            }
        }
    }
}

pub(super) fn of(answered: Answered<Response>) -> Response {
    let mut response = answered.unwrap_or_else(Failed::into_response);
    response.headers_mut().insert("x-api-version", http::HeaderValue::from_static("v3"));
    response
}

/// What a problem of this API says in APISIX's shape.
pub(in crate::api) fn body_of(problem: &ProblemBody) -> Value {
    let mut body = json!({"error_msg": problem.detail, "code": problem.code, "request_id": problem.instance});
    with_errors(&mut body, json!(problem.errors));
    body
}

/// Every field that is wrong, if any is named.
fn with_errors(body: &mut Value, errors: Value) {
    if let (Some(fields), Some([_, ..])) = (body.as_object_mut(), errors.as_array().map(Vec::as_slice)) {
        fields.insert("errors".into(), errors);
    }
}

/// A stored resource.
pub(super) fn item(key: &Key, record: &Record) -> Value {
    let mut value = record.spec.clone();
    if key.kind == Kind::Ssl
        && let Some(fields) = value.as_object_mut()
    {
        // Private keys do not come back.
        fields.remove("key");
        fields.remove("keys");
    }
    without_client_keys(&mut value);
    json!({
        "key": format!("/apisix/{key}"),
        "value": value,
        "createdIndex": created_index(record),
        "modifiedIndex": record.revision.0,
    })
}

/// Nor do those that upstreams hold, wherever one stands: by itself, in a route, in a plugin.
fn without_client_keys(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(tls) = fields.get_mut("tls").and_then(Value::as_object_mut) {
                tls.remove("client_key");
            }
            fields.values_mut().for_each(without_client_keys);
        }
        Value::Array(items) => items.iter_mut().for_each(without_client_keys),
        _ => {}
    }
}

/// The order of creation.
pub(super) fn created_index(record: &Record) -> u64 {
    let noted = record.status.get("created_index").and_then(Value::as_u64);
    noted.unwrap_or(record.revision.0).min(record.revision.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_of_upstreams_do_not_come_back() {
        let upstream =
            json!({"tls": {"client_cert": "c", "client_key": "private", "verify": true}, "nodes": {}});
        let split = json!({"rules": [{"weighted_upstreams": [{"upstream": upstream}]}]});
        for mut value in
            [upstream.clone(), json!({"upstream": upstream}), json!({"plugins": {"traffic-split": split}})]
        {
            without_client_keys(&mut value);
            let text = value.to_string();
            assert!(!text.contains("private") && text.contains("client_cert"), "{text}");
        }
    }
}
