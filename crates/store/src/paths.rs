//! Functions that find the files of a folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, Result, io_error};

/// Returns true if the path exists, even if it is a dangling symlink or cannot be opened. Opening such a path then
/// returns an error, whereas treating it as absent would silently ignore a part of the data set.
pub fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        // The error `NotADirectory` means that a parent of the path is a file, so the path does not exist.
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Returns the absolute path of a folder that may not exist: of the folder that a link leads to. Relative paths such as `.` have no
/// parent or no name.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    path.canonicalize().or_else(|_| std::path::absolute(path)).map_err(io_error(path))
}

/// Returns the path of the first of these files that exists in the folder.
pub fn find(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| is_there(path))
}

/// Returns the path of the first of these files that exists in the folder. `what` is the purpose of the file, for the
/// error message.
///
/// # Errors
/// Returns [`Error::Missing`] with the names and the purpose if the folder has none of them.
pub fn required(folder: &Path, names: &[&str], what: &str) -> Result<PathBuf> {
    find(folder, names).ok_or_else(|| Error::Missing {
        folder: folder.to_owned(),
        expected: format!("{} ({what})", names.join(" or ")),
    })
}
