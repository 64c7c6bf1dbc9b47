//! Finds the tables of a spec: their files, and the columns that some of the files do not have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use kiln_store::counted;

use super::arrow_file::ArrowFile;
use super::csv_file::CsvFile;
use super::files::{self, TablePath};
use super::format::TableFormat;
use super::missing::MissingTexts;
use super::parquet_file::ParquetFile;
use super::row_filter::RowFilter;
use super::source::SourceFiles;
use super::table_source::{TableSource, relation_of, table_of};
use crate::Result;
use crate::spec::{CsvSpec, NodeTypeSpec, RelationSpec};

/// The part of a spec that describes a table.
struct Described<'a> {
    label: String,
    files: &'a [PathBuf],
    csv: Option<&'a CsvSpec>,
    missing: &'a [String],
    rows: &'a BTreeMap<String, Vec<String>>,
    columns: Vec<String>,
    keys: Vec<&'a str>,
}

impl TableSource {
    /// Finds the files of a node type's table.
    ///
    /// # Errors
    /// Returns [`crate::SpecError::Files`] if an entry matches no file.
    pub(crate) fn find_nodes(spec: &NodeTypeSpec, sources: &SourceFiles) -> Result<Arc<Self>> {
        Self::find(
            Described {
                label: table_of(&spec.name),
                files: &spec.files,
                csv: spec.csv.as_ref(),
                missing: &spec.missing,
                rows: &spec.rows,
                columns: spec.columns_of_table(),
                keys: spec.key.iter().map(String::as_str).collect(),
            },
            sources,
        )
    }

    /// Finds the files of a relation's table.
    ///
    /// # Errors
    /// Returns [`crate::SpecError::Files`] if an entry matches no file.
    pub(crate) fn find_relation(spec: &RelationSpec, sources: &SourceFiles) -> Result<Arc<Self>> {
        Self::find(
            Described {
                label: relation_of(&spec.name),
                files: &spec.files,
                csv: spec.csv.as_ref(),
                missing: &spec.missing,
                rows: &spec.rows,
                columns: spec.columns_of_table(),
                keys: vec![&spec.src.column, &spec.dst.column],
            },
            sources,
        )
    }

    fn find(described: Described<'_>, sources: &SourceFiles) -> Result<Arc<Self>> {
        let Described { label, files, csv, missing, rows, mut columns, keys } = described;
        let found = files::find(&label, sources.folder(), files)?;
        columns.extend(rows.keys().cloned());
        columns.sort_unstable();
        columns.dedup();
        let mut table = Self {
            label,
            files: found.files,
            csv: csv.cloned().unwrap_or_default(),
            missing: MissingTexts::new(missing),
            filter: RowFilter::new(rows),
            columns,
            optional: Vec::new(),
            sources: sources.clone(),
            notes: found.notes,
        };
        if csv.is_some()
            && !table.files.iter().any(|file| TableFormat::of(&file.path) == Some(TableFormat::Csv))
        {
            table.notes.push("no file is CSV, so `csv` has no effect".to_owned());
        }
        table.find_optional(&keys);
        let label = &table.label;
        table.notes.iter_mut().for_each(|note| *note = format!("{label}: {note}"));
        Ok(Arc::new(table))
    }

    /// Finds the columns that some of several files do not have.
    fn find_optional(&mut self, keys: &[&str]) {
        if self.files.len() < 2 {
            return;
        }
        // The reading of a file that cannot be opened is an error.
        let names: Vec<Option<Vec<String>>> =
            self.files.iter().map(|file| self.names_of(file).ok().flatten()).collect();
        for column in self.columns.iter().filter(|column| !keys.contains(&column.as_str())) {
            let mut without = Vec::new();
            for (position, names) in names.iter().enumerate() {
                let of_path = self.files[position].partition.iter().any(|(name, _)| name == column);
                // The objects of JSON lines have what keys they like.
                if !of_path && names.as_ref().is_some_and(|names| !names.contains(column)) {
                    without.push(position);
                }
            }
            let (Some(first), true) = (without.first(), without.len() < names.len()) else { continue };
            self.optional.push(column.clone());
            self.notes.push(format!(
                "{} of {} without the column {column:?}, such as {}: its values are missing there",
                counted(without.len() as u64, "file"),
                names.len(),
                files::shown(self.sources.folder(), &self.files[*first].path)
            ));
        }
    }

    /// Returns the names of the columns of a file; `None` for JSON lines, whose objects have keys of their own.
    fn names_of(&self, file: &TablePath) -> Result<Option<Vec<String>>> {
        Ok(match TableFormat::of(&file.path) {
            Some(TableFormat::Parquet) => Some(ParquetFile::names(&file.path, &self.sources)?),
            Some(TableFormat::Arrow) => Some(ArrowFile::names(&file.path, &self.sources)?),
            Some(TableFormat::JsonLines) => None,
            Some(TableFormat::Csv) | None => Some(CsvFile::names(self, file)?),
        })
    }
}
