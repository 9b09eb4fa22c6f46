//! The plugins that the gateway runs: what each may be configured with, checked and typed. One file a plugin; a plugin is in
//! the registry below only when the gateway runs it.
//!
//! **To add one**: a file with `Config` (`Deserialize`, `JsonSchema`, `deny_unknown_fields`, documented fields with their
//! ranges and defaults) and its [`Settings`], and a line in `registry!`'s list with its name and APISIX's priority.
//! A field that is secret says `#[schemars(extend("x-secret" = true))]`; nothing else is needed for it to be sealed and hidden.

pub mod logs;
mod meta;
mod read;
mod refused;
mod stream;
pub mod values;

pub use meta::{ErrorResponse, Meta};
pub(crate) use read::refuse_secrets;
pub use read::{credentials_of, metadata_of, plugins_of};
pub use refused::{all_refused, refused};
pub(crate) use stream::fault_in_stream;
pub use stream::{IN_STREAMS, works_in_streams};

use crate::schema::Checker;
use crate::secrets::Marks;
use crate::{Fault, Key};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// What the configuration of a plugin can say about itself beyond its schema.
pub trait Settings {
    /// Adds what a schema cannot say: how fields relate to each other.
    fn check(&self, _faults: &mut Vec<Fault>) {}

    /// The resources that it names.
    fn references(&self) -> Vec<Key> {
        Vec::new()
    }

    /// The upstreams that stand in it, each with a name that is unique in this configuration and stays while others are edited.
    fn upstreams(&self) -> Vec<(String, &crate::model::Upstream)> {
        Vec::new()
    }
}

/// Makes a value that its schema allows typed.
type Reader<T> = fn(&Value, &mut Vec<Fault>) -> Option<T>;

/// A plugin that the gateway runs.
#[derive(Debug)]
pub struct Plugin {
    /// Its name.
    pub name: &'static str,
    /// Of plugins in the same phase the higher goes first.
    pub priority: i32,
    /// Whether it tells who the consumer is.
    pub authenticates: bool,
    /// Schema of its configuration.
    pub schema: Value,
    /// Schema of what it holds of a consumer.
    pub credential_schema: Option<Value>,
    /// Schema of its metadata.
    pub metadata_schema: Option<Value>,
    pub(crate) checker: Checker,
    pub(crate) credential_checker: Option<Checker>,
    pub(crate) metadata_checker: Option<Checker>,
    pub(crate) marks: Option<Marks>,
    pub(crate) credential_marks: Option<Marks>,
    pub(crate) metadata_marks: Option<Marks>,
    pub(crate) read: Reader<PluginConfig>,
    pub(crate) read_credential: Option<Reader<PluginCredential>>,
    pub(crate) read_metadata: Option<Reader<PluginMetadata>>,
}

/// The plugin `name`, if the gateway runs it.
pub fn plugin(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().find(|plugin| plugin.name == name)
}

/// Every plugin that the gateway runs.
pub fn all() -> &'static [Plugin] {
    &PLUGINS
}

macro_rules! registry {
    ($($module:ident => $variant:ident, $name:literal, $priority:literal $(, credential: $credential:ident)? $(, metadata: $metadata:ident)?;)*) => {
        $(pub mod $module;)*

        /// The configuration of a plugin.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "a plugin each")]
        pub enum PluginConfig {
            $($variant(Arc<$module::Config>),)*
        }

        /// What a plugin that authenticates holds of a consumer.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "a plugin each")]
        pub enum PluginCredential {
            $($($variant(Arc<$module::$credential>),)?)*
        }

        /// What is set for a plugin wherever it is used.
        #[derive(Debug, Clone, PartialEq)]
        #[expect(missing_docs, reason = "a plugin each")]
        pub enum PluginMetadata {
            $($($variant(Arc<$module::$metadata>),)?)*
        }

        impl PluginConfig {
            /// What it can say about itself.
            pub fn settings(&self) -> &dyn Settings {
                match self {
                    $(PluginConfig::$variant(config) => config.as_ref(),)*
                }
            }
        }

        static PLUGINS: LazyLock<Vec<Plugin>> = LazyLock::new(|| vec![
            $(Plugin {
                name: $name,
                priority: $priority,
                authenticates: false $(|| { let _ = stringify!($credential); true })?,
                schema: crate::schema::of::<$module::Config>(),
                checker: Checker::of::<$module::Config>(),
                read: |value, faults| read::typed::<$module::Config>(value, faults).map(|config| PluginConfig::$variant(Arc::new(config))),
                credential_schema: optional!($($module::$credential => schema)?),
                credential_checker: optional!($($module::$credential => checker)?),
                read_credential: optional!($($module::$credential => PluginCredential::$variant)?),
                metadata_schema: optional!($($module::$metadata => schema)?),
                metadata_checker: optional!($($module::$metadata => checker)?),
                read_metadata: optional!($($module::$metadata => PluginMetadata::$variant)?),
                marks: Marks::of(&crate::schema::of::<$module::Config>()),
                credential_marks: optional!($($module::$credential => marks)?),
                metadata_marks: optional!($($module::$metadata => marks)?),
            },)*
        ]);
    };
}

