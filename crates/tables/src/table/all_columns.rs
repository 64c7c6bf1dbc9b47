//! All columns of a table that no spec describes yet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::csv_file::ROW_NAMES;
use super::find::Described;
use super::format::TableFormat;
use super::json_lines;
use super::parquet_file::ParquetFile;
use super::source::SourceFiles;
use super::table_source::TableSource;
use super::{Table, files};
use crate::spec::CsvSpec;
use crate::{Error, Result, TableFileError};

/// The maximum number of columns that are read.
const MAX_COLUMNS: usize = 4096;

/// A table with all of its columns.
#[derive(Debug)]
pub(crate) struct AllColumns {
    pub(crate) source: Arc<TableSource>,
    /// The names of the columns that can be read, in the order of their first occurrence; those of paths are the last ones.
    pub(crate) names: Vec<String>,
    /// The other columns, each with the reason.
    pub(crate) unread: Vec<(String, String)>,
    /// True if the header of a CSV file leaves the column of row names out, so that a spec must read it.
    pub(crate) needs_row_names: bool,
}

impl AllColumns {
    /// Returns the first CSV file of some entries.
    ///
    /// # Errors
    /// Returns [`crate::SpecError::Files`] if an entry matches no file.
    pub(crate) fn first_csv(
        label: &str,
        entries: &[PathBuf],
        sources: &SourceFiles,
    ) -> Result<Option<PathBuf>> {
        let found = files::find(label, sources.folder(), entries)?;
        let paths = found.files.into_iter().map(|file| file.path);
        Ok(paths.into_iter().find(|path| TableFormat::of(path) == Some(TableFormat::Csv)))
    }

    /// Finds the columns of some entries.
    ///
    /// # Errors
    /// Returns [`crate::SpecError::Files`] if an entry matches no file, and the errors of reading the headers.
    pub(crate) fn find(
        label: &str,
        entries: &[PathBuf],
        csv: &CsvSpec,
        sources: &SourceFiles,
    ) -> Result<Self> {
        let described = |columns: Vec<String>| Described {
            label: label.to_owned(),
            files: entries,
            csv: (*csv != CsvSpec::default()).then_some(csv),
            missing: &[],
            rows: const { &BTreeMap::new() },
            columns,
            keys: Vec::new(),
            texts: Vec::new(),
        };
        // The name of the column of row names lets a header without it be read.
        let table = TableSource::find(described(vec![ROW_NAMES.to_owned()]), sources)?;
        let mut columns =
            Self { source: table.clone(), names: Vec::new(), unread: Vec::new(), needs_row_names: false };
        let mut of_paths = Vec::new();
        for file in &table.files {
            let names = match table.names_of(file)? {
                Some(names) => names,
                None => json_lines::names(&file.path, sources, MAX_COLUMNS)?,
            };
            columns.add_names(names);
            of_paths.extend(file.columns_of_path());
        }
        of_paths.retain(|name| columns.unread.iter().all(|(unread, _)| unread != name));
        columns.add_names_of_paths(of_paths);
        columns.limit();
        if columns.names.iter().any(|name| name == ROW_NAMES) {
            let table = TableSource::find(described(Vec::new()), sources)?;
            columns.needs_row_names = table.files.iter().any(|file| {
                matches!(table.names_of(file), Err(Error::TableFile(TableFileError::Fields { .. })))
            });
        }
        columns.source = TableSource::find(described(columns.names.clone()), sources)?;
        columns.leave_out_unreadable()?;
        Ok(columns)
    }

    /// Returns the table with the columns that can be read.
    pub(crate) fn table(&self) -> Table {
        Table { source: self.source.clone(), columns: self.names.clone() }
    }

    /// Returns the entries of the metadata of the first file, names and texts; none unless it is a Parquet file.
    ///
    /// # Errors
    /// Returns the errors of reading the file.
    pub(crate) fn parquet_entries(&self) -> Result<Vec<(String, String)>> {
        let first = self.source.files.first().map(|file| &file.path);
        match first.filter(|path| TableFormat::of(path) == Some(TableFormat::Parquet)) {
            Some(path) => ParquetFile::entries(path, &self.source.sources),
            None => Ok(Vec::new()),
        }
    }

    /// Returns true if a file does not have a column, which other files have.
    pub(crate) fn is_optional(&self, column: &str) -> bool {
        self.source.optional.iter().any(|optional| optional == column)
    }

    fn add_names(&mut self, names: Vec<String>) {
        for name in &names {
            if names.iter().filter(|other| *other == name).count() > 1 {
                self.names.retain(|known| known != name);
                if self.unread.iter().all(|(unread, _)| unread != name) {
                    self.unread.push((name.clone(), "is not read: several columns have the name".to_owned()));
                }
            } else if !self.names.contains(name) && self.unread.iter().all(|(unread, _)| unread != name) {
                self.names.push(name.clone());
            }
        }
    }

    fn add_names_of_paths(&mut self, names: Vec<String>) {
        for name in names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }

    fn limit(&mut self) {
        let others = self.names.split_off(self.names.len().min(MAX_COLUMNS));
        let what = format!("is not read: it is after the first {MAX_COLUMNS}");
        self.unread.extend(others.into_iter().map(|name| (name, what.clone())));
    }

    /// Leaves out the columns of a type or codec that no import reads.
    fn leave_out_unreadable(&mut self) -> Result<()> {
        let open = |columns: &[String]| {
            let table = Table { source: self.source.clone(), columns: columns.to_vec() };
            self.source.files.iter().try_for_each(|file| table.n_rows_of(file).map(drop))
        };
        if !matches!(open(&self.names), Err(Error::TableFile(_))) {
            return Ok(());
        }
        let mut unreadable = Vec::new();
        for name in &self.names {
            match open(std::slice::from_ref(name)) {
                Err(Error::TableFile(error)) => {
                    unreadable.push((name.clone(), format!("is not read: {error}")));
                }
                other => other?,
            }
        }
        self.names.retain(|name| unreadable.iter().all(|(unreadable, _)| unreadable != name));
        self.unread.extend(unreadable);
        Ok(())
    }
}
