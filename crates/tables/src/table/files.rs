//! The files that an entry of `files` in a spec names: a file, the files of a folder, or those of a pattern.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};

use kiln_graph::did_you_mean;
use kiln_store::counted;
use kiln_store::paths::similar_path;

use super::format::TableFormat;
use super::walk::{FilePattern, MAX_FILES, Matches, is_folder, is_pattern, plain};
use crate::{Error, Result, SpecError};

/// The name that Hive writes for a missing value of a partition.
const HIVE_MISSING: &str = "__HIVE_DEFAULT_PARTITION__";

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TablePath {
    pub(crate) path: PathBuf,
    /// The columns whose value is the same in all rows, from folders such as `year=2024` in its path.
    pub(super) partition: Vec<(String, String)>,
}

impl TablePath {
    /// Returns the names of the columns that are in the path of the file, each once.
    pub(super) fn columns_of_path(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for (name, _) in &self.partition {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns true if a column is in the path of the file.
    pub(super) fn has_in_path(&self, column: &str) -> bool {
        self.partition.iter().any(|(name, _)| name == column)
    }
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
    // The files by their paths without links: the entry, the path by which it was found, and true for a file that is an entry itself.
    let mut known: BTreeMap<PathBuf, (usize, PathBuf, bool)> = BTreeMap::new();
    for (number, entry) in entries.iter().enumerate() {
        let no_files = |what: &str| {
            let entry = entry.display().to_string();
            Error::Spec(SpecError::Files { table: table.to_owned(), entry, what: what.to_owned() })
        };
        let path = plain(&folder.join(entry));
        let mut matched = Matches::default();
        let is_alone = if is_folder(&path) {
            matched.add_folder(&path)?;
            false
        } else if is_pattern(&entry.to_string_lossy()) && !path.exists() {
            let text = entry.to_str().ok_or_else(|| no_files("is a pattern that is not UTF-8"))?;
            let pattern = FilePattern::parse(text).map_err(|error| {
                no_files(&format!("is no pattern: {} at character {}", error.msg, error.pos + 1))
            })?;
            matched.add_pattern(folder, &pattern)?;
            false
        } else {
            matched.tables.insert(path.clone());
            true
        };
        let Matches { tables: matched, others, .. } = matched;
        if is_alone && TableFormat::of(entry).is_none() {
            if !path.exists() {
                let similar = similar_path(&path).map(|similar| shown(folder, &similar));
                let similar = did_you_mean(similar.as_deref());
                return Err(no_files(&format!(
                    "does not exist, expected a file, a folder or a pattern{similar}"
                )));
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
        for path in matched {
            let of = shown(folder, &path);
            // A file that cannot be found is an error when it is read.
            let key = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            let earlier = known.insert(key, (number, path.clone(), is_alone));
            // A file may stand in the list twice, but an overlap of patterns is a slip.
            match earlier.filter(|(_, _, was_alone)| !(is_alone && *was_alone)) {
                Some((of_entry, earlier, _)) if of_entry == number => {
                    let earlier = shown(folder, &earlier);
                    let what = format!("matches {earlier} and {of}, which are one file: name one of them");
                    return Err(no_files(&what));
                }
                Some(_) => {
                    let what = format!("matches {of}, which another entry has: remove one of them");
                    return Err(no_files(&what));
                }
                None => {}
            }
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
