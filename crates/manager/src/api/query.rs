//! Reading query strings: unknown parameters are refused by name, and all that is wrong is told at once.

use super::problem::{FieldError, Problem};
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use towpath_types::{Millis, OrgName, SpaceName, SpaceRef};

/// The query, read as `T` (which should refuse unknown fields).
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        read_query(parts.uri.query().unwrap_or_default()).map(Params)
    }
}

/// No query of its own. Clients name their space everywhere, so that much is taken.
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        read_query::<InSpace>(parts.uri.query().unwrap_or_default()).map(|_| NoQuery)
    }
}

/// Reads a query string, taking out each parameter that does not fit until the rest does.
pub(crate) fn read_query<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let mut pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let mut errors = Vec::new();
    loop {
        let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
        let parser = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
        let error = match serde_path_to_error::deserialize::<_, T>(parser) {
            Ok(read) if errors.is_empty() => return Ok(read),
            Ok(_) => return Err(Problem::invalid(errors)),
            Err(error) => error,
        };
        let field = error.path().to_string();
        let message = error.inner().to_string();
        // An error without a place in the query (a parameter is missing, or is there twice) ends the search.
        let before = pairs.len();
        pairs.retain(|(name, _)| *name != field);
        let field = if field == "." { "query".to_owned() } else { field };
        errors.push(FieldError::new(field, plain(&message)));
        if pairs.len() == before || errors.len() > 32 {
            return Err(Problem::invalid(errors));
        }
    }
}

fn plain(message: &str) -> String {
    match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("expected ")) {
        Some((_, names)) => {
            format!(
                "there is no such parameter; known are: {}",
                names.replace('`', "").trim_start_matches("one of ")
            )
        }
        None => message.to_owned(),
    }
}

/// The path's parameters, with errors in our own form.
pub(crate) struct Segments<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(read)) => Ok(Segments(read)),
            Err(error) => Err(Problem::field("path", error.body_text())),
        }
    }
}

/// A parameter's text as a checked name, or the problem with it.
pub(crate) fn name<T>(field: &str, text: &str) -> Result<T, Problem>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| Problem::field(field, error.to_string()))
}

/// Values of `?wait=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wait {
    /// Answer only when all live gateways serve the change.
    Revision,
}

pub(crate) fn first_org() -> OrgName {
    SpaceRef::first().org
}

pub(crate) fn first_space() -> SpaceName {
    SpaceRef::first().space
}

/// Makes a query type for requests about a space: `org` and `space` and the given fields.
macro_rules! in_space {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            /// Tenant; `default` when absent.
            #[param(value_type = Option<String>, example = "default")]
            #[serde(default = "crate::api::query::first_org")]
            pub(crate) org: towpath_types::OrgName,
            /// Space inside it; `default` when absent.
            #[param(value_type = Option<String>, example = "default")]
            #[serde(default = "crate::api::query::first_space")]
            pub(crate) space: towpath_types::SpaceName,
            $($(#[$field_doc])* #[serde(default)] pub(crate) $field: $type,)*
        }

        impl $name {
            /// The space.
            #[allow(dead_code, reason = "not every endpoint needs both forms")]
            pub(crate) fn space(&self) -> towpath_types::SpaceRef {
                towpath_types::SpaceRef { org: self.org.clone(), space: self.space.clone() }
            }

            /// The app of this name in the space.
            #[allow(dead_code, reason = "not every endpoint needs both forms")]
            pub(crate) fn app(&self, name: &str) -> Result<towpath_types::AppRef, crate::api::problem::Problem> {
                Ok(towpath_types::AppRef::new(&self.space(), crate::api::query::name("app", name)?))
            }
        }
    };
}
pub(crate) use in_space;

in_space! {
    /// Which space.
    InSpace {}
}

in_space! {
    /// Which space, and whether to wait until the change is served.
    Change {
        /// `revision` = answer only when all live gateways serve the change.
        #[param(inline)]
        wait: Option<Wait>,
        /// Longest wait for that; 10s when absent.
        #[param(value_type = Option<String>, example = "10s")]
        wait_timeout: Option<Millis>,
    }
}

in_space! {
    /// Which space, and which page of the list.
    Listing {
        /// Most items in the answer, 1 to 1000; 100 when absent.
        limit: Option<usize>,
        /// `next` of the page before.
        cursor: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_defaults_and_all_that_is_wrong_is_named() {
        let read: Listing = read_query("limit=5&space=test").unwrap();
        assert_eq!((read.limit, read.space().to_string()), (Some(5), "default/test".to_owned()));
        let problem = read_query::<Listing>("limit=x&spce=test&org=UPPER").unwrap_err();
        let mut fields: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["limit", "org", "spce"]);
        assert!(problem.errors.iter().any(|error| error.message.contains("cursor")), "{problem:?}");
    }
}
