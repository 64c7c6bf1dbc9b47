//! The files that an entry of `files` in a spec names: a file, the files of a folder, or those of a pattern.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern, glob_with};
use kiln_store::counted;

use super::format::TableFormat;
use crate::error::io_error;
use crate::{Error, Result, SpecError};

/// The maximum number of files of a table.
const MAX_FILES: usize = 1 << 16;

/// The maximum depth of folders below that of an entry.
const MAX_DEPTH: usize = 32;

/// The name that Hive writes for a missing value of a partition.
const HIVE_MISSING: &str = "__HIVE_DEFAULT_PARTITION__";

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TablePath {
    pub(crate) path: PathBuf,
    /// The columns whose value is the same in all rows, from folders such as `year=2024` in its path.
    pub(super) partition: Vec<(String, String)>,
}

/// The files of a table, in the order of the entries, and by their paths within an entry.
#[derive(Debug, Default)]
pub(super) struct FoundFiles {
    pub(super) files: Vec<TablePath>,
    /// What is not read.
    pub(super) notes: Vec<String>,
}

/// Returns true if an entry may name several files: a pattern or a folder, whose name has no dot or a slash at its end.
pub(crate) fn may_be_several(entry: &Path) -> bool {
    let text = entry.to_string_lossy();
    let name = entry.file_name().map_or_else(|| ".".into(), OsStr::to_string_lossy);
    is_pattern(&text) || text.ends_with('/') || !name.contains('.') || name.chars().all(|c| c == '.')
}

/// Finds the files of entries relative to a folder.
pub(super) fn find(table: &str, folder: &Path, entries: &[PathBuf]) -> Result<FoundFiles> {
    let mut found = FoundFiles::default();
    // True for a file that is an entry itself.
    let mut known: BTreeMap<PathBuf, bool> = BTreeMap::new();
    for entry in entries {
        let no_files = |what: &str| {
            let entry = entry.display().to_string();
            Error::Spec(SpecError::Files { table: table.to_owned(), entry, what: what.to_owned() })
        };
        let path = folder.join(entry);
        let text = entry.to_string_lossy();
        let mut others = Vec::new();
        let mut matched = Vec::new();
        let is_alone = if path.is_dir() {
            add_folder(&path, MAX_DEPTH, &mut matched, &mut others)?;
            false
        } else if is_pattern(&text) && !path.exists() {
            add_matches(folder, &path, entry, &mut matched, &mut others, &no_files)?;
            false
        } else {
            matched.push(path);
            true
        };
        if is_alone && TableFormat::of(entry).is_none() {
            if !matched[0].exists() {
                return Err(no_files("does not exist, expected a file, a folder or a pattern"));
            }
            return Err(no_files(&format!("is no table by its name, expected {}", TableFormat::EXPECTED)));
        }
        if matched.is_empty() {
            let expected = TableFormat::EXPECTED;
            return Err(no_files(&format!("matches no table, expected at least one file with {expected}")));
        }
        if MAX_FILES < found.files.len() + matched.len() {
            return Err(no_files(&format!("matches too many files, expected at most {MAX_FILES}")));
        }
        matched.sort();
        others.sort();
        for path in matched {
            // A file may stand in the list twice, but an overlap of patterns is a slip.
            if known.get(&path).is_some_and(|was_alone| !(is_alone && *was_alone)) {
                let of = shown(folder, &path);
                return Err(no_files(&format!("matches {of}, which another entry has: remove one of them")));
            }
            known.insert(path.clone(), is_alone);
            let relative = path.strip_prefix(folder).unwrap_or(&path);
            let partition = partition_of(relative);
            found.files.push(TablePath { path, partition });
        }
        if let Some(first) = others.first() {
            let n_files = counted(others.len() as u64, "file");
            let first = shown(folder, first);
            found.notes.push(format!(
                "`{}`: {n_files} with other names than those of tables, such as {first}, not read",
                entry.display()
            ));
        }
    }
    Ok(found)
}

