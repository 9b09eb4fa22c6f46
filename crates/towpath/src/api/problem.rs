//! Answers that say what went wrong (`application/problem+json`).

use super::read_all;
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

/// The failure that a response speaks of.
pub(super) async fn of_response(response: Response<Incoming>, with_token: bool) -> Failure {
    let status = response.status().as_u16();
    let bytes = read_all(response.into_body()).await.unwrap_or_default();
    of_bytes(status, &bytes, with_token)
}

fn of_bytes(status: u16, bytes: &[u8], with_token: bool) -> Failure {
    let problem: Problem = serde_json::from_slice(bytes).unwrap_or_default();
    let exit = Exit::of_status(status);
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
    if status == 401 {
        let hint = if with_token {
            "check --token, TOWPATH_TOKEN or TOWPATH_TOKEN_FILE"
        } else {
            "no token was found: set TOWPATH_TOKEN or TOWPATH_TOKEN_FILE"
        };
        return Failure::hinted(exit, what, hint);
    }
    match problem.errors.as_slice() {
        [] => Failure::new(exit, what),
        errors => Failure {
            exit,
            lines: errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_become_one_line_each() {
        let failure = of_bytes(404, br#"{"title":"x","detail":"no app \"a\"","code":"not_found"}"#, true);
        assert_eq!(failure, Failure::new(Exit::NotFound, "no app \"a\" (not_found)"));
        let failure = of_bytes(
            422,
            br#"{"code":"invalid","errors":[{"field":"limits.memory","message":"too small"},{"field":"env","message":"no"}]}"#,
            true,
        );
        assert_eq!(failure.lines, ["limits.memory: too small", "env: no"]);
        assert_eq!(failure.exit, Exit::Usage);
        let failure = of_bytes(502, b"<html>", true);
        assert_eq!(failure.lines, ["the API answered with status 502"]);
        assert!(of_bytes(401, b"", false).lines[0].contains("hint: no token was found"));
    }
}
