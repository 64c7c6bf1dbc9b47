//! The folder of a command's result.

use std::path::Path;

use kiln::store::array_folder::check_new;
use kiln::store::unfinished::remove_abandoned;

use crate::output::{is_quiet, log, print_note_lines};

/// Prepares for writing a folder: before the work starts, an error if it cannot be written; removes what killed processes left
/// beside it, with a note; and lets a signal that ends this process remove what it has written until then.
pub(crate) fn prepare(out: &Path) -> anyhow::Result<()> {
    kiln::clean_up_on_signals()?;
    remove_left(out)?;
    Ok(check_new(out)?)
}

/// Removes what killed processes left beside a folder, with a note.
pub(crate) fn remove_left(out: &Path) -> anyhow::Result<()> {
    let abandoned = remove_abandoned(out)?;
    match is_quiet() {
        // What another rank removes, rank 0 does not know.
        true => abandoned.iter().for_each(|folder| log(&format!("note: {folder}"))),
        false => print_note_lines(abandoned),
    }
    Ok(())
}
