//! `prometheus`: requests are counted under APISIX's names; see [`crate::metrics::series`].

use crate::clock;
use crate::metrics::series::{Labels, Sample};
use crate::plugins::vars::Vars;
use crate::plugins::{Phase, Phases, Plugin};
use std::sync::Arc;
use towpath_resources::plugins::prometheus::Config;

/// See the module.
pub(in crate::plugins) struct Prometheus {
    prefer_name: bool,
}

impl Prometheus {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self { prefer_name: config.prefer_name }
    }
}

impl Plugin for Prometheus {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Log])
    }

    fn log(&self, vars: &Vars<'_>) {
        let record = vars.record;
        let running = record.running.as_deref();
        let program = running.and_then(|running| running.program.as_ref());
        let about = program.map(|program| &program.about);
        let route = about
            .map_or("", |about| about.name.as_deref().filter(|_| self.prefer_name).unwrap_or(&about.route));
        let service = about.and_then(|about| {
            about.service_name.as_deref().filter(|_| self.prefer_name).or(about.service.as_deref())
        });
        let consumer = running.and_then(|running| running.consumer.as_ref());
        let labels = Labels {
            route,
            matched_uri: about.and_then(|about| about.matched.as_deref()).unwrap_or_default(),
            matched_host: about.and_then(|about| about.host.as_deref()).unwrap_or_default(),
            service: service.unwrap_or_default(),
            consumer: consumer.map_or("", |consumer| consumer.name.as_str()),
            node: record.chosen.as_ref().map(|chosen| chosen.endpoint.address()),
            code: record.status,
        };
        let total = clock::now_ns().saturating_sub(record.started_ns());
        let upstream = record.upstream_ns();
        record.conn.worker.series.borrow_mut().count(
            &labels,
            &Sample {
                total_us: total / 1000,
                upstream_us: upstream.map(|ns| ns / 1000),
                bytes_in: record.bytes_in(),
                bytes_out: record.bytes_out,
            },
        );
    }
}
