//! Writes relations: their ends, and the weight, times, features and targets of the edges.

use kiln_store::counted;

use super::columns::{is_category_name, is_target_name};
use super::describe::{describe, n_distinct, percent};
use super::events::{EventColumns, Events};
use super::graph::{EndDraft, GraphDraft, RelationDraft};
use super::names::{is_like_key, unique_name};
use super::planned_columns::{PlannedColumns, RANDOM_SPLIT, UNCOMMENT_TARGET, write_targets};
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use super::targets::{TargetCandidate, targets};
use super::write_table::{bad_rows, write_dropped, write_files, write_table};
use super::yaml::{self, Lines, scalar};
use crate::bad_rows::BadRowKind;
use crate::spec::{KeyType, TimeUnit};

/// The largest number of values of a column whose rows are proposed as relations.
const MAX_KINDS: usize = 16;

/// The comment before targets after one that is certain.
const REPLACE_TARGET: &str = "To predict another column, or by another split, replace those lines by these, and remove the column from `columns`, \
    which would have the answer:";

/// Writes a relation.
pub(super) fn write_relation(
    lines: &mut Lines,
    tables: &[InputTable],
    graph: &GraphDraft,
    relation: &RelationDraft,
    events: &Events,
) {
    let table = &tables[relation.table];
    let [src, dst] = &relation.ends;
    let columns = &table.profile.columns;
    if !relation.is_active {
        let name = scalar(&relation.name);
        let fields = relation_fields(table, graph, relation);
        lines.comment(2, &format!("- {{name: {name}, {fields}}}"));
        return;
    }
    match relation.is_of_nodes {
        true => lines.comment(2, &format!("{}: a relation of each row", table.label())),
        false => write_table(lines, table),
    }
    lines.push(2, &format!("- name: {}", scalar(&relation.name)), "");
    write_files(lines, table);
    for (side, end) in [("src", src), ("dst", dst)] {
        let name = &graph.nodes[end.node_type].name;
        let column = scalar(&columns[end.column].name);
        let line = format!("{side}: {{type: {}, column: {column}}}", scalar(name));
        lines.push(4, &line, &about_end(graph, &columns[end.column], end));
    }
    lines.push(4, &format!("reverse: {}", scalar(&relation.reverse)), "");
    write_dropped(lines, &bad_edges(graph, table, relation));
    if !relation.is_of_nodes {
        write_edge_columns(lines, tables, graph, relation, events);
    }
}

/// Returns the files and the ends of a relation, for one in a line.
fn relation_fields(table: &InputTable, graph: &GraphDraft, relation: &RelationDraft) -> String {
    let files = yaml::files(&table.files);
    let csv = yaml::csv(&table.csv).map_or_else(String::new, |csv| format!(", csv: {csv}"));
    let missing = &table.profile.missing;
    let missing = match missing.is_empty() {
        true => String::new(),
        false => format!(", missing: {}", yaml::list(missing.iter().map(String::as_str))),
    };
    let [src, dst] = [0, 1].map(|end| {
        let EndDraft { node_type, column, .. } = &relation.ends[end];
        let name = &graph.nodes[*node_type].name;
        format!("{{type: {}, column: {}}}", scalar(name), scalar(&table.profile.columns[*column].name))
    });
    format!("files: {files}{csv}{missing}, src: {src}, dst: {dst}")
}

/// Returns how many of the values of an end are keys of its type.
fn about_end(graph: &GraphDraft, column: &ColumnProfile, end: &EndDraft) -> String {
    let Some(overlap) = end.overlap else { return n_distinct(column) };
    let name = &graph.nodes[end.node_type].name;
    let found = match (overlap.n_values, overlap.n_values_found) {
        (0, _) => "no values".to_owned(),
        (_, 0) => format!("none of the values is a key of {name}: check their form"),
        (n_values, n_found) => {
            let sampled = if overlap.is_sampled { " by a sample of the values" } else { "" };
            format!("{} of {n_values} values are keys of {name}{sampled}", percent(n_found, n_values))
        }
    };
    let others: Vec<&str> = end.others.iter().map(|other| graph.nodes[*other].name.as_str()).collect();
    match others.is_empty() {
        true => found,
        false => format!("{found}; and of {}: check which type it is", others.join(", ")),
    }
}

/// Returns the kinds of bad rows of a relation, with their numbers.
fn bad_edges(graph: &GraphDraft, table: &InputTable, relation: &RelationDraft) -> Vec<(BadRowKind, String)> {
    let mut dropped = bad_rows(table);
    let columns = &table.profile.columns;
    let mut column_of_ends: Vec<&EndDraft> = relation.ends.iter().collect();
    column_of_ends.dedup_by_key(|end| end.column);
    let n_missing: u64 = column_of_ends.iter().map(|end| columns[end.column].n_missing).sum();
    if n_missing > 0 {
        dropped.push((BadRowKind::MissingKey, format!("{} without a key", counted(n_missing, "value"))));
    }
    let overlaps = || column_of_ends.iter().filter_map(|end| end.overlap);
    let n_dangling: u64 = overlaps().map(|overlap| overlap.n_rows - overlap.n_rows_found).sum();
    let is_sampled = overlaps().any(|overlap| overlap.is_sampled);
    if n_dangling > 0 || is_sampled {
        let what = match is_sampled {
            true => "rows whose key no node has: a sample of the values was compared".to_owned(),
            false => format!("{} of a key that no node has", counted(n_dangling, "value")),
        };
        dropped.push((BadRowKind::Dangling, what));
    }
    let has_others = column_of_ends.iter().any(|end| {
        graph.nodes[end.node_type].key_type == KeyType::Integer && !columns[end.column].is_integer_key()
    });
    if has_others && dropped.iter().all(|(kind, _)| *kind != BadRowKind::WrongType) {
        dropped.push((BadRowKind::WrongType, "keys that are no integers".to_owned()));
    }
    dropped
}

/// Writes the columns of the edges of a relation.
fn write_edge_columns(
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
    if let Some(profile) = found.weight.map(|column| &columns[column]) {
        fields += &format!(", weight: {}", scalar(&profile.name));
    }
    let dropped: Vec<BadRowKind> =
        bad_edges(graph, table, relation).into_iter().map(|(kind, _)| kind).collect();
    if !dropped.is_empty() {
        fields += &format!(", drop: {}", yaml::drop(&dropped));
    }
    if let Some(time) = time {
        fields += &format!(", {}", time.time(table));
    }
    if !planned.features.is_empty() {
        fields += &format!(", {}", planned.inline(table));
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
    if !(targets.is_empty() && splits.is_empty()) {
        write_targets(lines, &targets, planned, &splits, REPLACE_TARGET);
    }
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
        lines.comment(4, &format!("For relations by {name}, replace this one by these. One relation may have a target and a split."));
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
