//! Draws for data sets: the same seed gives the same on every machine.

use std::ops::Range;

use kiln_graph::{ItemId, SharedArray};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Split;

/// One stream of draws, by integer and basic floating-point operations alone, so that no machine's
/// mathematical library has a say.
pub(crate) struct Draws(Xoshiro256StarStar);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// Uniform in 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in -1 to 1, without 1: 24 bits, so that no rounding reaches it.
    pub(crate) fn symmetric(&mut self) -> f32 {
        (self.0.next_u64() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    /// Uniform among `0..n`, to one part in 2^64 / n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Nearly normal, of mean 0 and standard deviation 1: the sum of twelve uniform draws, less six.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A random order (Fisher and Yates, from the last position down).
    pub(crate) fn shuffle<I>(&mut self, items: &mut [I]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// A random split of `n_items`, with these numbers of items before the end of the first and of the second
    /// part. Each part ascends.
    pub(crate) fn split<I: ItemId>(&mut self, n_items: usize, train_end: usize, val_end: usize) -> Split<I> {
        let mut items: Vec<I> = (0..n_items as u32).map(I::new).collect();
        self.shuffle(&mut items);
        let part = |range: Range<usize>| {
            let mut part = items[range].to_vec();
            part.sort_unstable();
            SharedArray::from(part)
        };
        Split { train: part(0..train_end), val: part(train_end..val_end), test: part(val_end..n_items) }
    }

    /// A random 60/20/20 % of the nodes.
    pub(crate) fn split_of_nodes(&mut self, n_nodes: usize) -> Split {
        self.split(n_nodes, n_nodes * 6 / 10, n_nodes * 8 / 10)
    }
}
