//! Conditions over a request's variables, in the form that APISIX takes from `lua-resty-expr`:
//!
//! ```json
//! ["OR", ["arg_version", "==", "v2"], ["AND", ["http_x_user", "~~", "^b"], ["arg_ttl", "!", ">", 10]]]
//! ```
//!
//! A list of conditions without a word in front is an `AND`; an empty list always holds. What can go wrong is told when the
//! expression is read, with the place of each fault; evaluating cannot fail and allocates nothing by itself.
//!
//! Texts and numbers, as there: `==` and `~=` against a number read the variable as a number (one that is none is unequal);
//! against a text they compare bytes. `>`, `>=`, `<`, `<=` compare numbers and do not hold if either is none. `in` and
//! `has` compare like with like: the text `"1"` is not the number `1`. A variable that the request lacks is only `==
//! null`, and whatever `!` makes of a comparison that does not hold.

mod name;
mod parse;
mod pattern;
mod request;
mod template;
mod value;

pub use name::Name;
pub use pattern::pattern;
pub use request::{RequestVars, request_var};
pub use template::Template;
pub use value::{Number, Value, number};

use crate::net::Networks;
use regex::bytes::Regex;
use std::cmp::Ordering;
use std::sync::Arc;

/// Deepest nesting.
pub const DEPTH_MAX: usize = 32;
/// Most comparisons in one expression.
pub const COMPARISONS_MAX: usize = 1024;

/// Whoever knows the variables of a request.
pub trait Vars {
    /// The value of a variable; `None` = the request has no such thing.
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>>;
}

/// Something in an expression that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Fault {
    /// Where, from the expression itself: `[1][2]`; empty for the whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// A checked expression. A clone is one pointer.
#[derive(Debug, Clone)]
pub struct Expr {
    source: Arc<serde_json::Value>,
    root: Arc<Node>,
}

/// Two expressions are equal when they were read from equal documents.
impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source) || self.source == other.source
    }
}

impl Expr {
    /// Reads an expression; on failure all that is wrong.
    pub fn parse(source: &serde_json::Value) -> Result<Self, Vec<Fault>> {
        let root = parse::parse(source)?;
        Ok(Self { source: Arc::new(source.clone()), root: Arc::new(root) })
    }

    /// What it was read from.
    pub fn source(&self) -> &serde_json::Value {
        &self.source
    }

    /// Whether it holds.
    pub fn holds(&self, vars: &impl Vars) -> bool {
        self.root.holds(vars)
    }

    /// All variables in it, in the order in which they stand; one may come several times.
    pub fn names(&self) -> Vec<&Name> {
        let mut names = Vec::new();
        self.root.names(&mut names);
        names
    }
}

#[derive(Debug)]
pub(crate) enum Node {
    /// All hold (or not all).
    All {
        not: bool,
        of: Box<[Node]>,
    },
    /// Some holds (or none).
    Any {
        not: bool,
        of: Box<[Node]>,
    },
    Compare {
        name: Name,
        not: bool,
        test: Test,
    },
}

/// What a variable is compared with.
#[derive(Debug)]
pub(crate) enum Test {
    Equal(Literal),
    /// Equal to this number, if the variable is one.
    Is(f64),
    Absent,
    Order(Order, f64),
    Pattern(Regex),
    In(Box<[Literal]>),
    Has(Literal),
    Network(Networks),
}

/// A constant that like is compared with like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Text(Box<[u8]>),
    Number(f64),
    Bool(bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Node {
    fn holds(&self, vars: &impl Vars) -> bool {
        match self {
            Node::All { not, of } => of.iter().all(|node| node.holds(vars)) != *not,
            Node::Any { not, of } => of.iter().any(|node| node.holds(vars)) != *not,
            Node::Compare { name, not, test } => test.holds(vars.var(name).as_ref()) != *not,
        }
    }

    fn names<'n>(&'n self, names: &mut Vec<&'n Name>) {
        match self {
            Node::All { of, .. } | Node::Any { of, .. } => of.iter().for_each(|node| node.names(names)),
            Node::Compare { name, .. } => names.push(name),
        }
    }
}

impl Test {
    fn holds(&self, value: Option<&Value<'_>>) -> bool {
        let Some(value) = value else { return matches!(self, Test::Absent) };
        match self {
            Test::Absent => false,
            Test::Equal(literal) => literal.is(value),
            Test::Is(number) => value.number().is_some_and(|value| value == *number),
            Test::Order(order, number) => {
                value.number().and_then(|value| value.partial_cmp(number)).is_some_and(|is| order.holds(is))
            }
            Test::Pattern(regex) => value.with_text(|text| regex.is_match(text)).unwrap_or(false),
            Test::In(list) => list.iter().any(|literal| literal.is(value)),
            Test::Has(literal) => match value {
                Value::List(items) => items.iter().any(|item| literal.is(item)),
                _ => false,
            },
            Test::Network(networks) => value.address().is_some_and(|address| networks.contains(address)),
        }
    }
}

impl Literal {
    fn is(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Literal::Text(text), Value::Text(value)) => **text == **value,
            // numbers that the gateway knows as such are texts for whoever compares them with a text
            (Literal::Text(text), Value::Number(_) | Value::Address(_)) => {
                value.with_text(|value| **text == *value).unwrap_or(false)
            }
            (Literal::Number(number), Value::Number(value)) => number == value,
            (Literal::Bool(bool), Value::Bool(value)) => bool == value,
            _ => false,
        }
    }
}

impl Order {
    fn holds(self, is: Ordering) -> bool {
        match self {
            Order::Less => is.is_lt(),
            Order::LessOrEqual => is.is_le(),
            Order::Greater => is.is_gt(),
            Order::GreaterOrEqual => is.is_ge(),
        }
    }
}

#[cfg(test)]
mod tests;
