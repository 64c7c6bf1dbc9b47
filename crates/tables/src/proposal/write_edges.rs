//! Writes the columns of the edges of a relation: their weight, times, features and targets.

use super::columns::{is_category_name, is_target_name};
use super::describe::describe;
use super::events::{EventColumns, Events};
use super::graph::{GraphDraft, RelationDraft};
use super::names::{is_like_key, unique_name};
use super::profile::ValueKind;
use super::tables::InputTable;
use super::targets::{TargetCandidate, targets};
use super::write::{
    PlannedColumns, RANDOM_SPLIT, UNCOMMENT_TARGET, bad_edges, relation_fields, write_targets,
};
use super::yaml::{self, Lines, scalar};
use crate::bad_rows::BadRowKind;
use crate::spec::TimeUnit;

/// The largest number of values of a column whose rows are proposed as relations.
const MAX_KINDS: usize = 16;

const REPLACE_TARGET: &str = "To predict another column, or by another split, put these lines in the place of those, and remove the column from \
    `columns`, which would have the answer:";

/// Writes the columns of the edges of a relation.
pub(super) fn write_edge_columns(
    lines: &mut Lines,
    tables: &[InputTable],
    graph: &GraphDraft,
    relation: &RelationDraft,
    events: &Events,
) {
    let table = &tables[relation.table];
    let columns = &table.profile.columns;
    let found = EventColumns::find(table, &graph.value_columns(table, relation.table));
    if let Some(profile) = found.weight.map(|column| &columns[column]) {
        lines.push(4, &format!("weight: {}", scalar(&profile.name)), &describe(table, profile));
    }
    let time = events.time_of(relation.table);
    if let Some(time) = time {
        lines.push(4, &time.time(table), &describe(table, &columns[time.column]));
    }
    let planned = planned_columns(table, &found);
    planned.write(lines, table);
    if time.is_none() && !found.times.is_empty() {
        lines.comment(4, "For the times of the edges, uncomment their column:");
        found.times.iter().for_each(|time| lines.comment(4, &time.time(table)));
    }
    let mut splits: Vec<String> = found.splits.iter().map(|split| format!("split: {}", split.yaml)).collect();
    splits.push(RANDOM_SPLIT.to_owned());
    if let Some(by_time) = found.times.first().map(|time| time.split(table)) {
        // The first split is that of a target that is certain.
        let position = splits.len() - usize::from(time.is_some());
        splits.insert(position, by_time);
    }
    write_edge_targets(lines, table, &found, &planned, splits, events.target_of(relation.table));
    let mut fields = relation_fields(table, graph, relation);
    let dropped: Vec<BadRowKind> =
        bad_edges(graph, table, relation).into_iter().map(|(kind, _)| kind).collect();
    if !dropped.is_empty() {
        fields += &format!(", drop: {}", yaml::drop(&dropped));
    }
    if let Some(time) = time {
        fields += &format!(", {}", time.time(table));
    }
    if !planned.features.is_empty() {
        fields += &format!(", {}", planned.in_line(table));
    }
    write_kinds(lines, table, graph, relation, &found, &fields);
}

/// Returns the features of edges, and the columns that are none.
fn planned_columns(table: &InputTable, found: &EventColumns) -> PlannedColumns {
    let mut planned = PlannedColumns::default();
    for column in found.features() {
        let profile = &table.profile.columns[column];
        let left_out = if found.unit_of(column) == Some(TimeUnit::Integer) {
            "times, which are no dates"
        } else if found.splits.iter().any(|split| split.columns.contains(&column)) {
            "looks like a split"
        } else if profile.is_unique() && 1 < table.profile.n_rows && is_like_key(&profile.name) {
            "another value in each row, like a key"
        } else {
            planned.add(table, column);
            continue;
        };
        planned.left_out.push((column, left_out.to_owned()));
    }
    planned
}

/// Writes the target and the split that are certain, and the others as comments.
fn write_edge_targets(
    lines: &mut Lines,
    table: &InputTable,
    found: &EventColumns,
    planned: &PlannedColumns,
    mut splits: Vec<String>,
    certain: Option<usize>,
) {
    let mut targets = targets(table, &found.values);
    let position = targets.iter().position(|target| Some(target.column) == certain);
    let Some(TargetCandidate { yaml, about, .. }) = position.map(|position| targets.remove(position)) else {
        if !targets.is_empty() {
            write_targets(lines, &targets, planned, &splits, UNCOMMENT_TARGET);
        }
        return;
    };
    lines.push(4, &format!("target: {yaml}"), &about);
    lines.push(4, &splits.remove(0), "");
    write_targets(lines, &targets, planned, &splits, REPLACE_TARGET);
}

/// Writes that the rows with a value make a relation, and, for a column that is named as a kind, these relations, as comments.
fn write_kinds(
    lines: &mut Lines,
    table: &InputTable,
    graph: &GraphDraft,
    relation: &RelationDraft,
    found: &EventColumns,
    fields: &str,
) {
    let columns = found.values.iter().map(|column| &table.profile.columns[*column]);
    for column in columns.filter(|column| !is_target_name(&column.name)) {
        let few = column.values.as_ref().filter(|values| (2..=MAX_KINDS).contains(&values.len()));
        let is_text = column.kind(table.has_decimal_commas) == ValueKind::Text;
        let Some(kinds) = few.filter(|_| is_text) else { continue };
        let name = scalar(&column.name);
        if !is_category_name(&column.name) {
            let first = kinds.keys().next().map_or_else(String::new, |first| scalar(first));
            let rows = format!("where: {{{name}: [{first}]}}");
            lines.comment(4, &format!("`{rows}` makes a relation of the rows with a value."));
            continue;
        }
        lines.comment(4, &format!("For relations by {name}, put these in the place of this one. One relation may have a target and a split."));
        let mut names: Vec<String> =
            graph.relations.iter().flat_map(|of| [&of.name, &of.reverse]).cloned().collect();
        for kind in kinds.keys() {
            let of_kind = unique_name(&format!("{}_{kind}", relation.name), &mut names);
            let reverse = unique_name(&format!("rev_{of_kind}"), &mut names);
            let [of_kind, reverse] = [of_kind, reverse].map(|name| scalar(&name));
            let rows = format!("where: {{{name}: [{}]}}", scalar(kind));
            lines.comment(2, &format!("- {{name: {of_kind}, {rows}, {fields}, reverse: {reverse}}}"));
        }
    }
}
