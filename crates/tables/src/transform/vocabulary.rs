//! Vocabularies of categories, classes and labels.

use std::collections::HashMap;

use crate::table::Cell;
use crate::{Error, Result};

/// The maximum number of different values of a column with a vocabulary.
pub(crate) const MAX_CATEGORIES: usize = 1 << 16;

/// The maximum total length of the different values of a column with a vocabulary, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// The memory of a value besides its text: an entry of the map, and the allocation of the text.
const ENTRY_BYTES: usize = 96;

/// The number of occurrences of each value.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    counts: HashMap<String, Count>,
    n_bytes: usize,
    /// The first two texts of the same number.
    merged: Option<[String; 2]>,
}

#[derive(Debug)]
struct Count {
    n: u64,
    /// The first text of the value, unless it is the one that all formats share.
    spelling: Option<Box<str>>,
}

/// The most frequent values of a [`Counter`].
#[derive(Debug, Default, PartialEq)]
pub(super) struct Vocabulary {
    /// The values, the most frequent first; those with the same frequency in ascending order.
    pub(super) categories: Vec<String>,
    /// The number of occurrences of all values, and of those that are not among the categories.
    pub(super) n_values: u64,
    pub(super) n_other: u64,
}

impl Counter {
    /// Counts a value by its text. `cell` is the value.
    pub(crate) fn add(&mut self, text: &str, cell: &Cell<'_>, column: &str) -> Result<()> {
        let spelling = match cell {
            Cell::Text(spelling) => *spelling,
            _ => text,
        };
        if let Some(count) = self.counts.get_mut(text) {
            count.n += 1;
            let first = count.spelling.as_deref().unwrap_or(text);
            if first != spelling
                && self.merged.is_none()
                && matches!(cell.value(), Cell::Int(_) | Cell::Float(_))
            {
                self.merged = Some([first.to_owned(), spelling.to_owned()]);
            }
            return Ok(());
        }
        self.n_bytes += text.len() + if spelling == text { 0 } else { spelling.len() };
        if self.counts.len() == MAX_CATEGORIES || MAX_TEXT < self.n_bytes {
            let max = self.counts.len();
            return Err(Error::TooManyValues { column: column.to_owned(), max });
        }
        let spelling = (spelling != text).then(|| spelling.into());
        self.counts.insert(text.to_owned(), Count { n: 1, spelling });
        Ok(())
    }

    /// Returns the memory of the values in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        (self.n_bytes + self.counts.len() * ENTRY_BYTES) as u64
    }

    /// Returns a note if different texts are one value because they are the same number.
    pub(crate) fn note(&self) -> Option<String> {
        let [first, second] = self.merged.as_ref()?;
        Some(format!(
            "the texts {first:?} and {second:?} are the same number and so the same category: add a letter to keep such texts \
             apart"
        ))
    }

    pub(super) fn most_frequent(self, max: usize) -> Vocabulary {
        let mut values: Vec<(String, u64)> =
            self.counts.into_iter().map(|(name, count)| (name, count.n)).collect();
        values.sort_unstable_by(|(name, count), (other, others)| others.cmp(count).then(name.cmp(other)));
        let n_values = values.iter().map(|(_, count)| count).sum();
        let n_other = values.iter().skip(max).map(|(_, count)| count).sum();
        values.truncate(max);
        Vocabulary { categories: values.into_iter().map(|(name, _)| name).collect(), n_values, n_other }
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
            counter.add(value, &Cell::Text(value), "column").unwrap();
        }
        let categories = ["a", "c", "b"].map(String::from).to_vec();
        assert_eq!(counter.most_frequent(3), Vocabulary { categories, n_values: 6, n_other: 1 });
    }

    #[test]
    fn texts_of_the_same_number_are_noted() {
        let note = |texts: &[&str]| {
            let mut counter = Counter::default();
            for text in texts {
                let mut buffer = String::new();
                let cell = Cell::Text(text);
                counter.add(cell.text(&mut buffer).unwrap().unwrap(), &cell, "column").unwrap();
            }
            counter.note()
        };
        assert!(
            note(&["1.1", "2.0", "1.10"]).unwrap().starts_with("the texts \"1.1\" and \"1.10\" are the same")
        );
        assert!(note(&["1.10", "1.1"]).is_some());
        assert_eq!(note(&["1.10", "1.10", "2", "True", "true", "2024-01-31", "2024-01-31 00:00:00"]), None);
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
        let mut add =
            |value: &str| counter.add(value, &Cell::Text(value), "node type `user`, column \"city\"");
        (0..MAX_CATEGORIES).for_each(|value| add(&value.to_string()).unwrap());
        add("0").unwrap();
        let error = add("x").unwrap_err().to_string();
        assert!(error.starts_with("node type `user`, column \"city\": more than 65536 different"), "{error}");
    }
}
