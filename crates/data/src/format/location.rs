use std::path::{Path, PathBuf};

/// The manifest's file name.
pub(crate) const FILE_NAME: &str = "kiln.json";

/// Returns the path of the manifest of a folder.
pub(crate) fn path_in(folder: &Path) -> PathBuf {
    folder.join(FILE_NAME)
}
