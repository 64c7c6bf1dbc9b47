use std::collections::BTreeSet;

use super::moments::Moments;
use super::quantiles::ValueSample;
use super::time::seconds;
use super::value::{for_each_item, is_in_unit, micros, number};
use super::vocabulary::{Counter, Vocabulary};
use super::{FittedColumn, FittedTransform, NumberStats, TimeStats};
use crate::Result;
use crate::spec::{ColumnSpec, ColumnTransform, TimePart, TimeUnit};
use crate::table::Cell;

/// The statistics of one column. Values are added in the order of the rows, so the result does not depend on the number of
/// threads.
#[derive(Debug)]
pub(crate) struct Accumulator<'a> {
    spec: &'a ColumnSpec,
    /// The table and the column, for errors.
    name: String,
    n_rows: u64,
    n_missing: u64,
    numbers: Moments,
    /// The times of a transform with a trend, in seconds since 1970.
    times: Moments,
    /// True if a value needed the separator of lists or the unit of integers.
    needs_option: bool,
    state: State,
    buffer: String,
}

#[derive(Debug)]
enum State {
    Nothing,
    Sample(ValueSample),
    Counts(Counter),
}

impl<'a> Accumulator<'a> {
    pub(crate) fn new(spec: &'a ColumnSpec, table: &str) -> Self {
        let state = match &spec.transform {
            ColumnTransform::Quantile => State::Sample(ValueSample::default()),
            ColumnTransform::OneHot { .. }
            | ColumnTransform::Ordinal { .. }
            | ColumnTransform::MultiHot { .. } => State::Counts(Counter::default()),
            _ => State::Nothing,
        };
        let name = format!("{table}, column {:?}", spec.column);
        Self {
            spec,
            name,
            n_rows: 0,
            n_missing: 0,
            numbers: Moments::EMPTY,
            times: Moments::EMPTY,
            needs_option: false,
            state,
            buffer: String::new(),
        }
    }

    /// Returns statistics of numbers only; `None` for a transform of other values.
    pub(crate) fn numbers_only(spec: &'a ColumnSpec, table: &str) -> Option<Self> {
        use ColumnTransform::{Numeric, Quantile, Standardize};
        let is_number = matches!(spec.transform, Numeric | Standardize | Quantile);
        is_number.then(|| Self { state: State::Nothing, ..Self::new(spec, table) })
    }

    /// Returns the memory of the different values in bytes.
    pub(crate) fn heap_bytes(&self) -> u64 {
        match &self.state {
            State::Counts(counter) => counter.heap_bytes(),
            State::Sample(sample) => sample.heap_bytes(),
            State::Nothing => 0,
        }
    }

    /// Returns the number of rows with a value.
    pub(crate) fn n_values(&self) -> u64 {
        self.n_rows - self.n_missing
    }

    /// Returns the statistics of the numbers that were added.
    pub(crate) fn number_stats(&self) -> Option<NumberStats> {
        self.numbers.stats()
    }

    /// Adds a value, which must have passed [`check`](super::check).
    pub(crate) fn add(&mut self, cell: &Cell<'_>) -> Result<()> {
        self.n_rows += 1;
        let is_there = match &self.spec.transform {
            ColumnTransform::Numeric | ColumnTransform::Standardize | ColumnTransform::Quantile => {
                let value = self.number(cell);
                if let (Some(value), State::Sample(sample)) = (value, &mut self.state) {
                    sample.add(value);
                }
                value.into_iter().for_each(|value| self.numbers.add(value));
                value.is_some()
            }
            ColumnTransform::MultiHot { separator, .. } => {
                self.needs_option |= matches!(cell, Cell::Text(_));
                self.add_items(cell, separator.as_deref())?
            }
            ColumnTransform::Vector { .. } => {
                self.needs_option |= matches!(cell, Cell::Text(_));
                !matches!(cell, Cell::Missing)
            }
            ColumnTransform::Time { parts, unit } => {
                self.needs_option |= is_in_unit(cell);
                if parts.contains(&TimePart::Trend) {
                    let time = micros(cell, *unit).ok().flatten();
                    time.into_iter().for_each(|time| self.times.add(seconds(time)));
                }
                !matches!(cell, Cell::Missing)
            }
            _ => match (cell.text(&mut self.buffer), &mut self.state) {
                (Ok(Some(text)), State::Counts(counter)) => {
                    counter.add(text, cell, &self.name)?;
                    true
                }
                (text, _) => matches!(text, Ok(Some(_))),
            },
        };
        self.n_missing += u64::from(!is_there);
        Ok(())
    }

