//! Which manager owns a resource: consistent hashing with virtual nodes.
//!
//! Each member has points on a circle of 64-bit numbers, in proportion to its weight; a resource belongs to the member
//! whose point is the first at or after the resource's hash. A member that joins or leaves moves only what it gains or
//! had. All managers compute the same ring from the same members, in any order.

use std::ops::RangeInclusive;
use towpath_types::ManagerId;

/// Points of a member of weight 1. The fullest of a hundred has about 2.5 / √POINTS more than its share: 6 %.
pub const POINTS: u32 = 2048;

/// A member with its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// Who.
    pub manager: ManagerId,
    /// Share relative to others; 1 is normal, 0 owns nothing.
    pub weight: f32,
}

/// The ring. Immutable: a change of membership builds a new one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ring {
    members: Vec<ManagerId>,
    /// Points and the index of their member, sorted.
    points: Vec<(u64, u32)>,
    /// For each value of a hash's top bits, the first point at or after the beginning of that stretch.
    starts: Vec<u32>,
    /// How far a hash is shifted to give its top bits.
    shift: u32,
}

impl Ring {
    /// The ring of these members; the last one counts when a member is named twice.
    pub fn new(members: &[Member]) -> Self {
        let mut sorted: Vec<Member> = Vec::with_capacity(members.len());
        for member in members {
            match sorted.binary_search_by_key(&member.manager, |m| m.manager) {
                Ok(at) => {
                    if let Some(present) = sorted.get_mut(at) {
                        *present = *member;
                    }
                }
                Err(at) => sorted.insert(at, *member),
            }
        }
        let mut points = Vec::new();
        for (index, member) in sorted.iter().enumerate() {
            let (high, low) = member.manager.0.as_u64_pair();
            let seed = mix(high ^ mix(low));
            for point in 0..points_of(member.weight) {
                points.push((mix(seed.wrapping_add(u64::from(point) << 1 | 1)), index as u32));
            }
        }
        points.sort_unstable();
        // About one point a stretch, so that a lookup is one jump and a step or two.
        let bits = (points.len().max(2) as u64).next_power_of_two().trailing_zeros();
        let shift = 64 - bits;
        let mut starts = Vec::with_capacity(1 << bits);
        let mut at = 0_usize;
        for stretch in 0..(1_u64 << bits) {
            while points.get(at).is_some_and(|(point, _)| *point < stretch << shift) {
                at += 1;
            }
            starts.push(at as u32);
        }
        Self { members: sorted.iter().map(|m| m.manager).collect(), points, starts, shift }
    }

    /// The owner of a resource, by its name or id. `None` only when no member has a weight.
    pub fn owner(&self, resource: &str) -> Option<ManagerId> {
        self.owner_of_hash(hash(resource.as_bytes()))
    }

    /// The owner of a hash.
    pub fn owner_of_hash(&self, hash: u64) -> Option<ManagerId> {
        let start = *self.starts.get((hash >> self.shift) as usize)? as usize;
        let tail = self.points.get(start..)?;
        let found = tail.iter().find(|(point, _)| *point >= hash).or_else(|| self.points.first())?;
        self.members.get(found.1 as usize).copied()
    }

    /// Each member's share of all hashes, 0..=1, in the order of their ids.
    #[expect(clippy::cast_precision_loss, reason = "shares are for people")]
    pub fn shares(&self) -> Vec<(ManagerId, f64)> {
        let mut sums = vec![0_f64; self.members.len()];
        let mut before = self.points.last().map_or(0, |(point, _)| *point);
        for (point, member) in &self.points {
            // A hash belongs to the first point at or after it; the first point owns what is behind the last one, too.
            if let Some(sum) = sums.get_mut(*member as usize) {
                *sum += point.wrapping_sub(before) as f64;
            }
            before = *point;
        }
        if self.points.len() == 1 {
            sums.iter_mut().for_each(|sum| *sum = 2_f64.powi(64));
        }
        self.members.iter().copied().zip(sums.into_iter().map(|sum| sum / 2_f64.powi(64))).collect()
    }

    /// The hashes that a member owns and did not own in the ring before, in order. So a change of membership can be
    /// handled by looking at what it moved.
    pub fn gained(&self, before: &Self, manager: ManagerId) -> Vec<RangeInclusive<u64>> {
        let owner = |ring: &Self, at: usize| {
            let (_, member) = ring.points.get(at).or_else(|| ring.points.first())?;
            ring.members.get(*member as usize).copied()
        };
        let (mut now, mut then) = (0, 0);
        let mut start = Some(0_u64);
        let mut gained: Vec<RangeInclusive<u64>> = Vec::new();
        while let Some(from) = start {
            let next = |ring: &Self, at: usize| ring.points.get(at).map_or(u64::MAX, |(point, _)| *point);
            let to = next(self, now).min(next(before, then));
            if owner(self, now) == Some(manager) && owner(before, then) != Some(manager) {
                match gained.last_mut() {
                    Some(last) if last.end().checked_add(1) == Some(from) => *last = *last.start()..=to,
                    _ => gained.push(from..=to),
                }
            }
            now += usize::from(next(self, now) == to);
            then += usize::from(next(before, then) == to);
            start = to.checked_add(1);
        }
        gained
    }

    /// The members, in the order of their ids.
    pub fn members(&self) -> &[ManagerId] {
        &self.members
    }
}

/// Points for a weight: at least one for any weight above zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before the cast")]
fn points_of(weight: f32) -> u32 {
    if weight > 0.0 { ((weight.min(64.0) * POINTS as f32).round() as u32).max(1) } else { 0 }
}

/// Spreads all bits (the finisher of SplitMix64).
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Hash of a resource's name, eight bytes at a time. The same on every machine and in every version.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = mix(bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(chunks.remainder()) {
        *to = *from;
    }
    mix(state ^ u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests;
