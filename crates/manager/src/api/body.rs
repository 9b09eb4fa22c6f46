//! Reading JSON bodies so that one answer names everything that is wrong.
//!
//! serde stops at its first error. So the text is parsed to a value first (position of a syntax error), then read into
//! the type; the part that did not fit is recorded with its path, cut out, and the rest is read again, until it fits.
//! Required fields are `Option` in the body types and are checked by [`Checked::check`], so that a cut or missing field
//! does not hide the next error.

use super::problem::{FieldError, Problem};
use super::strict::Strict;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use http::header;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;
use towpath_types::ErrorCode;

/// Largest JSON body in bytes.
pub(crate) const MAX_JSON: usize = 1024 * 1024;
/// Longest time for a body to arrive.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// Errors after which reading gives up.
const MAX_ERRORS: usize = 64;

/// A body type that can say what is wrong beyond types.
pub(crate) trait Checked: DeserializeOwned {
    /// Adds what is wrong.
    fn check(&self, _errors: &mut Vec<FieldError>) {}
}

/// A JSON body, read and checked.
pub(crate) struct Doc<T>(pub(crate) T);

impl<S: Send + Sync, T: Checked> FromRequest<S> for Doc<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let json = request.headers().get(header::CONTENT_TYPE).is_none_or(|value| {
            let value = value.to_str().unwrap_or_default().trim_start().to_ascii_lowercase();
            value.starts_with("application/json") || value.starts_with("application/merge-patch+json")
        });
        if !json {
            return Err(Problem::new(
                ErrorCode::Malformed,
                "the body must be JSON: send `Content-Type: application/json`",
            ));
        }
        let patches = request.method() == http::Method::PATCH;
        let text = read_bytes(request.into_body()).await?;
        if patches && text.is_empty() {
            return Err(Problem::new(
                ErrorCode::Malformed,
                "the body is empty; a change is a JSON object of what is to change",
            ));
        }
        read_checked(&text).map(Doc)
    }
}

/// The whole body, within the limit.
pub(crate) async fn read_bytes(body: Body) -> Result<bytes::Bytes, Problem> {
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, MAX_JSON).collect()).await;
    let Ok(read) = read else {
        return Err(Problem::new(ErrorCode::ClientTimeout, "the body did not arrive in time"));
    };
    match read {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::new(
            ErrorCode::BodyTooLarge,
            format!("a JSON body may have at most {MAX_JSON} bytes"),
        )),
        Err(_) => Err(Problem::new(ErrorCode::Malformed, "the body ended before its announced length")),
    }
}

/// Parses, reads and checks.
pub(crate) fn read_checked<T: Checked>(text: &[u8]) -> Result<T, Problem> {
    let text = if text.is_empty() { b"{}" } else { text };
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| Problem::new(ErrorCode::Malformed, format!("the body is not JSON: {error}")))?;
    check_value(value)
}

/// Reads and checks a parsed document.
pub(crate) fn check_value<T: Checked>(value: Value) -> Result<T, Problem> {
    if !value.is_object() {
        return Err(Problem::field(".", "expected an object"));
    }
    let (read, mut errors) = read_value::<T>(value);
    if let Some(read) = &read {
        let mut more = Vec::new();
        read.check(&mut more);
        for error in more {
            if !errors.iter().any(|known| covers(&known.field, &error.field)) {
                errors.push(error);
            }
        }
    }
    match read {
        Some(read) if errors.is_empty() => Ok(read),
        _ => Err(Problem::invalid(errors)),
    }
}

/// Whether an error at `known` explains one at `field`: the same, or one above or below it.
fn covers(known: &str, field: &str) -> bool {
    let under = |a: &str, b: &str| {
        a.strip_prefix(b)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
    };
    under(field, known) || under(known, field)
}

/// Reads `value` as `T`, cutting out what does not fit. `None` = the value as a whole is no `T`.
pub(crate) fn read_value<T: DeserializeOwned>(mut value: Value) -> (Option<T>, Vec<FieldError>) {
    let mut errors = Vec::new();
    let mut cuts = Vec::new();
    while errors.len() < MAX_ERRORS {
        let error = match serde_path_to_error::deserialize::<_, T>(Strict(&value)) {
            Ok(read) => return (Some(read), errors),
            Err(error) => error,
        };
        let place = place_of(error.path(), &value);
        let field = original(&place, &cuts);
        errors
            .push(FieldError::new(if field.is_empty() { "." } else { &field }, plain(error.inner(), &place)));
        if !cut(&mut value, &place) {
            return (None, errors);
        }
        cuts.push(place);
    }
    (None, errors)
}

/// A step into a JSON value.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Key(String),
    Index(usize),
}

/// The part of the path that is there in the value (the path also names enum variants and map keys that failed).
fn place_of(path: &serde_path_to_error::Path, value: &Value) -> Vec<Step> {
    let mut at = Some(value);
    let mut place = Vec::new();
    for segment in path {
        let (step, next) = match (segment, at) {
            (Segment::Map { key } | Segment::Enum { variant: key }, Some(Value::Object(map))) => {
                (Step::Key(key.clone()), map.get(key))
            }
            (Segment::Seq { index }, Some(Value::Array(items))) => (Step::Index(*index), items.get(*index)),
            _ => break,
        };
        if next.is_none() {
            break;
        }
        place.push(step);
        at = next;
    }
    place
}

