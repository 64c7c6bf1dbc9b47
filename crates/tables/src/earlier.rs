//! Compares a spec with that of the earlier import whose transforms it uses.

use serde::Serialize;

use crate::spec::{ColumnSpec, ImportSpec, NodeTypeSpec, RelationSpec};
use crate::{EarlierImportError, Error, Result};

/// Checks that the node types have the columns and targets of the earlier import, and returns what else differs.
pub(crate) fn check_earlier(spec: &ImportSpec, earlier: &ImportSpec) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for node_type in &spec.nodes {
        let other = earlier.nodes.iter().find(|other| other.name == node_type.name);
        let known: Vec<&str> = earlier.nodes.iter().map(|other| other.name.as_str()).collect();
        let difference = match other {
            Some(other) => {
                notes.extend(notes_on_type(node_type, other));
                type_difference(node_type, other)
            }
            // A type without a table has no transforms.
            None if node_type.from.is_some() => None,
            None => {
                Some(format!("the earlier import has no such type, expected one of {}", known.join(", ")))
            }
        };
        if let Some(what) = difference {
            let node_type = node_type.name.clone();
            return Err(Error::EarlierImport(EarlierImportError::OtherTransforms { node_type, what }));
        }
    }
    for other in earlier.nodes.iter().filter(|other| spec.nodes.iter().all(|of| of.name != other.name)) {
        notes.push(format!("the spec has no node type `{}`, which the earlier import has", other.name));
    }
    for other in &earlier.relations {
        match spec.relations.iter().find(|relation| relation.name == other.name) {
            Some(relation) => notes.extend(notes_on_relation(relation, other)),
            None => {
                notes.push(format!("the spec has no relation `{}`, which the earlier import has", other.name))
            }
        }
    }
    Ok(notes)
}

/// Returns the first difference of a node type that its transforms do not allow.
fn type_difference(spec: &NodeTypeSpec, earlier: &NodeTypeSpec) -> Option<String> {
    let n_columns = spec.columns.len().max(earlier.columns.len());
    let of_columns = (0..n_columns).find_map(|position| {
        let difference = match (spec.columns.get(position), earlier.columns.get(position)) {
            (Some(column), Some(other)) if column == other => return None,
            (Some(ColumnSpec { column, transform }), Some(other)) if *column == other.column => {
                format!(
                    "the transform of column {column:?} is {}, expected {}",
                    json(transform),
                    json(&other.transform)
                )
            }
            (column, other) => {
                let name = |column: Option<&ColumnSpec>| {
                    column.map_or("missing".to_owned(), |spec| format!("{:?}", spec.column))
                };
                let expected = other.map_or("none".to_owned(), |_| name(other));
                format!("columns[{position}] is {}, expected {expected}", name(column))
            }
        };
        Some(difference)
    });
    let target = spec.target.as_ref().filter(|_| spec.target != earlier.target);
    let of_target =
        target.map(|target| format!("its target is {}, expected {}", json(target), json(&earlier.target)));
    let of_keys = (spec.key_type != earlier.key_type)
        .then(|| format!("its key_type is {}, expected {}", json(&spec.key_type), json(&earlier.key_type)));
    of_columns.or(of_target).or(of_keys)
}

fn notes_on_type(spec: &NodeTypeSpec, earlier: &NodeTypeSpec) -> Vec<String> {
    let parts =
        |node_type: &NodeTypeSpec| [("missing", json(&node_type.missing)), ("where", json(&node_type.rows))];
    notes_on_parts(&format!("node type `{}`", spec.name), &parts(spec), &parts(earlier))
}

/// Returns a note for each part of a relation that changes what its edges are.
fn notes_on_relation(spec: &RelationSpec, earlier: &RelationSpec) -> Vec<String> {
    let parts = |relation: &RelationSpec| {
        [
            ("src", json(&relation.src.node_type)),
            ("dst", json(&relation.dst.node_type)),
            ("weight", json(&relation.weight)),
            ("edge_columns", json(&relation.edge_columns)),
            ("reverse", json(&relation.reverse)),
            ("missing", json(&relation.missing)),
            ("where", json(&relation.rows)),
        ]
    };
    notes_on_parts(&format!("relation `{}`", spec.name), &parts(spec), &parts(earlier))
}

/// Returns a note for each part that differs. Both lists have the same keys.
fn notes_on_parts(table: &str, parts: &[(&str, String)], earlier: &[(&str, String)]) -> Vec<String> {
    let differing = parts.iter().zip(earlier).filter(|(now, before)| now != before);
    let notes = differing.map(|((key, now), (_, before))| {
        format!("{table}: `{key}` is {now}, in the earlier import {before}")
    });
    notes.collect()
}

/// Returns a part of a spec as JSON, which is YAML, too.
fn json(part: &impl Serialize) -> String {
    serde_json::to_string(part).expect("a part of a spec should serialise to JSON")
}
