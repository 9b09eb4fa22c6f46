//! Why an instance is in its state, in words for people.

use crate::driver::{Exit, ExitHow};
use nix::sys::signal::Signal;
use std::time::Duration;
use towpath_types::ByteSize;

/// How it ended.
pub(crate) fn of_exit(exit: Exit, memory: ByteSize) -> String {
    let after = exit.ran.map_or_else(String::new, |ran| format!(" after {}", time(ran)));
    match exit.how {
        ExitHow::Code(code) => match Signal::try_from(code - 128) {
            // So a shell reports a signal that ended its command.
            Ok(signal) => format!("exited with status {code} ({signal}){after}"),
            Err(_) => format!("exited with status {code}{after}"),
        },
        ExitHow::Signal(number) => match Signal::try_from(number) {
            Ok(signal) => format!("killed by signal {number} ({signal}){after}"),
            Err(_) => format!("killed by signal {number}{after}"),
        },
        ExitHow::OutOfMemory => format!("used more memory than its limit of {memory}{after}"),
        ExitHow::Lost => "its supervisor process was killed, or the machine was restarted".into(),
    }
}

/// A number of bytes, to one digit behind the point.
#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
pub(crate) fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0x4000_0000.. => (1_u64 << 30, "GB"),
        0x10_0000.. => (1 << 20, "MB"),
        _ => (1 << 10, "kB"),
    };
    let text = format!("{:.1}", bytes as f64 / unit as f64);
    format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text))
}

/// A duration with as many digits as a person wants.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_a_person_would() {
        assert_eq!(size(1 << 30), "1 GB");
        assert_eq!(size(1_288_490_189), "1.2 GB");
        assert_eq!(size(64 << 20), "64 MB");
        assert_eq!(size(1_500), "1.5 kB");
    }

    #[test]
    fn ends_are_told_as_a_person_would() {
        let exit = |how, ms| Exit { how, ran: Some(Duration::from_millis(ms)) };
        let text = |exit| of_exit(exit, ByteSize::mib(256));
        assert_eq!(text(exit(ExitHow::Code(1), 300)), "exited with status 1 after 0.3 s");
        assert_eq!(text(exit(ExitHow::Code(137), 300)), "exited with status 137 (SIGKILL) after 0.3 s");
        assert_eq!(text(exit(ExitHow::Signal(9), 61_000)), "killed by signal 9 (SIGKILL) after 61 s");
        assert_eq!(
            text(exit(ExitHow::OutOfMemory, 300_000)),
            "used more memory than its limit of 256M after 5 min"
        );
        assert_eq!(text(exit(ExitHow::Signal(40), 8_000_000)), "killed by signal 40 after 2 h");
    }
}
