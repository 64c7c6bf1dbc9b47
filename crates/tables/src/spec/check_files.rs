//! Checks of the files of a table, of their form and of the rows that are taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::CsvSpec;
use super::place::At;
use crate::Result;
use crate::table::{TableFormat, may_be_several, text_cell};

/// The maximum number of values of a column that a table takes.
const MAX_VALUES: usize = 4096;

/// The maximum number of columns whose values select rows.
const MAX_COLUMNS: usize = 16;

pub(super) fn check_files(at: &At<'_>, files: &[PathBuf]) -> Result<()> {
    at.require(!files.is_empty(), "at least one file", "an empty list")?;
    for (position, file) in files.iter().enumerate() {
        let at = At { path: at.path, key: format!("{}[{position}]", at.key) };
        let is_table = TableFormat::of(file).is_some() || may_be_several(file);
        at.require(is_table, TableFormat::EXPECTED, format!("{:?}", file.display()))?;
    }
    Ok(())
}

pub(super) fn check_csv(at: &At<'_>, csv: Option<&CsvSpec>) -> Result<()> {
    let Some(CsvSpec { separator, names, decimal, escape }) = csv else { return Ok(()) };
    let shown = |c: &Option<char>| format!("{:?}", c.unwrap_or_default());
    let is_mark = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"\"\r\n.-+_\0".contains(c);
    let separators = "a character such as ';', '|' or \"\\t\"";
    at.child("separator").require(separator.is_none_or(is_mark), separators, shown(separator))?;
    let decimals = "',' or '.'";
    at.child("decimal").require(decimal.is_none_or(|c| ",.".contains(c)), decimals, shown(decimal))?;
    let is_escape = escape.is_none_or(|c| is_mark(c) && Some(c) != *separator && !",;\t".contains(c));
    at.child("escape").require(is_escape, "a character such as '\\'", shown(escape))?;
    let mut seen = BTreeSet::new();
    for (position, name) in names.iter().enumerate() {
        let at = At { path: at.path, key: format!("{}.names[{position}]", at.key) };
        let is_new = !name.is_empty() && seen.insert(name);
        at.require(is_new, "the name of a column, which occurs once", format!("{name:?}"))?;
    }
    Ok(())
}

pub(super) fn check_rows(at: &At<'_>, rows: &BTreeMap<String, Vec<String>>) -> Result<()> {
    let columns = format!("at most {MAX_COLUMNS} columns");
    at.require(rows.len() <= MAX_COLUMNS, columns, rows.len())?;
    for (column, values) in rows {
        let at = at.child(column);
        at.count(values.len(), MAX_VALUES)?;
        let missing = values.iter().find(|value| text_cell(value).is_missing());
        let found = missing.map(|value| format!("{value:?}")).unwrap_or_default();
        at.require(missing.is_none(), "values: a missing value selects no rows", found)?;
    }
    Ok(())
}
