//! `proxy-mirror`: a copy of requests goes to another place, whose answers nobody sees.

use super::outbound::{self, Place};
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use crate::upstream::request_body::Copied;
use http::header::{HOST, HeaderMap};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use towpath_resources::plugins::proxy_mirror::{Concat, Config};
use towpath_route::header_passes;

/// Most copies under way at a time, of one configuration.
const AT_ONCE: usize = 256;
/// Longest life of a copy.
const LONGEST: Duration = Duration::from_secs(60);

/// See the module.
pub(in crate::plugins) struct ProxyMirror {
    config: Arc<Config>,
    place: Option<Place>,
    room: Arc<Semaphore>,
}

impl ProxyMirror {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self {
            place: Place::read(&config.host),
            config: config.clone(),
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    fn target(&self, request: &Request<'_>) -> String {
        let own = request.record.upstream_target();
        match (&self.config.path, self.config.path_concat_mode) {
            (None, _) => own,
            (Some(path), Concat::Prefix) => format!("{path}{own}"),
            (Some(path), Concat::Replace) => match request.record.sent_query() {
                Some(query) => format!("{path}?{query}"),
                None => path.clone(),
            },
        }
    }
}

impl Plugin for ProxyMirror {
    fn phases(&self) -> Phases {
        Phases::of([Phase::BeforeProxy])
    }

    fn before_proxy(&self, request: &mut Request<'_>) -> Step {
        let drawn = (request.record.conn.worker.random() >> 11) as f64 / (1_u64 << 53) as f64;
        let Some(place) = self.place.clone().filter(|_| drawn < self.config.sample_ratio) else {
            return Step::Next;
        };
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            request.record.conn.worker.metrics.mirror_dropped.add(1);
            return Step::Next;
        };
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers.iter().filter(|(name, _)| header_passes(name.as_str())) {
            headers.append(name.clone(), value.clone());
        }
        if let Ok(host) = http::HeaderValue::from_bytes(request.record.upstream_host()) {
            headers.insert(HOST, host);
        }
        let body = match request.body.take() {
            Some(body) => {
                let (body, copy) = body.copied();
                *request.body = Some(body);
                copy
            }
            None => Copied::empty(),
        };
        let copy = http::Request::builder()
            .method(request.record.sent_method().clone())
            .uri(self.target(request))
            .body(body);
        let Ok(mut copy) = copy else { return Step::Next };
        *copy.headers_mut() = headers;
        tokio::task::spawn_local(async move {
            let _room = room;
            let sending = async {
                let answer = outbound::send(&place, copy, false).await?;
                let mut body = answer.into_body();
                while body.frame().await.is_some() {}
                Ok::<_, std::io::Error>(())
            };
            if let Ok(Err(error)) = tokio::time::timeout(LONGEST, sending).await {
                tracing::debug!(%error, "a copy of a request could not be sent");
            }
        });
        Step::Next
    }
}
