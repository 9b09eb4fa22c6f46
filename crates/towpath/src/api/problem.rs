//! Answers that say what went wrong (`application/problem+json`).

use super::{Address, Token, read_all};
use crate::exit::{Exit, Failure};
use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Problem {
    title: String,
    detail: String,
    code: String,
    instance: String,
    errors: Vec<FieldError>,
}

#[derive(Debug, Deserialize)]
struct FieldError {
    field: String,
    message: String,
}

/// What was asked, and as whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) address: &'a Address,
    pub(super) token: &'a Token,
}

/// The failure that a response speaks of.
pub(super) async fn of_response(response: Response<Incoming>, asked: Asked<'_>) -> Failure {
    let status = response.status().as_u16();
    let bytes = read_all(response.into_body()).await.unwrap_or_default();
    of_bytes(status, &bytes, asked)
}

fn of_bytes(status: u16, bytes: &[u8], asked: Asked<'_>) -> Failure {
    let problem: Option<Problem> = serde_json::from_slice(bytes).ok();
    let strange = problem.is_none() && !bytes.is_empty();
    let problem = problem.unwrap_or_default();
    // What only gateways say, or what no Towpath says.
    if problem.code == "no_route" || (strange && status != 401) {
        return not_an_api(status, &problem, asked.address);
    }
    let exit = if problem.code == "quota_exceeded" { Exit::Unavailable } else { Exit::of_status(status) };
    if status == 401 {
        let what = match asked.token.text {
            Some(_) => format!("the API at {} does not know this token (unauthorized)", asked.address),
            None => format!("the API at {} wants a token (unauthorized)", asked.address),
        };
        return Failure::hinted(exit, what, &asked.token.remedy).coded("unauthorized");
    }
    let mut what = match (problem.detail.is_empty(), problem.title.is_empty()) {
        (false, _) => problem.detail.clone(),
        (true, false) => problem.title.clone(),
        (true, true) => format!("the API answered with status {status}"),
    };
    if !problem.code.is_empty() {
        what = format!("{what} ({})", problem.code);
    }
    if status >= 500 && status != 503 && !problem.instance.is_empty() {
        what = format!("{what}; request id {}", problem.instance);
    }
    let lines = match problem.errors.as_slice() {
        [] => vec![what],
        errors => errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect(),
    };
    Failure { exit, lines, code: None }.coded(&problem.code)
}

fn not_an_api(status: u16, problem: &Problem, address: &Address) -> Failure {
    let what = if problem.code.is_empty() {
        format!("what answers at {address} is no Towpath API (status {status})")
    } else {
        format!("{address} is a gateway, where apps are served, not the API")
    };
    let hint = format!(
        "`towpath up` prints where its API is, {} unless it was told otherwise; \
         say it with --api or TOWPATH_API",
        Address::default()
    );
    Failure::hinted(Exit::Unreachable, what, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_become_one_line_each() {
        let (address, token) = (Address::default(), Token { text: None, remedy: "do this".into() });
        let of = |status, bytes: &[u8]| of_bytes(status, bytes, Asked { address: &address, token: &token });
        let failure = of(404, br#"{"title":"x","detail":"no app \"a\"","code":"not_found"}"#);
        assert_eq!(failure, Failure::new(Exit::NotFound, "no app \"a\" (not_found)").coded("not_found"));
        let failure = of(
            422,
            br#"{"code":"invalid","errors":[{"field":"limits.memory","message":"too small"},{"field":"env","message":"no"}]}"#,
        );
        assert_eq!(failure.lines, ["limits.memory: too small", "env: no"]);
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(of(502, b"").lines, ["the API answered with status 502"]);
        let wanted = "the API at http://127.0.0.1:7700 wants a token (unauthorized); hint: do this";
        assert_eq!(of(401, b"").lines, [wanted]);
        let token = Token { text: Some("twp_x".into()), remedy: "that".into() };
        let failure = of_bytes(401, b"{}", Asked { address: &address, token: &token });
        assert!(
            failure.lines[0].ends_with("does not know this token (unauthorized); hint: that"),
            "{failure:?}"
        );
    }

    #[test]
    fn a_gateway_or_a_stranger_in_the_place_of_the_api_is_told() {
        let (address, token) = ("http://127.0.0.1:8080".parse().unwrap(), Token::default());
        let of = |status, bytes: &[u8]| of_bytes(status, bytes, Asked { address: &address, token: &token });
        let failure = of(404, br#"{"title":"No route","detail":"No app has a route","code":"no_route"}"#);
        assert_eq!(failure.exit, Exit::Unreachable);
        assert!(failure.lines[0].starts_with("http://127.0.0.1:8080 is a gateway"), "{failure:?}");
        assert!(failure.lines[0].contains("--api or TOWPATH_API"), "{failure:?}");
        let failure = of(404, b"<html>not here</html>");
        assert!(
            failure.lines[0]
                .starts_with("what answers at http://127.0.0.1:8080 is no Towpath API (status 404)")
        );
    }
}
