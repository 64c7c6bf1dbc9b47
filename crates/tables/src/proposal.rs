//! A first spec of tables, from the names and the values of their columns.

mod columns;
mod csv_form;
mod declared;
mod describe;
mod distinct;
mod events;
mod graph;
mod items;
mod keys;
mod names;
mod options;
mod planned_columns;
mod profile;
mod relational_folder;
mod tables;
mod targets;
mod tasks;
mod times;
mod write;
mod write_relation;
mod write_table;
mod yaml;

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use self::graph::GraphDraft;
pub use self::options::ProposalOptions;
use self::relational_folder::RelationalFolder;
use self::tables::read_tables;
use self::tasks::TaskDraft;
use self::write::write_spec;
use crate::error::io_error;
use crate::spec::ImportSpec;
use crate::{Error, Result, SpecError};

/// A first spec of tables. It is displayed as YAML with a comment on each choice, which is the spec to be edited.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// The spec, as [`import`](crate::import()) reads it.
    pub spec: ImportSpec,
    text: String,
}

impl Proposal {
    /// Writes the spec with its comments to the path of the options.
    ///
    /// # Errors
    /// Returns the error of [`ProposalOptions::check_path`], and those of writing.
    pub fn write(&self, options: &ProposalOptions) -> Result<()> {
        options.check_path()?;
        let path = &options.spec;
        let mut file = File::create_new(path).map_err(io_error(path))?;
        let written = file.write_all(self.text.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // The first error is the one to report.
            let _ = fs::remove_file(path);
            io_error(path)(error)
        })
    }
}

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reads tables and proposes a spec of their import: files, folders and patterns, one for each table. A column whose values are unique
/// and that is named as a key makes a table one of a node type; two columns with keys make it a relation. Transforms follow from the
/// types of the values, the missing ones and the numbers of different ones. Targets and splits are comments, except those of a
/// table of edges with the only column that is named as a target, such as `is_fraud`.
///
/// A folder in RelBench's layout becomes a whole spec: its tables are the files of the folder `db`, and each folder of `tasks` is a
/// task table with the files `train`, `val` and `test`. Keys and times are those that Parquet files declare in the entries
/// `pkey_col`, `fkey_col_to_pkey_table` and `time_col` of their metadata; without them, they are found as in other tables.
///
/// ```
/// use kiln_tables::{ImportOptions, ProposalOptions, import, propose_spec};
/// let root = tempfile::tempdir()?;
/// let put = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
/// put("users.csv", "id,age\nanna,30\nben,\n")?;
/// put("buys.csv", "user,item\nben,book\nanna,book\nanna,pen\n")?;
/// let tables = ["users.csv", "buys.csv"].map(|name| root.path().join(name));
/// let options = ProposalOptions { spec: root.path().join("shop.yaml"), ..ProposalOptions::default() };
/// let proposal = propose_spec(&tables, &options)?;
/// assert_eq!(proposal.spec.nodes[0].name, "user");
/// assert_eq!(proposal.spec.relations[0].dst.node_type, "item");
/// proposal.write(&options)?;
/// import(&options.spec, root.path().join("set"), &ImportOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`SpecError::NoNodeType`] with the reason for each table if no table has a key and no two columns are ends of a relation,
/// [`SpecError::Files`] for a path that is no table, [`Error::Memory`] if the limit is too small, and the errors of reading.
pub fn propose_spec(tables: &[PathBuf], options: &ProposalOptions) -> Result<Proposal> {
    let folder = RelationalFolder::find(tables)?;
    let paths = folder.as_ref().map_or(tables, |folder| &folder.tables);
    let tables = read_tables(paths, options)?;
    let graph = GraphDraft::find(&tables);
    if graph.nodes.is_empty() {
        let reasons = graph.left_out.iter();
        let reasons = reasons
            .map(|(table, why)| format!("{}: {why}{}", tables[*table].label(), tables[*table].advice()));
        let reasons: Vec<String> = reasons.collect();
        return Err(Error::Spec(SpecError::NoNodeType { reasons: reasons.join("; ") }));
    }
    let mut tasks = Vec::new();
    for task in folder.into_iter().flat_map(|folder| folder.tasks) {
        tasks.extend(TaskDraft::read(task, &tables, &graph, options)?);
    }
    let text = write_spec(&options.spec, &tables, &graph, &tasks);
    let spec = ImportSpec::parse(&options.spec, text.as_bytes())?;
    Ok(Proposal { spec, text })
}
