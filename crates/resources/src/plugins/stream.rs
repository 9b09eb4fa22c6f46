//! Which plugins work on connections instead of requests.

use super::PluginConfig;
use super::limit_count::Policy;
use crate::Fault;
use crate::resolved::PluginUse;

/// The plugins that a stream route may have.
pub const IN_STREAMS: [&str; 2] = ["ip-restriction", "limit-conn"];

/// Whether the plugin may stand in a stream route.
pub fn works_in_streams(name: &str) -> bool {
    IN_STREAMS.contains(&name)
}

/// The fault of a plugin that may not. What a stream route has through its service counts too: what is passed over in silence
/// could be what keeps others out.
pub(crate) fn fault_in_stream(plugin: &PluginUse) -> Option<Fault> {
    let path = format!("plugins.{}", plugin.name);
    if !works_in_streams(plugin.name) {
        let message =
            format!("works on HTTP requests, not in a stream route: that takes {}", IN_STREAMS.join(" and "));
        return Some(Fault::new(path, message));
    }
    if let PluginConfig::LimitConn(config) = &plugin.config
        && config.policy == Policy::Shared
    {
        let message = "sessions are counted by each gateway for itself: leave policy out, or give \"local\"";
        return Some(Fault::new(format!("{path}.policy"), message));
    }
    let meta = &plugin.meta;
    let for_requests = meta.filter.is_some() || meta.error_response.is_some();
    for_requests.then(|| {
        Fault::new(path, "_meta.filter and _meta.error_response are about HTTP requests, not streams")
    })
}
