//! Columns that may be targets, and those that may be a split.

use super::columns::{is_category_name, is_target_name};
use super::describe::{missing_share, shown_number, shown_values};
use super::names::words;
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use super::yaml::scalar;

/// The maximum number of classes of a target.
const MAX_CLASSES: u64 = 100;

/// The maximum number of targets that are proposed for a node type or a relation.
const MAX_TARGETS: usize = 6;

/// A target, as a line of the spec, with what it has.
pub(super) struct TargetCandidate {
    pub(super) column: usize,
    pub(super) yaml: String,
    pub(super) about: String,
}

/// Returns the targets that the columns of a table may be, those with the name of a target first.
pub(super) fn targets(table: &InputTable, columns: &[usize]) -> Vec<TargetCandidate> {
    let profile = &table.profile;
    let candidates = columns.iter().filter_map(|column| candidate(table, *column));
    let mut candidates: Vec<TargetCandidate> = candidates.collect();
    candidates.sort_by_key(|candidate| {
        let column = &profile.columns[candidate.column];
        let is_number = candidate.yaml.contains("regression");
        let is_bool = column.kind(table.has_decimal_commas) == ValueKind::Bool;
        (!is_target_name(&column.name), !is_category_name(&column.name), !is_bool, is_number)
    });
    candidates.truncate(MAX_TARGETS);
    candidates
}

fn candidate(table: &InputTable, position: usize) -> Option<TargetCandidate> {
    let column = &table.profile.columns[position];
    let name = scalar(&column.name);
    let kind = column.kind(table.has_decimal_commas);
    let about = |what: String| {
        let missing = missing_share(column.n_missing, table.profile.n_rows);
        missing.into_iter().fold(what, |what, missing| format!("{what}, {missing}"))
    };
    let with =
        |yaml: String, what: String| Some(TargetCandidate { column: position, yaml, about: about(what) });
    if let Some((separator, items)) = column.items.list_items()
        && column.items.vector_length().is_none()
        && items.len() > 1
        && (separator.is_some() || kind == ValueKind::List)
    {
        let separator =
            separator.map_or_else(String::new, |separator| format!(", separator: {}", scalar(separator)));
        let shown = shown_values(items.iter().map(|(item, n_rows)| (item.as_str(), *n_rows)));
        let what = format!("{} labels: {shown}", items.len());
        return with(format!("{{multi_label: {{column: {name}{separator}}}}}"), what);
    }
    let n_distinct = column.n_distinct();
    let is_class = match kind {
        ValueKind::Bool | ValueKind::Text => n_distinct <= MAX_CLASSES,
        ValueKind::Integer => n_distinct <= 20 || (n_distinct <= MAX_CLASSES && is_target_name(&column.name)),
        _ => false,
    };
    if let (true, Some(values)) =
        (is_class && n_distinct > 1 && 2 * n_distinct <= column.n_values(), &column.values)
    {
        let shown = shown_values(values.iter().map(|(value, n_rows)| (value.as_str(), *n_rows)));
        return with(format!("{{class: {{column: {name}}}}}"), format!("{n_distinct} classes: {shown}"));
    }
    let stats = column.stats().filter(|stats| stats.min < stats.max && !column.has_huge())?;
    let is_number = matches!(kind, ValueKind::Integer | ValueKind::Number);
    let what = format!("{} to {}", shown_number(stats.min), shown_number(stats.max));
    is_number.then(|| with(format!("{{regression: {{columns: [{name}]}}}}"), what)).flatten()
}

/// A split that the columns of a table may be.
pub(super) struct SplitCandidate {
    /// The columns that are no features.
    pub(super) columns: Vec<usize>,
    pub(super) yaml: String,
}

/// Returns the splits in columns of a table: masks, names of parts, and steps.
pub(super) fn splits(table: &InputTable) -> Vec<SplitCandidate> {
    let columns = &table.profile.columns;
    let kind = |column: &ColumnProfile| column.kind(table.has_decimal_commas);
    let mask = |parts: &[&str]| {
        columns.iter().position(|column| {
            let words = words(&column.name);
            let is_bool = kind(column) == ValueKind::Bool
                || (kind(column) == ValueKind::Integer
                    && column.stats().is_some_and(|stats| stats.min >= 0.0 && stats.max <= 1.0));
            is_bool
                && words.iter().any(|word| parts.contains(&word.as_str()))
                && words.iter().all(|word| {
                    parts.contains(&word.as_str()) || ["is", "in", "mask"].contains(&word.as_str())
                })
        })
    };
    let mut splits = Vec::new();
    if let Some(train) = mask(&["train", "training"]) {
        let others = [("val", mask(&["val", "valid", "validation"])), ("test", mask(&["test"]))];
        let found = others.into_iter().filter_map(|(part, column)| Some((part, column?)));
        let found: Vec<(&str, usize)> = [("train", train)].into_iter().chain(found).collect();
        let parts = found.iter().map(|(part, column)| format!("{part}: {}", scalar(&columns[*column].name)));
        splits.push(SplitCandidate {
            columns: found.iter().map(|(_, column)| *column).collect(),
            yaml: format!("{{masks: {{{}}}}}", parts.collect::<Vec<_>>().join(", ")),
        });
    }
    for (position, column) in columns.iter().enumerate() {
        let values = column.values.as_ref().filter(|values| {
            let mut parts = values.keys();
            parts.all(|part| ["train", "val", "test"].contains(&part.as_str()))
                && values.contains_key("train")
        });
        if values.is_some() {
            let yaml = format!("{{column: {{column: {}}}}}", scalar(&column.name));
            splits.push(SplitCandidate { columns: vec![position], yaml });
        }
        let is_step =
            words(&column.name).last().is_some_and(|word| ["step", "timestep"].contains(&word.as_str()));
        let stats = column.stats().filter(|stats| stats.min < stats.max && column.n_missing == 0);
        if let (true, ValueKind::Integer, Some(stats)) = (is_step, kind(column), stats) {
            let [val, test] =
                [0.7, 0.85].map(|share| (stats.min + share * (stats.max - stats.min)).ceil() as i64);
            let name = scalar(&column.name);
            let yaml =
                format!("{{steps: {{column: {name}, val_from: {val}, test_from: {}}}}}", test.max(val));
            splits.push(SplitCandidate { columns: vec![position], yaml });
        }
    }
    splits
}

/// Returns columns of booleans with a common first word, which are labels of one kind: a spec has several labels in a column of
/// lists.
pub(super) fn groups_of_booleans(table: &InputTable, columns: &[usize]) -> Vec<Vec<String>> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for column in columns.iter().map(|column| &table.profile.columns[*column]) {
        let first = words(&column.name).into_iter().next().filter(|_| words(&column.name).len() > 1);
        let Some(first) = first.filter(|_| column.kind(false) == ValueKind::Bool) else { continue };
        match groups.iter_mut().find(|(word, _)| *word == first) {
            Some((_, names)) => names.push(column.name.clone()),
            None => groups.push((first, vec![column.name.clone()])),
        }
    }
    groups.into_iter().map(|(_, names)| names).filter(|names| names.len() > 2).collect()
}
