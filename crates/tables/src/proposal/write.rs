//! Writes the proposal of node types and relations as a spec with comments.

use std::path::Path;

use kiln_store::counted;

use super::columns::{ColumnPlan, is_target_name, plan_column};
use super::describe::{describe, n_distinct, percent};
use super::events::Events;
use super::graph::{EndDraft, GraphDraft, RelationDraft};
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use super::targets::{TargetCandidate, groups_of_booleans, splits, targets};
use super::times::time_columns;
use super::write_edges::write_edge_columns;
use super::yaml::{self, Lines, scalar};
use crate::bad_rows::BadRowKind;
use crate::spec::{ColumnTransform, KeyType};

/// The split that is proposed for targets without another one.
pub(super) const RANDOM_SPLIT: &str = "split: {random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}";

pub(super) const UNCOMMENT_TARGET: &str = "To predict a column, uncomment its target and a split, and remove it from `columns`, which would have the answer:";

/// Writes a spec.
pub(super) fn write_spec(spec: &Path, tables: &[InputTable], graph: &GraphDraft) -> String {
    let mut lines = Lines::default();
    let name = spec.file_stem().and_then(|stem| stem.to_str()).unwrap_or("tables");
    let n_tables = counted(tables.len() as u64, "table");
    lines.comment(0, &format!("A first spec of {n_tables}, made from the names and the values of their columns: check and edit it."));
    lines.comment(0, &format!("kiln data import {} --out SET", spec.display()));
    lines.push(0, &format!("name: {}", scalar(name)), "");
    lines.push(0, "nodes:", "");
    for node_type in 0..graph.nodes.len() {
        write_node_type(&mut lines, tables, graph, node_type);
    }
    let events = Events::find(tables, graph);
    if graph.relations.iter().any(|relation| relation.is_active) {
        lines.push(0, "relations:", "");
    } else {
        lines.comment(0, "No relations: no column has the keys of a node type.");
    }
    for relation in &graph.relations {
        write_relation(&mut lines, tables, graph, relation, &events);
    }
    for (table, why) in &graph.left_out {
        lines.comment(0, &format!("{} is left out: {why}.", tables[*table].label()));
    }
    lines.finish()
}

fn write_node_type(lines: &mut Lines, tables: &[InputTable], graph: &GraphDraft, node_type: usize) {
    let node = &graph.nodes[node_type];
    let Some((position, key)) = node.origin else {
        lines.comment(2, "Keys of relations that no table has.");
        lines.push(2, &format!("- {{name: {}, from: relations}}", scalar(&node.name)), "");
        return;
    };
    let table = &tables[position];
    let profile = &table.profile;
    let keys = &profile.columns[key];
    write_table(lines, table);
    lines.push(2, &format!("- name: {}", scalar(&node.name)), "");
    write_files(lines, table);
    let others = profile.columns.iter().enumerate().filter(|(other, column)| {
        *other != key && column.is_unique() && profile.n_rows > 1 && !is_number(table, column)
    });
    let others: Vec<&str> = others.map(|(_, column)| column.name.as_str()).collect();
    let also =
        if others.is_empty() { String::new() } else { format!("; unique, too: {}", others.join(", ")) };
    lines.push(4, &format!("key: {}", scalar(&keys.name)), &format!("{}{also}", n_distinct(keys)));
    if node.key_type == KeyType::Integer {
        lines.push(4, "key_type: integer", "so that 007 is 7");
    }
    let mut dropped = bad_rows(table);
    if keys.n_missing > 0 {
        dropped.push((BadRowKind::MissingKey, format!("{} without a key", counted(keys.n_missing, "row"))));
    }
    if keys.distinct.is_unique() && keys.distinct.is_sampled() {
        let what = "rows with the key of another one: a sample of the keys was compared";
        dropped.push((BadRowKind::Duplicate, what.to_owned()));
    }
    if !keys.distinct.is_unique() {
        let n_rows = (profile.n_rows - keys.n_missing).saturating_sub(keys.n_distinct());
        let about = if keys.distinct.is_sampled() { "about " } else { "" };
        dropped.push((
            BadRowKind::Duplicate,
            format!("{about}{} with the key of another one", counted(n_rows, "row")),
        ));
    }
    write_dropped(lines, &dropped);
    write_columns(lines, tables, graph, node_type);
}

/// Writes the columns and targets of a node type with a table.
fn write_columns(lines: &mut Lines, tables: &[InputTable], graph: &GraphDraft, node_type: usize) {
    let Some((position, key)) = graph.nodes[node_type].origin else { return };
    let table = &tables[position];
    let columns = &table.profile.columns;
    let splits = splits(table);
    let of_splits: Vec<usize> = splits.iter().flat_map(|split| split.columns.clone()).collect();
    let mut planned = PlannedColumns::default();
    let mut values = Vec::new();
    for column in (0..columns.len()).filter(|column| *column != key) {
        let reference = graph.relations.iter().find(|relation| {
            relation.is_of_nodes && relation.table == position && relation.ends[1].column == column
        });
        if let Some(relation) = reference {
            planned.left_out.push((column, format!("keys of the relation {}", relation.name)));
            continue;
        }
        if of_splits.contains(&column) {
            planned.left_out.push((column, "looks like a split".to_owned()));
            continue;
        }
        values.push(column);
        planned.add(table, column);
    }
    planned.write(lines, table);
    let splits =
        splits.into_iter().map(|split| format!("split: {}", split.yaml)).chain([RANDOM_SPLIT.to_owned()]);
    let by_time = time_columns(table, &values).into_iter().take(1).map(|time| time.split(table));
    let splits: Vec<String> = splits.chain(by_time).collect();
    write_targets(lines, &targets(table, &values), &planned, &splits, UNCOMMENT_TARGET);
    for group in groups_of_booleans(table, &values) {
        let names = group.join(", ");
        lines.comment(
            4,
            &format!(
                "{names}: a group of booleans. `multi_label` reads several labels from a column of lists."
            ),
        );
    }
}

