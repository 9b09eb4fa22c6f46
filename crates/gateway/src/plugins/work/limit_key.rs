//! What limiters count by.

use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use towpath_resources::plugins::{limit_conn, limit_count};
use towpath_route::vars::{Name, Template, number};

/// Under which name a limit counts: that of the resource in which it stands, or the one that all global keys share.
pub(super) fn scope_of(scope: &Scope<'_>, global: bool) -> String {
    if global { "global".to_owned() } else { scope.from.clone() }
}

/// The key of a limit, looked through once.
#[derive(Debug)]
pub(super) enum LimitKey {
    Var(Name),
    Combination(Template),
    Constant(String),
}

impl LimitKey {
    pub(super) fn of_count(kind: limit_count::KeyType, key: &str) -> Self {
        match kind {
            limit_count::KeyType::Var => Self::Var(Name::new(key)),
            limit_count::KeyType::VarCombination => Self::Combination(Template::new(key)),
            limit_count::KeyType::Constant | limit_count::KeyType::Global => Self::Constant(key.to_owned()),
        }
    }

    pub(super) fn of_conn(kind: limit_conn::KeyType, key: &str) -> Self {
        match kind {
            limit_conn::KeyType::Var => Self::Var(Name::new(key)),
            limit_conn::KeyType::VarCombination => Self::Combination(Template::new(key)),
            limit_conn::KeyType::Constant | limit_conn::KeyType::Global => Self::Constant(key.to_owned()),
        }
    }

    /// The value for a request; that of one without any is the client's address.
    pub(super) fn value(&self, vars: &Vars<'_>) -> String {
        self.own_value(vars).unwrap_or_else(|| vars.record.client().to_string())
    }

    /// The same; `None` = none of its variables has a value.
    pub(super) fn own_value(&self, vars: &Vars<'_>) -> Option<String> {
        match self {
            Self::Var(name) => vars.text(name),
            Self::Combination(template) => {
                let (text, found) = vars.fill(template);
                (found > 0).then_some(text)
            }
            Self::Constant(text) => Some(text.clone()),
        }
    }
}

/// A number, or a text that is one when its variables are filled in.
#[derive(Debug)]
pub(super) enum Amount {
    Fixed(u64),
    Filled(Template),
}

impl Amount {
    pub(super) fn of(amount: &limit_count::Amount) -> Self {
        match amount {
            limit_count::Amount::Number(number) => Self::Fixed(*number),
            limit_count::Amount::Text(text) => Self::Filled(Template::new(text)),
        }
    }

    pub(super) fn of_quantity(quantity: &towpath_resources::plugins::values::Quantity) -> Self {
        use towpath_resources::plugins::values::Quantity;
        match quantity {
            Quantity::Number(number) => Self::Fixed(*number),
            Quantity::Text(text) => Self::Filled(Template::new(text)),
        }
    }

    /// The number for a request; `None` = the text is no whole number from `least` on.
    pub(super) fn value(&self, vars: &Vars<'_>, least: u64) -> Option<u64> {
        match self {
            Self::Fixed(number) => Some(*number),
            Self::Filled(template) => {
                let value = number(vars.fill(template).0.as_bytes())?;
                let whole = value.fract() == 0.0 && value <= 9_007_199_254_740_991.0;
                (whole && value >= least as f64).then_some(value as u64)
            }
        }
    }
}
