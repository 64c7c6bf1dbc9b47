use std::fs;
use std::path::{Path, PathBuf};

use kiln_graph::did_you_mean;
use kiln_store::paths::similar_path;

use crate::error::{Error, Result, RunError};

/// The files of which a run has at least one after its first checkpoint.
const MARKS: [&str; 3] = ["metrics.jsonl", "last/checkpoint.safetensors", "last/previous.safetensors"];

/// The maximum number of folders between a folder and the runs in it, so that folders of experiments may have folders of runs.
const MAX_DEPTH: usize = 4;

/// The maximum number of runs that a message names.
const MAX_NAMED: usize = 5;

/// Returns true if the folder is that of a run that has written its first checkpoint.
pub(crate) fn is_run(folder: &Path) -> bool {
    MARKS.iter().any(|name| folder.join(name).is_file())
}

/// Returns the folders of runs: the folder itself if it is a run, or else those in it and in its subfolders, four levels deep,
/// in the order of their names. Links to folders within it are not followed.
///
/// ```
/// let root = tempfile::tempdir()?;
/// let run = root.path().join("seeds/train-001");
/// std::fs::create_dir_all(&run)?;
/// std::fs::write(run.join("metrics.jsonl"), "")?;
/// assert_eq!(kiln_train::find_runs(root.path())?, [run]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns [`RunError::Io`] if the folder cannot be read. Subfolders that cannot be read are left out.
pub fn find_runs(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let mut found = Vec::new();
    if is_run(folder) {
        found.push(folder.to_owned());
        return Ok(found);
    }
    let names =
        subfolders(folder).map_err(|source| Error::Run(RunError::Io { path: folder.to_owned(), source }))?;
    for name in names {
        collect(name, MAX_DEPTH, &mut found);
    }
    Ok(found)
}

fn collect(folder: PathBuf, depth: usize, found: &mut Vec<PathBuf>) {
    if is_run(&folder) {
        return found.push(folder);
    }
    if let (true, Ok(names)) = (1 < depth, subfolders(&folder)) {
        for name in names {
            collect(name, depth - 1, found);
        }
    }
}

/// Returns the folders in a folder, by name.
fn subfolders(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !is_hidden && entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}

/// Returns the end of the message about a folder that is no run: it names the runs in the folder, or else a similar folder or the
/// runs beside it.
pub(crate) fn suggest_runs(folder: &Path) -> String {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let inside = find_runs(folder).unwrap_or_default();
    let (place, runs) = match inside.is_empty() {
        false => ("in it", inside),
        true => {
            let similar =
                similar_path(folder).filter(|_| !folder.exists()).map(|path| path.display().to_string());
            if similar.is_some() {
                return did_you_mean(similar.as_deref());
            }
            ("beside it", parent.map(find_runs).and_then(Result::ok).unwrap_or_default())
        }
    };
    if runs.is_empty() {
        return String::new();
    }
    let named =
        runs.iter().take(MAX_NAMED).map(|run| run.display().to_string()).collect::<Vec<_>>().join(", ");
    let more = if MAX_NAMED < runs.len() { ", ..." } else { "" };
    format!(" (runs {place}: {named}{more})")
}
