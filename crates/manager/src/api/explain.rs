//! What every live gateway would do with a request, without sending it on.

use super::ApiState;
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::NoQuery;
use super::reading::read_answer;
use super::validate;
use axum::extract::State;
use axum::response::Response;
use futures::future::join_all;
use http::Uri;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use towpath_types::{AppRef, ErrorCode, GatewayId, LaneName};
use towpath_wire::gateway::{ExplainRequest, Explanation};
use towpath_wire::{decode, encode, subject};

/// Longest wait for a gateway.
const PATIENCE: Duration = Duration::from_secs(3);

/// A request to explain.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ExplainBody {
    /// For example `http://shop.localhost:8080/cart?x=1`.
    #[schema(required = true, value_type = String)]
    url: Option<String>,
    /// `GET` when absent.
    method: Option<String>,
    /// Headers, as pairs of name and value.
    #[schema(value_type = Vec<Vec<String>>, example = json!([["towpath-lane", "blue"]]))]
    headers: Vec<(String, String)>,
    /// The client's address; `127.0.0.1` when absent.
    #[schema(value_type = Option<String>)]
    client: Option<IpAddr>,
}

impl Checked for ExplainBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        match &self.url {
            None => errors.push(FieldError::new("url", "is needed, for example http://shop.localhost:8080/")),
            Some(url) if parse_url(url).is_none() => {
                errors.push(FieldError::new(
                    "url",
                    "is not a URL; write for example http://shop.localhost:8080/",
                ));
            }
            Some(_) => {}
        }
        if self.method.as_ref().is_some_and(|method| http::Method::from_bytes(method.as_bytes()).is_err()) {
            errors.push(FieldError::new("method", "is not an HTTP method"));
        }
        for (index, (name, value)) in self.headers.iter().enumerate() {
            if !validate::is_token(name) {
                errors.push(FieldError::new(format!("headers[{index}][0]"), "is not a header name"));
            }
            if http::HeaderValue::from_str(value).is_err() {
                errors.push(FieldError::new(format!("headers[{index}][1]"), "is not a header value"));
            }
        }
    }
}

/// Host and target of a URL.
fn parse_url(url: &str) -> Option<(String, String)> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.authority()?.as_str().rsplit('@').next()?.to_owned();
    uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let target = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Some((host, if target.is_empty() { "/".into() } else { target.to_owned() }))
}

/// What the gateways say.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ExplainView {
    /// One per gateway that answered.
    #[schema(value_type = Vec<Object>)]
    items: Vec<Explanation>,
    /// Gateways that did not answer.
    silent: Vec<GatewayId>,
}

/// Asks every live gateway what it would do with a request.
#[utoipa::path(post, path = "/v1/explain", tag = "routes", request_body(content = ExplainBody, example = json!({"url": "http://shop.localhost:8080/", "headers": [["towpath-lane", "blue"]]})),
    responses((status = 200, body = ExplainView), (status = "default", body = ProblemBody)))]
pub(crate) async fn explain(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
    Doc(body): Doc<ExplainBody>,
) -> Outcome<Response> {
    let (host, target) =
        body.url.as_deref().and_then(parse_url).ok_or_else(|| Problem::field("url", "is not a URL"))?;
    let request = ExplainRequest {
        method: body.method.unwrap_or_else(|| "GET".into()),
        host,
        target,
        headers: body.headers,
        client: body.client.map_or_else(|| "127.0.0.1".into(), |client| client.to_string()),
    };
    let payload = bytes::Bytes::from(encode(&request));
    let live: Vec<GatewayId> = state
        .core
        .soft
        .gateways()
        .into_iter()
        .filter(|gateway| !gateway.lost)
        .map(|gateway| gateway.report.gateway)
        .collect();
    if live.is_empty() {
        return Err(Problem::new(ErrorCode::NoEndpoint, "no gateway is there to ask")
            .retry_after(Duration::from_secs(2)));
    }
    let answers = join_all(live.into_iter().map(|gateway| {
        let (bus, payload) = (state.core.bus.clone(), payload.clone());
        async move {
            let answer = bus.request(&subject::gateway_explain(gateway), payload, PATIENCE).await;
            match answer
                .map_err(|error| error.to_string())
                .and_then(|answer| decode::<Explanation>(&answer).map_err(|error| error.to_string()))
            {
                Ok(explanation) => Ok(explanation),
                Err(error) => {
                    tracing::warn!(%gateway, error, "a gateway did not explain");
                    Err(gateway)
                }
            }
        }
    }))
    .await;
    let (mut items, mut silent) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(explanation) => items.push(seen(explanation, &caller)),
            Err(gateway) => silent.push(gateway),
        }
    }
    Ok(read_answer(false, &ExplainView { items, silent }))
}

/// What the caller may know of an explanation: of an app of others, no more than that nothing of theirs is there.
fn seen(explanation: Explanation, caller: &Caller) -> Explanation {
    let hides = |app: &AppRef| !caller.reach.sees(&app.space_ref());
    if !explanation.app.as_ref().is_some_and(hides) {
        return explanation;
    }
    let detail = "no route of yours has this host and path".to_owned();
    Explanation {
        route: None,
        app: None,
        asked_lane: None,
        lane: LaneName::base(),
        lane_reason: String::new(),
        balancer: String::new(),
        tier: None,
        tier_reason: String::new(),
        endpoints: Vec::new(),
        error: Some((ErrorCode::NoRoute, detail)),
        gateway: explanation.gateway,
        place: explanation.place,
        revision: explanation.revision,
    }
}
