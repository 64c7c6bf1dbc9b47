//! Writes the proposal as a spec with comments: its node types, and its relations after them.

use std::path::Path;

use kiln_store::counted;

use super::columns::is_number;
use super::describe::n_distinct;
use super::events::Events;
use super::graph::GraphDraft;
use super::planned_columns::{PlannedColumns, RANDOM_SPLIT, UNCOMMENT_TARGET, write_targets};
use super::tables::InputTable;
use super::targets::{groups_of_booleans, splits, targets};
use super::tasks::TaskDraft;
use super::times::time_columns;
use super::write_relation::write_relation;
use super::write_table::{bad_rows, write_dropped, write_files, write_table};
use super::yaml::{Lines, scalar};
use crate::bad_rows::BadRowKind;
use crate::spec::KeyType;

/// Writes a spec.
pub(super) fn write_spec(
    spec: &Path,
    tables: &[InputTable],
    graph: &GraphDraft,
    tasks: &[TaskDraft],
) -> String {
    let mut lines = Lines::default();
    let name = spec.file_stem().and_then(|stem| stem.to_str()).unwrap_or("tables");
    let n_tables = counted(tables.len() as u64, "table");
    lines.comment(0, &format!("A first spec of {n_tables}, made from the names and the values of their columns: check and edit it."));
    lines.comment(0, &format!("kiln data import {} --out SET", spec.display()));
    lines.push(0, &format!("name: {}", scalar(name)), "");
    lines.push(0, "nodes:", "");
    let events = Events::find(tables, graph, tasks.iter().any(TaskDraft::is_known));
    for node_type in 0..graph.nodes.len() {
        write_node_type(&mut lines, tables, graph, node_type, &events);
    }
    if graph.relations.iter().any(|relation| relation.is_active) {
        lines.push(0, "relations:", "");
    } else {
        lines.comment(0, "No relations: no column has the keys of a node type.");
    }
    for relation in &graph.relations {
        write_relation(&mut lines, tables, graph, relation, &events);
    }
    if tasks.iter().any(TaskDraft::is_known) {
        lines.push(0, "tasks:", "");
    }
    for task in tasks {
        task.write(&mut lines, tables, graph);
    }
    for (table, why) in &graph.left_out {
        lines.comment(0, &format!("{} is left out: {why}.", tables[*table].label()));
    }
    lines.finish()
}

fn write_node_type(
    lines: &mut Lines,
    tables: &[InputTable],
    graph: &GraphDraft,
    node_type: usize,
    events: &Events,
) {
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
    if let Some(time) = events.time_of(position) {
        lines.push(4, &time.time(table), "a node is known from this time on");
    }
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
    let targets = targets(table, &values);
    if !targets.is_empty() {
        let mut lines_of_splits: Vec<String> =
            splits.iter().map(|split| format!("split: {}", split.yaml)).collect();
        lines_of_splits.push(RANDOM_SPLIT.to_owned());
        lines_of_splits.extend(time_columns(table, &values).first().map(|time| time.split(table)));
        write_targets(lines, &targets, &planned, &lines_of_splits, UNCOMMENT_TARGET);
    }
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
