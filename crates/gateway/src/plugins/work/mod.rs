//! The plugins, one file each.

pub(super) mod api_breaker;
mod auth;
pub(super) mod basic_auth;
pub(super) mod client_control;
pub(super) mod consumer_restriction;
pub(super) mod cors;
mod counters;
pub(super) mod csrf;
pub(super) mod fault_injection;
mod headers;
pub(super) mod ip_restriction;
pub(super) mod key_auth;
pub(super) mod limit_conn;
pub(super) mod limit_count;
mod limit_key;
pub(super) mod limit_req;
pub(super) mod mocking;
pub(super) mod proxy_rewrite;
pub(super) mod real_ip;
pub(super) mod redirect;
pub(super) mod referer_restriction;
pub(super) mod request_id;
pub(super) mod response_rewrite;
mod substitute;
pub(super) mod traffic_split;
pub(super) mod ua_restriction;
pub(super) mod uri_blocker;
