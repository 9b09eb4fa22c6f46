//! Peak-sensitive, decaying latency average in one atomic word.
//!
//! A sample above the average replaces it at once, one below it pulls the average down with the time constant
//! [`DECAY_NS`]. While nothing is measured the average fades with the same constant, so that an endpoint that once
//! was slow is tried again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Time in which the past loses 63 % of its say.
pub(crate) const DECAY_NS: u64 = 10_000_000_000;

/// Resolution of the time stamp: 2^20 ns, about a millisecond; 32 bits of it last 52 days.
const TICK_BITS: u32 = 20;

/// Average and time of the last sample, packed: upper half seconds as f32 bits, lower half ticks. 0 = no sample yet.
#[derive(Debug, Default)]
pub(crate) struct Latency(AtomicU64);

fn tick(now: u64) -> u32 {
    (now >> TICK_BITS) as u32
}

/// Ticks that a clock of another thread may be behind. Beyond that it is the time stamp that has gone round.
const BEHIND: u32 = 1 << 16;

/// Ticks from `at` to `now`.
fn ticks_since(at: u32, now: u64) -> u32 {
    let passed = tick(now).wrapping_sub(at);
    if passed > u32::MAX - BEHIND { 0 } else { passed }
}

fn fade(ticks: u32) -> f32 {
    if ticks == 0 {
        return 1.0;
    }
    exp2_neg(ticks as f32 * ((1_u64 << TICK_BITS) as f32 / DECAY_NS as f32 * std::f32::consts::LOG2_E))
}

/// `2^−x` for `x ≥ 0`, within 0.2 %, in a few instructions: it stands on the path of every choice.
fn exp2_neg(x: f32) -> f32 {
    let x = x.min(100.0);
    let whole = x as u32;
    let part = x - whole as f32;
    let mantissa = 1.0 + part * (-0.687_2 + part * (0.215_0 - part * 0.027_8));
    mantissa * f32::from_bits((127 - whole) << 23)
}

impl Latency {
    /// Takes a sample. Two at once may lose one of them: it is an average.
    pub(crate) fn add(&self, now: u64, sample_ns: u64) {
        let sample = sample_ns.max(1) as f32 / 1e9;
        let word = self.0.load(Relaxed);
        let average = match unpack(word) {
            None => sample,
            Some((average, at)) => {
                let keep = fade(ticks_since(at, now));
                if sample > average { sample } else { average * keep + sample * (1.0 - keep) }
            }
        };
        self.0.store(u64::from(average.to_bits()) << 32 | u64::from(tick(now)), Relaxed);
    }

    /// The average in seconds, faded to `now`; `None` before the first sample.
    pub(crate) fn seconds(&self, now: u64) -> Option<f32> {
        let (average, at) = unpack(self.0.load(Relaxed))?;
        Some(average * fade(ticks_since(at, now)))
    }
}

fn unpack(word: u64) -> Option<(f32, u32)> {
    (word != 0).then(|| (f32::from_bits((word >> 32) as u32), word as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn it_rises_at_once_and_falls_slowly() {
        let latency = Latency::default();
        assert_eq!(latency.seconds(0), None);
        latency.add(S, S / 100);
        assert!((latency.seconds(S).unwrap() - 0.01).abs() < 1e-6);
        latency.add(S, S);
        assert!((latency.seconds(S).unwrap() - 1.0).abs() < 1e-6);
        latency.add(2 * S, S / 100);
        let fallen = latency.seconds(2 * S).unwrap();
        assert!((0.90..0.92).contains(&fallen), "a tenth of the way in a tenth of the time: {fallen}");
        let later = latency.seconds(12 * S).unwrap() / fallen;
        assert!((later - (-1.0_f32).exp()).abs() < 0.01, "{later}");
    }

    #[test]
    fn a_clock_that_is_a_little_behind_does_no_harm() {
        let latency = Latency::default();
        latency.add(10 * S, S);
        latency.add(9 * S, S / 2);
        assert!(latency.seconds(9 * S).unwrap() <= 1.0);
    }

    #[test]
    fn it_fades_also_when_the_time_stamp_goes_round() {
        let round = 1_u64 << (TICK_BITS + 32);
        let latency = Latency::default();
        latency.add(round - 5 * S, S);
        for (later, least, most) in [(0, 0.58, 0.63), (5 * S, 0.35, 0.38), (95 * S, 0.0, 0.001)] {
            let average = latency.seconds(round + later).unwrap();
            assert!((least..most).contains(&average), "{later}: {average}");
        }
        latency.add(round + 5 * S, S / 1000);
        assert!(latency.seconds(round + 5 * S).unwrap() < 0.5);
    }

    #[test]
    fn the_quick_exponential_is_near_the_true_one() {
        for step in 0..2000 {
            let x = step as f32 * 0.01;
            assert!((exp2_neg(x) / (-x).exp2() - 1.0).abs() < 0.002, "{x}");
        }
        assert!(exp2_neg(1e9) >= 0.0);
    }
}
