//! Keys of rows. Keys of any type are compared as text: integers in decimal, also those that are floating-point numbers.

use std::fmt::Write as _;

use rayon::prelude::*;

use crate::spec::KeyType;
use crate::table::{Cell, TableBatch};

/// The number of rows that a task of the thread pool handles.
const TASK_ROWS: usize = 1 << 10;

/// The first number from which on floating-point numbers are no keys: others are rounded to it.
const TWO_TO_53: f64 = 9_007_199_254_740_992.0;

const TEXT: &str = "a text, an integer, or a floating-point number that is an integer below 2^53";
const INTEGER: &str = "an integer, or a floating-point number that is one below 2^53";

/// Returns the key in a cell; `None` if it is missing. `buffer` holds the text of an integer.
pub(crate) fn key_of<'a>(
    cell: &Cell<'a>,
    key_type: KeyType,
    buffer: &'a mut String,
) -> Result<Option<&'a str>, &'static str> {
    let expected = match key_type {
        KeyType::Text => TEXT,
        KeyType::Integer => INTEGER,
    };
    let number = match (cell.value(), cell, key_type) {
        (Cell::Missing, ..) => return Ok(None),
        (Cell::Int(value), ..) => value,
        (Cell::Float(value), ..) if value.fract() == 0.0 && value.abs() < TWO_TO_53 => value as i128,
        // The text of a large number stands for no integer, and other texts stand for themselves.
        (Cell::Float(value), ..) if value.fract() == 0.0 => return Err(expected),
        (_, Cell::Text(text), KeyType::Text) => return Ok(Some(text)),
        (_, Cell::Text(text), KeyType::Integer) => text.trim().parse().map_err(|_| INTEGER)?,
        _ => return Err(expected),
    };
    buffer.clear();
    // Writing to a string cannot fail.
    let _ = write!(buffer, "{number}");
    Ok(Some(buffer))
}

/// A key, or the reason why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKey<'a> {
    Key(&'a [u8]),
    Missing,
    Wrong,
}

/// Calls a function with the key of each row of a batch, in parallel, and returns the results in the order of the rows.
pub(crate) fn map_keys<T: Send>(
    batch: &TableBatch,
    column: usize,
    key_type: KeyType,
    map: impl Fn(RowKey<'_>) -> T + Sync,
) -> Vec<T> {
    let rows = (0..batch.n_rows).into_par_iter().with_min_len(TASK_ROWS);
    rows.map_init(String::new, |buffer: &mut String, row: usize| {
        if batch.malformed(row).is_some() {
            return map(RowKey::Wrong);
        }
        match key_of(&batch.cell(column, row), key_type, buffer) {
            Ok(Some(key)) => map(RowKey::Key(key.as_bytes())),
            Ok(None) => map(RowKey::Missing),
            Err(_) => map(RowKey::Wrong),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_as_text() {
        let mut buffer = String::new();
        let mut key =
            |cell: Cell<'_>, key_type| key_of(&cell, key_type, &mut buffer).map(|key| key.map(str::to_owned));
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(key(Cell::Text("007"), KeyType::Text), some("007"));
        assert_eq!(key(Cell::Text(" 007"), KeyType::Integer), some("7"));
        assert_eq!(key(Cell::Int(u64::MAX.into()), KeyType::Text), some("18446744073709551615"));
        assert_eq!(key(Cell::Int(-7), KeyType::Integer), some("-7"));
        assert_eq!(key(Cell::Missing, KeyType::Integer), Ok(None));
        assert_eq!(key(Cell::Text("7a"), KeyType::Integer), Err(INTEGER));
        for cell in
            [Cell::Float(7.0), Cell::Single(7.0), Cell::Text("7.0"), Cell::Text("7.000"), Cell::Int(7)]
        {
            assert_eq!(key(cell.clone(), KeyType::Text), some("7"), "{cell:?}");
            assert_eq!(key(cell.clone(), KeyType::Integer), some("7"), "{cell:?}");
        }
        for cell in
            [Cell::Float(7.5), Cell::Float(TWO_TO_53), Cell::Bool(true), Cell::Time(0), Cell::Text("1e+16")]
        {
            assert_eq!(key(cell.clone(), KeyType::Text), Err(TEXT), "{cell:?}");
        }
        // Texts of other numbers, booleans and times stand for themselves.
        for text in ["7.5", "1.10", "True", "2024-01-31 00:00:00", "1e5", "+7"] {
            assert_eq!(key(Cell::Text(text), KeyType::Text), some(text));
        }
    }
}
