//! Vocabularies of categories, classes and labels.

use std::collections::HashMap;

use crate::{Error, Result};

/// The maximum number of different values of a column with a vocabulary.
pub(crate) const MAX_CATEGORIES: usize = 1 << 16;

/// The maximum total length of the different values of a column with a vocabulary, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// The number of occurrences of each value.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    counts: HashMap<String, u64>,
    n_bytes: usize,
}

impl Counter {
    pub(crate) fn add(&mut self, value: &str, column: &str) -> Result<()> {
        if let Some(count) = self.counts.get_mut(value) {
            *count += 1;
            return Ok(());
        }
        self.n_bytes += value.len();
        if self.counts.len() == MAX_CATEGORIES || MAX_TEXT < self.n_bytes {
            let max = self.counts.len();
            return Err(Error::TooManyValues { column: column.to_owned(), max });
        }
        self.counts.insert(value.to_owned(), 1);
        Ok(())
    }

    /// Returns the most frequent values, those with the same frequency in ascending order, and true if there are others.
    pub(super) fn most_frequent(self, max: usize) -> (Vec<String>, bool) {
        let mut values: Vec<(String, u64)> = self.counts.into_iter().collect();
        values.sort_unstable_by(|(name, count), (other, others)| others.cmp(count).then(name.cmp(other)));
        let has_other = max < values.len();
        values.truncate(max);
        (values.into_iter().map(|(name, _)| name).collect(), has_other)
    }

    /// Returns all values.
    pub(crate) fn into_values(self) -> Vec<String> {
        self.counts.into_keys().collect()
    }
}

/// Sorts values in ascending order, as numbers if all are integers.
pub(crate) fn ascending(mut values: Vec<String>) -> Vec<String> {
    let numbers: Option<Vec<i128>> = values.iter().map(|value| value.parse().ok()).collect();
    match numbers {
        None => values.sort_unstable(),
        Some(_) => values.sort_by(|a, b| {
            let number = |text: &str| text.parse::<i128>().unwrap_or(0);
            number(a).cmp(&number(b)).then(a.cmp(b))
        }),
    }
    values
}

/// Returns the position of each name.
pub(crate) fn position_by_name(names: &[String]) -> HashMap<String, usize> {
    names.iter().enumerate().map(|(position, name)| (name.clone(), position)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_ordered_by_frequency_and_then_by_name() {
        let mut counter = Counter::default();
        for value in ["b", "c", "a", "c", "a", "d"] {
            counter.add(value, "column").unwrap();
        }
        let (names, has_other) = counter.most_frequent(3);
        assert_eq!((names, has_other), (["a", "c", "b"].map(String::from).to_vec(), true));
    }

    #[test]
    fn classes_ascend_as_numbers_if_all_are_integers() {
        let sorted = |values: &[&str]| ascending(values.iter().map(|value| (*value).to_owned()).collect());
        assert_eq!(sorted(&["10", "9", "-1"]), ["-1", "9", "10"]);
        assert_eq!(sorted(&["10", "9", "x"]), ["10", "9", "x"]);
    }

    #[test]
    fn too_many_values_are_an_error() {
        let mut counter = Counter::default();
        (0..MAX_CATEGORIES).for_each(|value| counter.add(&value.to_string(), "column").unwrap());
        counter.add("0", "column").unwrap();
        let error = counter.add("x", "node type `user`, column \"city\"").unwrap_err().to_string();
        assert!(error.starts_with("node type `user`, column \"city\": more than 65536 different"), "{error}");
    }
}