/// The path as text with the indexes that the client sent, although earlier elements were cut out.
fn original(place: &[Step], cuts: &[Vec<Step>]) -> String {
    let mut text = String::new();
    for (depth, step) in place.iter().enumerate() {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => {
                text.push('.');
                text.push_str(key);
            }
            Step::Index(index) => {
                // Undo the cuts in this array, latest first: each at or before the present index moved it down by one.
                let index = cuts.iter().rev().fold(*index, |index, cut| match cut.get(depth) {
                    Some(Step::Index(gone))
                        if cut.len() == depth + 1
                            && cut.get(..depth) == place.get(..depth)
                            && *gone <= index =>
                    {
                        index + 1
                    }
                    _ => index,
                });
                text.push_str(&format!("[{index}]"));
            }
        }
    }
    text
}

/// Removes what is at `place`. `false` when that is the whole value.
fn cut(value: &mut Value, place: &[Step]) -> bool {
    let Some((last, above)) = place.split_last() else { return false };
    let parent = above.iter().try_fold(value, |at, step| match step {
        Step::Key(key) => at.get_mut(key),
        Step::Index(index) => at.get_mut(*index),
    });
    match (parent, last) {
        (Some(Value::Object(map)), Step::Key(key)) => map.remove(key).is_some(),
        (Some(Value::Array(items)), Step::Index(index)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        _ => false,
    }
}

/// serde's sentence, with its most cryptic forms put plainly.
fn plain(error: &serde_json::Error, place: &[Step]) -> String {
    let text = error.to_string();
    if let Some(rest) = text.strip_prefix("unknown field `") {
        let expected = rest.split_once("expected ").map(|(_, names)| names.replace('`', ""));
        return match expected {
            Some(names) => {
                format!("there is no such field; known are: {}", names.trim_start_matches("one of "))
            }
            None => "there is no such field".into(),
        };
    }
    if let (Some(rest), true) = (text.strip_prefix("invalid type: "), !place.is_empty()) {
        return match rest.split_once(", expected ") {
            Some((got, expected)) => format!("expected {expected}, got {got}"),
            None => rest.to_owned(),
        };
    }
    text
}

#[cfg(test)]
mod foreign;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;
    use towpath_types::ByteSize;

    #[derive(Debug, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[derive(Default)]
    struct Inner {
        size: Option<ByteSize>,
        count: Option<u32>,
    }

    #[derive(Debug, Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Outer {
        name: Option<String>,
        inner: Inner,
        list: Vec<Inner>,
    }

    impl Checked for Outer {
        fn check(&self, errors: &mut Vec<FieldError>) {
            if self.name.is_none() {
                errors.push(FieldError::new("name", "is needed"));
            }
        }
    }

    fn fields(text: &str) -> Vec<String> {
        read_checked::<Outer>(text.as_bytes())
            .unwrap_err()
            .errors
            .into_iter()
            .map(|error| error.field)
            .collect()
    }

    #[test]
    fn every_wrong_field_is_named_with_its_path_and_first_index() {
        let text = r#"{"nam":1,"inner":{"size":"12X","count":-1,"x":0},"list":[{"count":1},5,{"count":"a"},"b",{"y":1}]}"#;
        let mut got = fields(text);
        got.sort();
        assert_eq!(
            got,
            [
                "inner.count",
                "inner.size",
                "inner.x",
                "list[1]",
                "list[2].count",
                "list[3]",
                "list[4].y",
                "nam",
                "name"
            ]
        );
    }

    #[test]
    fn a_wrong_type_is_named_once_and_not_called_missing_as_well() {
        assert_eq!(fields(r#"{"name":7}"#), ["name"]);
        let problem = read_checked::<Outer>(br#"{"name":7}"#).unwrap_err();
        assert!(problem.detail.contains("expected a string, got integer `7`"), "{}", problem.detail);
    }

    #[test]
    fn a_list_is_no_object_anywhere() {
        assert_eq!(fields(r#"{"name":"n","inner":["1M"],"list":[["1M", 2]]}"#), ["inner", "list[0]"]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let keys = "(name|inner|list|size|count|source|env|routes|upstream|retry|x)";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(keys, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reading_ends_and_is_right_or_says_why(value in any_json()) {
            let (read, errors) = read_value::<Outer>(value.clone());
            let direct = serde_path_to_error::deserialize::<_, Outer>(Strict(&value));
            prop_assert_eq!(direct.is_ok(), read.is_some() && errors.is_empty());
            let mut fields: Vec<_> = errors.iter().map(|error| &error.field).collect();
            fields.sort();
            fields.dedup();
            prop_assert_eq!(fields.len(), errors.len());
        }
    }

    #[test]
    fn what_is_no_json_is_told_with_its_position_and_a_wrong_whole_is_refused() {
        let problem = read_checked::<Outer>(b"{\"name\":").unwrap_err();
        assert_eq!(problem.code, ErrorCode::Malformed);
        assert!(problem.detail.contains("line 1 column 8"), "{}", problem.detail);
        assert_eq!(fields("[]"), ["."]);
        assert_eq!(fields("1"), ["."]);
    }
}
