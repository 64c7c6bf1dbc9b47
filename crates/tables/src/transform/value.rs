//! Reads values of a table as numbers, lists and timestamps. The error is the expected value, for a message.

use crate::spec::{ColumnTransform, TimeUnit};
use crate::table::{Cell, TIME_IN_YEARS, has_decimal_comma, text_cell};
use kiln_data::calendar::{YEARS, parse_time};

const NUMBER: &str = "a finite number in the range of f32";
const POINT: &str = "a finite number in the range of f32 with a point: `csv: {decimal: ','}` in the spec of the table reads a decimal comma of CSV files";
const LIST: &str = "a list";
const SEPARATED: &str = "a list, or a `separator` in the spec for text";
const LIST_TEXT: &str =
    "items and the `separator`, not the text of a list: write lists to Parquet or JSON lines";
const TIME: &str = "a timestamp, a date such as 2024-01-31T12:00:00Z, or an integer";
const MILLISECONDS: &str = "a time from the year 1 to the year 9999: if it counts milliseconds, add `unit: milliseconds` to the spec, or convert the column if an earlier import has its statistics";
const MICROSECONDS: &str = "a time from the year 1 to the year 9999: if it counts microseconds, add `unit: microseconds` to the spec, or convert the column if an earlier import has its statistics";
const NANOSECONDS: &str = "a time from the year 1 to the year 9999: if it counts nanoseconds, add `unit: nanoseconds` to the spec, or convert the column if an earlier import has its statistics";

/// Returns the number in a cell; `None` if it is missing or NaN. Besides the texts of numbers, it reads those that only look
/// like one, such as ` 1` and `007`.
pub(crate) fn number(cell: &Cell<'_>) -> Result<Option<f64>, &'static str> {
    let value = match cell.value() {
        Cell::Missing => return Ok(None),
        Cell::Bool(value) => f64::from(value),
        Cell::Int(value) => value as f64,
        Cell::Float(value) => value,
        Cell::Text(text) => match text.trim().parse() {
            Ok(value) => value,
            Err(_) if has_decimal_comma(text) => return Err(POINT),
            Err(_) => return Err(NUMBER),
        },
        _ => return Err(NUMBER),
    };
    match value.is_nan() {
        true => Ok(None),
        // The sum with 0 has no negative zero.
        false if value.abs() <= f64::from(f32::MAX) => Ok(Some(value + 0.0)),
        false => Err(NUMBER),
    }
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
        (Cell::Text(text), Some(_)) if is_list_text(text) => return Err(LIST_TEXT),
        (Cell::Text(text), Some(separator)) => {
            for item in text.split(separator) {
                visit(&text_cell(item.trim()))?;
            }
        }
        (Cell::Text(_), None) => return Err(SEPARATED),
        _ => return Err(LIST),
    }
    Ok(true)
}

/// Returns true for the text of a list as Python and JSON write it, such as `['a', 'b']`, whose items would keep brackets and
/// quotes.
fn is_list_text(text: &str) -> bool {
    let inner = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    inner.is_some_and(|inner| !inner.contains(['[', ']']))
}

/// Returns the microseconds since 1970 of the timestamp in a cell; `None` if it is missing. A time outside of the years 1
/// to 9999 is an error: most of them are integers of another unit.
pub(crate) fn micros(cell: &Cell<'_>, unit: TimeUnit) -> Result<Option<i64>, &'static str> {
    let in_years = |micros: i64| match YEARS.contains(&micros) {
        true => Ok(Some(micros)),
        false => Err(TIME_IN_YEARS),
    };
    let of_integer = |value: i128| integer_micros(value, unit).map(Some).ok_or_else(|| expected_unit(value));
    match cell.value() {
        Cell::Missing => Ok(None),
        Cell::Time(micros) => in_years(micros),
        Cell::Int(value) => of_integer(value),
        // Integers with missing values become floating-point numbers in pandas.
        Cell::Float(value) if value.fract() == 0.0 => of_integer(value as i128),
        Cell::Text(text) => match (parse_time(text), text.trim().parse()) {
            (Some(micros), _) => in_years(micros),
            (None, Ok(value)) => of_integer(value),
            (None, Err(_)) => Err(TIME),
        },
        _ => Err(TIME),
    }
}

/// Returns true for a time that is an integer, which counts in the unit of the spec.
pub(crate) fn is_in_unit(cell: &Cell<'_>) -> bool {
    !matches!(cell, Cell::Missing) && !matches!(cell.value(), Cell::Time(_))
}

/// Returns the microseconds since 1970 of an integer; `None` outside of the years 1 to 9999.
fn integer_micros(value: i128, unit: TimeUnit) -> Option<i64> {
    let micros = match unit {
        TimeUnit::Seconds => value.checked_mul(1_000_000)?,
        TimeUnit::Milliseconds => value.checked_mul(1000)?,
        TimeUnit::Microseconds => value,
        TimeUnit::Nanoseconds => value.div_euclid(1000),
        // A column of integers has no dates.
        TimeUnit::Integer => return None,
    };
    i64::try_from(micros).ok().filter(|micros| YEARS.contains(micros))
}

/// Returns the expected value for an integer that is no time, with the coarsest unit in which it is one.
fn expected_unit(value: i128) -> &'static str {
    let units = [
        (TimeUnit::Milliseconds, MILLISECONDS),
        (TimeUnit::Microseconds, MICROSECONDS),
        (TimeUnit::Nanoseconds, NANOSECONDS),
    ];
    let fitting = units.into_iter().find(|(unit, _)| integer_micros(value, *unit).is_some());
    fitting.map_or(TIME_IN_YEARS, |(_, expected)| expected)
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
        values.push(match item {
            // Vectors have many numbers, which need no detour by their texts.
            Cell::Single(value) if value.is_finite() => *value + 0.0,
            _ => number(item)?.ok_or(ITEMS)? as f32,
        });
        if columns < values.len() { Err(ITEMS) } else { Ok(()) }
    })?;
    if is_there && values.len() != columns { Err(ITEMS) } else { Ok(is_there) }
}

