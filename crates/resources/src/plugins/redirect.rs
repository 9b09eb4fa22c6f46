//! `redirect`: the client is told to go elsewhere.

use super::Settings;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Clients that came by http go to https.
    pub http_to_https: bool,
    /// Where they go, with variables: `https://$host/new$request_uri`.
    #[schemars(length(min = 2))]
    pub uri: Option<String>,
    /// A regular expression on the path, and what it is replaced by.
    #[schemars(length(min = 2, max = 2))]
    pub regex_uri: Option<Vec<String>>,
    /// Status.
    #[schemars(range(min = 200, max = 599))]
    pub ret_code: u16,
    /// Percent-encode what cannot stand in a URI.
    pub encode_uri: bool,
    /// Put the client's query behind it.
    pub append_query_string: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            http_to_https: false,
            uri: None,
            regex_uri: None,
            ret_code: 302,
            encode_uri: false,
            append_query_string: false,
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        let given = [self.uri.is_some(), self.regex_uri.is_some(), self.http_to_https];
        match given.iter().filter(|given| **given).count() {
            1 => {}
            0 => faults.push(Fault::new("uri", "is missing: give one of uri, regex_uri, http_to_https")),
            _ => faults.push(Fault::new("uri", "only one of uri, regex_uri and http_to_https can be given")),
        }
        if self.http_to_https && self.append_query_string {
            faults.push(Fault::new(
                "append_query_string",
                "must not stand beside http_to_https, which keeps the query anyway",
            ));
        }
        if let Some(text) = self.regex_uri.iter().flatten().next()
            && let Err(why) = towpath_route::vars::pattern(text, false)
        {
            faults.push(Fault::new("regex_uri[0]", why));
        }
    }
}
