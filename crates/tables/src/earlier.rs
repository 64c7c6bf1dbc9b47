//! Compares a spec with that of the earlier import whose transforms it uses, or to whose set it appends rows.

use serde::Serialize;

use crate::spec::{ColumnSpec, ImportSpec, NodeTypeSpec, RelationSpec};
use crate::table::{relation_of, table_of};
use crate::{EarlierImportError, Error, Result};

/// The spec with which another one is compared.
const OF_IMPORT: &str = "the earlier import";
const OF_SET: &str = "the set";

/// Checks that the node types have the columns and targets of the earlier import, and returns what else differs.
pub(crate) fn check_earlier(spec: &ImportSpec, earlier: &ImportSpec) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for node_type in &spec.nodes {
        let other = earlier.nodes.iter().find(|other| other.name == node_type.name);
        let known: Vec<&str> = earlier.nodes.iter().map(|other| other.name.as_str()).collect();
        let difference = match other {
            Some(other) => {
                notes.extend(notes_on_type(node_type, other, OF_IMPORT));
                type_difference(node_type, other)
            }
            // A type without a table has no transforms.
            None if node_type.from.is_some() => None,
            None => {
                Some(format!("the earlier import has no such type, expected one of {}", known.join(", ")))
            }
        };
        if let Some(what) = difference {
            let table = table_of(&node_type.name);
            return Err(Error::EarlierImport(EarlierImportError::OtherTransforms { table, what }));
        }
    }
    for other in earlier.nodes.iter().filter(|other| spec.nodes.iter().all(|of| of.name != other.name)) {
        notes.push(format!("the spec has no node type `{}`, which the earlier import has", other.name));
    }
    for other in &earlier.relations {
        match spec.relations.iter().find(|relation| relation.name == other.name) {
            Some(relation) => {
                check_relation_columns(relation, &other.columns)?;
                notes.extend(notes_on_relation(relation, other));
            }
            None => {
                notes.push(format!("the spec has no relation `{}`, which the earlier import has", other.name))
            }
        }
    }
    for relation in &spec.relations {
        if earlier.relations.iter().all(|other| other.name != relation.name) {
            check_relation_columns(relation, &[])?;
        }
    }
    Ok(notes)
}

/// Checks that the edges of a relation have the feature columns of the earlier import.
fn check_relation_columns(relation: &RelationSpec, earlier: &[ColumnSpec]) -> Result<()> {
    match column_difference(&relation.columns, earlier) {
        None => Ok(()),
        Some(what) => {
            let table = relation_of(&relation.name);
            Err(Error::EarlierImport(EarlierImportError::OtherTransforms { table, what }))
        }
    }
}

/// Checks that the parts of a spec of new rows are those of the set to which they are appended, and returns what else differs.
pub(crate) fn check_appended(spec: &ImportSpec, of_set: &ImportSpec) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for node_type in &spec.nodes {
        let Some(known) = of_set.nodes.iter().find(|known| known.name == node_type.name) else { continue };
        let of_origin = (node_type.from != known.from)
            .then(|| format!("its `from` is {}, expected {}", json(&node_type.from), json(&known.from)));
        if let Some(what) = type_difference(node_type, known).or(of_origin) {
            let table = table_of(&node_type.name);
            return Err(Error::EarlierImport(EarlierImportError::OtherTable { table, what }));
        }
        let times = [node_type, known].map(|of| json(&of.time_column()));
        if node_type.time_column().is_some() && times[0] != times[1] {
            let table = table_of(&node_type.name);
            let what = format!("its time is {}, expected {}", times[0], times[1]);
            return Err(Error::EarlierImport(EarlierImportError::OtherTable { table, what }));
        }
        notes.extend(notes_on_type(node_type, known, OF_SET));
        if let (Some(split), Some(of_known)) = (&node_type.split, &known.split) {
            let parts = |split| [("split", json(split))];
            notes.extend(notes_on_parts(&table_of(&node_type.name), &parts(split), &parts(of_known), OF_SET));
        }
    }
    for relation in &spec.relations {
        let Some(known) = of_set.relations.iter().find(|known| known.name == relation.name) else { continue };
        if let Some(what) = column_difference(&relation.columns, &known.columns) {
            let table = relation_of(&relation.name);
            return Err(Error::EarlierImport(EarlierImportError::OtherTable { table, what }));
        }
        let mut parts = edge_parts(relation).into_iter().zip(edge_parts(known));
        if let Some(((key, now), (_, expected))) = parts.find(|((_, now), (_, known))| now != known) {
            let what = format!("`{key}` is {now}, expected {expected}");
            let table = relation_of(&relation.name);
            return Err(Error::EarlierImport(EarlierImportError::OtherTable { table, what }));
        }
        let label = relation_of(&relation.name);
        notes.extend(notes_on_parts(&label, &row_parts(relation), &row_parts(known), OF_SET));
    }
    Ok(notes)
}

