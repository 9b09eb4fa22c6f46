//! Answers in APISIX's shapes.

use crate::api::problem::{Problem, ProblemBody};
use crate::vault::{Unopened, VaultError};
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use towpath_resources::{Fault, Key};
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

impl From<VaultError> for Failed {
    fn from(error: VaultError) -> Self {
        Problem::from(error).into()
    }
}

impl From<Unopened> for Failed {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Faults(faults) => Self::faults(faults),
            Unopened::Vault(error) => error.into(),
        }
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

/// A stored resource; its secrets sealed, in the form in which they may be sent back.
pub(super) fn item(key: &Key, record: &Record) -> Value {
    json!({
        "key": format!("/apisix/{key}"),
        "value": crate::vault::shown(key, &record.spec),
        "createdIndex": created_index(record),
        "modifiedIndex": record.revision.0,
    })
}

/// The order of creation.
pub(super) fn created_index(record: &Record) -> u64 {
    let noted = record.status.get("created_index").and_then(Value::as_u64);
    noted.unwrap_or(record.revision.0).min(record.revision.0)
}
