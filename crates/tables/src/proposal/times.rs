//! Columns that have the times of rows.

use super::columns::{is_step_name, is_time_name, time_unit};
use super::names::words;
use super::profile::ValueKind;
use super::tables::InputTable;
use super::yaml::{self, scalar};
use crate::spec::TimeUnit;

/// The shares of the rows before the validation and before the test of a split by time.
const QUANTILES: &str = "quantiles: {val: 0.7, test: 0.85}";

/// A column that has the times of rows.
#[derive(Debug, Clone)]
pub(super) struct TimeColumn {
    pub(super) column: usize,
    pub(super) unit: TimeUnit,
    /// True if it is named as times, and each row has one.
    is_certain: bool,
    /// True if the file declares it.
    is_declared: bool,
}

impl TimeColumn {
    /// Returns the time of a node type or a relation as a line of the spec.
    pub(super) fn time(&self, table: &InputTable) -> String {
        format!("time: {{{}}}", self.fields(table))
    }

    /// Returns the split by these times as a line of the spec.
    pub(super) fn split(&self, table: &InputTable) -> String {
        format!("split: {{time: {{{}, {QUANTILES}}}}}", self.fields(table))
    }

    fn fields(&self, table: &InputTable) -> String {
        let name = scalar(&table.profile.columns[self.column].name);
        format!("column: {name}{}", yaml::time_unit(self.unit))
    }
}

/// Words in the names of times that are not those of the event.
const OTHER_TIME_WORDS: [&str; 10] =
    ["birth", "birthday", "born", "due", "expiration", "expires", "expiry", "joined", "registered", "valid"];

/// The smallest number of distinct times of events that are certain.
const MIN_CERTAIN_TIMES: u64 = 10;

/// Returns the columns that may have times: dates, timestamps by their name and range, and other integers that are named as times.
pub(super) fn time_columns(table: &InputTable, columns: &[usize]) -> Vec<TimeColumn> {
    let found = columns.iter().filter_map(|position| {
        let column = &table.profile.columns[*position];
        let is_integer = is_step_name(&column.name);
        let unit = match column.kind(table.has_decimal_commas) {
            ValueKind::Time if column.times.is_some_and(|[first, last]| first < last) => TimeUnit::Seconds,
            ValueKind::Integer if column.stats().is_some_and(|stats| stats.min < stats.max) => {
                time_unit(column).or(is_integer.then_some(TimeUnit::Integer))?
            }
            _ => return None,
        };
        let is_named = is_integer || is_time_name(&column.name);
        let is_of_row = !words(&column.name).iter().any(|word| OTHER_TIME_WORDS.contains(&word.as_str()));
        // Borders between few values leave parts without rows.
        let has_many = MIN_CERTAIN_TIMES <= column.n_distinct();
        let declared = table.declared.as_ref().map(|declared| declared.time.as_ref() == Some(&column.name));
        let is_certain = match declared {
            Some(is_declared) => is_declared,
            None => is_named && is_of_row && has_many,
        } && column.n_missing == 0;
        Some(TimeColumn { column: *position, unit, is_certain, is_declared: declared == Some(true) })
    });
    found.collect()
}

/// Returns the only column of times, if it is certain that it has those of the rows.
pub(super) fn certain_time(times: &[TimeColumn]) -> Option<&TimeColumn> {
    match times {
        [only] if only.is_certain => Some(only),
        _ => times.iter().find(|time| time.is_declared && time.is_certain),
    }
}
