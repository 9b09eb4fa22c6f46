use super::*;
use serde_json::json;
use std::collections::BTreeMap;

/// Variables by name.
#[derive(Default)]
struct Map(BTreeMap<&'static str, Value<'static>>);

impl Map {
    fn of(values: &[(&'static str, &'static str)]) -> Self {
        Self(values.iter().map(|(name, value)| (*name, Value::text(*value))).collect())
    }
}

impl Vars for Map {
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>> {
        self.0.get(name.as_str()).cloned()
    }
}

fn holds(expr: serde_json::Value, values: &[(&'static str, &'static str)]) -> bool {
    Expr::parse(&expr).unwrap_or_else(|faults| panic!("{expr}: {faults:?}")).holds(&Map::of(values))
}

fn faults(expr: serde_json::Value) -> Vec<(String, String)> {
    let faults = Expr::parse(&expr).map(|_| ()).expect_err(&expr.to_string());
    faults.into_iter().map(|fault| (fault.path, fault.message)).collect()
}

#[test]
fn operators_hold_as_documented() {
    for (condition, value, want) in [
        (json!(["v", "==", "a"]), "a", true),
        (json!(["v", "==", "a"]), "A", false),
        (json!(["v", "==", 10]), "10.0", true),
        (json!(["v", "==", 10]), "ten", false),
        (json!(["v", "==", "10"]), "10.0", false),
        (json!(["v", "==", null]), "", false),
        (json!(["v", "==", true]), "true", false),
        (json!(["v", "~=", "a"]), "b", true),
        (json!(["v", "~=", 10]), "ten", true),
        (json!(["v", "~=", 10]), "10", false),
        (json!(["v", "~=", null]), "", true),
        (json!(["v", "!", "~=", "a"]), "a", true),
        (json!(["v", ">", 9]), "10", true),
        (json!(["v", ">", "9"]), "10", true),
        (json!(["v", ">", 10]), "10", false),
        (json!(["v", ">=", 10]), "10", true),
        (json!(["v", "<", 10]), "-1", true),
        (json!(["v", "<=", 10]), "10", true),
        (json!(["v", "<", 10]), "x", false),
        (json!(["v", "!", "<", 10]), "x", true),
        (json!(["v", "~~", "^[Dd]ev$"]), "Dev", true),
        (json!(["v", "~~", "^dev$"]), "Dev", false),
        (json!(["v", "~*", "^dev$"]), "Dev", true),
        (json!(["v", "in", ["a", "b"]]), "b", true),
        (json!(["v", "IN", ["a", "b"]]), "c", false),
        (json!(["v", "in", [1, 2]]), "1", false),
        (json!(["v", "!", "in", []]), "1", true),
        (json!(["v", "has", "a"]), "a", false),
        (json!(["v", "ipmatch", "10.0.0.0/8"]), "10.1.2.3", true),
        (json!(["v", "ipmatch", ["::1", "127.0.0.0/8"]]), "::1", true),
        (json!(["v", "ipmatch", ["127.0.0.0/8"]]), "no address", false),
        (json!(["v", "a"]), "a", true),
    ] {
        assert_eq!(holds(json!([condition]), &[("v", value)]), want, "{condition} of {value:?}");
    }
}

#[test]
fn a_variable_that_is_absent_is_only_null() {
    for (condition, want) in [
        (json!(["v", "==", null]), true),
        (json!(["v", "~=", null]), false),
        (json!(["v", "==", ""]), false),
        (json!(["v", "~=", "a"]), true),
        (json!(["v", "~=", 1]), true),
        (json!(["v", "<", 1]), false),
        (json!(["v", "!", "~~", "."]), true),
        (json!(["v", "in", ["a"]]), false),
        (json!(["v", "ipmatch", "0.0.0.0/0"]), false),
    ] {
        assert_eq!(holds(json!([condition]), &[]), want, "{condition}");
    }
}

#[test]
fn words_join_conditions_and_nest() {
    let (yes, no) = (json!(["v", "==", "1"]), json!(["v", "==", "2"]));
    for (expr, want) in [
        (json!([]), true),
        (json!([yes]), true),
        (json!([yes, no]), false),
        (json!(["AND", yes, yes]), true),
        (json!(["and", yes, no]), false),
        (json!(["OR", no, yes]), true),
        (json!(["or", no, no]), false),
        (json!(["!AND", yes, no]), true),
        (json!(["!and", yes, yes]), false),
        (json!(["!OR", no, no]), true),
        (json!(["!OR", no, yes]), false),
        (json!(["AND", yes, ["OR", no, ["!AND", yes, no]]]), true),
        (json!([[yes, no], yes]), false),
        (json!([["OR", no, yes], yes]), true),
    ] {
        assert_eq!(holds(expr.clone(), &[("v", "1")]), want, "{expr}");
    }
}

