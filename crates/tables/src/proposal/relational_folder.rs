//! A folder in RelBench's layout: `db/` with a file for each table, and `tasks/NAME/` with the files `train`, `val` and `test` of
//! each task.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::io_error;
use crate::table::TableFormat;
use crate::{Error, Result, SpecError};

/// The names of the files of a task, without their extensions.
const PARTS: [&str; 3] = ["train", "val", "test"];

/// The tables and the tasks of a folder.
#[derive(Debug)]
pub(super) struct RelationalFolder {
    /// The files of the tables, by name.
    pub(super) tables: Vec<PathBuf>,
    /// The tasks, by name.
    pub(super) tasks: Vec<TaskFolder>,
}

/// The files of a task.
#[derive(Debug)]
pub(super) struct TaskFolder {
    pub(super) name: String,
    /// The file of each part.
    pub(super) files: [Option<PathBuf>; 3],
}

impl RelationalFolder {
    /// Finds the tables and tasks of the only one of some paths, if it is a folder with a folder `db`; `None` for other paths.
    ///
    /// # Errors
    /// Returns [`SpecError::Files`] if the folder `db` has no table or a task has no file `train`, and the errors of reading folders.
    pub(super) fn find(paths: &[PathBuf]) -> Result<Option<Self>> {
        let [folder] = paths else { return Ok(None) };
        let db = folder.join("db");
        if !db.is_dir() {
            return Ok(None);
        }
        let tables: Vec<PathBuf> = entries_of(&db)?;
        let tables: Vec<PathBuf> =
            tables.into_iter().filter(|path| TableFormat::of(path).is_some()).collect();
        if tables.is_empty() {
            return Err(no_files(
                "the tables",
                &db,
                "has no table, expected files such as customers.parquet",
            ));
        }
        let tasks = folder.join("tasks");
        let mut found = Vec::new();
        if tasks.is_dir() {
            for path in entries_of(&tasks)?.into_iter().filter(|path| path.is_dir()) {
                found.push(TaskFolder::find(&path)?);
            }
        }
        Ok(Some(Self { tables, tasks: found }))
    }
}

impl TaskFolder {
    fn find(folder: &Path) -> Result<Self> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entries = entries_of(folder)?;
        let files = PARTS.map(|part| {
            let mut files = entries.iter().filter(|path| TableFormat::of(path).is_some());
            files.find(|path| is_named(path, part)).cloned()
        });
        if files[0].is_none() {
            return Err(no_files(
                "a task",
                folder,
                "has no table `train`, expected train.parquet beside val and test",
            ));
        }
        Ok(Self { name, files })
    }
}

/// Returns true for a file such as `train.parquet` or `train.csv.gz`.
fn is_named(path: &Path, part: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split_once('.').is_some_and(|(stem, _)| stem == part)
}

/// Returns the entries of a folder that are not hidden, by name.
fn entries_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let entry = entry.map_err(io_error(folder))?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn no_files(table: &str, folder: &Path, what: &str) -> Error {
    Error::Spec(SpecError::Files {
        table: table.to_owned(),
        entry: folder.display().to_string(),
        what: what.to_owned(),
    })
}
