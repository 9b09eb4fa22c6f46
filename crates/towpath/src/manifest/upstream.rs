//! The `[upstream]` table: how gateways balance over the app.

use super::route::HashByText;
use crate::document::fields::Fields;
use crate::document::{Node, Value};
use towpath_types::upstream::{
    Balancer, Ejection, LoadWeights, Locality, RetryPolicy, Sticky, Timeouts, UpstreamSpec,
};

const BALANCERS: &[(&str, Word)] = &[
    ("load", Word::Load),
    ("weighted", Word::Weighted),
    ("least_conn", Word::LeastConn),
    ("ewma", Word::Ewma),
    ("roundrobin", Word::Roundrobin),
    ("chash", Word::Chash),
    ("random", Word::Random),
];

#[derive(Clone, Copy)]
enum Word {
    Load,
    Weighted,
    LeastConn,
    Ewma,
    Roundrobin,
    Chash,
    Random,
}

/// Reads the table; what it does not say has the platform's default.
pub(super) fn read(fields: Fields<'_>) -> UpstreamSpec {
    let default = UpstreamSpec::default();
    let spec = UpstreamSpec {
        balancer: balancer(&fields),
        load_weights: fields.table("load_weights").map(load_weights).unwrap_or_default(),
        locality: fields
            .choice(
                "locality",
                &[("zone", Locality::Zone), ("node", Locality::Node), ("none", Locality::None)],
            )
            .unwrap_or_default(),
        timeouts: fields.table("timeouts").map(timeouts).unwrap_or_default(),
        retry: fields.table("retry").map(retry).unwrap_or_default(),
        ejection: fields.table("ejection").map(ejection).unwrap_or_default(),
        sticky: sticky(&fields),
        slow_start: fields.parsed("slow_start").unwrap_or(default.slow_start),
        max_body: fields.parsed("max_body").unwrap_or(default.max_body),
        spill_below: fields.number("spill_below", 0.0..=1.0).unwrap_or(default.spill_below),
    };
    fields.finish();
    spec
}

fn balancer(fields: &Fields<'_>) -> Balancer {
    let hash_by = fields.named::<HashByText>("hash_by").map(|by| by.0);
    let word = fields.choice("balancer", BALANCERS);
    if hash_by.is_some() && !matches!(word, Some(Word::Chash)) {
        fields.wrong("hash_by", "only the balancer \"chash\" hashes", "balancer = \"chash\"");
    }
    match word {
        None | Some(Word::Load) => Balancer::Load,
        Some(Word::Weighted) => Balancer::Weighted,
        Some(Word::LeastConn) => Balancer::LeastConn,
        Some(Word::Ewma) => Balancer::Ewma,
        Some(Word::Roundrobin) => Balancer::Roundrobin,
        Some(Word::Chash) => Balancer::Chash(hash_by.unwrap_or_default()),
        Some(Word::Random) => Balancer::Random,
    }
}

fn load_weights(fields: Fields<'_>) -> LoadWeights {
    let default = LoadWeights::default();
    let read = |name, default| fields.number(name, 0.0..=1.0).unwrap_or(default);
    let weights = LoadWeights {
        host_cpu: read("host_cpu", default.host_cpu),
        host_mem: read("host_mem", default.host_mem),
        host_io: read("host_io", default.host_io),
        inst_cpu: read("inst_cpu", default.inst_cpu),
        inst_mem: read("inst_mem", default.inst_mem),
        inst_io: read("inst_io", default.inst_io),
        host_part: read("host_part", default.host_part),
    };
    fields.finish();
    weights
}

fn timeouts(fields: Fields<'_>) -> Timeouts {
    let default = Timeouts::default();
    let timeouts = Timeouts {
        connect: fields.parsed("connect").unwrap_or(default.connect),
        response: fields.parsed("response").unwrap_or(default.response),
        idle: fields.parsed("idle").unwrap_or(default.idle),
        total: fields.parsed("total").unwrap_or(default.total),
    };
    fields.finish();
    timeouts
}

fn count(fields: &Fields<'_>, name: &'static str, default: u32) -> u32 {
    fields.count(name, 0..=1_000_000).and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
}

fn retry(fields: Fields<'_>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let retries = fields.count("retries", 0..=10).and_then(|n| u32::try_from(n).ok());
    let policy = RetryPolicy {
        retries: retries.unwrap_or(default.retries),
        budget: fields.number("budget", 0.0..=1.0).unwrap_or(default.budget),
        min_per_10s: count(&fields, "min_per_10s", default.min_per_10s),
    };
    fields.finish();
    policy
}

fn ejection(fields: Fields<'_>) -> Ejection {
    let default = Ejection::default();
    let ejection = Ejection {
        consecutive: count(&fields, "consecutive", default.consecutive),
        rate: fields.number("rate", 0.0..=1.0).unwrap_or(default.rate),
        min_requests: count(&fields, "min_requests", default.min_requests),
        window: fields.parsed("window").unwrap_or(default.window),
        base: fields.parsed("base").unwrap_or(default.base),
        max: fields.parsed("max").unwrap_or(default.max),
        max_share: fields.number("max_share", 0.0..=1.0).unwrap_or(default.max_share),
    };
    fields.finish();
    ejection
}

/// `sticky = false`, `sticky = true`, or a table.
fn sticky(fields: &Fields<'_>) -> Sticky {
    match fields.node("sticky") {
        None => Sticky::default(),
        Some(Node { value: Value::Bool(true), .. }) => Sticky::default(),
        Some(Node { value: Value::Bool(false), .. }) => {
            Sticky { session_cookies: Vec::new(), ..Sticky::default() }
        }
        Some(_) => {
            let Some(table) = fields.table("sticky") else { return Sticky::default() };
            let default = Sticky::default();
            let sticky = Sticky {
                session_cookies: table.texts("session_cookies").unwrap_or(default.session_cookies),
                cookie: table.text("cookie").unwrap_or(default.cookie),
            };
            table.finish();
            sticky
        }
    }
}
