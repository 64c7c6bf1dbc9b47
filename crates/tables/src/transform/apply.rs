use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ngrams::add_ngrams;
use super::quantiles::rank;
use super::time::{cyclic, linear};
use super::value::{for_each_item, micros, number, vector};
use super::vocabulary::position_by_name;
use super::{FittedColumn, FittedTransform, NumberStats};
use crate::drift::{ColumnDrift, DriftKind};
use crate::hash::{below, hash_bytes};
use crate::table::Cell;

/// Computes the features of a column, and counts the values that are unlike those of the statistics.
#[derive(Debug)]
pub(crate) struct ColumnEncoder {
    fitted: FittedColumn,
    /// The position of each category.
    positions: HashMap<String, usize>,
    /// The numbers of rows without a value, of items of lists, and of values without a category or out of range.
    n_missing: AtomicU64,
    n_items: AtomicU64,
    n_unlike: AtomicU64,
}

impl ColumnEncoder {
    pub(crate) fn new(fitted: &FittedColumn) -> Self {
        let positions = match &fitted.transform {
            FittedTransform::OneHot { categories, .. }
            | FittedTransform::Ordinal { categories }
            | FittedTransform::MultiHot { categories, .. } => position_by_name(categories),
            _ => HashMap::new(),
        };
        Self {
            fitted: fitted.clone(),
            positions,
            n_missing: AtomicU64::default(),
            n_items: AtomicU64::default(),
            n_unlike: AtomicU64::default(),
        }
    }

    /// Returns what is unlike the values of the statistics in the encoded rows.
    pub(crate) fn drift(&self, table: &str, n_rows: u64) -> Vec<ColumnDrift> {
        let FittedColumn { transform, numbers, .. } = &self.fitted;
        let n_missing = self.n_missing.load(Ordering::Relaxed);
        let of_kind = |kind, n_found, n_values, earlier: [u64; 2]| ColumnDrift {
            table: table.to_owned(),
            column: self.fitted.column.clone(),
            kind,
            n_found,
            n_values,
            earlier_share: earlier[0] as f64 / earlier[1].max(1) as f64,
        };
        let n_unlike = self.n_unlike.load(Ordering::Relaxed);
        let of_values = match (transform, numbers) {
            (FittedTransform::MultiHot { .. }, _) => {
                Some((DriftKind::Category, self.n_items.load(Ordering::Relaxed)))
            }
            (FittedTransform::OneHot { .. } | FittedTransform::Ordinal { .. }, _) => {
                Some((DriftKind::Category, n_rows - n_missing))
            }
            (_, Some(NumberStats { min, max, .. })) => {
                Some((DriftKind::Range { min: *min, max: *max }, n_rows - n_missing))
            }
            _ => None,
        };
        let earlier = [self.fitted.n_other, self.fitted.n_values];
        let of_values = of_values.map(|(kind, n_values)| of_kind(kind, n_unlike, n_values, earlier));
        let missing =
            of_kind(DriftKind::Missing, n_missing, n_rows, [self.fitted.n_missing, self.fitted.n_rows]);
        of_values.into_iter().chain([missing]).filter(|drift| drift.n_found > 0).collect()
    }

    pub(crate) fn width(&self) -> usize {
        self.fitted.width()
    }

