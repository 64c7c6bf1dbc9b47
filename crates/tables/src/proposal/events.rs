//! Tables of events: edges with a time, a kind and a target.

use std::collections::BTreeMap;

use super::columns::{is_certain_target_name, is_number, is_time_name};
use super::graph::GraphDraft;
use super::names::words;
use super::profile::ColumnProfile;
use super::tables::InputTable;
use super::targets::{SplitCandidate, TargetCandidate, splits, targets};
use super::times::{TimeColumn, certain_time, time_columns};
use crate::spec::TimeUnit;

/// What the columns of a table of edges are, besides the ends.
pub(super) struct EventColumns {
    pub(super) weight: Option<usize>,
    pub(super) times: Vec<TimeColumn>,
    pub(super) splits: Vec<SplitCandidate>,
    /// The columns that are none of these, in their order: features, and targets.
    pub(super) values: Vec<usize>,
}

impl EventColumns {
    /// Sorts the columns of a table without those of the ends.
    pub(super) fn find(table: &InputTable, columns: &[usize]) -> Self {
        let weight = columns.iter().copied().find(|column| is_weight(table, &table.profile.columns[*column]));
        let times = time_columns(table, columns);
        let are_times = |column: &usize| times.iter().any(|time| time.column == *column);
        let mut splits = splits(table);
        splits.retain(|split| {
            split.columns.iter().all(|column| columns.contains(column) && !are_times(column))
        });
        let values = columns.iter().copied();
        let values = values.filter(|column| {
            let is_of_split = splits.iter().any(|split| split.columns.contains(column));
            Some(*column) != weight && !are_times(column) && !is_of_split
        });
        let values = values.collect();
        Self { weight, times, splits, values }
    }

    /// Returns the columns that may be features, in their order: all but the weight.
    pub(super) fn features(&self) -> Vec<usize> {
        let times = self.times.iter().map(|time| time.column);
        let splits = self.splits.iter().flat_map(|split| split.columns.iter().copied());
        let mut columns: Vec<usize> = self.values.iter().copied().chain(times).chain(splits).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Returns the unit of a column of times.
    pub(super) fn unit_of(&self, column: usize) -> Option<TimeUnit> {
        self.times.iter().find(|time| time.column == column).map(|time| time.unit)
    }
}

/// What is certain about the edges of tables. The spec has it; everything else is a comment.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The table and the column of the targets of edges: the only column of all tables that is named as a target. A spec has the
    /// targets of one relation, and those of nodes are for the user to choose.
    target: Option<(usize, usize)>,
    /// The times of the edges of each table, all of which are dates, or all integers; and, beside task tables, those of nodes.
    times: BTreeMap<usize, TimeColumn>,
}

impl Events {
    /// Finds the times and the target of tables of edges.
    pub(super) fn find(tables: &[InputTable], graph: &GraphDraft, has_tasks: bool) -> Self {
        let mut events = Self::default();
        let mut named = Vec::new();
        let mut uncertain = Vec::new();
        for (position, table) in tables.iter().enumerate() {
            let found = EventColumns::find(table, &graph.value_columns(table, position));
            let targets = targets(table, &found.values).into_iter();
            let targets = targets.filter(|target| is_certain_target(table, target));
            named.extend(targets.map(|target| (position, target.column)));
            // The rows of a task table know what was known at their times.
            let is_of_nodes = has_tasks && graph.type_of_table(position).is_some();
            if !is_of_nodes && !graph.is_of_edges(position) {
                continue;
            }
            let kind = events.times.values().next().map(|time| time.unit.kind());
            let time = certain_time(&found.times);
            if time.is_none() && !is_of_nodes && may_have_times(table, &found) {
                uncertain.push(position);
            }
            if let Some(time) = time.filter(|time| kind.is_none_or(|kind| time.unit.kind() == kind)) {
                events.times.insert(position, time.clone());
            }
        }
        events.target = match named[..] {
            // A random split of events would pass messages over later ones.
            [only] if graph.is_of_edges(only.0) && !uncertain.contains(&only.0) => Some(only),
            _ => None,
        };
        events
    }

    /// Returns the column of the targets of a table.
    pub(super) fn target_of(&self, table: usize) -> Option<usize> {
        self.target.filter(|(of, _)| *of == table).map(|(_, column)| column)
    }

    /// Returns the times of a table of edges, or of nodes beside task tables.
    pub(super) fn time_of(&self, table: usize) -> Option<&TimeColumn> {
        self.times.get(&table)
    }
}

/// Returns true for a column that is nothing else than the classes to predict. Numbers below 0 may stand for rows without one.
fn is_certain_target(table: &InputTable, target: &TargetCandidate) -> bool {
    let column = &table.profile.columns[target.column];
    let is_of_classes = !target.yaml.contains("regression");
    let has_no_other = column.stats().is_none_or(|stats| stats.min >= 0.0);
    is_of_classes && has_no_other && is_certain_target_name(&column.name)
}

/// Returns true if a table may have times of its rows, also in a form that is not known.
fn may_have_times(table: &InputTable, found: &EventColumns) -> bool {
    let mut columns = found.values.iter().map(|column| &table.profile.columns[*column].name);
    !found.times.is_empty() || columns.any(|name| is_time_name(name))
}

/// Returns true for a column of weights: numbers that are not negative, one in each row, by its name.
fn is_weight(table: &InputTable, column: &ColumnProfile) -> bool {
    let is_named =
        words(&column.name).last().is_some_and(|word| ["weight", "weights", "w"].contains(&word.as_str()));
    let is_of_numbers = is_number(table, column) && column.n_missing == 0 && !column.has_huge();
    is_named && is_of_numbers && column.stats().is_some_and(|stats| stats.min >= 0.0)
}
