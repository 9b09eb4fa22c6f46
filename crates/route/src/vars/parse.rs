//! Reading expressions, with all faults by their places.

use super::pattern::pattern;
use super::{COMPARISONS_MAX, DEPTH_MAX, Fault, Literal, Name, Node, Order, Test, number};
use crate::net::Networks;
use serde_json::Value;

const OPERATORS: &str = "==, ~=, >, >=, <, <=, ~~, ~*, in, has, ipmatch";

struct Reader {
    faults: Vec<Fault>,
    comparisons: usize,
}

pub(super) fn parse(source: &Value) -> Result<Node, Vec<Fault>> {
    let mut reader = Reader { faults: Vec::new(), comparisons: 0 };
    let node = reader.whole(source);
    if reader.comparisons > COMPARISONS_MAX {
        let message = format!("has {} comparisons; {COMPARISONS_MAX} are the most", reader.comparisons);
        reader.faults.push(Fault { path: String::new(), message });
    }
    match node {
        Some(node) if reader.faults.is_empty() => Ok(node),
        _ => Err(reader.faults),
    }
}

impl Reader {
    /// Says what is wrong; gives nothing, so that a caller can return it.
    fn fault<T>(&mut self, path: &str, message: impl Into<String>) -> Option<T> {
        self.faults.push(Fault { path: path.to_owned(), message: message.into() });
        None
    }

    fn whole(&mut self, source: &Value) -> Option<Node> {
        let Some(list) = source.as_array() else {
            return self.fault("", "is no list; write for example [[\"arg_name\", \"==\", \"value\"]]");
        };
        match list.first() {
            None => Some(Node::All { not: false, of: Box::default() }),
            Some(Value::String(word)) if logic(word).is_none() => {
                self.fault("", "is one comparison; put it in brackets: [[\"arg_name\", \"==\", \"value\"]]")
            }
            Some(_) => self.node(list, "", 0),
        }
    }

    fn node(&mut self, list: &[Value], path: &str, depth: usize) -> Option<Node> {
        if depth >= DEPTH_MAX {
            return self.fault(path, format!("is nested deeper than {DEPTH_MAX}"));
        }
        match list.first() {
            None => self.fault(
                path,
                "is an empty list; write a comparison such as [\"arg_name\", \"==\", \"value\"]",
            ),
            Some(Value::Array(_)) => {
                let of = self.nodes(list, 0, path, depth)?;
                Some(Node::All { not: false, of })
            }
            Some(Value::String(word)) => match logic(word) {
                Some(_) if list.len() < 3 => {
                    self.fault(path, format!("{word} has fewer than two conditions; write them after it"))
                }
                Some((all, not)) => {
                    let of = self.nodes(list, 1, path, depth)?;
                    Some(if all { Node::All { not, of } } else { Node::Any { not, of } })
                }
                None => self.comparison(list, path),
            },
            Some(other) => {
                let path = format!("{path}[0]");
                self.fault(
                    &path,
                    format!("is {other}; the name of a variable, AND, OR, !AND or !OR stands here"),
                )
            }
        }
    }

    fn nodes(&mut self, list: &[Value], from: usize, path: &str, depth: usize) -> Option<Box<[Node]>> {
        let mut nodes = Vec::with_capacity(list.len());
        for (at, item) in list.iter().enumerate().skip(from) {
            let path = format!("{path}[{at}]");
            let node = match item {
                Value::Array(list) => self.node(list, &path, depth + 1),
                other => self.fault(&path, format!("is {other}; a condition in brackets stands here")),
            };
            nodes.extend(node);
        }
        (nodes.len() + from == list.len()).then(|| nodes.into())
    }

    /// `[name, operator, constant]`, `[name, "!", operator, constant]`, or `[name, constant]` for `==`.
    fn comparison(&mut self, list: &[Value], path: &str) -> Option<Node> {
        self.comparisons += 1;
        let (name, not, operator, constant) = match list {
            [Value::String(name), constant] => (name, false, ("==", 1), (constant, 1)),
            [Value::String(name), Value::String(operator), constant] => {
                (name, false, (operator.as_str(), 1), (constant, 2))
            }
            [Value::String(name), Value::String(word), Value::String(operator), constant] if word == "!" => {
                (name, true, (operator.as_str(), 2), (constant, 3))
            }
            _ => {
                return self.fault(
                    path,
                    "is no comparison; write [\"name\", \"operator\", value] or [\"name\", \"!\", \"operator\", value]",
                );
            }
        };
        if name.is_empty() {
            return self.fault(&format!("{path}[0]"), "is empty; the name of a variable stands here");
        }
        let places = (format!("{path}[{}]", operator.1), format!("{path}[{}]", constant.1));
        let (unequal, test) = self.test(operator.0, constant.0, &places)?;
        Some(Node::Compare { name: Name::new(name), not: not != unequal, test })
    }

