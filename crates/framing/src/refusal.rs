//! Why bytes are refused.

use towpath_types::ErrorCode;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:ident, $text:literal;)*) => {
        /// Why a request is refused before it is passed on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// Every refusal.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name,)*];

            /// The stable code that the client sees.
            pub fn code(self) -> ErrorCode {
                match self { $(Refusal::$name => ErrorCode::$code,)* }
            }

            /// What was wrong, for people.
            pub fn detail(self) -> &'static str {
                match self { $(Refusal::$name => $text,)* }
            }
        }
    };
}

refusals! {
    /// A line ends with LF alone.
    BareLf = BadRequest, "a line ends with LF alone; lines end with CR LF";
    /// A CR that no LF follows.
    BareCr = BadRequest, "a CR stands without LF";
    /// A control character, NUL among them.
    Control = BadRequest, "a control character stands in the head";
    /// The request line is not `METHOD target HTTP/1.x`.
    RequestLine = BadRequest, "the request line is not: method, one space, target, one space, version";
    /// The method is not an upper-case token, or is one that no app serves (CONNECT, PRI).
    Method = BadRequest, "the method is not one that is passed on";
    /// The target has a character that may not stand there, or a form that does not fit the method.
    Target = BadRequest, "the request target is not valid";
    /// Neither HTTP/1.1 nor HTTP/1.0.
    Version = BadRequest, "the version is neither HTTP/1.1 nor HTTP/1.0";
    /// A header continues on the next line.
    Fold = BadRequest, "a header is folded over two lines";
    /// A header line without colon, with an empty name, or with space before the colon.
    HeaderName = BadRequest, "a header name is not a token directly before a colon";
    /// No `Host` in HTTP/1.1.
    HostMissing = BadRequest, "there is no Host header";
    /// More than one `Host`.
    HostTwice = BadRequest, "there is more than one Host header";
    /// `Host` is not a host with an optional port.
    HostValue = BadRequest, "the Host header is not a host name with an optional port";
    /// The target's authority is another than `Host`.
    HostMismatch = BadRequest, "the target names another host than the Host header";
    /// `Content-Length` is not plain digits.
    LengthValue = BadRequest, "Content-Length is not plain digits";
    /// More than one `Content-Length`.
    LengthTwice = BadRequest, "there is more than one Content-Length header";
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndEncoding = BadRequest, "there are both Content-Length and Transfer-Encoding";
    /// `Transfer-Encoding` is not `chunked` alone, is there twice, or comes in HTTP/1.0.
    Encoding = BadRequest, "Transfer-Encoding is not: chunked, once, in HTTP/1.1";
    /// A name that only differs from a framing header by `_` for `-`.
    Underscore = BadRequest, "a header imitates a framing header with underscores";
    /// A chunk size that is not hex digits directly before CR LF or `;`.
    ChunkSize = BadRequest, "a chunk size is not plain hex digits";
    /// A chunk extension that is too long or has control characters.
    ChunkExtension = BadRequest, "a chunk extension is too long or malformed";
    /// Chunk data that does not end with CR LF.
    ChunkEnd = BadRequest, "chunk data does not end with CR LF";
    /// A malformed or forbidden trailer.
    Trailer = BadRequest, "a trailer is malformed or not permitted";
    /// The head is over the limit.
    HeadBytes = HeadTooLarge, "the request head has too many bytes";
    /// Too many header lines.
    HeadCount = HeadTooLarge, "the request head has too many headers";
    /// The head did not arrive in time.
    HeadTimeout = ClientTimeout, "the request head did not arrive in time";
}
