//! Random numbers for data sets. The same seed produces the same numbers on every machine.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of random numbers. It uses only integer and basic floating-point operations, so that the results do not
/// depend on a platform's mathematical library.
pub(crate) struct Draws(Xoshiro256StarStar);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// Returns a uniform number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a uniform number in `[-1, 1)`. It has 24 random bits, which `f32` represents exactly, so that rounding
    /// cannot produce 1.
    pub(crate) fn symmetric(&mut self) -> f32 {
        (self.0.next_u64() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    /// Returns a uniform number in `0..n`, with a relative bias of at most `n / 2^64`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Returns an approximately normal number of mean 0 and standard deviation 1: the sum of twelve uniform numbers,
    /// minus 6.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// Shuffles the items (Fisher and Yates, from the last position down).
    pub(crate) fn shuffle<I>(&mut self, items: &mut [I]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
