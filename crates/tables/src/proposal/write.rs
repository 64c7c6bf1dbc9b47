//! Writes the proposal of node types and relations as a spec with comments.

use std::path::Path;

use kiln_graph::EdgeColumns;
use kiln_store::counted;

use super::columns::{ColumnPlan, is_target_name, plan_column, time_unit};
use super::describe::{describe, n_distinct, percent};
use super::graph::{EndDraft, GraphDraft, RelationDraft};
use super::names::{unique_name, words};
use super::profile::{ColumnProfile, ValueKind};
use super::tables::InputTable;
use super::targets::{groups_of_booleans, split_by_time, splits, targets};
use super::yaml::{self, Lines, scalar};
use crate::bad_rows::BadRowKind;
use crate::spec::KeyType;

/// The maximum number of columns of the edges of a relation.
const MAX_EDGE_COLUMNS: usize = 32;

/// The split that is proposed for targets without another one.
const RANDOM_SPLIT: &str = "{random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}";

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
    if graph.relations.iter().any(|relation| relation.is_active) {
        lines.push(0, "relations:", "");
    } else {
        lines.comment(0, "No relations: no column has the keys of a node type.");
    }
    for relation in &graph.relations {
        write_relation(&mut lines, tables, graph, relation);
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
    let mut features = Vec::new();
    let mut left_out = Vec::new();
    let mut values = Vec::new();
    for (column, profile) in columns.iter().enumerate().filter(|(column, _)| *column != key) {
        let reference = graph.relations.iter().find(|relation| {
            relation.is_of_nodes && relation.table == position && relation.ends[1].column == column
        });
        if let Some(relation) = reference {
            left_out.push((column, format!("keys of the relation {}", relation.name)));
            continue;
        }
        if of_splits.contains(&column) {
            left_out.push((column, "looks like a split".to_owned()));
            continue;
        }
        values.push(column);
        match plan_column(table, profile) {
            ColumnPlan::Feature(..) if is_target_name(&profile.name) => {
                left_out.push((column, "looks like a target".to_owned()));
            }
            ColumnPlan::Feature(transform, why) => features.push((column, transform, why)),
            ColumnPlan::LeftOut(why) => left_out.push((column, why)),
        }
    }
    if !features.is_empty() {
        lines.push(4, "columns:", "");
    }
    for (column, transform, why) in &features {
        let profile = &columns[*column];
        let line =
            format!("- {{column: {}, transform: {}}}", scalar(&profile.name), yaml::transform(transform));
        let why = why.iter().map(|why| format!("; {why}")).collect::<String>();
        lines.push(6, &line, &format!("{}{why}", describe(table, profile)));
    }
    write_left_out(lines, table, &left_out);
    let featured: Vec<usize> = features.iter().map(|(column, ..)| *column).collect();
    write_targets(lines, table, &values, &featured);
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

/// Writes the targets as comments, and the splits for them.
fn write_targets(lines: &mut Lines, table: &InputTable, columns: &[usize], featured: &[usize]) {
    let targets = targets(table, columns);
    if targets.is_empty() {
        return;
    }
    lines.comment(4, "To predict a column, uncomment its target and a split, and remove it from `columns`, which would have the answer:");
    for target in &targets {
        let is_featured = featured.contains(&target.column);
        let note = if is_featured { "" } else { "; it is not in `columns`" };
        lines.comment(4, &format!("target: {}  # {}{note}", target.yaml, target.about));
    }
    for split in splits(table) {
        lines.comment(4, &format!("split: {}", split.yaml));
    }
    lines.comment(4, &format!("split: {RANDOM_SPLIT}"));
    let by_time = split_by_time(table, columns);
    by_time.into_iter().for_each(|split| lines.comment(4, &format!("split: {split}")));
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

fn write_relation(lines: &mut Lines, tables: &[InputTable], graph: &GraphDraft, relation: &RelationDraft) {
    let table = &tables[relation.table];
    let [src, dst] = &relation.ends;
    let columns = &table.profile.columns;
    if !relation.is_active {
        let ends = [src, dst].map(|end| {
            let name = &graph.nodes[end.node_type].name;
            format!("{{type: {}, column: {}}}", scalar(name), scalar(&columns[end.column].name))
        });
        let name = scalar(&relation.name);
        let files = yaml::files(&table.files);
        lines.comment(2, &format!("- {{name: {name}, files: {files}, src: {}, dst: {}}}", ends[0], ends[1]));
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
        write_edge_columns(lines, table, graph, relation);
    }
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

/// Writes the columns of edges, which need a number in each row.
fn write_edge_columns(lines: &mut Lines, table: &InputTable, graph: &GraphDraft, relation: &RelationDraft) {
    let ends: Vec<usize> = graph
        .relations
        .iter()
        .filter(|other| other.table == relation.table)
        .flat_map(|other| other.ends.iter().map(|end| end.column))
        .collect();
    let mut left_out = Vec::new();
    let mut used = vec![EdgeColumns::WEIGHTS.to_owned(), EdgeColumns::TYPES.to_owned()];
    let mut columns = Vec::new();
    let mut has_weight = false;
    for (column, profile) in table.profile.columns.iter().enumerate() {
        if ends.contains(&column) {
            continue;
        }
        if let Some(why) = why_no_edge_column(table, profile) {
            left_out.push((column, why));
        } else if !has_weight && is_weight(profile) {
            has_weight = true;
            lines.push(4, &format!("weight: {}", scalar(&profile.name)), &describe(table, profile));
        } else if columns.len() == MAX_EDGE_COLUMNS {
            left_out.push((column, format!("a relation has at most {MAX_EDGE_COLUMNS} edge columns")));
        } else {
            columns.push((column, unique_name(&edge_name(&profile.name), &mut used)));
        }
    }
    if !columns.is_empty() {
        lines.push(4, "edge_columns:", "");
    }
    for (column, name) in &columns {
        let profile = &table.profile.columns[*column];
        let renamed = if *name == profile.name { String::new() } else { format!(", name: {name}") };
        let line = format!("- {{column: {}{renamed}}}", scalar(&profile.name));
        lines.push(6, &line, &describe(table, profile));
    }
    write_left_out(lines, table, &left_out);
}

fn is_weight(column: &ColumnProfile) -> bool {
    let is_named =
        words(&column.name).last().is_some_and(|word| ["weight", "weights", "w"].contains(&word.as_str()));
    is_named && column.stats().is_some_and(|stats| stats.min >= 0.0)
}

/// Returns the name of an edge column: small letters, digits and underscores.
fn edge_name(column: &str) -> String {
    let words: Vec<String> = words(column);
    let ascii = words.join("_").replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    if EdgeColumns::is_name(&ascii) { ascii } else { "value".to_owned() }
}

/// Returns the reason why a column cannot be one of edges.
fn why_no_edge_column(table: &InputTable, column: &ColumnProfile) -> Option<String> {
    let kind = column.kind(table.has_decimal_commas);
    let few = column.values.as_ref().filter(|values| (2..=16).contains(&values.len()));
    Some(match kind {
        ValueKind::Nothing => "no value".to_owned(),
        ValueKind::Text => match few.and_then(|values| values.keys().next()) {
            Some(first) => format!(
                "text; `where: {{{}: [{}]}}` makes a relation of the rows with a value",
                scalar(&column.name),
                scalar(first)
            ),
            None => "no number".to_owned(),
        },
        ValueKind::Time | ValueKind::List | ValueKind::Other => "no number".to_owned(),
        ValueKind::Bool | ValueKind::Integer | ValueKind::Number => {
            if column.n_missing > 0 {
                "an edge column needs a number in each row".to_owned()
            } else if column.has_huge() {
                "numbers beyond the range of f32".to_owned()
            } else if column.n_distinct() == 1 && table.profile.n_rows > 1 {
                "the same value in each row".to_owned()
            } else if time_unit(column).is_some() {
                "times, which f32 does not hold exactly".to_owned()
            } else {
                return None;
            }
        }
    })
}

fn is_number(table: &InputTable, column: &ColumnProfile) -> bool {
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
