use std::collections::HashMap;

use super::ngrams::add_ngrams;
use super::quantiles::rank;
use super::time::cyclic;
use super::value::{for_each_item, micros, number, vector};
use super::vocabulary::position_by_name;
use super::{FittedColumn, FittedTransform};
use crate::hash::{below, hash_bytes};
use crate::table::Cell;

/// Computes the features of a column.
#[derive(Debug)]
pub(crate) struct ColumnEncoder {
    fitted: FittedColumn,
    /// The position of each category.
    positions: HashMap<String, usize>,
}

impl ColumnEncoder {
    pub(crate) fn new(fitted: &FittedColumn) -> Self {
        let positions = match &fitted.transform {
            FittedTransform::OneHot { categories, .. }
            | FittedTransform::Ordinal { categories }
            | FittedTransform::MultiHot { categories, .. } => position_by_name(categories),
            _ => HashMap::new(),
        };
        Self { fitted: fitted.clone(), positions }
    }

    pub(crate) fn width(&self) -> usize {
        self.fitted.width()
    }

    /// Writes the features of a value to `row`, which contains zeros. The error is the expected value.
    pub(crate) fn encode(&self, cell: &Cell<'_>, row: &mut [f32]) -> Result<(), &'static str> {
        let n_columns = self.fitted.transform.width();
        let is_there = self.encode_value(cell, &mut row[..n_columns])?;
        if let (false, Some(indicator)) = (is_there, row.get_mut(n_columns)) {
            *indicator = 1.0;
        }
        Ok(())
    }

    /// Writes the features of a value and returns false if it is missing.
    fn encode_value(&self, cell: &Cell<'_>, row: &mut [f32]) -> Result<bool, &'static str> {
        let mut buffer = String::new();
        match &self.fitted.transform {
            FittedTransform::Numeric => Ok(number(cell)?.map(|value| row[0] = value as f32).is_some()),
            FittedTransform::Standardize { mean, std } => {
                let scaled = number(cell)?.map(|value| if *std > 0.0 { (value - mean) / std } else { 0.0 });
                // A value that is far from all others may exceed the range of f32.
                let limit = f64::from(f32::MAX);
                Ok(scaled.map(|value| row[0] = value.clamp(-limit, limit) as f32).is_some())
            }
            FittedTransform::Quantile { quantiles } => {
                let value = number(cell)?;
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
                row[0] = self.positions.get(value).copied().unwrap_or(categories.len()) as f32;
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
                        self.mark(value, *has_other, row);
                    }
                    Ok(())
                })
            }
            FittedTransform::Time { parts, unit } => {
                let Some(micros) = micros(cell, *unit)? else { return Ok(false) };
                for (part, values) in parts.iter().zip(row.chunks_exact_mut(2)) {
                    values.copy_from_slice(&cyclic(micros, *part));
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
        match (self.positions.get(value), row.len().checked_sub(1)) {
            (Some(position), _) => row[*position] = 1.0,
            (None, Some(last)) if has_other => row[last] = 1.0,
            (None, _) => {}
        }
    }
}