/// The columns of a table that become features, and those that are left out.
#[derive(Default)]
pub(super) struct PlannedColumns {
    /// The columns with their transforms, and the reason if the transform is not the usual one.
    pub(super) features: Vec<(usize, ColumnTransform, Option<String>)>,
    /// The columns that are left out, with the reason.
    pub(super) left_out: Vec<(usize, String)>,
}

impl PlannedColumns {
    pub(super) fn add(&mut self, table: &InputTable, column: usize) {
        let profile = &table.profile.columns[column];
        match plan_column(table, profile) {
            ColumnPlan::Feature(..) if is_target_name(&profile.name) => {
                self.left_out.push((column, "looks like a target".to_owned()));
            }
            ColumnPlan::Feature(transform, why) => self.features.push((column, transform, why)),
            ColumnPlan::LeftOut(why) => self.left_out.push((column, why)),
        }
    }

    /// Returns the features for a relation in a line.
    pub(super) fn in_line(&self, table: &InputTable) -> String {
        let columns = self.features.iter();
        let columns =
            columns.map(|(column, transform, _)| feature(&table.profile.columns[*column], transform));
        format!("columns: [{}]", columns.collect::<Vec<_>>().join(", "))
    }

    pub(super) fn write(&self, lines: &mut Lines, table: &InputTable) {
        if !self.features.is_empty() {
            lines.push(4, "columns:", "");
        }
        for (column, transform, why) in &self.features {
            let profile = &table.profile.columns[*column];
            let line = format!("- {}", feature(profile, transform));
            let why = why.iter().map(|why| format!("; {why}")).collect::<String>();
            lines.push(6, &line, &format!("{}{why}", describe(table, profile)));
        }
        write_left_out(lines, table, &self.left_out);
    }
}

/// Returns the column and its transform as an entry of `columns`.
fn feature(column: &ColumnProfile, transform: &ColumnTransform) -> String {
    format!("{{column: {}, transform: {}}}", scalar(&column.name), yaml::transform(transform))
}

/// Writes targets and the splits for them as comments after another one.
pub(super) fn write_targets(
    lines: &mut Lines,
    targets: &[TargetCandidate],
    planned: &PlannedColumns,
    splits: &[String],
    comment: &str,
) {
    if targets.is_empty() && splits.is_empty() {
        return;
    }
    lines.comment(4, comment);
    for target in targets {
        let is_featured = planned.features.iter().any(|(column, ..)| *column == target.column);
        let note = if is_featured { "" } else { "; it is not in `columns`" };
        lines.comment(4, &format!("target: {}  # {}{note}", target.yaml, target.about));
    }
    splits.iter().for_each(|split| lines.comment(4, split));
}

fn write_left_out(lines: &mut Lines, table: &InputTable, left_out: &[(usize, String)]) {
    if left_out.is_empty() {
        return;
    }
    lines.comment(4, "Left out:");
    for (column, why) in left_out {
        let profile = &table.profile.columns[*column];
        let has_values = profile.kind(table.has_decimal_commas) != ValueKind::Nothing;
        let values = if has_values { format!(" ({})", describe(table, profile)) } else { String::new() };
        lines.comment(4, &format!("- {}: {why}{values}", scalar(&profile.name)));
    }
}

fn write_relation(
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
pub(super) fn relation_fields(table: &InputTable, graph: &GraphDraft, relation: &RelationDraft) -> String {
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
pub(super) fn bad_edges(
    graph: &GraphDraft,
    table: &InputTable,
    relation: &RelationDraft,
) -> Vec<(BadRowKind, String)> {
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

pub(super) fn is_number(table: &InputTable, column: &ColumnProfile) -> bool {
    matches!(column.kind(table.has_decimal_commas), ValueKind::Integer | ValueKind::Number)
}

fn write_table(lines: &mut Lines, table: &InputTable) {
    lines.comment(2, &format!("{}: {}", table.label(), counted(table.profile.n_rows, "row")));
    for note in &table.notes {
        lines.comment(2, note);
    }
}

fn write_files(lines: &mut Lines, table: &InputTable) {
    lines.push(4, &format!("files: {}", yaml::files(&table.files)), "");
    let csv = yaml::csv(&table.csv);
    csv.into_iter().for_each(|csv| lines.push(4, &format!("csv: {csv}"), ""));
    let missing = &table.profile.missing;
    if !missing.is_empty() {
        let texts = yaml::list(missing.iter().map(String::as_str));
        lines.push(4, &format!("missing: {texts}"), "in each column of the table");
    }
}

fn bad_rows(table: &InputTable) -> Vec<(BadRowKind, String)> {
    let n_rows = table.profile.n_malformed;
    let what = format!("{} with another number of fields or no text", counted(n_rows, "row"));
    (n_rows > 0).then_some((BadRowKind::WrongType, what)).into_iter().collect()
}

fn write_dropped(lines: &mut Lines, dropped: &[(BadRowKind, String)]) {
    if !dropped.is_empty() {
        let kinds: Vec<BadRowKind> = dropped.iter().map(|(kind, _)| *kind).collect();
        let what: Vec<&str> = dropped.iter().map(|(_, what)| what.as_str()).collect();
        lines.push(4, &format!("drop: {}", yaml::drop(&kinds)), &what.join(", "));
    }
}