#[test]
fn numbers_lists_and_addresses_of_the_gateway_compare_as_what_they_are() {
    let mut map = Map::default();
    map.0.insert("port", Value::Number(8080.0));
    map.0.insert("client", Value::Address("10.0.0.1".parse().unwrap()));
    map.0.insert("fields", Value::List(vec![Value::text("owner"), Value::Number(1.0)]));
    map.0.insert("flag", Value::Bool(true));
    for (condition, want) in [
        (json!(["port", "==", "8080"]), true),
        (json!(["port", "==", 8080]), true),
        (json!(["port", "in", [8080]]), true),
        (json!(["port", "~~", "^80"]), true),
        (json!(["client", "==", "10.0.0.1"]), true),
        (json!(["client", "ipmatch", "10.0.0.0/30"]), true),
        (json!(["client", "~~", r"^10\."]), true),
        (json!(["fields", "has", "owner"]), true),
        (json!(["fields", "has", 1]), true),
        (json!(["fields", "has", "repo"]), false),
        (json!(["fields", "==", "owner"]), false),
        (json!(["flag", "==", true]), true),
        (json!(["flag", "==", "true"]), false),
    ] {
        assert_eq!(Expr::parse(&json!([condition])).unwrap().holds(&map), want, "{condition}");
    }
}

#[test]
fn each_fault_says_where_and_what_is_right() {
    let all = faults(json!([
        ["v", "=", "x"],
        ["v"],
        ["v", ">", "abc"],
        ["OR", ["v", "~~", "a(?=b)"], ["v", "in", "x"]],
        ["v", "!", "==", ["x"]],
        ["v", "ipmatch", ["1.2.3.4", "1.2.3"]],
        ["!", "v", "==", "1"],
        ["v", "!", "x"],
        [1, "==", 1],
        "v",
        ["v", "in", [[]]],
    ]));
    let told: Vec<&str> = all.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        told,
        [
            "[0][1]",
            "[1]",
            "[2][2]",
            "[3][1][2]",
            "[3][2][2]",
            "[4][3]",
            "[5][2][1]",
            "[6]",
            "[7][1]",
            "[8][0]",
            "[9]",
            "[10][2][0]"
        ]
    );
    assert!(all[0].1.contains("ipmatch") && all[2].1.contains("number") && all[3].1.contains("look-around"));
}

#[test]
fn whole_expressions_are_checked_and_bounded() {
    assert!(faults(json!("x"))[0].1.contains("list"));
    assert!(faults(json!(["arg_k", "==", "v"]))[0].1.contains("brackets"));
    assert!(faults(json!(["OR", ["a", "==", "b"]]))[0].1.contains("fewer than two"));
    assert!(faults(json!([[]]))[0].1.contains("empty"));
    let mut deep = json!([["v", "==", "1"]]);
    (0..DEPTH_MAX).for_each(|_| deep = json!([deep]));
    assert!(faults(deep)[0].1.contains("deeper"));
    let many: Vec<_> = (0..=COMPARISONS_MAX).map(|_| json!(["v", "==", "1"])).collect();
    assert!(faults(json!(many))[0].1.contains("comparisons"));
}

