//! Hashing and cheap random numbers from a seed. Both are fixed functions: every gateway gets the same results.

const A: u64 = 0x9E37_79B9_7F4A_7C15;
const B: u64 = 0xD6E8_FEB8_6659_FD93;

/// Spreads the bits of `x` over the whole word; a bijection (the finalizer of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hash of `bytes` under `seed`. Not for secrets: who may put routes into the table can make collisions, which cost
/// him a longer probe of one shard and nothing else.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = seed ^ A.wrapping_mul(bytes.len() as u64 + 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        state = fold(state ^ u64::from_le_bytes(*word), B);
    }
    // the last eight bytes, overlapping the words; of a shorter text all there is
    let last = match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last),
        None => rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    mix(fold(state ^ last, A))
}

/// Whether two short texts are equal; word by word, which is faster here than a call of the C library's `memcmp`.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        (Some(end_a), Some(end_b)) => {
            let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
            let equal = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) == u64::from_le_bytes(*b);
            equal((end_a, end_b)) && words.into_iter().all(equal)
        }
        _ => a.iter().zip(b).all(|(a, b)| a == b),
    }
}

/// A sequence of random numbers from the one that the caller gave.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(A);
        mix(self.0)
    }

    /// Uniform in `0..n`; 0 when `n` is 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.word()) * n as u128) >> 64) as usize
    }

    /// Uniform in `0..n` for a sum of weights.
    pub(crate) fn below_u64(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.word())
    }
}

/// The upper 53 bits as a number in `0.0..1.0`.
pub(crate) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_every_byte_length_and_seed() {
        let base = hash_bytes(1, b"shop.example.com");
        assert_ne!(base, hash_bytes(2, b"shop.example.com"));
        assert_ne!(base, hash_bytes(1, b"shop.example.co"));
        assert_ne!(hash_bytes(1, b"a"), hash_bytes(1, b"a\0"));
        for at in 0..16 {
            let mut other = *b"shop.example.com";
            other[at] ^= 1;
            assert_ne!(base, hash_bytes(1, &other));
        }
    }

    #[test]
    fn below_stays_below_and_covers() {
        let mut rng = Rng::new(7);
        let mut seen = [0; 5];
        for _ in 0..5000 {
            seen[rng.below(5)] += 1;
        }
        assert!(seen.iter().all(|n| (850..1150).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
    }
}
