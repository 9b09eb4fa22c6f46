//! Refusals in S3's words.

use std::borrow::Cow;

macro_rules! codes {
    ($($name:ident $status:literal;)*) => {
        /// The code of an error, as the S3 API reference lists them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the S3 API reference")]
        pub enum ErrorCode {
            $($name,)*
        }

        impl ErrorCode {
            /// Its name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Its status.
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }
        }
    };
}

codes! {
    AccessDenied 403;
    AuthorizationHeaderMalformed 400;
    AuthorizationQueryParametersError 400;
    BadDigest 400;
    IncompleteBody 400;
    InternalError 500;
    InvalidAccessKeyId 403;
    InvalidArgument 400;
    InvalidChunkSizeError 403;
    InvalidRequest 400;
    InvalidToken 400;
    InvalidURI 400;
    MalformedTrailerError 400;
    MethodNotAllowed 405;
    MissingContentLength 411;
    NotImplemented 501;
    RequestTimeTooSkewed 403;
    ServiceUnavailable 503;
    SignatureDoesNotMatch 403;
    SlowDown 503;
    XAmzContentSHA256Mismatch 400;
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Error {
    /// Its code.
    pub code: ErrorCode,
    /// What is wrong, for people.
    pub message: Cow<'static, str>,
    /// Further elements: name and text.
    pub more: Vec<(&'static str, String)>,
}

impl S3Error {
    /// An error.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), more: Vec::new() }
    }

    /// With another element.
    #[must_use]
    pub fn with(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.more.push((name, text.into()));
        self
    }

    /// Its status.
    pub const fn status(&self) -> u16 {
        self.code.status()
    }

    /// The document.
    pub fn xml(&self, resource: &str, request_id: &str) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
        let own = [("Code", self.code.name()), ("Message", self.message.as_ref())];
        let more = self.more.iter().map(|(name, text)| (*name, text.as_str()));
        let end = [("Resource", resource), ("RequestId", request_id)];
        for (name, text) in own.into_iter().chain(more).chain(end) {
            out.push('<');
            out.push_str(name);
            out.push('>');
            escape(&mut out, text);
            out.push_str("</");
            out.push_str(name);
            out.push('>');
        }
        out.push_str("</Error>");
        out
    }
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            // Characters that XML 1.0 does not have.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_says_everything_and_escapes_it() {
        let error = S3Error::new(ErrorCode::AccessDenied, "no <way>").with("Region", "a&b");
        assert_eq!(
            error.xml("/b/\"k'\u{1}", "id"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>AccessDenied</Code><Message>no &lt;way&gt;</Message>\
             <Region>a&amp;b</Region><Resource>/b/&quot;k&apos;\u{fffd}</Resource><RequestId>id</RequestId></Error>"
        );
        assert_eq!(
            (error.status(), ErrorCode::SlowDown.status(), ErrorCode::NotImplemented.status()),
            (403, 503, 501)
        );
    }
}
