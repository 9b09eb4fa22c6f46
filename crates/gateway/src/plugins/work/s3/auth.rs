//! `s3-auth`: AWS Signature Version 4 tells who the consumer is.

use super::onward::{self, Onward};
use super::{body, refused};
use crate::clock;
use crate::plugins::work::auth;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use http::header::{AUTHORIZATION, ORIGIN};
use std::sync::Arc;
use towpath_resources::plugins::s3_auth::{Config, Forward};
use towpath_s3::recognise::{argument_of, bucket_of_host};
use towpath_s3::sigv4::{Instant, Message, Policy, Verified, verify};
use towpath_s3::{ErrorCode, S3Error, Unclear};

/// See the module.
pub(in crate::plugins) struct S3Auth {
    config: Arc<Config>,
    policy: Policy,
    onward: Onward,
}

/// Now, as signatures count.
pub(super) fn now() -> Instant {
    Instant(clock::unix_ms() / 1000)
}

impl S3Auth {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let policy = Policy {
            region: config.region.clone(),
            skew: config.clock_skew,
            unsigned_payload: config.allow_unsigned_payload,
        };
        Self { policy, onward: Onward::new(config), config: config.clone() }
    }

    fn verify(&self, request: &mut Request<'_>) -> Result<Verified, S3Error> {
        let plugins = request.running().plugins.clone();
        let record = &*request.record;
        let message = Message {
            method: record.method.as_str(),
            path: record.uri.path(),
            query: record.uri.query(),
            host: record.host(),
            headers: request.headers,
        };
        verify(&message, now(), &self.policy, |access_key| {
            let known = plugins.as_ref()?.consumers.by_access_key.get(access_key)?;
            Some(known.credential.secret_key.clone())
        })
    }

    /// Whether all take the same bucket out of the host.
    fn check_host(&self, request: &Request<'_>) -> Result<(), Unclear> {
        let host = String::from_utf8_lossy(request.record.host());
        bucket_of_host(&host, &self.config.base_domains).map(drop)
    }

    /// Whose request it is: whoever signed it, or nobody in particular.
    fn identify(&self, verified: &Verified, request: &mut Request<'_>) -> Result<(), S3Error> {
        let plugins = request.running().plugins.clone();
        let known =
            plugins.and_then(|plugins| plugins.consumers.by_access_key.get(&verified.access_key).cloned());
        let known =
            known.ok_or_else(|| S3Error::new(ErrorCode::InternalError, "The consumer is not there."))?;
        auth::attach(request, known.consumer, known.id);
        request.running().set_var("s3_access_key", verified.access_key.clone());
        Ok(())
    }
}

/// A request that says nothing of who sent it.
fn is_unsigned(request: &Request<'_>) -> bool {
    let query = request.record.uri.query();
    let signs = ["X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "AWSAccessKeyId", "Signature"];
    !request.headers.contains_key(AUTHORIZATION)
        && signs.iter().all(|name| argument_of(query, name).is_none())
}

/// A browser's question whether it may ask; it is never signed.
fn is_preflight(request: &Request<'_>) -> bool {
    request.record.method == http::Method::OPTIONS
        && request.headers.contains_key(ORIGIN)
        && request.headers.contains_key("access-control-request-method")
}

impl Plugin for S3Auth {
    fn phases(&self) -> Phases {
        let at_last =
            if self.config.forward == Forward::AsSigned { Phase::Rewrite } else { Phase::BeforeProxy };
        Phases::of([Phase::Rewrite, at_last])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        if let Err(unclear) = self.check_host(request) {
            return Step::answer(refused(&unclear.error(), request));
        }
        if is_preflight(request) {
            return Step::Next;
        }
        if is_unsigned(request)
            && let Some(consumer) = auth::anonymous(request, self.config.anonymous_consumer.as_deref())
        {
            auth::attach(request, consumer, None);
            return Step::Next;
        }
        let judged = self.verify(request).and_then(|verified| {
            self.identify(&verified, request)?;
            Ok(verified)
        });
        let verified = match judged {
            Ok(verified) => verified,
            Err(error) => return Step::answer(refused(&error, request)),
        };
        if self.config.forward != Forward::AsSigned {
            onward::note_payload(self, verified.payload, request);
        }
        body::check(request, verified, self.config.forward != Forward::AsSigned)
    }

    fn before_proxy(&self, request: &mut Request<'_>) -> Step {
        self.onward.prepare(self, request);
        Step::Next
    }
}
