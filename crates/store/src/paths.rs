//! Functions that find the files of a folder.

use std::path::{Path, PathBuf};

pub use crate::similar_path::{io_reason, is_there, similar_path};
use crate::{Error, Result, io_error};

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
