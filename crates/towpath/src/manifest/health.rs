//! The `[health]` table.

use crate::document::fields::Fields;
use towpath_types::health::{HealthCheck, Probe};

/// What is probed, as people choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// A TCP connection.
    Port,
    /// A GET.
    Http,
    /// The process runs.
    Process,
}

/// The words for it.
pub(crate) const PROBES: &[(&str, ProbeKind)] =
    &[("port", ProbeKind::Port), ("http", ProbeKind::Http), ("process", ProbeKind::Process)];

/// Reads the table. `path` alone means `http`.
pub(super) fn read(fields: Fields<'_>) -> HealthCheck {
    let default = HealthCheck::default();
    let kind = fields.choice("type", PROBES);
    let path = fields.text("path");
    let kind = kind.unwrap_or(if path.is_some() { ProbeKind::Http } else { ProbeKind::Port });
    if let Some(path) = path.as_deref()
        && !path.starts_with('/')
    {
        fields.wrong("path", format!("{path:?} is not a path"), "begin it with '/'");
    }
    if path.is_some() && kind != ProbeKind::Http {
        fields.wrong("path", "a path is only for type \"http\"", "drop it, or say type = \"http\"");
    }
    let probe = match kind {
        ProbeKind::Port => Probe::Port,
        ProbeKind::Process => Probe::Process,
        ProbeKind::Http => Probe::Http(path.unwrap_or_else(|| "/".into())),
    };
    let failures = fields.count("failures", 1..=100).and_then(|n| u32::try_from(n).ok());
    let check = HealthCheck {
        probe,
        interval: fields.parsed("interval").unwrap_or(default.interval),
        timeout: fields.parsed("timeout").unwrap_or(default.timeout),
        failures: failures.unwrap_or(default.failures),
        start_timeout: fields.parsed("start_timeout").unwrap_or(default.start_timeout),
    };
    fields.finish();
    check
}