    /// Returns the number in a cell.
    fn number(&self, cell: &Cell<'_>) -> Option<f64> {
        match (cell, &self.spec.transform) {
            // The exact conversion takes longer, and the features need no statistics.
            (Cell::Single(value), ColumnTransform::Numeric) if self.numbers.contains(f64::from(*value)) => {
                Some(f64::from(*value))
            }
            _ => number(cell).ok().flatten(),
        }
    }

    /// Counts the different items of a list, and returns false if the list is missing.
    fn add_items(&mut self, cell: &Cell<'_>, separator: Option<&str>) -> Result<bool> {
        let State::Counts(counter) = &mut self.state else { return Ok(false) };
        let mut items = BTreeSet::new();
        let mut counted = Ok(());
        let found = for_each_item(cell, separator, |item| {
            if let Some(text) = item.text(&mut self.buffer)?
                && items.insert(text.to_owned())
                && counted.is_ok()
            {
                counted = counter.add(text, item, &self.name);
            }
            Ok(())
        });
        counted?;
        Ok(found == Ok(true))
    }

    /// Returns what of the column has no effect or merges texts.
    pub(crate) fn notes(&self) -> Vec<String> {
        let unused = match &self.spec.transform {
            _ if self.n_rows == 0 => None,
            _ if self.n_missing == self.n_rows => Some("no row has a value"),
            ColumnTransform::Standardize if self.numbers.stats().is_some_and(|of| of.min == of.max) => {
                Some("all values are equal, so the feature is 0")
            }
            ColumnTransform::MultiHot { separator: Some(_), .. }
            | ColumnTransform::Vector { separator: Some(_), .. }
                if !self.needs_option =>
            {
                Some("no value is a text, so `separator` has no effect")
            }
            ColumnTransform::Time { unit, .. } if *unit != TimeUnit::Seconds && !self.needs_option => {
                Some("no value is an integer, so `unit` has no effect")
            }
            _ => None,
        };
        let merged = match &self.state {
            State::Counts(counter) => counter.note(),
            _ => None,
        };
        let notes = unused.map(str::to_owned).into_iter().chain(merged);
        notes.map(|note| format!("{}: {note}", self.name)).collect()
    }

    pub(crate) fn finish(self) -> FittedColumn {
        let mut vocabulary = Vocabulary::default();
        let transform = match (self.state, self.spec.transform.clone()) {
            (_, ColumnTransform::Standardize) => {
                let stats = self.numbers.stats();
                FittedTransform::Standardize {
                    mean: stats.map_or(0.0, |stats| stats.mean),
                    std: stats.map_or(0.0, |stats| stats.std),
                }
            }
            (State::Sample(sample), _) => FittedTransform::Quantile { quantiles: sample.quantiles() },
            (
                State::Counts(counter),
                ColumnTransform::MultiHot { max_categories, .. }
                | ColumnTransform::Ordinal { max_categories }
                | ColumnTransform::OneHot { max_categories },
            ) => {
                vocabulary = counter.most_frequent(max_categories);
                let categories = std::mem::take(&mut vocabulary.categories);
                let has_other = vocabulary.n_other > 0;
                match self.spec.transform.clone() {
                    ColumnTransform::MultiHot { separator, .. } => {
                        FittedTransform::MultiHot { categories, has_other, separator }
                    }
                    ColumnTransform::Ordinal { .. } => FittedTransform::Ordinal { categories },
                    _ => FittedTransform::OneHot { categories, has_other },
                }
            }
            (_, ColumnTransform::Hash { columns }) => FittedTransform::Hash { columns },
            (_, ColumnTransform::Time { parts, unit }) => {
                let stats = self.times.stats();
                let stats =
                    stats.map_or(TimeStats { mean: 0.0, std: 0.0 }, |NumberStats { mean, std, .. }| {
                        TimeStats { mean, std }
                    });
                let trend = parts.contains(&TimePart::Trend).then_some(stats);
                FittedTransform::Time { parts, unit, trend }
            }
            (_, ColumnTransform::Text { columns, unit, min_n, max_n }) => {
                FittedTransform::Text { columns, unit, min_n, max_n }
            }
            (_, ColumnTransform::Vector { columns, separator }) => {
                FittedTransform::Vector { columns, separator }
            }
            _ => FittedTransform::Numeric,
        };
        FittedColumn {
            column: self.spec.column.clone(),
            transform,
            n_rows: self.n_rows,
            n_missing: self.n_missing,
            n_values: vocabulary.n_values,
            n_other: vocabulary.n_other,
            numbers: self.numbers.stats(),
        }
    }
}