#[test]
fn names_say_what_they_need() {
    let expr = Expr::parse(&json!([
        ["http_X_User_Id", "==", "a"],
        ["OR", ["arg_a", "==", "b"], ["post_arg_x", "==", "c"]]
    ]))
    .unwrap();
    let names = expr.names();
    assert_eq!(
        names.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        ["http_X_User_Id", "arg_a", "post_arg_x"]
    );
    assert_eq!(names[0].header(), Some("x-user-id"));
    assert_eq!(names.iter().map(|name| name.is_of_request()).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(expr, Expr::parse(expr.source()).unwrap());
}

#[test]
fn templates_fill_in_what_there_is() {
    let vars = Map::of(&[("a", "1"), ("b.c", "2")]);
    for (text, want, resolved) in [
        ("$a", "1", 1),
        ("$a$b.c", "12", 2),
        ("${a}x${ b.c }", "1x2", 2),
        ("$none", "", 0),
        ("${none ?? d e}", "d e", 1),
        ("x", "x", 0),
        (r"\$a $ ${a", "$a $ ${a", 0),
        ("", "", 0),
    ] {
        let mut out = Vec::new();
        assert_eq!(Template::new(text).fill(&vars, |piece| out.extend_from_slice(piece)), resolved, "{text}");
        assert_eq!(String::from_utf8(out).unwrap(), want, "{text}");
    }
}

/// The rules of `lua-resty-expr`, read as simply as they are written there. All variables are texts.
fn naive(expr: &serde_json::Value, value: &dyn Fn(&str) -> Option<&'static str>) -> bool {
    let list = expr.as_array().unwrap();
    let Some(first) = list.first() else { return true };
    let all = |from: usize| list[from..].iter().all(|item| naive(item, value));
    let any = |from: usize| list[from..].iter().any(|item| naive(item, value));
    match first.as_str().map(str::to_uppercase).as_deref() {
        None => return all(0),
        Some("AND") => return all(1),
        Some("!AND") => return !all(1),
        Some("OR") => return any(1),
        Some("!OR") => return !any(1),
        Some(_) => {}
    }
    let left = value(first.as_str().unwrap());
    let reverse = list.len() == 4;
    let (op, right) = (list[list.len() - 2].as_str().unwrap(), &list[list.len() - 1]);
    let number = |text: &str| text.parse::<f64>().ok();
    let right_number = right.as_f64().or_else(|| right.as_str().and_then(number));
    let order = |holds: fn(f64, f64) -> bool| match (left.and_then(number), right_number) {
        (Some(left), Some(right)) => holds(left, right),
        _ => false,
    };
    let equal = match (left, right) {
        (left, serde_json::Value::Null) => left.is_none(),
        (left, serde_json::Value::Number(right)) => left.and_then(number) == right.as_f64(),
        (left, right) => left.is_some() && left == right.as_str(),
    };
    let holds = match op {
        "==" => equal,
        "~=" => !equal,
        ">" => order(|left, right| left > right),
        ">=" => order(|left, right| left >= right),
        "<" => order(|left, right| left < right),
        "<=" => order(|left, right| left <= right),
        "~~" => left.is_some_and(|left| left.starts_with(right.as_str().unwrap().trim_start_matches('^'))),
        "in" => {
            left.is_some_and(|left| right.as_array().unwrap().iter().any(|item| item.as_str() == Some(left)))
        }
        other => panic!("{other}"),
    };
    holds != reverse
}

fn random_expr(rng: &mut fastrand::Rng, depth: usize) -> serde_json::Value {
    let one = |rng: &mut fastrand::Rng, list: &[serde_json::Value]| list[rng.usize(..list.len())].clone();
    if depth > 0 && rng.u8(..3) == 0 {
        let words = [json!("AND"), json!("OR"), json!("!AND"), json!("!or")];
        let mut list: Vec<_> = if rng.u8(..5) == 0 { Vec::new() } else { vec![one(rng, &words)] };
        (0..rng.usize(2..4)).for_each(|_| list.push(random_expr(rng, depth - 1)));
        return json!(list);
    }
    let name = one(rng, &[json!("a"), json!("b")]);
    let op = one(
        rng,
        &[
            json!("=="),
            json!("~="),
            json!(">"),
            json!(">="),
            json!("<"),
            json!("<="),
            json!("~~"),
            json!("in"),
        ],
    );
    let right = match op.as_str().unwrap() {
        "==" | "~=" => one(rng, &[json!("1"), json!(1), json!("x"), json!(null), json!(2.5)]),
        "~~" => one(rng, &[json!("^x"), json!("^1")]),
        "in" => one(rng, &[json!(["1", "x"]), json!([]), json!([1, "10"])]),
        _ => one(rng, &[json!(1), json!("2.5"), json!(10)]),
    };
    if rng.bool() { json!([name, op, right]) } else { json!([name, "!", op, right]) }
}

#[test]
fn expressions_hold_as_a_reader_of_the_rules_would_say() {
    let mut rng = fastrand::Rng::with_seed(11);
    let values = [None, Some(""), Some("1"), Some("10"), Some("2.5"), Some("x"), Some("1x")];
    let mut held = 0;
    for _ in 0..5_000 {
        let expr = json!([random_expr(&mut rng, 3)]);
        let parsed = Expr::parse(&expr).unwrap_or_else(|faults| panic!("{expr}: {faults:?}"));
        let (a, b) = (values[rng.usize(..values.len())], values[rng.usize(..values.len())]);
        let given: Vec<_> =
            [("a", a), ("b", b)].into_iter().filter_map(|(name, v)| Some((name, v?))).collect();
        let want = naive(&expr, &|name| if name == "a" { a } else { b });
        assert_eq!(parsed.holds(&Map::of(&given)), want, "{expr} {a:?} {b:?}");
        held += usize::from(want);
    }
    assert!((1_000..4_000).contains(&held), "{held}");
}
