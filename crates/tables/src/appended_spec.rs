//! The spec of rows that are appended to a set: it may leave out node types and relations without new rows.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_graph::{did_you_mean, similar_name};

use crate::earlier::check_appended;
use crate::spec::{ImportSpec, NodeTypeSpec, RelationSpec};
use crate::table::{relation_of, table_of, task_of};
use crate::{EarlierImportError, Error, Result, SpecError};

/// Reads the spec of new rows, and returns it with all node types and relations of the set, in their order. Those that it leaves
/// out have no files.
pub(crate) fn read_appended(path: &Path, of_set: &ImportSpec) -> Result<(ImportSpec, Vec<String>)> {
    let given = ImportSpec::read_unchecked(path)?;
    check_names(&given, of_set)?;
    if let Some(task) = given.tasks.first() {
        let known = "node types and relations".to_owned();
        let table = task_of(&task.name);
        return Err(Error::EarlierImport(EarlierImportError::NoSuchTable {
            table,
            known,
            similar: String::new(),
        }));
    }
    let notes = check_appended(&given, of_set)?;
    check_complete(path, &given, of_set)?;
    let mut nodes = Vec::new();
    for known in &of_set.nodes {
        let found = given.nodes.iter().find(|spec| spec.name == known.name);
        nodes.push(found.cloned().unwrap_or_else(|| without_rows(known)));
    }
    let mut relations = Vec::new();
    for known in &of_set.relations {
        let found = given.relations.iter().find(|spec| spec.name == known.name);
        relations.push(found.cloned().unwrap_or_else(|| without_edges(known)));
    }
    Ok((ImportSpec { name: given.name, nodes, relations, tasks: Vec::new() }, notes))
}

/// Checks that the set has all node types and relations of the spec.
fn check_names(given: &ImportSpec, of_set: &ImportSpec) -> Result<()> {
    let types: Vec<&str> = of_set.nodes.iter().map(|spec| spec.name.as_str()).collect();
    for NodeTypeSpec { name, .. } in &given.nodes {
        check_name(table_of(name), name, &types)?;
    }
    let relations: Vec<&str> = of_set.relations.iter().map(|spec| spec.name.as_str()).collect();
    for RelationSpec { name, .. } in &given.relations {
        check_name(relation_of(name), name, &relations)?;
    }
    Ok(())
}

fn check_name(table: String, name: &str, known: &[&str]) -> Result<()> {
    if known.contains(&name) {
        return Ok(());
    }
    let similar = did_you_mean(similar_name(name, known.iter().copied()));
    Err(Error::EarlierImport(EarlierImportError::NoSuchTable { table, known: known.join(", "), similar }))
}

/// Checks the spec together with the parts of the set that it leaves out, which are behind its own.
fn check_complete(path: &Path, given: &ImportSpec, of_set: &ImportSpec) -> Result<()> {
    let mut all = given.clone();
    for known in &of_set.nodes {
        if given.nodes.iter().all(|spec| spec.name != known.name) {
            all.nodes.push(known.clone());
        }
    }
    for known in &of_set.relations {
        if given.relations.iter().all(|spec| spec.name != known.name) {
            all.relations.push(known.clone());
        }
    }
    all.check(path)?;
    let has_table =
        !given.relations.is_empty() || given.nodes.iter().any(|node_type| node_type.from.is_none());
    if has_table {
        return Ok(());
    }
    Err(Error::Spec(SpecError::Spec {
        path: path.to_owned(),
        key: "nodes".to_owned(),
        expected: "a table with new rows, here or in relations".to_owned(),
        found: "without any table".to_owned(),
    }))
}

/// Returns a node type without new rows of its own.
fn without_rows(known: &NodeTypeSpec) -> NodeTypeSpec {
    NodeTypeSpec {
        files: Vec::new(),
        csv: None,
        rows: BTreeMap::new(),
        missing: Vec::new(),
        time: known.time_column(),
        target: None,
        split: None,
        drop: Vec::new(),
        ..known.clone()
    }
}

/// Returns a relation without new edges.
fn without_edges(known: &RelationSpec) -> RelationSpec {
    RelationSpec {
        files: Vec::new(),
        csv: None,
        rows: BTreeMap::new(),
        missing: Vec::new(),
        drop: Vec::new(),
        ..known.clone()
    }
}
