//! What can go wrong in one attempt: whose fault it is, and whether the request may be sent again.

use crate::deadline::Deadline;
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
    /// The request is for a tunnel, which instances that speak HTTP/2 are not asked for.
    #[error("the instance speaks HTTP/2 and is not asked for a tunnel")]
    NoTunnel,
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
    /// A plugin found that it is not what the head says of it; the answer to that is in the request's record.
    #[error("the body is not what its head says")]
    Refused,
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
            Self::Client(_) | Self::OutOfTime | Self::NoTunnel => Resend::Never,
        }
    }

    /// Whether the endpoint is to blame.
    pub(crate) fn is_endpoints(&self) -> bool {
        match self {
            Self::Connect(_) => !self.is_shortage(),
            Self::Client(_) | Self::Refused | Self::OutOfTime | Self::NoTunnel => false,
            Self::ConnectTimeout | Self::Broken(_) | Self::Silent(_) | Self::Malformed(_) | Self::Timeout => {
                true
            }
        }
    }

    /// The fault of a connection that is not there in time.
    pub(crate) fn of_late_connect(deadline: &Deadline) -> Self {
        if deadline.is_cap_over() { Self::OutOfTime } else { Self::ConnectTimeout }
    }

    /// The fault of a connection as another request sees it that waited for the same one; `None` = it was not the
    /// connection's.
    pub(crate) fn of_shared_connect(&self) -> Option<Self> {
        match self {
            Self::Connect(error) => Some(Self::Connect(
                error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error),
            )),
            Self::ConnectTimeout => Some(Self::ConnectTimeout),
            _ => None,
        }
    }

    /// Whether nobody listens there.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether this machine had no descriptor or port for a connection.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, Self::Connect(error) if crate::descriptors::are_used_up(error))
    }

    /// The code that the client gets when there is no further attempt.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::Connect(_) if self.is_shortage() => ErrorCode::Overloaded,
            Self::Connect(_) | Self::ConnectTimeout => ErrorCode::ConnectFailed,
            Self::Refused | Self::Broken(_) | Self::Silent(_) | Self::Malformed(_) => {
                ErrorCode::UpstreamFailed
            }
            Self::Timeout | Self::OutOfTime => ErrorCode::UpstreamTimeout,
            Self::Client(BodyFault::TooLarge) => ErrorCode::BodyTooLarge,
            Self::Client(BodyFault::Slow) => ErrorCode::ClientTimeout,
            Self::NoTunnel | Self::Client(BodyFault::Malformed | BodyFault::Gone | BodyFault::Refused) => {
                ErrorCode::BadRequest
            }
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
            assert_eq!(connect(code).code(), ErrorCode::Overloaded, "{code}");
        }
        assert!(connect(nix::libc::ECONNREFUSED).is_endpoints());
        assert_eq!(connect(nix::libc::ECONNREFUSED).code(), ErrorCode::ConnectFailed);
        assert!(AttemptFault::ConnectTimeout.is_endpoints());
    }
}
