//! Names that people choose: short, lower-case, safe in host names, paths and bus subjects.

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} name {value:?} is not valid: {why}; use 1 to {max} of a-z, 0-9 and '-', beginning and ending with a letter or digit{}",
    example(value, *max)
)]
pub struct NameError {
    /// The word for what was named (`app`, `lane`, …).
    pub what: &'static str,
    /// The refused text, cut to 80 characters.
    pub value: String,
    /// The first thing that is wrong with it.
    pub why: &'static str,
    /// Longest permitted length in bytes.
    pub max: usize,
}

/// Checks `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, at most `max` bytes, and (so that `<lane>--<app>` can be told apart) no `--`.
fn check(what: &'static str, value: &str, max: usize) -> Result<(), NameError> {
    let bytes = value.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let why = if bytes.is_empty() {
        "it is empty"
    } else if bytes.len() > max {
        "it is too long"
    } else if !bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-') {
        "it has a character that is not permitted"
    } else if !edge(bytes.first()) || !edge(bytes.last()) {
        "it begins or ends with '-'"
    } else if bytes.windows(2).any(|w| w == b"--") {
        "it has '--' in it, which separates lane and app in host names"
    } else {
        return Ok(());
    };
    Err(NameError { what, value: value.chars().take(80).collect(), why, max })
}

/// `, for example my-app` for `My_App`: names are never changed silently, but the nearest valid one is said.
fn example(value: &str, max: usize) -> String {
    let mut name = String::new();
    for c in value.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    name.truncate(max);
    match name.trim_end_matches('-') {
        "" => String::new(),
        name => format!(", for example {name}"),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Longest permitted length in bytes.
            pub const MAX: usize = $max;

            /// Checks and makes the name.
            pub fn new(value: &str) -> Result<Self, NameError> {
                check($what, value, Self::MAX)?;
                Ok(Self(Arc::from(value)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(value: String) -> Result<Self, NameError> {
                Self::new(&value)
            }
        }

        impl std::str::FromStr for $name {
            type Err = NameError;
            fn from_str(value: &str) -> Result<Self, NameError> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.to_string()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A tenant.
    OrgName, "org", 40
);
name!(
    /// An environment class inside an org.
    SpaceName, "space", 40
);
name!(
    /// A person.
    UserName, "user", 40
);
name!(
    /// A deployable service, unique in its space.
    AppName, "app", 40
);
name!(
    /// A named track through a space; `base` is in every space.
    LaneName, "lane", 40
);

impl LaneName {
    /// The name of the lane that every space has.
    pub const BASE: &'static str = "base";

    /// The base lane.
    pub fn base() -> Self {
        Self(Arc::from(Self::BASE))
    }

    /// A name that no other sorts before: where a scan over lanes begins.
    pub fn lowest() -> Self {
        Self(Arc::from("0"))
    }

    /// Whether this is the base lane.
    pub fn is_base(&self) -> bool {
        &*self.0 == Self::BASE
    }
}

/// A space with the org that it belongs to. Text form: `org/space`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SpaceRef {
    /// The tenant.
    pub org: OrgName,
    /// The space inside it.
    pub space: SpaceName,
}

impl SpaceRef {
    /// Whether it is the one in which routing tables hold upstreams, see [`AppRef::of_upstream`].
    pub fn is_of_upstreams(&self) -> bool {
        self.org.as_str() == RESERVED
    }

    /// The space that is made at first start: `default/default`.
    pub fn first() -> Self {
        Self { org: OrgName(Arc::from("default")), space: SpaceName(Arc::from("default")) }
    }
}

impl fmt::Display for SpaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.org, self.space)
    }
}

/// Org and space of all upstreams.
const RESERVED: &str = "-";

/// An app with the space that it belongs to. Text form: `org/space/app`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AppRef {
    /// The tenant.
    pub org: OrgName,
    /// The space inside it.
    pub space: SpaceName,
    /// The app inside that.
    pub app: AppName,
}

impl AppRef {
    /// The app `app` of `space`.
    pub fn new(space: &SpaceRef, app: AppName) -> Self {
        Self { org: space.org.clone(), space: space.space.clone(), app }
    }

    /// The name under which a routing table holds the upstream `id`: `-/-/<id>`, in an org that nobody can make, since names
    /// begin with a letter or digit. For the same reason it is never read from a message: whoever tells others of
    /// an upstream tells its id.
    pub fn of_upstream(id: &str) -> Self {
        Self {
            org: OrgName(Arc::from(RESERVED)),
            space: SpaceName(Arc::from(RESERVED)),
            app: AppName(Arc::from(id)),
        }
    }

    /// The id of the upstream that this stands for, if it does.
    pub fn upstream_id(&self) -> Option<&str> {
        (self.org.as_str() == RESERVED).then(|| self.app.as_str())
    }

    /// The space of the app.
    pub fn space_ref(&self) -> SpaceRef {
        SpaceRef { org: self.org.clone(), space: self.space.clone() }
    }
}

impl fmt::Display for AppRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.org, self.space, self.app)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_the_error_says_what_is_right() {
        for good in ["a", "a1", "shop-front", "0x", &"a".repeat(40)] {
            assert_eq!(AppName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a--b", "ä", "a.b", "a b", "a\n", &"a".repeat(41)] {
            let error = LaneName::new(bad).unwrap_err();
            assert!(error.to_string().contains("lane name"), "{error}");
            assert!(error.to_string().contains("a-z"), "{error}");
        }
    }

    #[test]
    fn nobody_can_make_the_org_of_upstreams() {
        let upstream = AppRef::of_upstream("route:1");
        assert_eq!((upstream.to_string().as_str(), upstream.upstream_id()), ("-/-/route:1", Some("route:1")));
        assert!(OrgName::new("-").is_err() && serde_json::from_str::<OrgName>("\"-\"").is_err());
        let app = AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap());
        assert_eq!(app.upstream_id(), None);
    }

    #[test]
    fn a_bad_name_in_json_is_an_error() {
        assert!(serde_json::from_str::<AppName>("\"Bad\"").is_err());
        assert_eq!(serde_json::to_string(&LaneName::base()).unwrap(), "\"base\"");
    }

    #[test]
    fn a_refusal_says_the_nearest_valid_name() {
        for (bad, near) in [
            ("My_App", ", for example my-app"),
            ("a--b", ", for example a-b"),
            ("-x-", ", for example x"),
            ("Grüße!", ", for example gr-e"),
            (&"Ab.".repeat(20), ", for example ab-ab-ab-ab-ab-ab-ab-ab-ab-ab-ab-ab-ab-a"),
            ("", ""),
            ("_", ""),
        ] {
            let told = AppName::new(bad).unwrap_err().to_string();
            assert!(told.ends_with(&format!("a letter or digit{near}")), "{told}");
            if let Some(name) = near.strip_prefix(", for example ") {
                AppName::new(name).unwrap();
            }
        }
    }
}
