//! Reads values of a table as numbers, categories, lists and timestamps. The error is the expected value, for a message.

use std::fmt::Write as _;

use super::time::parse_time;
use crate::spec::{ColumnTransform, TimeUnit};
use crate::table::Cell;

const NUMBER: &str = "a finite number in the range of f32";
const CATEGORY: &str = "a text, an integer or a boolean";
const LIST: &str = "a list";
const SEPARATED: &str = "a list, or a `separator` in the spec for text";
const TIME: &str = "a timestamp, a date such as 2024-01-31T12:00:00Z, or an integer";

/// Returns the number in a cell; `None` if it is missing or NaN.
pub(crate) fn number(cell: &Cell<'_>) -> Result<Option<f64>, &'static str> {
    let value = match cell {
        Cell::Missing => return Ok(None),
        Cell::Bool(value) => f64::from(*value),
        Cell::Int(value) => *value as f64,
        Cell::Float(value) => *value,
        Cell::Single(value) => f64::from(*value),
        Cell::Text(text) => text.trim().parse().map_err(|_| NUMBER)?,
        _ => return Err(NUMBER),
    };
    match value.is_nan() {
        true => Ok(None),
        false if value.abs() <= f64::from(f32::MAX) => Ok(Some(value)),
        false => Err(NUMBER),
    }
}

/// Returns the category in a cell; `None` if it is missing. `buffer` holds the text of a number.
pub(crate) fn category<'a>(
    cell: &'a Cell<'a>,
    buffer: &'a mut String,
) -> Result<Option<&'a str>, &'static str> {
    buffer.clear();
    let written = match cell {
        Cell::Missing => return Ok(None),
        Cell::Text("") => return Ok(None),
        Cell::Text(text) => return Ok(Some(text)),
        Cell::Bool(value) => write!(buffer, "{value}"),
        Cell::Int(value) => write!(buffer, "{value}"),
        Cell::Float(value) if value.is_nan() => return Ok(None),
        Cell::Float(value) => write!(buffer, "{value}"),
        Cell::Single(value) if value.is_nan() => return Ok(None),
        Cell::Single(value) => write!(buffer, "{value}"),
        _ => return Err(CATEGORY),
    };
    written.map_err(|_| CATEGORY)?;
    Ok(Some(buffer))
}

/// Calls `visit` with each item of a list, and returns false if the list is missing.
pub(crate) fn for_each_item(
    cell: &Cell<'_>,
    separator: Option<&str>,
    mut visit: impl FnMut(&Cell<'_>) -> Result<(), &'static str>,
) -> Result<bool, &'static str> {
    match (cell, separator) {
        (Cell::Missing, _) => return Ok(false),
        (Cell::List(items), _) => {
            for position in 0..items.len() {
                visit(&items.cell(position))?;
            }
        }
        (Cell::Text(text), Some(separator)) => {
            for item in text.split(separator) {
                visit(&Cell::Text(item.trim()))?;
            }
        }
        (Cell::Text(_), None) => return Err(SEPARATED),
        _ => return Err(LIST),
    }
    Ok(true)
}

/// Returns the microseconds since 1970 of the timestamp in a cell; `None` if it is missing.
pub(crate) fn micros(cell: &Cell<'_>, unit: TimeUnit) -> Result<Option<i64>, &'static str> {
    let factor = match unit {
        TimeUnit::Seconds => 1_000_000,
        TimeUnit::Milliseconds => 1000,
        TimeUnit::Microseconds => 1,
    };
    match cell {
        Cell::Missing => Ok(None),
        Cell::Time(micros) => Ok(Some(*micros)),
        Cell::Int(value) => {
            let micros = value.checked_mul(factor).and_then(|micros| i64::try_from(micros).ok());
            micros.map(Some).ok_or(TIME)
        }
        Cell::Text(text) => match (parse_time(text), text.trim().parse()) {
            (Some(micros), _) => Ok(Some(micros)),
            (None, Ok(value)) => self::micros(&Cell::Int(value), unit),
            (None, Err(_)) => Err(TIME),
        },
        _ => Err(TIME),
    }
}

/// Returns the numbers of a vector in `values`, and false if it is missing.
pub(super) fn vector(
    cell: &Cell<'_>,
    columns: usize,
    separator: Option<&str>,
    values: &mut Vec<f32>,
) -> Result<bool, &'static str> {
    const ITEMS: &str = "a list of as many numbers as the transform has columns";
    values.clear();
    let is_there = for_each_item(cell, separator, |item| {
        values.push(number(item)?.ok_or(ITEMS)? as f32);
        if columns < values.len() { Err(ITEMS) } else { Ok(()) }
    })?;
    if is_there && values.len() != columns { Err(ITEMS) } else { Ok(is_there) }
}

/// Checks that a transform can read a value.
pub(crate) fn check(transform: &ColumnTransform, cell: &Cell<'_>) -> Result<(), &'static str> {
    let mut buffer = String::new();
    match transform {
        ColumnTransform::Numeric | ColumnTransform::Standardize | ColumnTransform::Quantile => {
            number(cell).map(drop)
        }
        ColumnTransform::OneHot { .. }
        | ColumnTransform::Ordinal { .. }
        | ColumnTransform::Hash { .. }
        | ColumnTransform::Text { .. } => category(cell, &mut buffer).map(drop),
        ColumnTransform::MultiHot { separator, .. } => {
            let item = |item: &Cell<'_>| category(item, &mut buffer).map(drop);
            for_each_item(cell, separator.as_deref(), item).map(drop)
        }
        ColumnTransform::Time { unit, .. } => micros(cell, *unit).map(drop),
        ColumnTransform::Vector { columns, separator } => {
            vector(cell, *columns, separator.as_deref(), &mut Vec::new()).map(drop)
        }
    }
}
