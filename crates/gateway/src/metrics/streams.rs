//! What is counted of stream sessions: by protocol and by how they ended, so that the number of series is fixed.

use super::{Count, WorkerMetrics};
use std::fmt::Write;
use std::sync::Arc;

/// The protocol of a session as the gateway takes part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Tcp,
    Tls,
    Udp,
}

impl StreamKind {
    const ALL: [Self; 3] = [Self::Tcp, Self::Tls, Self::Udp];

    /// Its name in metrics and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Udp => "udp",
        }
    }
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// It had an endpoint.
    Served,
    /// No route takes it.
    NoRoute,
    /// A plugin let it not in.
    Refused,
    /// No endpoint took it.
    Failed,
    /// The client went away, or was silent, before it could be served.
    Gone,
}

impl StreamEnd {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Served, "served"),
        (Self::NoRoute, "no_route"),
        (Self::Refused, "refused"),
        (Self::Failed, "failed"),
        (Self::Gone, "gone"),
    ];
}

/// Of one protocol.
#[derive(Debug, Default)]
pub(crate) struct KindMetrics {
    ends: [Count; StreamEnd::ALL.len()],
    /// Sessions now.
    pub(crate) open: Count,
    /// From clients.
    pub(crate) bytes_in: Count,
    /// To clients.
    pub(crate) bytes_out: Count,
}

/// Of one worker.
#[derive(Debug, Default)]
pub(crate) struct StreamMetrics {
    kinds: [KindMetrics; 3],
    /// Datagrams that could not be passed on.
    pub(crate) dropped: Count,
}

impl StreamMetrics {
    /// The counters of a protocol.
    pub(crate) fn of(&self, kind: StreamKind) -> &KindMetrics {
        let [tcp, tls, udp] = &self.kinds;
        match kind {
            StreamKind::Tcp => tcp,
            StreamKind::Tls => tls,
            StreamKind::Udp => udp,
        }
    }
}

impl KindMetrics {
    /// A session has ended.
    pub(crate) fn ends(&self, end: StreamEnd) {
        let at = StreamEnd::ALL.iter().position(|(known, _)| *known == end);
        if let Some(count) = at.and_then(|at| self.ends.get(at)) {
            count.add(1);
        }
    }
}

/// Writes them in Prometheus text form.
pub(super) fn render(out: &mut String, workers: &[Arc<WorkerMetrics>]) {
    let sum = |of: &dyn Fn(&StreamMetrics) -> u64| -> u64 {
        workers.iter().map(|worker| of(&worker.streams)).fold(0, u64::wrapping_add)
    };
    let _ = writeln!(out, "# TYPE towpath_gateway_stream_sessions_total counter");
    for kind in StreamKind::ALL {
        for (at, (_, end)) in StreamEnd::ALL.iter().enumerate() {
            let count = sum(&|streams| streams.of(kind).ends.get(at).map_or(0, Count::get));
            let protocol = kind.as_str();
            let _ = writeln!(
                out,
                "towpath_gateway_stream_sessions_total{{protocol=\"{protocol}\",end=\"{end}\"}} {count}"
            );
        }
    }
    type Field = fn(&KindMetrics) -> &Count;
    let fields: [(&str, &str, Field); 3] = [
        ("stream_sessions", "gauge", |kind| &kind.open),
        ("stream_received_bytes_total", "counter", |kind| &kind.bytes_in),
        ("stream_sent_bytes_total", "counter", |kind| &kind.bytes_out),
    ];
    for (name, kind, field) in fields {
        let _ = writeln!(out, "# TYPE towpath_gateway_{name} {kind}");
        for kind in StreamKind::ALL {
            let count = sum(&|streams| field(streams.of(kind)).get());
            let _ = writeln!(out, "towpath_gateway_{name}{{protocol=\"{}\"}} {count}", kind.as_str());
        }
    }
    let dropped = sum(&|streams| streams.dropped.get());
    let _ = writeln!(
        out,
        "# TYPE towpath_gateway_stream_datagrams_dropped_total counter\ntowpath_gateway_stream_datagrams_dropped_total {dropped}"
    );
}