/// Returns a path relative to a folder, for messages.
pub(super) fn shown(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns true for the names of files that belong to a table without being one, such as `_SUCCESS` and `.part-0.csv.crc`.
fn is_hidden(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(['.', '_'])
}

/// Adds the tables in a folder and in those below it.
fn add_folder(
    folder: &Path,
    depth: usize,
    tables: &mut Vec<PathBuf>,
    others: &mut Vec<PathBuf>,
) -> Result<()> {
    if depth == 0 {
        let deep = format!("more than {MAX_DEPTH} folders within each other");
        return Err(io_error(folder)(std::io::Error::other(deep)));
    }
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let entry = entry.map_err(io_error(folder))?;
        let path = entry.path();
        if is_hidden(&entry.file_name()) {
            continue;
        }
        // Links are followed.
        if path.is_dir() {
            add_folder(&path, depth - 1, tables, others)?;
        } else if TableFormat::of(&path).is_some() {
            tables.push(path);
        } else {
            others.push(path);
        }
        if MAX_FILES < tables.len() + others.len() {
            return Err(io_error(folder)(std::io::Error::other(format!("more than {MAX_FILES} files"))));
        }
    }
    Ok(())
}

/// Adds the tables that a pattern matches, and those in the folders that it matches.
fn add_matches(
    folder: &Path,
    path: &Path,
    entry: &Path,
    tables: &mut Vec<PathBuf>,
    others: &mut Vec<PathBuf>,
    no_files: &dyn Fn(&str) -> Error,
) -> Result<()> {
    let (Some(folder), Some(text)) = (folder.to_str(), entry.to_str()) else {
        return Err(no_files("is a pattern below a folder whose name is not UTF-8"));
    };
    let pattern = match entry.is_absolute() {
        true => text.to_owned(),
        false => PathBuf::from(Pattern::escape(folder)).join(text).to_string_lossy().into_owned(),
    };
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::default() };
    let matches = glob_with(&pattern, options)
        .map_err(|error| no_files(&format!("is no pattern: {} at character {}", error.msg, error.pos + 1)))?;
    let takes_hidden = entry.file_name().is_some_and(is_hidden);
    for found in matches {
        let found = found.map_err(|error| io_error(path)(error.into()))?;
        if found.file_name().is_some_and(is_hidden) && !takes_hidden {
            continue;
        }
        if found.is_dir() {
            add_folder(&found, MAX_DEPTH, tables, others)?;
        } else if TableFormat::of(&found).is_some() {
            tables.push(found);
        } else {
            others.push(found);
        }
    }
    // `**` matches a folder and the files in it.
    tables.sort();
    tables.dedup();
    others.sort();
    others.dedup();
    Ok(())
}

/// Returns the columns of the folders `NAME=VALUE` of a path.
fn partition_of(path: &Path) -> Vec<(String, String)> {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let names = folders.filter_map(|component| match component {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let columns = names.filter_map(|name| name.split_once('=')).filter(|(name, _)| !name.is_empty());
    columns
        .map(|(name, value)| {
            let value = if value == HIVE_MISSING { String::new() } else { decoded(value) };
            (decoded(name), value)
        })
        .collect()
}

/// Returns a name without the escapes `%XX` of Hive; a text that has other ones stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let escaped = others.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.filter(|digits| first == b'%' && digits.bytes().all(|c| c.is_ascii_hexdigit()));
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_hive_are_columns() {
        let column = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        for (path, expected) in [
            ("year=2024/month=01/part-0.parquet", vec![column("year", "2024"), column("month", "01")]),
            ("a/b=c=d/x.csv", vec![column("b", "c=d")]),
            ("at=2024-01-31 12%3A30/x.csv", vec![column("at", "2024-01-31 12:30")]),
            ("k=__HIVE_DEFAULT_PARTITION__/x.csv", vec![column("k", "")]),
            ("k=100%/x.csv", vec![column("k", "100%")]),
            ("=a/x=y.csv", Vec::new()),
        ] {
            assert_eq!(partition_of(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn folders_and_patterns_may_be_several_files() {
        for (entry, expected) in [
            ("data", true),
            ("data/", true),
            ("data.v2/", true),
            ("data.v2", false),
            ("data/*.csv", true),
            ("year=2024", true),
            (".", true),
            ("..", true),
            ("users.xls", false),
            ("part-[0-9].x", true),
        ] {
            assert_eq!(may_be_several(Path::new(entry)), expected, "{entry}");
        }
    }
}
