//! What the values of a table's columns are, from one reading of its rows within a memory limit.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rayon::prelude::*;

use super::distinct::{Distinct, Overlap};
use super::items::ItemCounts;
use crate::Result;
use crate::hash::hash_bytes;
use crate::key::key_of;
use crate::spec::KeyType;
use crate::table::{Cell, Table, TableBatch, has_decimal_comma};
use crate::transform::{Moments, NumberStats};
use kiln_data::calendar::{DAY, YEARS};

/// The texts that programs write for a missing value, besides an empty text and NaN.
const MISSING_TEXTS: [&str; 12] =
    ["NA", "N/A", "n/a", "<NA>", "#N/A", "NULL", "null", "None", "none", "NaT", "?", "-"];

/// The number of entries of a column whose values cannot be keys.
const FEW_ENTRIES: usize = 1 << 14;

/// The maximum number of values that are counted by their texts.
const MAX_VALUES: usize = 256;

/// The profile of a table.
#[derive(Debug)]
pub(super) struct TableProfile {
    pub(super) n_rows: u64,
    /// The rows that cannot be read.
    pub(super) n_malformed: u64,
    pub(super) columns: Vec<ColumnProfile>,
    /// The texts of missing values that the spec must name.
    pub(super) missing: Vec<String>,
}

/// The memory of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnLimits {
    /// The number of different values that are kept by their hashes.
    pub(super) max_entries: usize,
    /// The number of bytes of different values that are kept as texts.
    pub(super) max_bytes: usize,
}

/// The values of a column.
#[derive(Debug)]
pub(super) struct ColumnProfile {
    pub(super) name: String,
    limits: ColumnLimits,
    pub(super) n_missing: u64,
    n_bools: u64,
    n_integers: u64,
    /// Numbers with a fraction, or that are no integer of 64 bits.
    n_fractions: u64,
    n_times: u64,
    n_texts: u64,
    n_lists: u64,
    /// Numbers with a decimal comma, which are texts, too.
    n_commas: u64,
    /// Numbers that no feature holds.
    n_huge: u64,
    /// The first value that no transform reads.
    pub(super) other: Option<String>,
    /// The rows with each of [`MISSING_TEXTS`].
    missing_texts: [u64; MISSING_TEXTS.len()],
    n_words: u64,
    numbers: Moments,
    /// The first and the last time in microseconds.
    pub(super) times: Option<[i64; 2]>,
    /// True if a time is not at midnight.
    pub(super) has_clock: bool,
    /// True if each value can be a key.
    pub(super) is_key: bool,
    pub(super) distinct: Distinct,
    /// The values as integer keys, if they differ from those as texts; `None` if they do not, or a value is no integer.
    integers: Option<Distinct>,
    is_integer_key: bool,
    /// The rows of each value; `None` if they are too many.
    pub(super) values: Option<BTreeMap<String, u64>>,
    n_value_bytes: usize,
    pub(super) items: ItemCounts,
}

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// No value.
    Nothing,
    Bool,
    Integer,
    /// Numbers, of which some have a fraction.
    Number,
    Time,
    /// Texts, or values of several kinds that are categories by their texts.
    Text,
    List,
    /// Values that no transform reads.
    Other,
}

impl TableProfile {
    /// Reads a table.
    pub(super) fn read(table: &Table, limits: ColumnLimits) -> Result<Self> {
        let columns = table.columns.iter().map(|name| ColumnProfile::new(name, limits));
        let mut profile = Self { n_rows: 0, n_malformed: 0, columns: columns.collect(), missing: Vec::new() };
        table.for_each_batch("reading columns", &mut |batch| {
            let columns = profile.columns.par_iter_mut().enumerate();
            columns.for_each(|(position, column)| column.add_batch(batch, position));
            profile.n_malformed += batch.malformed.len() as u64;
            profile.n_rows += (batch.n_rows - batch.malformed.len()) as u64;
            Ok(ControlFlow::Continue(()))
        })?;
        profile.find_missing_texts();
        Ok(profile)
    }

    /// Decides which texts are missing values: those beside which a column has numbers, booleans or times only.
    fn find_missing_texts(&mut self) {
        for (position, text) in MISSING_TEXTS.iter().enumerate() {
            let is_missing = self.columns.iter().any(|column| {
                column.missing_texts[position] > 0
                    && column.n_values() > 0
                    && column.n_texts == column.n_commas
            });
            if is_missing {
                self.missing.push((*text).to_owned());
            }
            self.columns.iter_mut().for_each(|column| column.settle(position, is_missing));
        }
    }

    /// Returns true if numbers of the table have a decimal comma, and none has a point.
    pub(super) fn has_decimal_commas(&self) -> bool {
        self.columns.iter().any(|column| column.has_commas_only() && column.n_commas > 0)
            && self.columns.iter().all(|column| column.n_fractions == 0)
    }
}

