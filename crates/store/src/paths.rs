//! Finding the files of a folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Returns whether there is anything of this name, also what cannot be reached, such as a link to nowhere: opening it
/// then tells why. To take it for absent would be to leave out a part of the set in silence.
pub fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        // Below a file there is nothing.
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Returns the first of these files that the folder has.
pub fn find(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| is_there(path))
}

/// The first of these files that the folder has; an error where it has none.
///
/// # Errors
/// [`Error::Missing`] with the names and `what` the file is for.
pub fn required(folder: &Path, names: &[&str], what: &str) -> Result<PathBuf> {
    find(folder, names).ok_or_else(|| Error::Missing {
        folder: folder.to_owned(),
        expected: format!("{} ({what})", names.join(" or ")),
    })
}
