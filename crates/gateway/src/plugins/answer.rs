//! Answers of plugins, in the shapes that APISIX documents for them.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};

/// What a plugin answers instead of forwarding the request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Status.
    pub(crate) status: u16,
    /// Headers, its content type included.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Body; `None` = the gateway's own error document for this status.
    pub(crate) body: Option<Bytes>,
}

impl Answer {
    /// No body of its own: from 400 on the gateway's error document.
    pub(crate) fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: (status < 400).then(Bytes::new) }
    }

    /// `{"message": …}`.
    pub(crate) fn message(status: u16, message: &str) -> Self {
        Self::json(status, &serde_json::json!({ "message": message }))
    }

    /// `{"error_msg": …}`.
    pub(crate) fn error_msg(status: u16, message: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error_msg": message }))
    }

    /// A JSON document and a line end.
    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        let body = Bytes::from(format!("{value}\n"));
        let json = HeaderValue::from_static("application/json");
        Self { status, headers: vec![(CONTENT_TYPE, json)], body: Some(body) }
    }

    /// A text.
    pub(crate) fn text(status: u16, text: impl Into<Bytes>) -> Self {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        Self { status, headers: vec![(CONTENT_TYPE, plain)], body: Some(text.into()) }
    }

    /// With another header.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// With a header, if the text can be one's value.
    pub(crate) fn with_text(self, name: HeaderName, value: &str) -> Self {
        match HeaderValue::from_str(value) {
            Ok(value) => self.with(name, value),
            Err(_) => self,
        }
    }
}
