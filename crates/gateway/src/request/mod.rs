//! One request from head to log line: choose, forward, answer.
//!
//! The phases, in order: the framing guard has passed the head → route, lane and endpoint are chosen on the newest table
//! → connection from the pool, or a new one → head and body go out, the response head comes back (or another attempt
//! follows) → the response streams → counters, log line, the end of the count in flight. The last phase is the `Drop` of
//! [`record::Record`], so it happens on every exit exactly once.

mod accept;
mod attempt;
pub(crate) mod choice;
pub(crate) mod error_reply;
pub(crate) mod extended_connect;
mod forward;
pub(crate) mod head;
pub(crate) mod ids;
mod origin;
mod present;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod view;

use crate::client::conn::Conn;
use crate::client::h2::StreamWatch;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use record::Record;
use reply::ReplyBody;
use std::rc::Rc;
use towpath_types::ErrorCode;

/// Answers one request; `watch` is that of an HTTP/2 stream.
pub(crate) async fn serve(
    conn: Rc<Conn>,
    watch: Option<Rc<StreamWatch>>,
    request: Request<Incoming>,
) -> Response<ReplyBody> {
    let (mut parts, body) = request.into_parts();
    let number = conn.requests.get() + 1;
    let mut headers = parts.headers;
    let connect =
        extended_connect::translate(&conn.worker, &mut parts.method, &mut headers, &mut parts.extensions);
    let mut record = Record::start(conn, watch, parts.method, parts.uri, parts.version, &headers);
    record.connect = connect;
    if let Some((refused, refusal)) = record.conn.refused.get()
        && refused == number
    {
        return error_reply::make(record, &HeaderMap::new(), refusal.code(), refusal.detail(), true);
    }
    if let Some(detail) = record.head_fault(&headers) {
        return error_reply::make(record, &headers, ErrorCode::BadRequest, detail, true);
    }
    forward::forward(record, headers, body).await
}
