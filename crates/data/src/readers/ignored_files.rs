//! Notes about files that are not read.

use std::path::Path;

use kiln_store::paths::find;

use crate::Note;

/// Adds a note for each of these files that the folder contains. The note states that `taken` is read instead.
pub(crate) fn note_others(folder: &Path, taken: &Path, names: &[&str], notes: &mut Vec<Note>) {
    for aside in names.iter().filter_map(|name| find(folder, &[name])) {
        let (aside, taken) = (aside.display(), taken.display());
        notes.push(Note::Other(format!("{aside} is ignored: {taken} is read instead")));
    }
}
