//! `application/problem+json`: the one form of every error that a client sees.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use towpath_store::StoreError;
use towpath_types::ErrorCode;

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// Path of the field, for example `limits.memory` or `routes[1]`; a query parameter or path parameter by its name.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl FieldError {
    /// What is wrong with which field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// An error as it goes to the client (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProblemBody {
    /// A URI for the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: ErrorCode,
    /// This very problem, for people.
    pub detail: String,
    /// Id of the request; it is in the manager's log too.
    pub instance: String,
    /// Every field that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// An error on its way to the client. The request id is filled in at the edge (see `edge`).
#[derive(Debug, Clone)]
pub struct Problem {
    /// The stable code; decides the status.
    pub code: ErrorCode,
    /// For people.
    pub detail: String,
    /// Wrong fields.
    pub errors: Vec<FieldError>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

/// What handlers return.
pub type Outcome<T> = Result<T, Problem>;

impl Problem {
    /// A problem with a code and a sentence.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    /// Wrong fields, all of them.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.field, one.message),
            many => format!("{} fields are not valid", many.len()),
        };
        Self { errors, ..Self::new(ErrorCode::Invalid, detail) }
    }

    /// One wrong field.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError::new(field, message)])
    }

    /// Nothing there, for example `app "shop" in default/default`.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::NotFound, format!("there is no {what}"))
    }

    /// Two requests have one idempotency key.
    pub(crate) fn key_reused() -> Self {
        Self::field("Idempotency-Key", "was used for another request; take a new one")
    }

    /// It collides.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, detail)
    }

    /// Adds when to try again.
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// The body for the client.
    pub fn body(&self, request_id: &str) -> ProblemBody {
        ProblemBody {
            kind: format!("https://towpath.dev/problems/{}", self.code),
            title: self.code.title().into(),
            status: self.code.status(),
            code: self.code,
            detail: self.detail.clone(),
            instance: request_id.into(),
            errors: self.errors.clone(),
        }
    }
}

impl From<StoreError> for Problem {
    /// What the client may know of a failed store call. A conflict has to be handled where it is known what it means;
    /// the general form says that somebody else was faster.
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Conflict { key, .. } => {
                return Self::new(
                    ErrorCode::Conflict,
                    format!(
                        "{} {:?} was changed by another at the same time; read it again",
                        key.kind, key.name
                    ),
                );
            }
            StoreError::KeyReused => return Self::key_reused(),
            StoreError::Unavailable { .. } | StoreError::Fenced(_) => ErrorCode::StoreUnavailable,
            StoreError::Invalid(_) => ErrorCode::Invalid,
            _ => ErrorCode::Internal,
        };
        let detail = match &error {
            StoreError::Fenced(_) => {
                "this manager is not a member at the moment; try again or ask another".to_owned()
            }
            other => other.to_string(),
        };
        let problem = Self::new(code, detail);
        if code == ErrorCode::StoreUnavailable {
            return problem.retry_after(Duration::from_secs(2));
        }
        if code == ErrorCode::Internal {
            tracing::error!(error = %error, "a store call failed");
        }
        problem
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        let headers = response.headers_mut();
        if self.code == ErrorCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"towpath\""));
        }
        if let Some(pause) = self.retry_after {
            let seconds = pause.as_secs().max(1);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Content type of problems.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Request id, in and out.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
