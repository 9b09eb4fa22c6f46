//! `proxy-control`: the whole request body is read before an upstream is asked, up to a length; a longer one streams on from
//! there.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use crate::upstream::request_body::ClientBody;
use bytes::Bytes;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use towpath_resources::plugins::proxy_control::Config;

/// Longest part of a body that is held, bytes.
const HELD: usize = 1 << 20;
/// Longest wait for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub(in crate::plugins) struct ProxyControl(bool);

impl ProxyControl {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.request_buffering)
    }
}

/// The body, read as far as that goes; `None` = it broke off.
async fn read(mut body: ClientBody) -> Option<ClientBody> {
    let mut held = Vec::new();
    while held.len() < HELD {
        match body.frame().await {
            None => return Some(ClientBody::Held(Bytes::from(held))),
            Some(Ok(frame)) => held.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Some(Err(_)) => return None,
        }
    }
    Some(ClientBody::Begun(Bytes::from(held), Box::new(body)))
}

impl Plugin for ProxyControl {
    fn phases(&self) -> Phases {
        Phases::of([Phase::BeforeProxy])
    }

    fn before_proxy(&self, request: &mut Request<'_>) -> Step {
        let Some(body) = request.body.take_if(|_| self.0) else { return Step::Next };
        Step::Wait(Box::pin(async move {
            let read = timeout(PATIENCE, read(body)).await;
            Box::new(move |request: &mut Request<'_>| match read {
                Ok(Some(body)) => {
                    *request.body = Some(body);
                    Step::Next
                }
                Ok(None) => Step::answer(Answer::status(400)),
                Err(_) => Step::answer(Answer::status(408)),
            }) as Resume
        }))
    }
}
