//! Keys of rows. Keys of any type are compared as text: integers in decimal.

use std::fmt::Write as _;

use rayon::prelude::*;

use crate::spec::KeyType;
use crate::table::{Cell, TableBatch};

/// The number of rows that a task of the thread pool handles.
const TASK_ROWS: usize = 1 << 10;

const TEXT: &str = "a text or an integer";
const INTEGER: &str = "an integer";

/// Returns the key in a cell; `None` if it is missing or empty. `buffer` holds the text of an integer.
pub(crate) fn key_of<'a>(
    cell: &Cell<'a>,
    key_type: KeyType,
    buffer: &'a mut String,
) -> Result<Option<&'a str>, &'static str> {
    buffer.clear();
    let number = match (cell, key_type) {
        (Cell::Missing | Cell::Text(""), _) => return Ok(None),
        (Cell::Text(text), KeyType::Text) => return Ok(Some(text)),
        (Cell::Text(text), KeyType::Integer) => text.trim().parse::<i128>().map_err(|_| INTEGER)?,
        (Cell::Int(value), _) => *value,
        (_, KeyType::Text) => return Err(TEXT),
        (_, KeyType::Integer) => return Err(INTEGER),
    };
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
        assert_eq!(key(Cell::Text(""), KeyType::Text), Ok(None));
        assert_eq!(key(Cell::Missing, KeyType::Integer), Ok(None));
        assert_eq!(key(Cell::Text("7a"), KeyType::Integer), Err(INTEGER));
        assert_eq!(key(Cell::Float(7.0), KeyType::Text), Err(TEXT));
    }
}
