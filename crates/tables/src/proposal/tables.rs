//! The tables of a proposal: files that belong together, their form and their columns.

use std::path::{Component, Path, PathBuf};

use kiln_store::counted;

use super::csv_form::detect;
use super::declared::DeclaredKeys;
use super::distinct::ENTRY_BYTES;
use super::names::{table_name, type_words};
use super::options::ProposalOptions;
use super::profile::{ColumnLimits, TableProfile};
use crate::spec::CsvSpec;
use crate::table::{AllColumns, ReadLimit, SourceFiles, Table, TableFormat, first_bytes};
use crate::{Error, Result, SpecError};

/// The memory of batches of rows, of pages and of buffers in bytes, as of an import.
const FIXED_BYTES: u64 = 16 << 20;

/// The smallest number of different values of a column that are kept.
const MIN_ENTRIES: u64 = 256;

/// The largest number of bytes of a column's values that are kept as texts.
const MAX_VALUE_BYTES: u64 = 1 << 14;

/// A table and what its rows are.
#[derive(Debug)]
pub(super) struct InputTable {
    /// The files as a spec has them.
    pub(super) files: Vec<PathBuf>,
    /// The number of files that were read, also those of folders and patterns.
    n_read: usize,
    pub(super) name: String,
    /// The words of the name of its node type.
    pub(super) words: Vec<String>,
    pub(super) csv: CsvSpec,
    pub(super) profile: TableProfile,
    /// The keys that its file declares; `None` if it declares none.
    pub(super) declared: Option<DeclaredKeys>,
    /// True if a comma is before the fraction of its numbers.
    pub(super) has_decimal_commas: bool,
    /// True if a spec must read the column of row names.
    pub(super) needs_row_names: bool,
    /// What of the files is not read, and how.
    pub(super) notes: Vec<String>,
}

/// A table whose rows were not read yet.
struct FoundTable {
    files: Vec<PathBuf>,
    csv: CsvSpec,
    columns: AllColumns,
    notes: Vec<String>,
}

impl InputTable {
    /// Returns the advice for a folder or a pattern that has several tables; empty for a file.
    pub(super) fn advice(&self) -> String {
        match self.n_read {
            n_files if n_files > self.files.len() => format!(
                " (a folder or a pattern is one table, here of {n_files} files: pass the files of several tables one by one)"
            ),
            _ => String::new(),
        }
    }

    /// Returns the position of a column.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.profile.columns.iter().position(|column| column.name == name)
    }

    /// Returns the table for messages: its first file.
    pub(super) fn label(&self) -> String {
        let first = self.files.first().map(|file| file.display().to_string()).unwrap_or_default();
        match self.files.len() {
            0 | 1 => first,
            n_files => format!("{first} and {}", counted(n_files as u64 - 1, "other file")),
        }
    }
}

/// Reads the tables of paths: files, folders and patterns. Files whose paths differ in digits only and that have the same columns are
/// one table.
pub(super) fn read_tables(paths: &[PathBuf], options: &ProposalOptions) -> Result<Vec<InputTable>> {
    let folder = options.spec.parent().unwrap_or(Path::new(""));
    let sources = SourceFiles::new(folder, ReadLimit::new(options.memory_bytes));
    let mut found: Vec<FoundTable> = Vec::new();
    for (position, path) in paths.iter().enumerate() {
        if paths[..position].contains(path) {
            return Err(Error::Spec(SpecError::Files {
                table: "the tables".to_owned(),
                entry: path.display().to_string(),
                what: "is named twice: remove one of them".to_owned(),
            }));
        }
        let table = find_table(vec![entry_of(path, folder)?], &sources)?;
        let earlier = found.iter_mut().find(|earlier| are_parts(earlier, &table));
        match earlier {
            Some(earlier) => earlier.files.extend(table.files),
            None => found.push(table),
        }
    }
    for table in found.iter_mut().filter(|table| table.files.len() > 1) {
        let files = std::mem::take(&mut table.files);
        *table = find_table(files, &sources)?;
    }
    let limits = limits_of(&found, options.memory_bytes)?;
    let tables = found.into_iter().map(|table| read_table(table, limits)).collect::<Result<_>>()?;
    sources.check()?;
    Ok(tables)
}

/// Returns a path as an entry of a spec in a folder: relative to the folder, or as it is.
pub(super) fn entry_of(path: &Path, folder: &Path) -> Result<PathBuf> {
    let is_current = folder.as_os_str().is_empty() || folder == Path::new(".");
    let entry = match path.is_relative() && !is_current {
        false => path.strip_prefix(folder).map_or_else(|_| path.to_owned(), Path::to_owned),
        true => match (path.strip_prefix(folder), steps_up(folder)) {
            (Ok(below), _) => below.to_owned(),
            (Err(_), Some(steps)) => steps.join(path),
            (Err(_), None) => std::path::absolute(path).map_err(crate::error::io_error(path))?,
        },
    };
    if entry.to_str().is_none() {
        return Err(Error::Spec(SpecError::Files {
            table: "a table".to_owned(),
            entry: entry.display().to_string(),
            what: "is no UTF-8, expected a path that a spec can name".to_owned(),
        }));
    }
    Ok(if entry.as_os_str().is_empty() { PathBuf::from(".") } else { entry })
}