    /// The test, and whether it is to fail for the comparison to hold.
    fn test(&mut self, operator: &str, constant: &Value, places: &(String, String)) -> Option<(bool, Test)> {
        let (at_operator, at) = places;
        let test = match operator.to_ascii_lowercase().as_str() {
            "==" => self.equal(constant, at)?,
            "~=" => return Some((true, self.equal(constant, at)?)),
            ">" => Test::Order(Order::Greater, self.number(constant, at)?),
            ">=" => Test::Order(Order::GreaterOrEqual, self.number(constant, at)?),
            "<" => Test::Order(Order::Less, self.number(constant, at)?),
            "<=" => Test::Order(Order::LessOrEqual, self.number(constant, at)?),
            "~~" => self.pattern(constant, at, false)?,
            "~*" => self.pattern(constant, at, true)?,
            "in" => self.one_of(constant, at)?,
            "has" => Test::Has(self.literal(constant, at)?),
            "ipmatch" => self.networks(constant, at)?,
            "!" => {
                return self.fault(at_operator, format!("'!' has no operator after it; one of {OPERATORS}"));
            }
            other => {
                return self
                    .fault(at_operator, format!("operator {other:?} is not known; one of {OPERATORS}"));
            }
        };
        Some((false, test))
    }

    fn equal(&mut self, constant: &Value, at: &str) -> Option<Test> {
        match constant {
            Value::Null => Some(Test::Absent),
            Value::Number(number) => Some(Test::Is(number.as_f64()?)),
            Value::Array(_) => self.fault(at, "is a list; compare with one value, or write the operator in"),
            other => Some(Test::Equal(self.literal(other, at)?)),
        }
    }

    fn literal(&mut self, constant: &Value, at: &str) -> Option<Literal> {
        match constant {
            Value::String(text) => Some(Literal::Text(text.as_bytes().into())),
            Value::Number(number) => Some(Literal::Number(number.as_f64()?)),
            Value::Bool(bool) => Some(Literal::Bool(*bool)),
            _ => self.fault(at, "is neither text, number nor boolean"),
        }
    }

    fn number(&mut self, constant: &Value, at: &str) -> Option<f64> {
        let number = match constant {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => number(text.as_bytes()),
            _ => None,
        };
        match number {
            Some(number) => Some(number),
            None => self.fault(at, format!("is {constant}; this operator compares with a number")),
        }
    }

    fn pattern(&mut self, constant: &Value, at: &str, any_case: bool) -> Option<Test> {
        let Some(text) = constant.as_str() else {
            return self.fault(at, format!("is {constant}; a regular expression stands here"));
        };
        match pattern(text, any_case) {
            Ok(regex) => Some(Test::Pattern(regex)),
            Err(why) => self.fault(at, why),
        }
    }

    fn one_of(&mut self, constant: &Value, at: &str) -> Option<Test> {
        let Some(list) = constant.as_array() else {
            return self.fault(at, format!("is {constant}; a list of values stands here"));
        };
        let mut literals = Vec::with_capacity(list.len());
        for (n, item) in list.iter().enumerate() {
            literals.extend(self.literal(item, &format!("{at}[{n}]")));
        }
        (literals.len() == list.len()).then(|| Test::In(literals.into()))
    }

    fn networks(&mut self, constant: &Value, at: &str) -> Option<Test> {
        let one = std::slice::from_ref(constant);
        let list = constant.as_array().map_or(one, Vec::as_slice);
        let mut texts = Vec::with_capacity(list.len());
        for (n, item) in list.iter().enumerate() {
            let place = if constant.is_array() { format!("{at}[{n}]") } else { at.to_owned() };
            match item.as_str().map(|text| (text, Networks::check(text))) {
                Some((text, Ok(()))) => texts.push(text),
                Some((_, Err(why))) => return self.fault(&place, why),
                None => return self.fault(&place, format!("is {item}; an address or network stands here")),
            }
        }
        if texts.is_empty() {
            return self.fault(at, "names no address; write for example [\"10.0.0.0/8\"]");
        }
        match Networks::parse(&texts) {
            Ok(networks) => Some(Test::Network(networks)),
            Err(why) => self.fault(at, why),
        }
    }
}

/// (all rather than any, negated).
fn logic(word: &str) -> Option<(bool, bool)> {
    match word.to_ascii_uppercase().as_str() {
        "AND" => Some((true, false)),
        "!AND" => Some((true, true)),
        "OR" => Some((false, false)),
        "!OR" => Some((false, true)),
        _ => None,
    }
}
