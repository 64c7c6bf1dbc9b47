//! The files in a folder and those that a pattern matches, each once.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use glob::{Pattern, PatternError};

use super::format::TableFormat;
use crate::Result;
use crate::error::io_error;

/// The maximum number of files of a table.
pub(super) const MAX_FILES: usize = 1 << 16;

/// The maximum depth of folders below that of an entry.
const MAX_DEPTH: usize = 32;

/// The files that an entry of a spec matches, ascending.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The tables, by their names.
    pub(super) tables: BTreeSet<PathBuf>,
    /// Files with other names.
    pub(super) others: BTreeSet<PathBuf>,
    /// The folders whose files were added.
    folders: BTreeSet<PathBuf>,
}

/// A component of a pattern.
#[derive(Debug)]
enum Step {
    /// A name, `..` or a root.
    Name(OsString),
    /// The names that a pattern matches, also those that begin with `.` or `_` if the pattern does.
    Names { pattern: Pattern, takes_hidden: bool },
    /// `**`: any number of folders.
    Folders,
}

/// The components of a pattern below a folder.
#[derive(Debug)]
pub(super) struct FilePattern {
    steps: Vec<Step>,
    /// True for a pattern that ends with a slash, which matches folders only.
    is_folder: bool,
}

/// The places where the matching of a pattern has been: a folder, and the number of components before it.
type Visited = BTreeSet<(PathBuf, usize)>;

impl FilePattern {
    /// Parses a pattern.
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        Pattern::new(text)?;
        let steps = Path::new(text).components().filter(|component| *component != Component::CurDir);
        let steps = steps.map(|component| match (component, component.as_os_str().to_str()) {
            (Component::Normal(_), Some("**")) => Ok(Step::Folders),
            (Component::Normal(name), Some(text)) if is_pattern(text) => {
                Ok(Step::Names { pattern: Pattern::new(text)?, takes_hidden: is_hidden(name) })
            }
            (other, _) => Ok(Step::Name(other.as_os_str().to_owned())),
        });
        Ok(Self { steps: steps.collect::<Result<_, _>>()?, is_folder: text.ends_with('/') })
    }
}

impl Matches {
    /// Adds the tables that a pattern matches below a folder, and those in the folders that it matches. Names that begin with `.` or
    /// `_` are matched by such patterns only.
    pub(super) fn add_pattern(&mut self, folder: &Path, pattern: &FilePattern) -> Result<()> {
        self.add_steps(folder, pattern, 0, MAX_DEPTH, &mut Visited::new())
    }

    fn add_steps(
        &mut self,
        path: &Path,
        pattern: &FilePattern,
        n_done: usize,
        depth: usize,
        visited: &mut Visited,
    ) -> Result<()> {
        let Some(step) = pattern.steps.get(n_done) else {
            return match path.is_dir() {
                true => self.add_folder(path),
                false if pattern.is_folder || !path.exists() => Ok(()),
                false => self.add_file(path.to_owned()),
            };
        };
        if let Step::Name(name) = step {
            return self.add_steps(&path.join(name), pattern, n_done + 1, depth, visited);
        }
        if !is_folder(path) || !visited.insert((path.to_owned(), n_done)) {
            return Ok(());
        }
        check_depth(path, depth)?;
        if let Step::Folders = step {
            self.add_steps(path, pattern, n_done + 1, depth, visited)?;
        }
        for name in names_in(path)? {
            match step {
                Step::Names { pattern: names, takes_hidden } => {
                    // A name that is not UTF-8 is matched by its readable parts.
                    if names.matches(&name.to_string_lossy()) && (*takes_hidden || !is_hidden(&name)) {
                        self.add_steps(&path.join(name), pattern, n_done + 1, depth, visited)?;
                    }
                }
                _ if is_hidden(&name) => {}
                _ => self.add_steps(&path.join(name), pattern, n_done, depth - 1, visited)?,
            }
        }
        Ok(())
    }

    /// Adds the tables in a folder and in those below it. Names that begin with `.` or `_` are left out.
    pub(super) fn add_folder(&mut self, folder: &Path) -> Result<()> {
        self.add_below(folder, MAX_DEPTH)
    }

    fn add_below(&mut self, folder: &Path, depth: usize) -> Result<()> {
        check_depth(folder, depth)?;
        if !self.folders.insert(folder.to_owned()) {
            return Ok(());
        }
        for name in names_in(folder)?.into_iter().filter(|name| !is_hidden(name)) {
            let path = folder.join(name);
            // Links are followed.
            if path.is_dir() {
                self.add_below(&path, depth - 1)?;
            } else {
                self.add_file(path)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: PathBuf) -> Result<()> {
        if self.tables.len() + self.others.len() == MAX_FILES {
            return Err(io_error(&path)(std::io::Error::other(format!("more than {MAX_FILES} files"))));
        }
        match TableFormat::of(&path) {
            Some(_) => self.tables.insert(path),
            None => self.others.insert(path),
        };
        Ok(())
    }
}

/// Returns a path without `.` as a component, which may be empty.
pub(super) fn plain(path: &Path) -> PathBuf {
    path.components().filter(|component| *component != Component::CurDir).collect()
}

/// Returns true for a folder. The empty path is the current folder.
pub(super) fn is_folder(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.is_dir()
}

/// Returns true if a text has a character of patterns.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Returns true for the names of files that belong to a table without being one, such as `_SUCCESS` and `.part-0.csv.crc`.
fn is_hidden(name: &OsStr) -> bool {
    name.to_string_lossy().starts_with(['.', '_'])
}

fn check_depth(folder: &Path, depth: usize) -> Result<()> {
    if depth == 0 {
        let deep = format!("more than {MAX_DEPTH} folders within each other");
        return Err(io_error(folder)(std::io::Error::other(deep)));
    }
    Ok(())
}

/// Returns the names in a folder.
fn names_in(folder: &Path) -> Result<Vec<OsString>> {
    let read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(read).map_err(io_error(folder))?;
    entries.map(|entry| Ok(entry.map_err(io_error(folder))?.file_name())).collect()
}
