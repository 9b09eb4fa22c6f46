//! Names of variables, read once so that a request need not.

use std::fmt;

/// A variable, named as nginx and APISIX name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    text: Box<str>,
    pub(crate) what: What,
}

/// Where the value is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum What {
    /// `http_x_user`: the request header `x-user`.
    Header(Box<str>),
    /// `cookie_name`.
    Cookie(Box<str>),
    /// `arg_name`: a query parameter, decoded.
    Arg(Box<str>),
    /// `uri_param_name`: a parameter of the matched path.
    Param(Box<str>),
    Method,
    Scheme,
    Host,
    /// Path in the form that is matched.
    Uri,
    /// Path and query as sent.
    RequestUri,
    Args,
    IsArgs,
    RemoteAddr,
    ServerPort,
    /// Whatever else: the gateway may know it.
    Other,
}

impl Name {
    /// Reads a name. Every text is one; whether a request has such a variable is another question.
    pub fn new(text: &str) -> Self {
        let rest = |prefix: &str| text.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        let what = if let Some(header) = rest("http_") {
            What::Header(header.to_ascii_lowercase().replace('_', "-").into())
        } else if let Some(cookie) = rest("cookie_") {
            What::Cookie(cookie.into())
        } else if let Some(arg) = rest("arg_") {
            What::Arg(arg.into())
        } else if let Some(param) = rest("uri_param_") {
            What::Param(param.into())
        } else {
            match text {
                "method" | "request_method" => What::Method,
                "scheme" => What::Scheme,
                "host" => What::Host,
                "uri" | "document_uri" => What::Uri,
                "request_uri" => What::RequestUri,
                "args" | "query_string" => What::Args,
                "is_args" => What::IsArgs,
                "remote_addr" => What::RemoteAddr,
                "server_port" => What::ServerPort,
                _ => What::Other,
            }
        };
        Self { text: text.into(), what }
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of the request header whose value it is, if it is one: lower case with dashes.
    pub fn header(&self) -> Option<&str> {
        match &self.what {
            What::Header(header) => Some(header),
            _ => None,
        }
    }

    /// Whether it is the path in the form in which it is matched.
    pub fn is_path(&self) -> bool {
        self.what == What::Uri
    }

    /// Whether this crate finds the value in every [`crate::RequestView`] by itself; all others the view is asked for.
    pub fn is_of_request(&self) -> bool {
        self.what != What::Other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
