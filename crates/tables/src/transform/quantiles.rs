//! Quantiles of a sample of a column.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::hash::mix;

/// The maximum number of values of the sample. A table with fewer values is used whole.
const SAMPLE: usize = 1 << 16;

/// The maximum number of stored quantiles.
const MAX_QUANTILES: usize = 1001;

/// The values with the smallest hashes of their positions: a random sample that is the same in every run.
#[derive(Debug, Default)]
pub(super) struct ValueSample {
    kept: BinaryHeap<Sampled>,
    n_values: u64,
}

#[derive(Debug, PartialEq)]
struct Sampled {
    hash: u64,
    value: f64,
}

impl Eq for Sampled {}

impl Ord for Sampled {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then(self.value.total_cmp(&other.value))
    }
}

impl PartialOrd for Sampled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ValueSample {
    /// Returns the memory of the sample in bytes.
    pub(super) fn heap_bytes(&self) -> u64 {
        (self.kept.capacity() * size_of::<Sampled>()) as u64
    }

    pub(super) fn add(&mut self, value: f64) {
        self.n_values += 1;
        let sampled = Sampled { hash: mix(self.n_values), value };
        if self.kept.len() < SAMPLE {
            self.kept.push(sampled);
        } else if self.kept.peek().is_some_and(|largest| sampled < *largest) {
            self.kept.pop();
            self.kept.push(sampled);
        }
    }

    /// Returns order statistics at equal distances, the smallest and the largest included.
    pub(super) fn quantiles(self) -> Vec<f64> {
        let mut values: Vec<f64> = self.kept.into_iter().map(|sampled| sampled.value).collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len();
        if n <= MAX_QUANTILES {
            return values;
        }
        let last = MAX_QUANTILES - 1;
        (0..=last).map(|position| values[(position * (n - 1) + last / 2) / last]).collect()
    }
}

/// Returns the rank of a value among ascending quantiles, from 0 to 1: linear between two of them, and the mean of the ranks
/// of equal ones. 0.5 without quantiles.
pub(super) fn rank(value: f64, quantiles: &[f64]) -> f64 {
    let n_below = quantiles.partition_point(|quantile| *quantile < value);
    let n_up_to = quantiles.partition_point(|quantile| *quantile <= value);
    let last = quantiles.len().saturating_sub(1) as f64;
    match (n_below, n_up_to) {
        _ if quantiles.is_empty() => 0.5,
        (below, up_to) if below < up_to => match last > 0.0 {
            true => (below + up_to - 1) as f64 / 2.0 / last,
            false => 0.5,
        },
        (0, _) => 0.0,
        (below, _) if below == quantiles.len() => 1.0,
        (below, _) => {
            let low = quantiles[below - 1];
            let high = quantiles[below];
            ((below - 1) as f64 + (value - low) / (high - low)) / last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_interpolates_and_shares_ties() {
        let quantiles = [1.0, 2.0, 2.0, 2.0, 6.0];
        let found = [0.0, 1.0, 1.5, 2.0, 4.0, 6.0, 7.0].map(|value| rank(value, &quantiles));
        assert_eq!(found, [0.0, 0.0, 0.125, 0.5, 0.875, 1.0, 1.0]);
        assert_eq!([0.0, 3.0, 4.0].map(|value| rank(value, &[3.0])), [0.0, 0.5, 1.0]);
        assert_eq!(rank(1.0, &[]), 0.5);
    }

    #[test]
    fn large_columns_are_sampled() {
        let mut sample = ValueSample::default();
        let n = 4 * SAMPLE;
        (0..n).for_each(|value| sample.add(value as f64));
        assert_eq!(sample.kept.len(), SAMPLE);
        let quantiles = sample.quantiles();
        assert_eq!(quantiles.len(), MAX_QUANTILES);
        assert!(quantiles.is_sorted());
        // The median of 65,536 of the values is off by a standard deviation of n / 512.
        let median = quantiles[MAX_QUANTILES / 2];
        assert!((median - n as f64 / 2.0).abs() < 6.0 * n as f64 / 512.0, "{median}");
    }
}