/// Returns the path from a relative folder to the current one; `None` for another folder, and for one with links, whose parent is
/// another folder.
fn steps_up(folder: &Path) -> Option<PathBuf> {
    let is_below = folder.components().all(|part| matches!(part, Component::Normal(_)));
    (is_below && !folder.ancestors().any(Path::is_symlink))
        .then(|| folder.components().map(|_| "..").collect())
}

fn find_table(files: Vec<PathBuf>, sources: &SourceFiles) -> Result<FoundTable> {
    let mut csv = CsvSpec::default();
    let mut notes = Vec::new();
    let label =
        format!("table `{}`", files.first().map(|file| file.display().to_string()).unwrap_or_default());
    if let Some(path) = AllColumns::first_csv(&label, &files, sources)? {
        let (bytes, is_whole) = first_bytes(&path, sources)?;
        (csv, notes) = detect(&bytes, is_whole, path.to_string_lossy().contains(".tsv"));
    }
    let columns = AllColumns::find(&label, &files, &csv, sources)?;
    let prefix = format!("{label}: ");
    notes.extend(columns.source.notes.iter().map(|note| note.trim_start_matches(&prefix).to_owned()));
    Ok(FoundTable { files, csv, columns, notes })
}

/// Returns true if two files are parts of one table, such as `part-0.parquet` and `part-1.parquet`.
fn are_parts(one: &FoundTable, other: &FoundTable) -> bool {
    let without_digits = |table: &FoundTable| -> Option<String> {
        let text = table.files.first()?.to_str()?;
        Some(text.chars().filter(|c| !c.is_ascii_digit()).collect())
    };
    without_digits(one) == without_digits(other)
        && one.files != other.files
        && one.columns.names == other.columns.names
        && one.csv == other.csv
}

/// Returns the memory of each column. The values of all columns take at most half of the memory.
fn limits_of(tables: &[FoundTable], memory_bytes: u64) -> Result<ColumnLimits> {
    let n_columns: usize = tables.iter().map(|table| table.columns.names.len()).sum();
    let n_columns = n_columns.max(1) as u64;
    let mut reading_bytes = 0;
    for table in tables {
        reading_bytes = reading_bytes.max(table.columns.table().reading_bytes()?);
    }
    let needed_bytes = FIXED_BYTES + reading_bytes + 2 * n_columns * MIN_ENTRIES * ENTRY_BYTES;
    if memory_bytes < needed_bytes {
        let what = format!("the different values of {}", counted(n_columns, "column"));
        return Err(Error::Memory { what, needed_bytes, budget_bytes: memory_bytes });
    }
    let column_bytes = (memory_bytes - FIXED_BYTES - reading_bytes) / 2 / n_columns;
    let max_bytes = (column_bytes / 4).min(MAX_VALUE_BYTES) as usize;
    Ok(ColumnLimits { max_entries: (column_bytes / ENTRY_BYTES) as usize, max_bytes })
}

fn read_table(found: FoundTable, limits: ColumnLimits) -> Result<InputTable> {
    let FoundTable { files, mut csv, columns, mut notes } = found;
    let table: Table = columns.table();
    let mut profile = TableProfile::read(&table, limits)?;
    let declared = DeclaredKeys::read(&columns)?;
    // Each file must have the columns of keys.
    for column in profile.columns.iter_mut().filter(|column| columns.is_optional(&column.name)) {
        column.is_key = false;
    }
    let has_decimal_commas = profile.has_decimal_commas()
        && columns.source.files.iter().all(|file| TableFormat::of(&file.path) == Some(TableFormat::Csv));
    if has_decimal_commas {
        csv.decimal = Some(',');
    }
    if files.len() > 1 {
        notes.push("files whose names differ in digits only are one table".to_owned());
    }
    let unread = columns.unread.iter().map(|(column, why)| format!("the column {column:?} {why}"));
    notes.extend(unread);
    let n_read = columns.source.files.len();
    if n_read > files.len() && columns.names.iter().any(|column| columns.is_optional(column)) {
        notes.push(format!(
            "one table of {n_read} files: pass the files of several tables one by one instead of their folder or pattern"
        ));
    }
    let name = files.first().map(|file| table_name(file)).unwrap_or_default();
    let words = type_words(&name);
    let needs_row_names = columns.needs_row_names;
    Ok(InputTable {
        files,
        n_read,
        name,
        words,
        csv,
        profile,
        declared,
        has_decimal_commas,
        needs_row_names,
        notes,
    })
}
