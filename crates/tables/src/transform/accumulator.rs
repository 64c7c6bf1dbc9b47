use std::collections::BTreeSet;

use super::quantiles::ValueSample;
use super::value::{for_each_item, number};
use super::vocabulary::Counter;
use super::{FittedColumn, FittedTransform};
use crate::Result;
use crate::spec::{ColumnSpec, ColumnTransform};
use crate::table::Cell;

/// The statistics of one column. Values are added in the order of the rows, so the result does not depend on the number of
/// threads.
#[derive(Debug)]
pub(crate) struct Accumulator<'a> {
    spec: &'a ColumnSpec,
    /// The table and the column, for errors.
    name: String,
    n_missing: u64,
    state: State,
    buffer: String,
}

#[derive(Debug)]
enum State {
    Nothing,
    /// The count, the mean and the sum of squared differences from the mean (Welford 1962).
    Moments {
        n: f64,
        mean: f64,
        squares: f64,
    },
    Sample(ValueSample),
    Counts(Counter),
}

impl<'a> Accumulator<'a> {
    pub(crate) fn new(spec: &'a ColumnSpec, table: &str) -> Self {
        let state = match &spec.transform {
            ColumnTransform::Standardize => State::Moments { n: 0.0, mean: 0.0, squares: 0.0 },
            ColumnTransform::Quantile => State::Sample(ValueSample::default()),
            ColumnTransform::OneHot { .. }
            | ColumnTransform::Ordinal { .. }
            | ColumnTransform::MultiHot { .. } => State::Counts(Counter::default()),
            _ => State::Nothing,
        };
        let name = format!("{table}, column {:?}", spec.column);
        Self { spec, name, n_missing: 0, state, buffer: String::new() }
    }

    /// Adds a value, which must have passed [`check`](super::check).
    pub(crate) fn add(&mut self, cell: &Cell<'_>) -> Result<()> {
        let is_missing = match (&mut self.state, &self.spec.transform) {
            (State::Moments { n, mean, squares }, _) => match number(cell) {
                Ok(Some(value)) => {
                    *n += 1.0;
                    let difference = value - *mean;
                    *mean += difference / *n;
                    *squares += difference * (value - *mean);
                    false
                }
                _ => true,
            },
            (State::Sample(sample), _) => match number(cell) {
                Ok(Some(value)) => {
                    sample.add(value);
                    false
                }
                _ => true,
            },
            (State::Counts(counter), ColumnTransform::MultiHot { separator, .. }) => {
                let mut items = BTreeSet::new();
                let found = for_each_item(cell, separator.as_deref(), |item| {
                    items.extend(item.text(&mut self.buffer)?.map(str::to_owned));
                    Ok(())
                });
                for item in &items {
                    counter.add(item, &self.name)?;
                }
                found != Ok(true)
            }
            (State::Counts(counter), _) => match cell.text(&mut self.buffer) {
                Ok(Some(value)) => {
                    counter.add(value, &self.name)?;
                    false
                }
                _ => true,
            },
            (State::Nothing, ColumnTransform::Numeric) => !matches!(number(cell), Ok(Some(_))),
            (State::Nothing, ColumnTransform::Hash { .. } | ColumnTransform::Text { .. }) => {
                !matches!(cell.text(&mut self.buffer), Ok(Some(_)))
            }
            (State::Nothing, _) => matches!(cell, Cell::Missing),
        };
        self.n_missing += u64::from(is_missing);
        Ok(())
    }

    pub(crate) fn finish(self) -> FittedColumn {
        let transform = match (self.state, self.spec.transform.clone()) {
            (State::Moments { n, mean, squares }, _) => {
                let variance = if n > 0.0 { squares / n } else { 0.0 };
                FittedTransform::Standardize { mean, std: variance.sqrt() }
            }
            (State::Sample(sample), _) => FittedTransform::Quantile { quantiles: sample.quantiles() },
            (State::Counts(counter), transform) => match transform {
                ColumnTransform::MultiHot { max_categories, separator } => {
                    let (categories, has_other) = counter.most_frequent(max_categories);
                    FittedTransform::MultiHot { categories, has_other, separator }
                }
                ColumnTransform::Ordinal { max_categories } => {
                    FittedTransform::Ordinal { categories: counter.most_frequent(max_categories).0 }
                }
                ColumnTransform::OneHot { max_categories } => {
                    let (categories, has_other) = counter.most_frequent(max_categories);
                    FittedTransform::OneHot { categories, has_other }
                }
                _ => unreachable!("only transforms with a vocabulary count values"),
            },
            (State::Nothing, ColumnTransform::Hash { columns }) => FittedTransform::Hash { columns },
            (State::Nothing, ColumnTransform::Time { parts, unit }) => FittedTransform::Time { parts, unit },
            (State::Nothing, ColumnTransform::Text { columns, unit, min_n, max_n }) => {
                FittedTransform::Text { columns, unit, min_n, max_n }
            }
            (State::Nothing, ColumnTransform::Vector { columns, separator }) => {
                FittedTransform::Vector { columns, separator }
            }
            (State::Nothing, _) => FittedTransform::Numeric,
        };
        FittedColumn { column: self.spec.column.clone(), transform, n_missing: self.n_missing }
    }
}
