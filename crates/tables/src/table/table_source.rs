//! A table of a spec: its files, their form, and the rows that belong to it.

use std::path::Path;
use std::sync::Arc;

use super::cell::BatchColumn;
use super::files::TablePath;
use super::missing::MissingTexts;
use super::row_filter::RowFilter;
use super::source::SourceFiles;
use crate::spec::CsvSpec;
use crate::{Error, Result, SpecError};

/// A table of a spec.
#[derive(Debug)]
pub(crate) struct TableSource {
    /// The table in messages: ``node type `user` `` or ``relation `buys` ``.
    pub(crate) label: String,
    pub(crate) files: Vec<TablePath>,
    pub(crate) csv: CsvSpec,
    pub(crate) missing: Arc<MissingTexts>,
    /// The rows that are taken; `None` for all.
    pub(crate) filter: Option<RowFilter>,
    /// The columns that the import reads.
    pub(super) columns: Vec<String>,
    /// The columns that a file need not have, because another one has them.
    pub(super) optional: Vec<String>,
    /// The columns of keys, which are read as they are written, except integers.
    pub(super) keys: Vec<String>,
    /// The columns of lists and texts, which are read as they are written.
    pub(super) texts: Vec<String>,
    /// The files of the import, by which each reading has the same bytes.
    pub(crate) sources: SourceFiles,
    /// What of the files is not read or is missing.
    pub(crate) notes: Vec<String>,
}

/// Where the values of a column are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnPlace {
    /// At a position in the file.
    Position(usize),
    /// In the path of the file, the same for all rows.
    Path(String),
    /// Nowhere: the values are missing.
    Absent,
}

impl TableSource {
    /// Returns a note on the texts of `missing` that no value of the table has.
    pub(crate) fn note_on_unused_texts(&self) -> Option<String> {
        let unused: Vec<String> = self.missing.unused().map(|text| format!("{text:?}")).collect();
        let texts = unused.join(", ");
        let table = &self.label;
        (!unused.is_empty())
            .then(|| format!("{table}: no value is missing by its text: `missing: [{texts}]` has no effect"))
    }

    /// Returns the columns that the import reads, ascending, with those by which rows are taken.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Opens the files, so that later readings have them as they are now.
    ///
    /// # Errors
    /// Returns the error of the first file that cannot be opened.
    pub(crate) fn open_all(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| self.sources.open(&file.path).map(drop))
    }

    /// Returns where the columns of a file are, which has columns of these names.
    pub(super) fn places(
        &self,
        file: &TablePath,
        columns: &[String],
        names: &[String],
    ) -> Result<Vec<ColumnPlace>> {
        columns.iter().map(|column| self.place_of(file, column, names)).collect()
    }

    fn place_of(&self, file: &TablePath, column: &str, names: &[String]) -> Result<ColumnPlace> {
        const MAX_NAMES: usize = 50;
        let mut found = names.iter().enumerate().filter(|(_, name)| *name == column);
        match (found.next(), found.count()) {
            (Some((position, _)), 0) => return Ok(ColumnPlace::Position(position)),
            (Some(_), n_others) => return Err(no_column(&file.path, column, n_others + 1, names, MAX_NAMES)),
            (None, _) => {}
        }
        match self.path_value(file, column) {
            Some(text) => Ok(ColumnPlace::Path(text.to_owned())),
            None if self.optional.iter().any(|name| name == column) => Ok(ColumnPlace::Absent),
            None => Err(no_column(&file.path, column, 0, names, MAX_NAMES)),
        }
    }

    /// Returns the text of a column in the path of a file.
    pub(super) fn path_value<'a>(&self, file: &'a TablePath, column: &str) -> Option<&'a str> {
        // The innermost folder has the last word.
        let mut values = file.partition.iter().rev();
        values.find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }
}

impl ColumnPlace {
    /// Returns the position in the file.
    pub(super) fn position(&self) -> Option<usize> {
        match self {
            Self::Position(position) => Some(*position),
            Self::Path(_) | Self::Absent => None,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        *self != Self::Absent
    }

    /// Returns the column of a batch whose value is the same in all rows.
    pub(super) fn same(&self) -> Option<BatchColumn> {
        match self {
            Self::Position(_) => None,
            Self::Path(text) => Some(BatchColumn::Same(text.clone())),
            Self::Absent => Some(BatchColumn::Same(String::new())),
        }
    }
}

/// Returns the name of a node type's table in messages.
pub(crate) fn table_of(name: &str) -> String {
    format!("node type `{name}`")
}

/// Returns the name of a relation's table in messages.
pub(crate) fn relation_of(name: &str) -> String {
    format!("relation `{name}`")
}

/// Returns the name of a task table in messages.
pub(crate) fn task_of(name: &str) -> String {
    format!("task table `{name}`")
}

fn no_column(path: &Path, column: &str, n_found: usize, names: &[String], max_names: usize) -> Error {
    Error::Spec(SpecError::Column {
        path: path.to_owned(),
        column: column.to_owned(),
        n_found,
        known: names.iter().take(max_names).map(String::as_str).collect::<Vec<_>>().join(", "),
    })
}
