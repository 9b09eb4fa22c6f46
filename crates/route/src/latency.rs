//! Peak-sensitive, decaying latency average in one atomic word.
//!
//! A sample above the average replaces most of it at once, one below it pulls the average down with the time constant
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
                let keep = fade(tick(now).saturating_sub(at));
                let faded = average;
                if sample > faded {
                    faded + (sample - faded) * PEAK
                } else {
                    faded * keep + sample * (1.0 - keep)
                }
            }
        };
        self.0.store(u64::from(average.to_bits()) << 32 | u64::from(tick(now)), Relaxed);
    }

    /// The average in seconds, faded to `now`; `None` before the first sample.
    pub(crate) fn seconds(&self, now: u64) -> Option<f32> {
        let (average, at) = unpack(self.0.load(Relaxed))?;
        Some(average * fade(tick(now).saturating_sub(at)))
    }
}

/// Share of a rise that is taken over at once.
const PEAK: f32 = 1.0;

fn unpack(word: u64) -> Option<(f32, u32)> {
    (word != 0).then(|| (f32::from_bits((word >> 32) as u32), word as u32))
}
