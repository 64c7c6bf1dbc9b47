use std::path::PathBuf;

use kiln_graph::{did_you_mean, similar_name};

/// An error in the spec of an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The spec is not YAML with the keys of a spec.
    #[error("{path}: {message} (spec.schema.json lists the keys)")]
    SpecSyntax {
        /// The path of the spec.
        path: PathBuf,
        /// The parser's message, with line and column.
        message: String,
    },
    /// The file is a table, and no spec.
    #[error(
        "{path}: this is a table, expected a spec in YAML that names it: write `files: [{name}]` in a spec"
    )]
    IsTable {
        /// The path of the table.
        path: PathBuf,
        /// The name of the file, for the message.
        name: String,
    },
    /// A value of the spec is invalid.
    #[error("{path}: {key} is {found}, expected {expected}")]
    Spec {
        /// The path of the spec.
        path: PathBuf,
        /// The place in the spec, such as `nodes[0].columns[2].transform`.
        key: String,
        /// The allowed values, and what to do.
        expected: String,
        /// The value in the spec.
        found: String,
    },
    /// An entry of the files of a table names no table.
    #[error("{table}: `{entry}` {what}")]
    Files {
        /// The table: ``node type `user` `` or ``relation `buys` ``.
        table: String,
        /// The entry.
        entry: String,
        /// What it matches, and what is expected.
        what: String,
    },
    /// A proposed spec cannot have a path.
    #[error("{path} {what}")]
    OutPath {
        /// The path.
        path: PathBuf,
        /// The reason, and what to do.
        what: &'static str,
    },
    /// No table of a proposal is a node type, and none a relation.
    #[error(
        "no node type: {reasons}: expected a table with a column of different keys, such as `id`, or one with two columns of keys"
    )]
    NoNodeType {
        /// The tables, each with the reason; empty without tables.
        reasons: String,
    },
    /// A table has no column of a name, or has it twice.
    #[error("{path}: {} {column:?}, expected one of: {known}{}", named(*.n_found), suggestion(column, known))]
    Column {
        /// The path of the table's file.
        path: PathBuf,
        /// The name of the column in the spec.
        column: String,
        /// The number of columns of this name.
        n_found: usize,
        /// The names of the table's columns.
        known: String,
    },
}

fn named(n_found: usize) -> String {
    match n_found {
        0 => "no column is named".to_owned(),
        _ => format!("{n_found} columns are named"),
    }
}

/// The known columns of tables whose rows are objects, each with its own keys.
pub(crate) const KEYS_OF_OBJECTS: &str = "the keys of the objects";

/// Returns the end of the message about a column that a table does not have.
fn suggestion(column: &str, known: &str) -> String {
    if let (false, Some(separator)) = (known.contains(", "), known.find([';', '\t', '|'])) {
        return format!(
            " (the fields may have another separator: set `csv: {{separator: {:?}}}` in the spec)",
            char::from(known.as_bytes()[separator])
        );
    }
    let known = known.split(", ").filter(|known| *known != KEYS_OF_OBJECTS && *known != column);
    did_you_mean(similar_name(column, known))
}
