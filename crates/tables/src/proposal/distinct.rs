//! The different values of a column, as hashes within a number of entries.

use std::collections::HashMap;

/// The memory of an entry in bytes: 16, in a map that is up to twice as large as needed and is copied while it grows.
pub(super) const ENTRY_BYTES: u64 = 64;

/// The different values of a column by their hashes, with the number of rows of each. If they are too many, those whose hash begins
/// with more and more zeros are kept, which are the same values in each column (bottom-k sketches by hash, Cohen and Kaplan 2007).
#[derive(Debug, Clone)]
pub(super) struct Distinct {
    rows: HashMap<u64, u64>,
    /// The number of zeros at the start of the hashes that are kept.
    level: u32,
    max_entries: usize,
}

/// The part of a column's values that another column has.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Overlap {
    pub(super) n_values: u64,
    pub(super) n_values_found: u64,
    pub(super) n_rows: u64,
    pub(super) n_rows_found: u64,
    /// True if not all values were compared.
    pub(super) is_sampled: bool,
}

impl Distinct {
    pub(super) fn new(max_entries: usize) -> Self {
        Self { rows: HashMap::new(), level: 0, max_entries: max_entries.max(1) }
    }

    pub(super) fn add(&mut self, hash: u64, n_rows: u64) {
        if hash.leading_zeros() < self.level {
            return;
        }
        *self.rows.entry(hash).or_default() += n_rows;
        self.shrink();
    }

    /// Sets a smaller number of entries.
    pub(super) fn limit(&mut self, max_entries: usize) {
        self.max_entries = self.max_entries.min(max_entries);
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.max_entries < self.rows.len() && self.level < 63 {
            self.level += 1;
            let level = self.level;
            self.rows.retain(|hash, _| level <= hash.leading_zeros());
        }
    }

    /// Returns true if the number of values is an estimate.
    pub(super) fn is_sampled(&self) -> bool {
        self.level > 0
    }

    /// Returns the number of different values, or an estimate.
    pub(super) fn n_values(&self) -> u64 {
        (self.rows.len() as u64) << self.level
    }

    /// Returns true if no value that is kept occurs twice.
    pub(super) fn is_unique(&self) -> bool {
        self.rows.values().all(|n_rows| *n_rows == 1)
    }

    /// Returns the part of these values that are among others.
    pub(super) fn overlap(&self, others: &Self) -> Overlap {
        let level = self.level.max(others.level);
        let mut overlap = Overlap { is_sampled: level > 0, ..Overlap::default() };
        for (hash, n_rows) in self.rows.iter().filter(|(hash, _)| level <= hash.leading_zeros()) {
            let is_found = others.rows.contains_key(hash);
            overlap.n_values += 1;
            overlap.n_values_found += u64::from(is_found);
            overlap.n_rows += n_rows;
            overlap.n_rows_found += if is_found { *n_rows } else { 0 };
        }
        overlap
    }
}

impl Overlap {
    /// Returns the share of the values that are found; `None` if no value was compared.
    pub(super) fn share(&self) -> Option<f64> {
        (self.n_values > 0).then(|| self.n_values_found as f64 / self.n_values as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    fn values(range: std::ops::Range<u64>, max_entries: usize) -> Distinct {
        let mut values = Distinct::new(max_entries);
        range.for_each(|value| values.add(mix(value + 1), 1));
        values
    }

    #[test]
    fn a_sample_estimates_the_numbers_and_is_the_same_in_each_column() {
        let all = values(0..50_000, 1 << 20);
        assert_eq!((all.n_values(), all.is_sampled(), all.is_unique()), (50_000, false, true));
        let sampled = values(0..50_000, 1000);
        assert!(sampled.is_sampled() && (40_000..60_000).contains(&sampled.n_values()));
        // A column with half of the values, of which another part is kept.
        let half = values(25_000..75_000, 3000);
        for share in
            [half.overlap(&sampled), half.overlap(&all)].map(|overlap| overlap.share().unwrap_or(0.0))
        {
            assert!((0.4..0.6).contains(&share), "{share}");
        }
        assert_eq!(values(0..100, 10_000).overlap(&all).share(), Some(1.0));
        assert_eq!(values(0..0, 10).overlap(&all).share(), None);
        let mut twice = values(0..100, 10_000);
        twice.add(mix(1), 1);
        assert!(!twice.is_unique());
    }
}