/// `None` for nothing, else the schema, the checker or the reader of a type.
macro_rules! optional {
    () => {
        None
    };
    ($module:ident::$of:ident => schema) => {
        Some(crate::schema::of::<$module::$of>())
    };
    ($module:ident::$of:ident => checker) => {
        Some(Checker::of::<$module::$of>())
    };
    ($module:ident::$of:ident => marks) => {
        Marks::of(&crate::schema::of::<$module::$of>())
    };
    ($module:ident::$of:ident => $holder:ident::$variant:ident) => {
        Some(|value, faults| {
            read::typed::<$module::$of>(value, faults).map(|held| $holder::$variant(Arc::new(held)))
        })
    };
}

registry! {
    acl => Acl, "acl", 2410;
    api_breaker => ApiBreaker, "api-breaker", 1005;
    basic_auth => BasicAuth, "basic-auth", 2520, credential: Credential;
    brotli => Brotli, "brotli", 996;
    client_control => ClientControl, "client-control", 22000;
    consumer_restriction => ConsumerRestriction, "consumer-restriction", 2400;
    cors => Cors, "cors", 4000, metadata: Metadata;
    csrf => Csrf, "csrf", 2980;
    fault_injection => FaultInjection, "fault-injection", 11000;
    file_logger => FileLogger, "file-logger", 399, metadata: Metadata;
    forward_auth => ForwardAuth, "forward-auth", 2002;
    gzip => Gzip, "gzip", 995;
    hmac_auth => HmacAuth, "hmac-auth", 2530, credential: Credential;
    http_logger => HttpLogger, "http-logger", 410, metadata: Metadata;
    ip_restriction => IpRestriction, "ip-restriction", 3000;
    jwt_auth => JwtAuth, "jwt-auth", 2510, credential: Credential;
    key_auth => KeyAuth, "key-auth", 2500, credential: Credential;
    limit_conn => LimitConn, "limit-conn", 1003;
    limit_count => LimitCount, "limit-count", 1002, metadata: Metadata;
    limit_req => LimitReq, "limit-req", 1001;
    loki_logger => LokiLogger, "loki-logger", 414, metadata: Metadata;
    mocking => Mocking, "mocking", 10900;
    openid_connect => OpenidConnect, "openid-connect", 2599;
    node_status => NodeStatus, "node-status", 1000;
    opentelemetry => Opentelemetry, "opentelemetry", 12009, metadata: Metadata;
    prometheus => Prometheus, "prometheus", 500;
    proxy_buffering => ProxyBuffering, "proxy-buffering", 21991;
    proxy_cache => ProxyCache, "proxy-cache", 1085;
    proxy_control => ProxyControl, "proxy-control", 21990;
    proxy_mirror => ProxyMirror, "proxy-mirror", 1010;
    proxy_rewrite => ProxyRewrite, "proxy-rewrite", 1008;
    real_ip => RealIp, "real-ip", 23000;
    redirect => Redirect, "redirect", 900;
    referer_restriction => RefererRestriction, "referer-restriction", 2990;
    request_id => RequestId, "request-id", 12015;
    response_rewrite => ResponseRewrite, "response-rewrite", 899;
    s3_admission => S3Admission, "s3-admission", 990;
    s3_auth => S3Auth, "s3-auth", 2540, credential: Credential;
    s3_switch => S3Switch, "s3-switch", 2410;
    server_info => ServerInfo, "server-info", 990;
    syslog => Syslog, "syslog", 401, metadata: Metadata;
    tcp_logger => TcpLogger, "tcp-logger", 405, metadata: Metadata;
    traffic_split => TrafficSplit, "traffic-split", 966;
    ua_restriction => UaRestriction, "ua-restriction", 2999;
    udp_logger => UdpLogger, "udp-logger", 400, metadata: Metadata;
    uri_blocker => UriBlocker, "uri-blocker", 2900;
    workflow => Workflow, "workflow", 1006;
    zstd => Zstd, "zstd", 997;
}