impl ColumnProfile {
    fn new(name: &str, limits: ColumnLimits) -> Self {
        Self {
            name: name.to_owned(),
            limits,
            n_missing: 0,
            n_bools: 0,
            n_integers: 0,
            n_fractions: 0,
            n_times: 0,
            n_texts: 0,
            n_lists: 0,
            n_commas: 0,
            n_huge: 0,
            other: None,
            missing_texts: [0; MISSING_TEXTS.len()],
            n_words: 0,
            numbers: Moments::EMPTY,
            times: None,
            has_clock: false,
            is_key: true,
            distinct: Distinct::new(limits.max_entries),
            integers: None,
            is_integer_key: true,
            values: Some(BTreeMap::new()),
            n_value_bytes: 0,
            items: ItemCounts::default(),
        }
    }

    fn add_batch(&mut self, batch: &TableBatch, position: usize) {
        let mut buffer = String::new();
        for row in (0..batch.n_rows).filter(|row| batch.malformed(*row).is_none()) {
            self.add(&batch.cell(position, row), &mut buffer);
        }
    }

    fn add(&mut self, cell: &Cell<'_>, buffer: &mut String) {
        if let Cell::Text(text) = cell
            && let Some(position) = MISSING_TEXTS.iter().position(|missing| missing == text)
        {
            self.missing_texts[position] += 1;
            return;
        }
        match cell.value() {
            Cell::Missing => {
                self.n_missing += 1;
                return;
            }
            Cell::Bool(_) => self.n_bools += 1,
            Cell::Int(value) => self.add_number(value as f64, true),
            Cell::Float(value) => self.add_number(value, value.fract() == 0.0),
            Cell::Single(value) => self.add_number(value.into(), value.fract() == 0.0),
            Cell::Time(micros) if YEARS.contains(&micros) => self.add_time(micros),
            Cell::Time(_) => return self.add_other("a time before the year 1 or after the year 9999"),
            Cell::Text(text) => self.add_text(text, 1),
            Cell::List(items) => {
                self.n_lists += 1;
                self.is_key = false;
                self.items.add_list(&items, buffer);
                return;
            }
            Cell::Other(name) => return self.add_other(&name),
        }
        self.add_key(cell, buffer);
        match cell.text(buffer) {
            Ok(Some(text)) => {
                if !self.is_key {
                    self.distinct.add(hash_bytes(text.as_bytes()), 1);
                }
                self.add_value(text, 1);
            }
            // A number that no category holds.
            _ => self.values = None,
        }
    }

    fn add_other(&mut self, what: &str) {
        self.is_key = false;
        self.other.get_or_insert_with(|| what.to_owned());
    }

    fn add_number(&mut self, value: f64, is_integer: bool) {
        match is_integer {
            true => self.n_integers += 1,
            false => self.n_fractions += 1,
        }
        if value.abs() <= f64::from(f32::MAX) {
            self.numbers.add(value);
        } else {
            self.n_huge += 1;
        }
    }

    fn add_time(&mut self, micros: i64) {
        self.n_times += 1;
        self.has_clock |= micros.rem_euclid(DAY) != 0;
        let [first, last] = self.times.unwrap_or([micros; 2]);
        self.times = Some([first.min(micros), last.max(micros)]);
    }

    fn add_text(&mut self, text: &str, n_rows: u64) {
        self.n_texts += n_rows;
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        self.n_words += n_rows * words.count() as u64;
        if has_decimal_comma(text) {
            self.n_commas += n_rows;
            let number = text.trim().replace(',', ".").parse::<f64>();
            number.into_iter().for_each(|number| self.numbers.add(number));
        }
        self.items.add_text(text);
    }

    /// Adds the value as a key, if it can be one.
    fn add_key(&mut self, cell: &Cell<'_>, buffer: &mut String) {
        if self.is_integer_key {
            self.add_integer_key(cell, buffer);
        }
        if !self.is_key {
            return;
        }
        match key_of(cell, KeyType::Text, buffer) {
            // A text that is a time is no key, as a time of another format is none.
            Ok(Some(key)) if !matches!(cell.value(), Cell::Time(_)) => {
                self.distinct.add(hash_bytes(key.as_bytes()), 1)
            }
            _ => {
                self.is_key = false;
                self.distinct.limit(FEW_ENTRIES);
            }
        }
    }

    /// Adds the value as an integer. The values before the first one that differs as a text are the same.
    fn add_integer_key(&mut self, cell: &Cell<'_>, buffer: &mut String) {
        let Ok(Some(key)) = key_of(cell, KeyType::Integer, buffer) else {
            self.is_integer_key = false;
            self.integers = None;
            return;
        };
        let hash = hash_bytes(key.as_bytes());
        let is_other =
            matches!(cell, Cell::Text(text) if *text != key && matches!(cell.value(), Cell::Text(_)));
        if is_other && self.integers.is_none() {
            self.integers = Some(self.distinct.clone());
        }
        self.integers.iter_mut().for_each(|integers| integers.add(hash, 1));
    }

