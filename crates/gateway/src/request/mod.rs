//! One request from head to log line: choose, forward, answer.
//!
//! The phases, in order: the framing guard has passed the head → plugins, where the route has any, look at the request and
//! may answer it (see [`crate::plugins`]) → route, lane and endpoint are chosen on the newest table → connection from the pool, or a new one → head and body go out, the response head comes back (or another attempt
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
pub(crate) mod present;
pub(crate) mod record;
pub(crate) mod reply;
mod stored;
pub(crate) mod view;

use crate::client::conn::Conn;
use crate::client::h2::StreamWatch;
use crate::plugins::run;
use crate::tls::access::Denied;
use crate::upstream::request_body::ClientBody;
use http::{HeaderMap, Request, Response};
use http_body::Body;
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
    if let Some(denied) = record.denied() {
        let (code, detail) = match denied {
            Denied::Misdirected => (
                ErrorCode::Misdirected,
                "This host asks its clients for another certificate than this connection was asked for; open one for it.",
            ),
            Denied::NoCertificate => {
                (ErrorCode::BadRequest, "This path needs a certificate of the client, and none was shown.")
            }
        };
        return error_reply::make(record, &headers, code, detail, true);
    }
    let mut body = (!body.is_end_stream()).then_some(ClientBody::Live(body));
    head::remove_listed(&mut headers);
    run::find(&mut record, &headers);
    if record.running.is_some()
        && let Some(answer) = run::before(&mut record, &mut headers, &mut body).await
    {
        return reply::of_answer(record, headers, answer);
    }
    forward::forward(record, headers, body).await
}
