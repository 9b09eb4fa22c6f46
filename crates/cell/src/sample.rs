//! Load of the machine.

use std::time::Instant;
use towpath_types::load::HostLoad;

/// Counters of the look before.
#[derive(Debug, Default)]
pub(crate) struct HostSampler {
    before: Option<Counters>,
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    at: Instant,
    busy: u64,
    all: u64,
    /// Microseconds in which some task waited for I/O.
    waited: u64,
}

impl HostSampler {
    /// Looks now. CPU and I/O are since the look before; the first look gives 0 for them.
    pub(crate) fn sample(&mut self) -> HostLoad {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (busy, all) = parse_cpu(&read("/proc/stat")).unwrap_or((0, 0));
        let waited = parse_pressure(&read("/proc/pressure/io")).unwrap_or(0);
        let now = Counters { at: Instant::now(), busy, all, waited };
        let (cpu, io) = self.before.replace(now).map_or((0.0, 0.0), |before| shares(before, now));
        HostLoad { cpu, mem: parse_memory(&read("/proc/meminfo")).map_or(0.0, |m| m.used_share()), io }
    }
}

/// Bytes of memory in the machine.
pub(crate) fn total_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    parse_memory(&text).map_or(0, |memory| memory.total)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "shares between 0 and 1")]
fn shares(before: Counters, now: Counters) -> (f32, f32) {
    let all = now.all.saturating_sub(before.all);
    let cpu = if all == 0 { 0.0 } else { now.busy.saturating_sub(before.busy) as f64 / all as f64 };
    let micros = now.at.saturating_duration_since(before.at).as_micros();
    let io = if micros == 0 { 0.0 } else { now.waited.saturating_sub(before.waited) as f64 / micros as f64 };
    (cpu.clamp(0.0, 1.0) as f32, io.clamp(0.0, 1.0) as f32)
}

/// Busy and all ticks of all cores: user nice system idle iowait irq softirq steal. Guests are in user already.
fn parse_cpu(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    Some((all.checked_sub(ticks.get(3)? + ticks.get(4)?)?, all))
}

struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a share between 0 and 1"
    )]
    fn used_share(&self) -> f32 {
        (1.0 - self.available as f64 / self.total.max(1) as f64).clamp(0.0, 1.0) as f32
    }
}

fn parse_memory(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    };
    Some(Memory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

fn parse_pressure(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_ascii_whitespace().find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_kernels_texts_are_read() {
        assert_eq!(parse_cpu("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 1 1 1\n"), Some((30, 100)));
        assert_eq!(parse_cpu("cpu  10\n"), None);
        let memory = parse_memory("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\n").unwrap();
        assert_eq!((memory.total, memory.used_share()), (1_024_000, 0.75));
        assert_eq!(
            parse_pressure("some avg10=1.0 avg60=0 avg300=0 total=4258842\nfull total=1\n"),
            Some(4_258_842)
        );
        assert_eq!(parse_pressure(""), None);
    }

    #[test]
    fn shares_are_of_the_interval() {
        let at = Instant::now();
        let before = Counters { at, busy: 100, all: 1000, waited: 0 };
        let now = Counters { at: at + Duration::from_secs(2), busy: 200, all: 1400, waited: 500_000 };
        assert_eq!(shares(before, now), (0.25, 0.25));
        assert_eq!(shares(now, before), (0.0, 0.0));
    }

    #[test]
    fn this_machine_is_read() {
        let mut sampler = HostSampler::default();
        sampler.sample();
        let load = sampler.sample();
        assert!(load.mem > 0.0 && load.mem < 1.0, "{load:?}");
        assert!(total_memory() > 0);
    }
}
