//! From configurations to plugins at work. A plugin is a line here and a file beside this one.

use super::program::Plugins;
use super::{Plugin, work};
use std::sync::Arc;
use towpath_resources::plugins::PluginConfig;

/// Where a plugin finds things when it is made.
pub(crate) struct Scope<'a> {
    /// The resource in which it stands: what it counts, it counts for that.
    pub(crate) from: String,
    /// States, metadata, upstreams.
    pub(crate) plugins: &'a Plugins,
}

/// The plugin at work.
pub(crate) fn make(config: &PluginConfig, scope: &Scope<'_>) -> Arc<dyn Plugin> {
    match config {
        PluginConfig::Acl(config) => Arc::new(work::acl::Acl::new(config)),
        PluginConfig::ApiBreaker(config) => Arc::new(work::api_breaker::ApiBreaker::new(config, scope)),
        PluginConfig::BasicAuth(config) => Arc::new(work::basic_auth::BasicAuth::new(config)),
        PluginConfig::Brotli(config) => Arc::new(work::brotli::Brotli::new(config)),
        PluginConfig::ClientControl(config) => Arc::new(work::client_control::ClientControl::new(config)),
        PluginConfig::ConsumerRestriction(config) => {
            Arc::new(work::consumer_restriction::ConsumerRestriction::new(config))
        }
        PluginConfig::Cors(config) => Arc::new(work::cors::Cors::new(config, scope)),
        PluginConfig::Csrf(config) => Arc::new(work::csrf::Csrf::new(config)),
        PluginConfig::FaultInjection(config) => Arc::new(work::fault_injection::FaultInjection::new(config)),
        PluginConfig::FileLogger(config) => Arc::new(work::file_logger::FileLogger::new(config, scope)),
        PluginConfig::ForwardAuth(config) => Arc::new(Arc::new(work::forward_auth::ForwardAuth::new(config))),
        PluginConfig::Gzip(config) => Arc::new(work::gzip::Gzip::new(config)),
        PluginConfig::HmacAuth(config) => Arc::new(work::hmac_auth::HmacAuth::new(config)),
        PluginConfig::HttpLogger(config) => Arc::new(work::http_logger::HttpLogger::new(config, scope)),
        PluginConfig::IpRestriction(config) => Arc::new(work::ip_restriction::IpRestriction::new(config)),
        PluginConfig::JwtAuth(config) => Arc::new(work::jwt_auth::JwtAuth::new(config)),
        PluginConfig::KeyAuth(config) => Arc::new(work::key_auth::KeyAuth::new(config)),
        PluginConfig::LimitConn(config) => {
            Arc::new(Arc::new(work::limit_conn::LimitConn::new(config, scope)))
        }
        PluginConfig::LimitCount(config) => {
            Arc::new(Arc::new(work::limit_count::LimitCount::new(config, scope)))
        }
        PluginConfig::LimitReq(config) => Arc::new(work::limit_req::LimitReq::new(config, scope)),
        PluginConfig::LokiLogger(config) => Arc::new(work::loki_logger::LokiLogger::new(config, scope)),
        PluginConfig::Mocking(config) => Arc::new(work::mocking::Mocking::new(config)),
        PluginConfig::OpenidConnect(config) => {
            Arc::new(Arc::new(work::openid_connect::OpenidConnect::new(config, scope)))
        }
        PluginConfig::Opentelemetry(config) => {
            Arc::new(work::opentelemetry::OpenTelemetry::new(config, scope))
        }
        PluginConfig::Prometheus(config) => Arc::new(work::prometheus::Prometheus::new(config)),
        PluginConfig::ProxyBuffering(_) | PluginConfig::NodeStatus(_) | PluginConfig::ServerInfo(_) => {
            Arc::new(work::quiet::Quiet)
        }
        PluginConfig::ProxyControl(config) => Arc::new(work::proxy_control::ProxyControl::new(config)),
        PluginConfig::ProxyCache(config) => Arc::new(work::proxy_cache::ProxyCache::new(config)),
        PluginConfig::ProxyMirror(config) => Arc::new(work::proxy_mirror::ProxyMirror::new(config)),
        PluginConfig::ProxyRewrite(config) => Arc::new(work::proxy_rewrite::ProxyRewrite::new(config)),
        PluginConfig::RealIp(config) => Arc::new(work::real_ip::RealIp::new(config)),
        PluginConfig::Redirect(config) => Arc::new(work::redirect::Redirect::new(config)),
        PluginConfig::RefererRestriction(config) => {
            Arc::new(work::referer_restriction::RefererRestriction::new(config))
        }
        PluginConfig::RequestId(config) => Arc::new(work::request_id::RequestId::new(config)),
        PluginConfig::ResponseRewrite(config) => {
            Arc::new(work::response_rewrite::ResponseRewrite::new(config))
        }
        PluginConfig::S3Admission(config) => Arc::new(work::s3::admission::S3Admission::new(config, scope)),
        PluginConfig::S3Auth(config) => Arc::new(work::s3::auth::S3Auth::new(config)),
        PluginConfig::S3Switch(config) => Arc::new(work::s3::switch::S3Switch::new(config)),
        PluginConfig::Syslog(config) => Arc::new(work::syslog::Syslog::new(config, scope)),
        PluginConfig::TcpLogger(config) => Arc::new(work::tcp_logger::TcpLogger::new(config, scope)),
        PluginConfig::TrafficSplit(config) => Arc::new(work::traffic_split::TrafficSplit::new(config, scope)),
        PluginConfig::UaRestriction(config) => Arc::new(work::ua_restriction::UaRestriction::new(config)),
        PluginConfig::Zstd(config) => Arc::new(work::zstd::Zstd::new(config)),
        PluginConfig::UdpLogger(config) => Arc::new(work::udp_logger::UdpLogger::new(config, scope)),
        PluginConfig::Workflow(config) => Arc::new(work::workflow::Workflow::new(config, scope)),
        PluginConfig::UriBlocker(config) => Arc::new(work::uri_blocker::UriBlocker::new(config)),
    }
}
