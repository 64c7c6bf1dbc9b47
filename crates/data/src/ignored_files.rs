//! Notes about files and keys that are not read.

use std::path::Path;

use kiln_store::io_error;
use kiln_store::paths::find;

use crate::{Note, Result};

/// The ends of the names of files with arrays and tables.
const OF_DATA: [&str; 4] = [".npy", ".npz", ".csv", ".csv.gz"];

/// The maximum number of names in a note.
const MOST_LISTED: usize = 10;

/// Adds a note for each of these files that the folder contains. The note states that `taken` is read instead.
pub(crate) fn note_others(folder: &Path, taken: &Path, names: &[&str], notes: &mut Vec<Note>) {
    for aside in names.iter().filter_map(|name| find(folder, &[name])) {
        let (aside, taken) = (aside.display(), taken.display());
        notes.push(Note::Other(format!("{aside} is ignored: {taken} is read instead")));
    }
}

/// Returns true for the name of a file with an array or a table.
pub(crate) fn is_data(name: &str) -> bool {
    OF_DATA.iter().any(|end| name.ends_with(end))
}

/// Adds a note with the entries of a folder that `is_unread` selects by their names.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if the folder cannot be read.
pub(crate) fn note_unread_files(
    folder: &Path,
    is_unread: impl Fn(&str) -> bool,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(io_error(folder))? {
        let name = entry.map_err(io_error(folder))?.file_name();
        names.extend(name.to_str().filter(|name| is_unread(name)).map(str::to_owned));
    }
    names.sort_unstable();
    note_unread(&format!("files of {}", folder.display()), &names, notes);
    Ok(())
}

/// Adds a note that lists names that no reader knows. `what` is the noun phrase for them.
pub(crate) fn note_unread(what: &str, names: &[String], notes: &mut Vec<Note>) {
    let listed: Vec<&str> = names.iter().take(MOST_LISTED).map(String::as_str).collect();
    let rest = match names.len() - listed.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    if !names.is_empty() {
        let listed = listed.join(", ");
        notes.push(Note::Other(format!("these {what} are not read: {listed}{rest} (docs/formats.md)")));
    }
}
