use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::batch::TableBatch;
use super::cell::{Cell, text_cell};

/// The number of rows that a task of the thread pool handles.
const TASK_ROWS: usize = 1 << 10;

/// The rows of a table that belong to a node type or relation: those with given values in some columns.
#[derive(Debug)]
pub(crate) struct RowFilter {
    /// The columns, ascending by name.
    columns: Vec<FilterColumn>,
}

#[derive(Debug)]
struct FilterColumn {
    name: String,
    /// The value of the spec by its canonical text.
    values: HashMap<String, FilterValue>,
}

#[derive(Debug)]
struct FilterValue {
    /// The text in the spec.
    text: String,
    /// True if a row of the table has the value.
    occurred: AtomicBool,
}

impl RowFilter {
    /// Returns the filter of the values of some columns; `None` if there are none, so that all rows are taken.
    pub(super) fn new(rows: &BTreeMap<String, Vec<String>>) -> Option<Self> {
        let columns = rows.iter().map(|(name, values)| FilterColumn {
            name: name.clone(),
            values: values.iter().map(|text| (canonical(text), FilterValue::new(text))).collect(),
        });
        (!rows.is_empty()).then(|| Self { columns: columns.collect() })
    }

    /// Returns the names of the columns, ascending.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Keeps the rows of a batch that have the values. `positions` are those of the columns in the batch. A row that cannot be read is
    /// kept, because it may be one of them.
    pub(super) fn retain(&self, batch: &mut TableBatch, positions: &[usize]) {
        let rows = (0..batch.n_rows).into_par_iter().with_min_len(TASK_ROWS);
        let kept = rows.filter(|row| batch.malformed(*row).is_some() || self.takes(batch, *row, positions));
        let kept: Vec<u32> = kept.map(|row| row as u32).collect();
        batch.keep_rows(kept);
    }

    /// Returns true if a row of a batch has the values.
    pub(crate) fn takes(&self, batch: &TableBatch, row: usize, positions: &[usize]) -> bool {
        let mut buffer = String::new();
        self.columns.iter().zip(positions).all(|(column, position)| {
            let cell = batch.cell(*position, row);
            let value = value_text(&cell, &mut buffer).and_then(|text| column.values.get(text));
            value.inspect(|value| value.occurred.store(true, Ordering::Relaxed)).is_some()
        })
    }

    /// Returns each column with the values that no row has.
    pub(crate) fn unused(&self) -> Vec<(&str, Vec<&str>)> {
        let unused = self.columns.iter().map(|column| {
            let values = column.values.values();
            let unused = values.filter(|value| !value.occurred.load(Ordering::Relaxed));
            let mut texts: Vec<&str> = unused.map(|value| value.text.as_str()).collect();
            texts.sort_unstable();
            (column.name.as_str(), texts)
        });
        unused.filter(|(_, texts)| !texts.is_empty()).collect()
    }
}

impl FilterValue {
    fn new(text: &str) -> Self {
        Self { text: text.to_owned(), occurred: AtomicBool::new(false) }
    }
}

/// Returns the text by which a value is compared; `None` if it is missing or has none.
pub(crate) fn value_text<'a>(cell: &'a Cell<'_>, buffer: &'a mut String) -> Option<&'a str> {
    match (cell.text(buffer), cell) {
        (Ok(text), _) => text,
        (Err(_), Cell::Text(text)) => Some(text),
        (Err(_), _) => None,
    }
}

fn canonical(text: &str) -> String {
    let cell = text_cell(text);
    let mut buffer = String::new();
    value_text(&cell, &mut buffer).unwrap_or(text).to_owned()
}
