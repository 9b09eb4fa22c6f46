//! Errors that the gateway answers itself: problem+json (RFC 9457), or a small page for people, as `Accept` wishes.

use super::accept;
use super::record::Record;
use super::reply::{self, ReplyBody};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::fmt::Write;
use towpath_types::ErrorCode;

/// Makes the response to a request that failed. `close` ends the client's connection after it.
pub(crate) fn make(
    mut record: Record,
    headers: &HeaderMap,
    code: ErrorCode,
    detail: &str,
    close: bool,
) -> Response<ReplyBody> {
    record.status = code.status();
    record.error = Some(code);
    record.complete = true;
    let id = String::from_utf8_lossy(record.id.as_bytes()).into_owned();
    let (text, kind) = if accept::prefers_html(headers) {
        (page(code, detail, &id), "text/html; charset=utf-8")
    } else {
        (problem(code, detail, &id), "application/problem+json")
    };
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    out.insert(header::CONTENT_LENGTH, text.len().into());
    record.id.to_header().map(|id| out.insert("x-request-id", id));
    if matches!(code, ErrorCode::NoEndpoint | ErrorCode::Overloaded) {
        out.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if close && record.version != http::Version::HTTP_2 {
        out.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    reply::own(record, headers, response, Bytes::from(text))
}

/// The document of a refusal by a plugin that has no words of its own.
pub(crate) fn of_status(
    mut record: Record,
    status: u16,
    more: Vec<(HeaderName, HeaderValue)>,
) -> Response<ReplyBody> {
    record.status = status;
    record.complete = true;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let id = String::from_utf8_lossy(record.id.as_bytes()).into_owned();
    let text = serde_json::json!({
        "type": "about:blank", "title": status.canonical_reason().unwrap_or("Refused"),
        "status": status.as_u16(), "instance": id,
    });
    let text = Bytes::from(text.to_string());
    let mut response = Response::new(ReplyBody::Empty);
    *response.status_mut() = status;
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    out.insert(header::CONTENT_LENGTH, text.len().into());
    record.id.to_header().map(|id| out.insert("x-request-id", id));
    for (name, value) in more {
        out.insert(name, value);
    }
    reply::own(record, &HeaderMap::new(), response, text)
}

fn problem(code: ErrorCode, detail: &str, id: &str) -> String {
    serde_json::json!({
        "type": format!("https://towpath.dev/problems/{code}"), "title": code.title(), "status": code.status(), "code": code, "detail": detail, "instance": id,
    })
    .to_string()
}

/// The page. No script, no style from elsewhere, nothing to load.
fn page(code: ErrorCode, detail: &str, id: &str) -> String {
    let (status, title) = (code.status(), code.title());
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{status} {title}</title><style>\
         body{{font:16px/1.5 system-ui,sans-serif;margin:0;min-height:100vh;display:grid;place-items:center;\
         background:#f6f7f9;color:#1c2330}}main{{max-width:34rem;padding:2rem}}h1{{font-size:1.4rem;margin:0 0 .5rem}}\
         b{{color:#8a94a6;font-weight:600}}p{{margin:.4rem 0}}code{{color:#8a94a6;font-size:.85rem}}\
         @media(prefers-color-scheme:dark){{body{{background:#12161d;color:#e6e9ef}}}}</style></head><body><main>\
         <h1><b>{status}</b> {title}</h1><p>"
    );
    escape(&mut page, detail);
    let _ = write!(page, "</p><p><code>{code} &middot; request ");
    escape(&mut page, id);
    page.push_str("</code></p></main></body></html>\n");
    page
}

fn escape(page: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '&' => page.push_str("&amp;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            c => page.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_escaped() {
        let page = page(ErrorCode::NoRoute, "no app is at <script>alert('x')</script>", "a\"b");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>") && page.contains("a&quot;b"));
        let problem = problem(ErrorCode::NoRoute, "a \"host\"", "id");
        let value: serde_json::Value = serde_json::from_str(&problem).unwrap();
        assert_eq!((&value["code"], &value["status"]), (&"no_route".into(), &404.into()));
    }
}
