//! How verified requests go on: signed with the backend's keys, or without a signature.

use super::auth::now;
use crate::plugins::Request;
use crate::plugins::running::LastTouch;
use crate::request::record::Record;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use towpath_resources::plugins::s3_auth::{Config, Forward};
use towpath_s3::encode::{argument, hex, pairs};
use towpath_s3::recognise::bucket_of_host;
use towpath_s3::sigv4::{Credentials, Outgoing, Payload, sign};

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// See the module.
pub(super) struct Onward {
    config: Arc<Config>,
    credentials: Option<Arc<Credentials>>,
}

/// What the client's signature said of the body.
struct Stated(Payload);

/// Keeps what the client's signature said of the body until the request goes on.
pub(super) fn note_payload<P>(plugin: &P, payload: Payload, request: &mut Request<'_>) {
    request.running().note(plugin, Stated(payload));
}

impl Onward {
    pub(super) fn new(config: &Arc<Config>) -> Self {
        let credentials =
            config.backend.as_ref().filter(|_| config.forward == Forward::Sign).map(|backend| {
                Arc::new(Credentials {
                    access_key: backend.access_key.clone(),
                    secret_key: backend.secret_key.clone(),
                    region: backend.region.clone(),
                })
            });
        Self { config: config.clone(), credentials }
    }

    /// Just before an endpoint is chosen.
    pub(super) fn prepare<P>(&self, plugin: &P, request: &mut Request<'_>) {
        request.headers.remove(AUTHORIZATION);
        if request.record.client_query().is_some_and(|query| pairs(query).any(|(name, _)| is_signature(name)))
        {
            request.record.hide_argument(without_signature);
        }
        if self.config.path_style {
            self.put_into_path(request);
        }
        // A hash that was verified is stated to the upstream too; what came in chunks has none.
        let stated = match request.running().noted::<P, Stated>(plugin) {
            Some(Stated(Payload::Hash(hash))) => Cow::Owned(hex(hash)),
            _ => Cow::Borrowed(UNSIGNED),
        };
        let touch: LastTouch = match &self.credentials {
            Some(credentials) => {
                let credentials = credentials.clone();
                Rc::new(move |record, headers| sign_with(&credentials, &stated, record, headers))
            }
            None => Rc::new(|_, headers| {
                for name in ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token"] {
                    headers.remove(name);
                }
            }),
        };
        request.running().last_touch = Some(touch);
    }

    /// The bucket goes from the host into the path.
    fn put_into_path(&self, request: &mut Request<'_>) {
        let host = String::from_utf8_lossy(request.record.host()).into_owned();
        // An unclear host was refused when the signature was looked at.
        let Ok(Some(bucket)) = bucket_of_host(&host, &self.config.base_domains) else { return };
        let base = host.get(bucket.len() + 1..).unwrap_or_default().to_owned();
        let rewritten = request.record.rewritten().and_then(|rewritten| rewritten.path.clone());
        let path = rewritten.unwrap_or_else(|| request.record.uri.path().to_owned());
        let path = format!("/{bucket}{path}");
        let rewritten = &mut request.running().rewritten;
        rewritten.path = Some(path);
        rewritten.host.get_or_insert(base);
    }
}

fn is_signature(name: &str) -> bool {
    const NAMES: [&str; 8] = [
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Signature",
        "X-Amz-Content-Sha256",
        "X-Amz-Security-Token",
    ];
    let name = argument(name);
    NAMES.iter().any(|known| *known == name)
}

/// A query without what a presigned URL has in it.
fn without_signature(query: &str) -> String {
    let kept = query.split('&').filter(|pair| !is_signature(pair.split('=').next().unwrap_or_default()));
    kept.collect::<Vec<_>>().join("&")
}

fn sign_with(credentials: &Credentials, payload: &str, record: &Record, headers: &mut HeaderMap) {
    let target = record.upstream_target();
    let (path, query) =
        target.split_once('?').map_or((target.as_str(), None), |(path, query)| (path, Some(query)));
    let method = record.sent_method().as_str();
    let outgoing = Outgoing { method, path, query, host: record.upstream_host(), payload };
    sign(&outgoing, headers, credentials, now());
}

#[cfg(test)]
mod tests {
    use super::without_signature;

    #[test]
    fn a_query_keeps_what_is_no_signature() {
        let query = "versionId=1&X-Amz-Algorithm=a&X-Amz-Signature=b&X%2DAmz-Date=c&tagging&x-amz-other=1";
        assert_eq!(without_signature(query), "versionId=1&tagging&x-amz-other=1");
    }
}