    /// Writes the features of a value to `row`, which contains zeros. The error is the expected value.
    pub(crate) fn encode(&self, cell: &Cell<'_>, row: &mut [f32]) -> Result<(), &'static str> {
        let n_columns = self.fitted.transform.width();
        if self.encode_value(cell, &mut row[..n_columns])? {
            return Ok(());
        }
        self.n_missing.fetch_add(1, Ordering::Relaxed);
        if let Some(indicator) = row.get_mut(n_columns) {
            *indicator = 1.0;
        }
        Ok(())
    }

    /// Returns the number in a cell, and counts it if it is out of the range of the statistics.
    fn number(&self, cell: &Cell<'_>) -> Result<Option<f64>, &'static str> {
        let value = number(cell)?;
        if let (Some(value), Some(numbers)) = (value, self.fitted.numbers)
            && !numbers.contains(value)
        {
            self.n_unlike.fetch_add(1, Ordering::Relaxed);
        }
        Ok(value)
    }

    /// Returns the position of a category, and counts it if the statistics do not have it.
    fn position(&self, category: &str) -> Option<usize> {
        let position = self.positions.get(category).copied();
        if position.is_none() {
            self.n_unlike.fetch_add(1, Ordering::Relaxed);
        }
        position
    }

    /// Writes the features of a value and returns false if it is missing.
    fn encode_value(&self, cell: &Cell<'_>, row: &mut [f32]) -> Result<bool, &'static str> {
        let mut buffer = String::new();
        match &self.fitted.transform {
            FittedTransform::Numeric => match (cell, self.fitted.numbers) {
                // The conversion of other numbers takes longer.
                (Cell::Single(value), Some(numbers)) if numbers.contains(f64::from(*value)) => {
                    row[0] = *value + 0.0;
                    Ok(true)
                }
                _ => Ok(self.number(cell)?.map(|value| row[0] = value as f32).is_some()),
            },
            FittedTransform::Standardize { mean, std } => {
                let scaled =
                    self.number(cell)?.map(|value| if *std > 0.0 { (value - mean) / std } else { 0.0 });
                // A value that is far from all others may exceed the range of f32.
                let limit = f64::from(f32::MAX);
                Ok(scaled.map(|value| row[0] = value.clamp(-limit, limit) as f32).is_some())
            }
            FittedTransform::Quantile { quantiles } => {
                let value = self.number(cell)?;
                row[0] = value.map_or(0.5, |value| rank(value, quantiles)) as f32;
                Ok(value.is_some())
            }
            FittedTransform::OneHot { has_other, .. } => {
                let Some(value) = cell.text(&mut buffer)? else { return Ok(false) };
                self.mark(value, *has_other, row);
                Ok(true)
            }
            FittedTransform::Ordinal { categories } => {
                let Some(value) = cell.text(&mut buffer)? else { return Ok(false) };
                row[0] = self.position(value).unwrap_or(categories.len()) as f32;
                Ok(true)
            }
            FittedTransform::Hash { columns } => {
                let Some(value) = cell.text(&mut buffer)? else { return Ok(false) };
                row[below(hash_bytes(value.as_bytes()), *columns)] = 1.0;
                Ok(true)
            }
            FittedTransform::MultiHot { has_other, separator, .. } => {
                for_each_item(cell, separator.as_deref(), |item| {
                    if let Some(value) = item.text(&mut buffer)? {
                        self.n_items.fetch_add(1, Ordering::Relaxed);
                        self.mark(value, *has_other, row);
                    }
                    Ok(())
                })
            }
            FittedTransform::Time { parts, unit, trend } => {
                let Some(micros) = micros(cell, *unit)? else { return Ok(false) };
                let mut rest = row;
                for part in parts {
                    let (values, others) = rest.split_at_mut(part.width());
                    rest = others;
                    match cyclic(micros, *part) {
                        Some(on_circle) => values.copy_from_slice(&on_circle),
                        None => values[0] = linear(micros, *trend),
                    }
                }
                Ok(true)
            }
            FittedTransform::Text { unit, min_n, max_n, .. } => {
                let Some(text) = cell.text(&mut buffer)? else { return Ok(false) };
                add_ngrams(text, *unit, *min_n, *max_n, row);
                Ok(true)
            }
            FittedTransform::Vector { columns, separator } => {
                let mut values = Vec::with_capacity(*columns);
                let is_there = vector(cell, *columns, separator.as_deref(), &mut values)?;
                if is_there {
                    row.copy_from_slice(&values);
                }
                Ok(is_there)
            }
        }
    }

    /// Sets the column of a category, or that of all others.
    fn mark(&self, value: &str, has_other: bool, row: &mut [f32]) {
        match (self.position(value), row.len().checked_sub(1)) {
            (Some(position), _) => row[position] = 1.0,
            (None, Some(last)) if has_other => row[last] = 1.0,
            (None, _) => {}
        }
    }
}