/// Checks that a transform can read a value.
pub(crate) fn check(transform: &ColumnTransform, cell: &Cell<'_>) -> Result<(), &'static str> {
    let mut buffer = String::new();
    match transform {
        ColumnTransform::Numeric | ColumnTransform::Standardize | ColumnTransform::Quantile => match cell {
            // The conversion of other numbers takes longer.
            Cell::Single(value) if value.is_finite() => Ok(()),
            _ => number(cell).map(drop),
        },
        ColumnTransform::OneHot { .. }
        | ColumnTransform::Ordinal { .. }
        | ColumnTransform::Hash { .. }
        | ColumnTransform::Text { .. } => cell.text(&mut buffer).map(drop),
        ColumnTransform::MultiHot { separator, .. } => {
            for_each_item(cell, separator.as_deref(), |item| item.text(&mut buffer).map(drop)).map(drop)
        }
        ColumnTransform::Time { unit, .. } => micros(cell, *unit).map(drop),
        ColumnTransform::Vector { columns, separator } => {
            vector(cell, *columns, separator.as_deref(), &mut Vec::new()).map(drop)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-01-31T12:30:15Z.
    const SECONDS: i128 = 1_706_704_215;

    #[test]
    fn reads_integers_in_their_unit_only() {
        let units = [
            (TimeUnit::Seconds, 1, TIME),
            (TimeUnit::Milliseconds, 1000, MILLISECONDS),
            (TimeUnit::Microseconds, 1_000_000, MICROSECONDS),
            (TimeUnit::Nanoseconds, 1_000_000_000, NANOSECONDS),
        ];
        for (position, (unit, factor, _)) in units.into_iter().enumerate() {
            let value = SECONDS * factor;
            let text = value.to_string();
            assert_eq!(micros(&Cell::Int(value), unit), Ok(Some(1_706_704_215_000_000)));
            assert_eq!(micros(&Cell::Text(&text), unit), Ok(Some(1_706_704_215_000_000)));
            // A coarser unit puts the same integer after the year 9999.
            for (coarser, ..) in &units[..position] {
                let expected = units[position].2;
                assert_eq!(micros(&Cell::Int(value), *coarser), Err(expected), "{value} as {coarser:?}");
                assert_eq!(micros(&Cell::Text(&text), *coarser), Err(expected), "{value} as {coarser:?}");
            }
        }
    }

    #[test]
    fn rejects_times_outside_of_the_years_1_to_9999() {
        // The first second of the year 1 and the last second of the year 9999, by Python's datetime.
        for seconds in [-62_135_596_800, 253_402_300_799] {
            assert!(micros(&Cell::Int(seconds), TimeUnit::Seconds).is_ok(), "{seconds}");
            assert!(micros(&Cell::Time(seconds as i64 * 1_000_000), TimeUnit::Seconds).is_ok(), "{seconds}");
        }
        for seconds in [-62_135_596_801, 253_402_300_800] {
            assert_eq!(micros(&Cell::Int(seconds), TimeUnit::Seconds), Err(MILLISECONDS), "{seconds}");
            let micros_of_time = micros(&Cell::Time(seconds as i64 * 1_000_000), TimeUnit::Seconds);
            assert_eq!(micros_of_time, Err(TIME_IN_YEARS), "{seconds}");
        }
        assert_eq!(micros(&Cell::Text("0000-12-31"), TimeUnit::Seconds), Err(TIME_IN_YEARS));
        assert!(micros(&Cell::Text("0001-01-01"), TimeUnit::Seconds).is_ok());
        assert_eq!(micros(&Cell::Int(i128::MAX), TimeUnit::Seconds), Err(TIME_IN_YEARS));
    }
}
