//! The framing guard: where HTTP/1 messages begin and end, judged byte by byte before any other parser sees them.
//!
//! PURE: bytes in, verdict out. No I/O, no clock, no allocation for ordinary requests. Whatever two parsers could read
//! in two ways is refused here, so that a request means the same to whoever reads it and to everybody behind:
//! `Content-Length` beside `Transfer-Encoding`, a second `Content-Length`, lengths that are not digits, line folding, bare
//! CR or LF, NUL, odd chunk sizes, methods that are none, a missing or second `Host`, a target that contradicts it.
//!
//! [`Guard::judge`] is the entry for foreign bytes. Gateway and API use it alike.
//!
//! Must not: read or write anything, know what a request means.

mod body;
mod head;
pub mod proxy_protocol;
mod refusal;
#[cfg(test)]
mod tests;

pub use body::BodyScanner;
pub use head::{BodyFraming, HeadInfo, HeadScanner};
pub use refusal::Refusal;

pub use head::{imitates_framing, is_authority, judge_method, judge_target};

/// Limits on heads and trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramingLimits {
    /// Longest request head in bytes, blank line included.
    pub head_bytes: usize,
    /// Most header lines in a head, and in trailers.
    pub headers: usize,
}

impl Default for FramingLimits {
    fn default() -> Self {
        Self { head_bytes: 32 * 1024, headers: 100 }
    }
}

/// What a guard found out about the bytes it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// So many leading bytes are in order and may be passed on. The rest must be shown again, with more behind it.
    pub pass: usize,
    /// Why nothing after them may be passed on.
    pub stop: Option<Stop>,
}

/// Why a guard passes nothing on for now, or for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The next head is malformed: answer it and close.
    BadHead(Refusal),
    /// The body under way is malformed: the request fails, and the connection closes.
    BadBody(Refusal),
    /// The last request asked for another protocol: what follows is not judged before the answer is known.
    Upgrade,
}

#[derive(Debug, Clone)]
enum Phase {
    Head(HeadScanner),
    Body { scanner: BodyScanner, then: Then },
    Waiting,
    Open,
    Refused(Stop),
}

/// What follows a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Head,
    /// The answer to an upgrade request.
    Waiting,
    Open,
}

/// Follows the messages of one client connection.
#[derive(Debug, Clone)]
pub struct Guard {
    limits: FramingLimits,
    phase: Phase,
    heads: u64,
}

impl Guard {
    /// A guard at the start of a connection.
    pub fn new(limits: FramingLimits) -> Self {
        Self { limits, phase: Phase::Head(HeadScanner::new()), heads: 0 }
    }

    /// A guard that goes on with a connection after `heads` complete messages.
    pub fn after(limits: FramingLimits, heads: u64) -> Self {
        Self { heads, ..Self::new(limits) }
    }

    /// Judges the unpassed bytes of the connection. `bytes` begins with the first byte that was not passed so far.
    pub fn judge(&mut self, bytes: &[u8]) -> Verdict {
        let mut pass = 0;
        loop {
            let rest = bytes.get(pass..).unwrap_or_default();
            match &mut self.phase {
                Phase::Open => return Verdict { pass: bytes.len(), stop: None },
                Phase::Waiting => return Verdict { pass, stop: Some(Stop::Upgrade) },
                Phase::Refused(stop) => return Verdict { pass, stop: Some(*stop) },
                Phase::Head(scanner) => match scanner.advance(rest, self.limits) {
                    Err(refusal) => self.phase = Phase::Refused(Stop::BadHead(refusal)),
                    Ok(None) => return Verdict { pass, stop: None },
                    Ok(Some(head)) => {
                        pass += head.len;
                        self.heads += 1;
                        self.phase = after_head(&head);
                    }
                },
                Phase::Body { scanner, then } => match scanner.advance(rest, self.limits) {
                    Err((good, refusal)) => {
                        pass += good;
                        self.phase = Phase::Refused(Stop::BadBody(refusal));
                    }
                    Ok(taken) => {
                        pass += taken;
                        if !scanner.is_done() {
                            return Verdict { pass, stop: None };
                        }
                        self.phase = match then {
                            Then::Head => Phase::Head(HeadScanner::new()),
                            Then::Waiting => Phase::Waiting,
                            Then::Open => Phase::Open,
                        };
                    }
                },
            }
        }
    }

    /// The answer to an upgrade request is known: `switched` = the connection speaks another protocol from here on, or
    /// from the end of the body on that is still under way.
    pub fn resume(&mut self, switched: bool) {
        match &mut self.phase {
            Phase::Waiting => {
                self.phase = if switched { Phase::Open } else { Phase::Head(HeadScanner::new()) };
            }
            Phase::Body { then: then @ Then::Waiting, .. } => {
                *then = if switched { Then::Open } else { Then::Head };
            }
            _ => {}
        }
    }

    /// Whether a head has begun and is not complete.
    pub fn in_head(&self) -> bool {
        matches!(&self.phase, Phase::Head(scanner) if scanner.has_begun())
    }

    /// Whether a body is under way.
    pub fn in_body(&self) -> bool {
        matches!(self.phase, Phase::Body { .. })
    }

    /// Complete heads passed so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }

    /// Refuses what comes next for a reason from outside, such as a head that takes too long.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.phase =
            Phase::Refused(if self.in_body() { Stop::BadBody(refusal) } else { Stop::BadHead(refusal) });
    }
}

fn after_head(head: &HeadInfo) -> Phase {
    match head.body {
        BodyFraming::None if head.upgrade => Phase::Waiting,
        BodyFraming::None => Phase::Head(HeadScanner::new()),
        framing => Phase::Body {
            scanner: BodyScanner::new(framing),
            then: if head.upgrade { Then::Waiting } else { Then::Head },
        },
    }
}