    fn add_value(&mut self, text: &str, n_rows: u64) {
        let Some(values) = &mut self.values else { return };
        if let Some(n) = values.get_mut(text) {
            *n += n_rows;
            return;
        }
        self.n_value_bytes += text.len();
        if values.len() == MAX_VALUES || self.limits.max_bytes < self.n_value_bytes {
            self.values = None;
        } else {
            values.insert(text.to_owned(), n_rows);
        }
    }

    /// Counts the rows of one of [`MISSING_TEXTS`] as missing, or as a text.
    fn settle(&mut self, position: usize, is_missing: bool) {
        let n_rows = std::mem::take(&mut self.missing_texts[position]);
        let text = MISSING_TEXTS[position];
        match n_rows {
            0 => {}
            _ if is_missing => self.n_missing += n_rows,
            _ => {
                self.add_text(text, n_rows);
                self.distinct.add(hash_bytes(text.as_bytes()), n_rows);
                self.is_integer_key = false;
                self.integers = None;
                self.add_value(text, n_rows);
            }
        }
    }

    /// Returns the number of rows with a value.
    pub(super) fn n_values(&self) -> u64 {
        self.n_bools
            + self.n_integers
            + self.n_fractions
            + self.n_times
            + self.n_texts
            + self.n_lists
            + u64::from(self.other.is_some())
    }

    fn has_commas_only(&self) -> bool {
        self.n_texts == self.n_commas && self.n_fractions + self.n_bools + self.n_times + self.n_lists == 0
    }

    /// Returns the kind of the values.
    pub(super) fn kind(&self, has_decimal_commas: bool) -> ValueKind {
        let n_values = self.n_values();
        let kinds = [
            (self.n_lists, ValueKind::List),
            (self.n_bools, ValueKind::Bool),
            (self.n_times, ValueKind::Time),
            (self.n_integers, ValueKind::Integer),
            (self.n_integers + self.n_fractions, ValueKind::Number),
        ];
        if n_values == 0 {
            return ValueKind::Nothing;
        }
        if self.other.is_some() || (self.n_lists > 0 && self.n_lists < n_values) {
            return ValueKind::Other;
        }
        if has_decimal_commas && self.n_commas > 0 && self.has_commas_only() {
            return ValueKind::Number;
        }
        let only = kinds.into_iter().find(|(n, _)| *n == n_values);
        only.map_or(ValueKind::Text, |(_, kind)| kind)
    }

    /// Returns the statistics of the numbers.
    pub(super) fn stats(&self) -> Option<NumberStats> {
        self.numbers.stats()
    }

    /// Returns true if a number is too large for a feature.
    pub(super) fn has_huge(&self) -> bool {
        self.n_huge > 0
    }

    /// Returns the share of the values that are numbers.
    pub(super) fn number_share(&self) -> f64 {
        (self.n_integers + self.n_fractions) as f64 / self.n_values().max(1) as f64
    }

    /// Returns the mean number of words of a text.
    pub(super) fn mean_words(&self) -> f64 {
        self.n_words as f64 / self.n_texts.max(1) as f64
    }

    /// Returns the number of different values.
    pub(super) fn n_distinct(&self) -> u64 {
        self.values.as_ref().map_or_else(|| self.distinct.n_values(), |values| values.len() as u64)
    }

    /// Returns true if each row has a key, and no key occurs twice.
    pub(super) fn is_unique(&self) -> bool {
        self.is_key && self.n_missing == 0 && self.distinct.is_unique()
    }

    /// Returns true if each value is an integer key.
    pub(super) fn is_integer_key(&self) -> bool {
        self.is_integer_key
    }

    /// Returns the keys as integers; `None` if not all are integers.
    fn integer_keys(&self) -> Option<&Distinct> {
        self.is_integer_key.then(|| self.integers.as_ref().unwrap_or(&self.distinct))
    }

    /// Returns the part of the values that are keys of another column, whose keys have a type.
    pub(super) fn overlap_as(&self, keys: &Self, key_type: KeyType) -> Overlap {
        match (key_type, self.integer_keys(), keys.integer_keys()) {
            (KeyType::Integer, Some(integers), Some(keys)) => integers.overlap(keys),
            _ => self.distinct.overlap(&keys.distinct),
        }
    }

    /// Returns the part of the values that are keys of another column, and the type of the keys for which it is the largest.
    pub(super) fn overlap(&self, keys: &Self) -> (Overlap, KeyType) {
        let of_texts = self.distinct.overlap(&keys.distinct);
        let (Some(integers), Some(keys)) = (self.integer_keys(), keys.integer_keys()) else {
            return (of_texts, KeyType::Text);
        };
        let of_integers = integers.overlap(keys);
        let is_more = of_texts.n_values_found < of_integers.n_values_found && keys.is_unique();
        if is_more { (of_integers, KeyType::Integer) } else { (of_texts, KeyType::Text) }
    }
}
