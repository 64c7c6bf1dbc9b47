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
use super::table_source::{TableSource, relation_of, table_of, task_of};
use crate::Result;
use crate::spec::{CsvSpec, NodeTypeSpec, RelationSpec, TaskSpec, column_of_labels};

/// The part of a spec that describes a table.
pub(super) struct Described<'a> {
    pub(super) label: String,
    pub(super) files: &'a [PathBuf],
    pub(super) csv: Option<&'a CsvSpec>,
    pub(super) missing: &'a [String],
    pub(super) rows: &'a BTreeMap<String, Vec<String>>,
    pub(super) columns: Vec<String>,
    pub(super) keys: Vec<&'a str>,
    pub(super) texts: Vec<&'a str>,
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
                texts: spec.text_columns(),
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
                texts: spec.text_columns(),
            },
            sources,
        )
    }

    /// Finds the files of a task table: those of each part of its split, or of all parts.
    ///
    /// # Errors
    /// Returns [`crate::SpecError::Files`] if an entry matches no file.
    pub(crate) fn find_task(
        spec: &TaskSpec,
        sources: &SourceFiles,
    ) -> Result<Vec<(Option<usize>, Arc<Self>)>> {
        let texts: Vec<&str> = column_of_labels(Some(&spec.target)).into_iter().collect();
        let parts = spec.files_of_parts().into_iter().map(|(part, files)| {
            let described = Described {
                label: task_of(&spec.name),
                files,
                csv: spec.csv.as_ref(),
                missing: &spec.missing,
                rows: &spec.rows,
                columns: spec.columns_of_table(),
                keys: vec![&spec.key.column],
                texts: texts.clone(),
            };
            Ok((part, Self::find(described, sources)?))
        });
        parts.collect()
    }

    pub(super) fn find(described: Described<'_>, sources: &SourceFiles) -> Result<Arc<Self>> {
        let Described { label, files, csv, missing, rows, mut columns, keys, texts } = described;
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
            keys: keys.iter().map(|name| (*name).to_owned()).collect(),
            texts: texts.into_iter().map(str::to_owned).collect(),
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

    /// Returns a table with all rows of the files that several tables share, whose columns are those of all of them.
    pub(crate) fn merged(tables: &[&Arc<Self>]) -> Option<Self> {
        let first = tables.first()?;
        let mut columns: Vec<String> = tables.iter().flat_map(|table| table.columns.clone()).collect();
        columns.sort_unstable();
        columns.dedup();
        let mut merged = Self {
            label: first.label.clone(),
            files: first.files.clone(),
            csv: first.csv.clone(),
            missing: first.missing.clone(),
            filter: None,
            columns,
            optional: Vec::new(),
            keys: first.keys.clone(),
            texts: first.texts.clone(),
            sources: first.sources.clone(),
            notes: Vec::new(),
        };
        merged.find_optional(&[]);
        Some(merged)
    }

    /// Finds the columns that some of several files do not have, and those that files and their paths have.
    fn find_optional(&mut self, keys: &[&str]) {
        let is_one = self.files.len() < 2;
        // The separators of the files are found by the keys and as many of the other columns as possible.
        if !is_one {
            let others = self.columns.iter().filter(|column| !keys.contains(&column.as_str()));
            self.optional = others.cloned().collect();
        }
        // The reading of a file that cannot be opened is an error.
        let names = self.files.iter().map(|file| match is_one && file.partition.is_empty() {
            true => None,
            false => self.names_of(file).ok().flatten(),
        });
        let names: Vec<Option<Vec<String>>> = names.collect();
        self.optional.clear();
        for column in &self.columns {
            let mut without = Vec::new();
            let mut twice = Vec::new();
            for (position, names) in names.iter().enumerate() {
                // The objects of JSON lines have what keys they like.
                let Some(names) = names else { continue };
                match (names.contains(column), self.files[position].has_in_path(column)) {
                    (true, true) => twice.push(position),
                    (false, false) => without.push(position),
                    _ => {}
                }
            }
            if let Some(first) = twice.first() {
                self.notes.push(format!(
                    "the column {column:?} is in {} of {} and in their path, such as {}: that of the files is read",
                    counted(twice.len() as u64, "file"),
                    names.len(),
                    files::shown(self.sources.folder(), &self.files[*first].path)
                ));
            }
            let Some(first) = without.first() else { continue };
            if without.len() == names.len() || keys.contains(&column.as_str()) {
                continue;
            }
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
    pub(super) fn names_of(&self, file: &TablePath) -> Result<Option<Vec<String>>> {
        Ok(match TableFormat::of(&file.path) {
            Some(TableFormat::Parquet) => Some(ParquetFile::names(&file.path, &self.sources)?),
            Some(TableFormat::Arrow) => Some(ArrowFile::names(&file.path, &self.sources)?),
            Some(TableFormat::JsonLines) => None,
            Some(TableFormat::Csv) | None => Some(CsvFile::names(self, file)?),
        })
    }
}
