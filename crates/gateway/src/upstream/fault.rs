//! What can go wrong in one attempt: whose fault it is, and whether the request may be sent again.

use std::io;
use towpath_types::ErrorCode;

/// Why an attempt gave no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptFault {
    /// No connection.
    #[error("no connection to the instance")]
    Connect(#[source] io::Error),
    /// No connection in time.
    #[error("no connection to the instance in time")]
    ConnectTimeout,
    /// The instance said that it did not process the request (HTTP/2 REFUSED_STREAM, GOAWAY).
    #[error("the instance refused the stream unprocessed")]
    Refused,
    /// The connection ended or broke after bytes of the request went out.
    #[error("the instance ended the connection without a response")]
    Broken(#[source] io::Error),
    /// The same, and not one byte of a response came: on a kept connection this may be the instance's idle timeout.
    #[error("the instance ended the connection without a word")]
    Silent(#[source] io::Error),
    /// What came is no response that could be passed on.
    #[error("the instance's response is malformed: {0}")]
    Malformed(&'static str),
    /// No response head in time.
    #[error("no response in time")]
    Timeout,
    /// The time for the whole request was over before there was a connection: too little was left of it.
    #[error("no time was left for a connection")]
    OutOfTime,
    /// The request could not be read from the client.
    #[error("the request's body could not be read")]
    Client(#[source] BodyFault),
}

/// Why a request body could not be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyFault {
    /// It is longer than permitted.
    #[error("the body is too large")]
    TooLarge,
    /// Its framing is broken.
    #[error("the body is malformed")]
    Malformed,
    /// The client sent nothing for too long.
    #[error("the client was too slow")]
    Slow,
    /// The client went away.
    #[error("the client went away")]
    Gone,
}

/// When a request may be sent again after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resend {
    /// Within retries and budget, whatever the method: nothing was processed.
    Always,
    /// Within retries and budget, if sending it twice does no harm and its body is still there.
    IfSafe,
    /// Not at all.
    Never,
}

impl AttemptFault {
    /// When the request may be sent again.
    pub(crate) fn resend(&self) -> Resend {
        match self {
            Self::Connect(_) | Self::ConnectTimeout | Self::Refused => Resend::Always,
            Self::Broken(_) | Self::Silent(_) | Self::Malformed(_) | Self::Timeout => Resend::IfSafe,
            Self::Client(_) | Self::OutOfTime => Resend::Never,
        }
    }

    /// Whether the endpoint is to blame.
    pub(crate) fn is_endpoints(&self) -> bool {
        match self {
            Self::Connect(error) => !crate::descriptors::are_used_up(error),
            Self::Client(_) | Self::Refused | Self::OutOfTime => false,
            Self::ConnectTimeout | Self::Broken(_) | Self::Silent(_) | Self::Malformed(_) | Self::Timeout => {
                true
            }
        }
    }

    /// The code that the client gets when there is no further attempt.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Connect(_) | Self::ConnectTimeout => ErrorCode::ConnectFailed,
            Self::Refused | Self::Broken(_) | Self::Silent(_) | Self::Malformed(_) => {
                ErrorCode::UpstreamFailed
            }
            Self::Timeout | Self::OutOfTime => ErrorCode::UpstreamTimeout,
            Self::Client(BodyFault::TooLarge) => ErrorCode::BodyTooLarge,
            Self::Client(BodyFault::Slow) => ErrorCode::ClientTimeout,
            Self::Client(BodyFault::Malformed | BodyFault::Gone) => ErrorCode::BadRequest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_is_short_of_is_no_fault_of_the_endpoint() {
        let connect = |code| AttemptFault::Connect(io::Error::from_raw_os_error(code));
        for code in [nix::libc::EMFILE, nix::libc::ENFILE, nix::libc::EADDRNOTAVAIL] {
            assert!(!connect(code).is_endpoints(), "{code}");
        }
        assert!(connect(nix::libc::ECONNREFUSED).is_endpoints());
        assert!(AttemptFault::ConnectTimeout.is_endpoints());
    }
}
