//! The plugins of stream routes: who may come, and how many at a time.

use super::choose::StreamView;
use crate::clock;
use crate::plugins::program::Plugins;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::PluginUse;
use towpath_resources::model::Address;
use towpath_resources::plugins::limit_conn::{self, KeyType};
use towpath_resources::plugins::limit_count::Amount;
use towpath_resources::plugins::values::Quantity;
use towpath_resources::plugins::{PluginConfig, ip_restriction};
use towpath_route::Networks;
use towpath_route::limit::{Conn, ConnSlot};
use towpath_route::vars::{Name, RequestVars, Template, number, request_var};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Gate(Vec<Check>);

#[derive(Debug)]
enum Check {
    Addresses { only: Option<Networks>, not: Option<Networks> },
    Conn(Limits),
}

#[derive(Debug)]
struct Limits {
    limits: Vec<Limit>,
    counted: Arc<Conn>,
    lenient: bool,
}

#[derive(Debug)]
struct Limit {
    most: Count,
    burst: Count,
    key: Key,
    /// A key without any value does not count, instead of counting by address.
    own: bool,
}

#[derive(Debug)]
enum Key {
    Var(Name),
    Text(Template),
    Constant(String),
}

#[derive(Debug)]
enum Count {
    Fixed(u64),
    Filled(Template),
}

/// What a session holds while it lasts.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<ConnSlot>);

impl Held {
    /// How long the session waits before it goes on.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.0.iter().map(|slot| slot.delay_ns).max().unwrap_or_default())
    }
}

/// A session that may not come, by this plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Its address.
    Address,
    /// Too many are there.
    Limit,
}

impl Gate {
    pub(super) fn compile(uses: &[PluginUse], plugins: &Plugins) -> Self {
        let checks = uses.iter().filter(|one| !one.meta.disable).filter_map(|one| match &one.config {
            PluginConfig::IpRestriction(config) => Some(addresses(config)),
            PluginConfig::LimitConn(config) => Some(Check::Conn(Limits::new(config, one, plugins))),
            _ => None,
        });
        Self(checks.collect())
    }

    /// Lets a session in, or says why not.
    pub(super) fn enter(&self, view: &StreamView<'_>) -> Result<Held, Refused> {
        let mut held = Held::default();
        for check in &self.0 {
            match check {
                Check::Addresses { only, not } => {
                    let client = view.peer.ip().to_canonical();
                    let kept_out = only.as_ref().is_some_and(|only| !only.contains(client))
                        || not.as_ref().is_some_and(|not| not.contains(client));
                    if kept_out {
                        return Err(Refused::Address);
                    }
                }
                Check::Conn(limits) => limits.enter(view, &mut held)?,
            }
        }
        Ok(held)
    }
}

fn addresses(config: &ip_restriction::Config) -> Check {
    let networks = |addresses: &Vec<Address>| {
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        Networks::parse(&texts).unwrap_or_default()
    };
    Check::Addresses {
        only: config.whitelist.as_ref().map(networks),
        not: config.blacklist.as_ref().map(networks),
    }
}

impl Limits {
    fn new(config: &limit_conn::Config, one: &PluginUse, plugins: &Plugins) -> Self {
        let mut limits = Vec::new();
        if let (Some(most), Some(burst), Some(key)) = (&config.conn, &config.burst, &config.key) {
            let key = match config.key_type {
                KeyType::Var => Key::Var(Name::new(key)),
                KeyType::VarCombination => Key::Text(Template::new(key)),
                KeyType::Constant | KeyType::Global => Key::Constant(key.clone()),
            };
            limits.push(Limit { most: Count::amount(most), burst: Count::quantity(burst), key, own: false });
        }
        limits.extend(config.rules.iter().flatten().map(|rule| Limit {
            most: Count::amount(&rule.conn),
            burst: Count::quantity(&rule.burst),
            key: Key::Text(Template::new(&rule.key)),
            own: true,
        }));
        // How long a session lasts says nothing about how long the next one has to wait: the delay stays as given.
        let delay_ns = (config.default_conn_delay * 1e9).clamp(0.0, 1e18) as u64;
        let name = match config.key_type {
            KeyType::Global => "streams".to_owned(),
            _ => one.from.to_string(),
        };
        let states = &plugins.states;
        let counted = states.kept(&format!("{name}/limit-conn/stream/{delay_ns}"), clock::now_ns(), || {
            Conn::new(states.limits(), &format!("{name}/stream"), delay_ns)
        });
        Self { limits, counted, lenient: config.allow_degradation }
    }

    fn enter(&self, view: &StreamView<'_>, held: &mut Held) -> Result<(), Refused> {
        let vars = RequestVars(view);
        let mut applied = false;
        for (at, limit) in self.limits.iter().enumerate() {
            let (most, burst) = (limit.most.value(view, 1), limit.burst.value(view, 0));
            let mut text = Vec::new();
            match &limit.key {
                Key::Var(name) => {
                    if let Some(value) = request_var(view, name) {
                        let _ = value.with_text(|piece| text.extend_from_slice(piece));
                    }
                }
                Key::Text(template) => {
                    if template.fill(&vars, |piece| text.extend_from_slice(piece)) == 0 {
                        text.clear();
                    }
                }
                Key::Constant(constant) => text.extend_from_slice(constant.as_bytes()),
            }
            if text.is_empty() && !limit.own {
                text.extend_from_slice(view.peer.ip().to_canonical().to_string().as_bytes());
            }
            let (false, Some(most), Some(burst)) = (text.is_empty(), most, burst) else { continue };
            applied = true;
            let key = self.counted.key(at as u64, &text);
            let slot = self.counted.take(key, most, burst).ok_or(Refused::Limit)?;
            held.0.push(slot);
        }
        if applied || self.lenient { Ok(()) } else { Err(Refused::Limit) }
    }
}

impl Count {
    fn amount(amount: &Amount) -> Self {
        match amount {
            Amount::Number(number) => Self::Fixed(*number),
            Amount::Text(text) => Self::Filled(Template::new(text)),
        }
    }

    fn quantity(quantity: &Quantity) -> Self {
        match quantity {
            Quantity::Number(number) => Self::Fixed(*number),
            Quantity::Text(text) => Self::Filled(Template::new(text)),
        }
    }

    /// The number for a session; `None` = the text is no whole number from `least` on.
    fn value(&self, view: &StreamView<'_>, least: u64) -> Option<u64> {
        match self {
            Self::Fixed(number) => Some(*number),
            Self::Filled(template) => {
                let mut text = Vec::new();
                template.fill(&RequestVars(view), |piece| text.extend_from_slice(piece));
                let value = number(&text)?;
                let whole = value.fract() == 0.0 && value <= 9_007_199_254_740_991.0;
                (whole && value >= least as f64).then_some(value as u64)
            }
        }
    }
}
