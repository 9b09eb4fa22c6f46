//! Who may do what: one table, method and path → the least role. A test computed from the OpenAPI document shows that
//! every endpoint is in it; at run time what is not in it is refused.

use http::Method;
use towpath_types::spec::Role;

/// Who may use an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everybody, without a token.
    Public,
    /// Any token.
    Any,
    /// People's tokens that may read: viewer, developer, operator.
    Viewer,
    /// Those who may change what is in a space: developer, operator.
    Developer,
    /// Operators alone.
    Operator,
    /// Cells, and operators for looking after them.
    Cell,
}

use Access::{Any, Cell, Developer, Operator, Public, Viewer};

/// The table. Order: path, then method.
pub(crate) const TABLE: &[(Method, &str, Access)] = &[
    (Method::GET, "/", Public),
    (Method::GET, "/docs", Public),
    (Method::GET, "/openapi.json", Public),
    (Method::GET, "/v1/healthz", Public),
    (Method::GET, "/v1/readyz", Public),
    (Method::GET, "/v1/version", Any),
    (Method::GET, "/v1/whoami", Any),
    (Method::GET, "/v1/apps", Viewer),
    (Method::GET, "/v1/apps/{app}", Viewer),
    (Method::PUT, "/v1/apps/{app}", Developer),
    (Method::PATCH, "/v1/apps/{app}", Developer),
    (Method::DELETE, "/v1/apps/{app}", Developer),
    (Method::GET, "/v1/apps/{app}/env", Developer),
    (Method::PATCH, "/v1/apps/{app}/env", Developer),
    (Method::GET, "/v1/apps/{app}/groups", Viewer),
    (Method::PATCH, "/v1/apps/{app}/groups/{lane}", Developer),
    (Method::DELETE, "/v1/apps/{app}/groups/{lane}", Developer),
    (Method::POST, "/v1/apps/{app}/groups/{lane}/restart", Developer),
    (Method::GET, "/v1/apps/{app}/instances", Viewer),
    (Method::GET, "/v1/apps/{app}/logs", Viewer),
    (Method::GET, "/v1/apps/{app}/releases", Viewer),
    (Method::POST, "/v1/apps/{app}/releases", Developer),
    (Method::POST, "/v1/apps/{app}/rollback", Developer),
    (Method::GET, "/v1/cells", Viewer),
    (Method::GET, "/v1/cells/{cell}", Viewer),
    (Method::PATCH, "/v1/cells/{cell}", Operator),
    (Method::POST, "/v1/explain", Viewer),
    (Method::GET, "/v1/gateways", Viewer),
    (Method::GET, "/v1/instances", Viewer),
    (Method::GET, "/v1/instances/{id}/logs", Viewer),
    (Method::GET, "/v1/lanes", Viewer),
    (Method::GET, "/v1/lanes/{lane}", Viewer),
    (Method::PUT, "/v1/lanes/{lane}", Developer),
    (Method::DELETE, "/v1/lanes/{lane}", Developer),
    (Method::GET, "/v1/managers", Viewer),
    (Method::GET, "/v1/managers/owner/{id}", Viewer),
    (Method::GET, "/v1/operations", Viewer),
    (Method::GET, "/v1/operations/{id}", Viewer),
    (Method::GET, "/v1/operations/{id}/events", Viewer),
    (Method::POST, "/v1/operations/{id}/cancel", Developer),
    (Method::GET, "/v1/routes", Viewer),
    (Method::PUT, "/v1/routes", Developer),
    (Method::DELETE, "/v1/routes", Developer),
    (Method::HEAD, "/v1/sources/{digest}", Developer),
    (Method::PUT, "/v1/sources/{digest}", Developer),
    (Method::GET, "/v1/space", Viewer),
    (Method::PATCH, "/v1/space", Developer),
    (Method::GET, "/v1/status", Viewer),
    (Method::GET, "/v1/tokens", Operator),
    (Method::POST, "/v1/tokens", Operator),
    (Method::DELETE, "/v1/tokens/{name}", Operator),
    (Method::GET, "/internal/v1/artifacts/{digest}", Cell),
    (Method::HEAD, "/internal/v1/artifacts/{digest}", Cell),
    (Method::PUT, "/internal/v1/artifacts/{digest}", Cell),
    (Method::GET, "/internal/v1/sources/{digest}", Cell),
];

/// The entry of an endpoint, by the router's path pattern. HEAD of what has only GET is as GET.
pub(crate) fn find(method: &Method, path: &str) -> Option<Access> {
    let entry = |method: &Method| {
        TABLE.iter().find(|(m, p, _)| m == method && *p == path).map(|(_, _, access)| *access)
    };
    entry(method).or_else(|| if method == Method::HEAD { entry(&Method::GET) } else { None })
}

/// Whether a role passes.
pub(crate) fn permits(access: Access, role: Role) -> bool {
    match access {
        Public | Any => true,
        Viewer => matches!(role, Role::Viewer | Role::Developer | Role::Operator),
        Developer => matches!(role, Role::Developer | Role::Operator),
        Operator => role == Role::Operator,
        Cell => matches!(role, Role::Cell | Role::Operator),
    }
}

/// The least role, as the documentation says it.
pub(crate) fn least(access: Access) -> &'static str {
    match access {
        Public => "no token needed",
        Any => "any token",
        Viewer => "viewer",
        Developer => "developer",
        Operator => "operator",
        Cell => "cell",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_endpoint_of_the_document_is_declared_once_and_nothing_else_is() {
        let document = crate::api::openapi();
        let documented: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone()))
            })
            .collect();
        let declared: BTreeSet<(String, String)> =
            TABLE.iter().map(|(method, path, _)| (method.to_string(), (*path).to_owned())).collect();
        assert_eq!(declared.len(), TABLE.len());
        assert_eq!(declared, documented);
    }

    #[test]
    fn an_operator_may_do_all_and_a_viewer_only_reads() {
        for (method, path, access) in TABLE {
            assert!(permits(*access, Role::Operator), "{method} {path}");
            let changes = !matches!(*method, Method::GET | Method::HEAD) && *path != "/v1/explain";
            assert!(!(changes && permits(*access, Role::Viewer)), "{method} {path}");
            let public = matches!(access, Access::Public | Access::Any);
            assert_eq!(
                permits(*access, Role::Cell),
                public || path.starts_with("/internal/"),
                "{method} {path}"
            );
        }
    }
}
