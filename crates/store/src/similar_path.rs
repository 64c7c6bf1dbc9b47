use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use kiln_graph::{did_you_mean, similar_name};

/// The maximum number of entries of a folder among which [`similar_path`] searches.
const MAX_ENTRIES: usize = 10_000;

/// Returns true if the path exists, even if it is a dangling symlink or cannot be opened. Opening such a path then
/// returns an error, whereas treating it as absent would silently ignore a part of the data set.
pub fn is_there(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => true,
        // The error `NotADirectory` means that a parent of the path is a file, so the path does not exist.
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// Returns an existing path with a similar name, for the message about a path that does not exist; `None` if there is none. The
/// first name of the path that does not exist is compared with those beside it.
///
/// ```
/// use kiln_store::paths::similar_path;
/// let root = tempfile::tempdir()?;
/// std::fs::create_dir_all(root.path().join("data/papers"))?;
/// let similar = similar_path(&root.path().join("daat/papers"));
/// assert_eq!(similar, Some(root.path().join("data/papers")));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn similar_path(path: &Path) -> Option<PathBuf> {
    // The last ancestor of a relative path is empty.
    let missing = path.ancestors().filter(|part| !part.as_os_str().is_empty() && !is_there(part)).last()?;
    let parent = missing.parent()?;
    let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let entries = fs::read_dir(folder).ok()?.flatten().take(MAX_ENTRIES);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    let name = similar_name(missing.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    let similar = parent.join(name);
    let rest = path.strip_prefix(missing).ok()?;
    let whole = if rest.as_os_str().is_empty() { similar.clone() } else { similar.join(rest) };
    Some(if is_there(&whole) { whole } else { similar })
}

/// Returns an error of the system as text; for a path that does not exist, with a similar one that does.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use kiln_store::paths::io_reason;
/// let root = tempfile::tempdir()?;
/// std::fs::write(root.path().join("users.csv"), "")?;
/// let reason = io_reason(&root.path().join("user.csv"), &ErrorKind::NotFound.into());
/// assert!(reason.contains("did you mean") && reason.contains("users.csv"));
/// # Ok::<(), Error>(())
/// ```
pub fn io_reason(path: &Path, error: &io::Error) -> String {
    let is_missing = error.kind() == ErrorKind::NotFound;
    let similar = if is_missing { similar_path(path) } else { None };
    let similar = similar.map(|similar| similar.display().to_string());
    format!("{error}{}", did_you_mean(similar.as_deref()))
}