/// Returns the first difference of the columns that become features.
fn column_difference(spec: &[ColumnSpec], earlier: &[ColumnSpec]) -> Option<String> {
    let n_columns = spec.len().max(earlier.len());
    (0..n_columns).find_map(|position| {
        let difference = match (spec.get(position), earlier.get(position)) {
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
    })
}

/// Returns the first difference of a node type that its transforms do not allow.
fn type_difference(spec: &NodeTypeSpec, earlier: &NodeTypeSpec) -> Option<String> {
    let of_columns = column_difference(&spec.columns, &earlier.columns);
    let target = spec.target.as_ref().filter(|_| spec.target != earlier.target);
    let of_target =
        target.map(|target| format!("its target is {}, expected {}", json(target), json(&earlier.target)));
    let of_keys = (spec.key_type != earlier.key_type)
        .then(|| format!("its key_type is {}, expected {}", json(&spec.key_type), json(&earlier.key_type)));
    of_columns.or(of_target).or(of_keys)
}

fn notes_on_type(spec: &NodeTypeSpec, earlier: &NodeTypeSpec, of_earlier: &str) -> Vec<String> {
    let parts =
        |node_type: &NodeTypeSpec| [("missing", json(&node_type.missing)), ("where", json(&node_type.rows))];
    notes_on_parts(&table_of(&spec.name), &parts(spec), &parts(earlier), of_earlier)
}

/// Returns a note for each part of a relation that changes what its edges are.
fn notes_on_relation(spec: &RelationSpec, earlier: &RelationSpec) -> Vec<String> {
    let label = relation_of(&spec.name);
    let mut notes = notes_on_parts(&label, &edge_parts(spec), &edge_parts(earlier), OF_IMPORT);
    notes.extend(notes_on_parts(&label, &row_parts(spec), &row_parts(earlier), OF_IMPORT));
    notes
}

/// Returns the parts of a relation that say what an edge has.
fn edge_parts(relation: &RelationSpec) -> [(&'static str, String); 8] {
    [
        ("src", json(&relation.src.node_type)),
        ("dst", json(&relation.dst.node_type)),
        ("weight", json(&relation.weight)),
        ("time", json(&relation.time)),
        ("edge_columns", json(&relation.edge_columns)),
        ("reverse", json(&relation.reverse)),
        ("undirected", json(&relation.undirected)),
        ("target", json(&relation.target)),
    ]
}

/// Returns the parts of a relation that say how its rows are read.
fn row_parts(relation: &RelationSpec) -> [(&'static str, String); 2] {
    [("missing", json(&relation.missing)), ("where", json(&relation.rows))]
}

/// Returns a note for each part that differs. Both lists have the same keys. `of_earlier` is [`OF_IMPORT`] or [`OF_SET`].
fn notes_on_parts(
    table: &str,
    parts: &[(&str, String)],
    earlier: &[(&str, String)],
    of_earlier: &str,
) -> Vec<String> {
    let differing = parts.iter().zip(earlier).filter(|(now, before)| now != before);
    let notes = differing
        .map(|((key, now), (_, before))| format!("{table}: `{key}` is {now}, in {of_earlier} {before}"));
    notes.collect()
}

/// Returns a part of a spec as JSON, which is YAML, too.
fn json(part: &impl Serialize) -> String {
    serde_json::to_string(part).expect("a part of a spec should serialise to JSON")
}
