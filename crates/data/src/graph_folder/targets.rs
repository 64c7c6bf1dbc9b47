use std::path::Path;

use kiln_feature::Targets;
use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter, Known, bad_key};

use super::read_split;
use super::target_values::ValueFiles;
use crate::check::{Place, check_split_from};
use crate::{Note, Result, Split};

/// The file of the classes, `[n]`.
pub const LABELS: &str = "labels.npy";

/// The file of target values, `[n, n_columns]`: u8 for several labels, f32 for regression.
pub const TARGETS: &str = "targets.npy";

/// The files of the targets of nodes.
const NODE_VALUES: ValueFiles = ValueFiles::new(LABELS, TARGETS);

/// Returns the types and shapes of the files of the classes and of the target values of `n_items` items, one of which is
/// needed. `n_outputs` is the number of classes or of columns.
pub fn target_files(entries: &Entries, n_items: usize, n_outputs: usize) -> [Known; 2] {
    NODE_VALUES.known(entries.contains_key(TARGETS), n_items, n_outputs)
}

/// Checks that the entries do not contain classes and target values, and that target values have columns. `n_outputs` is
/// the number of classes or of columns.
///
/// # Errors
/// Returns [`kiln_store::Error::Metadata`] if they contain both, or if there are no columns.
pub fn check_target_files(path: &Path, entries: &Entries, n_outputs: usize) -> Result<()> {
    if !entries.contains_key(TARGETS) {
        return Ok(());
    }
    if entries.contains_key(LABELS) {
        return Err(bad_key(path, "files", format!("{LABELS} or {TARGETS}"), "both").into());
    }
    if n_outputs == 0 {
        let expected = format!("at least 1, the number of columns of {TARGETS}");
        return Err(bad_key(path, "n_classes", expected, 0).into());
    }
    Ok(())
}

/// Returns the targets in `labels.npy` or `targets.npy`. `n_outputs` is the number of classes or of columns.
///
/// # Errors
/// Returns the errors of [`ArrayFolder::values`], and [`Error::Feature`](crate::Error::Feature) if the number of columns is
/// not supported.
pub fn read_targets(arrays: &ArrayFolder, n_outputs: usize) -> Result<Targets> {
    NODE_VALUES.read(arrays, n_outputs)
}

/// Writes the file of classes or of target values, and the split.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if a file cannot be written.
pub fn write_targets(set: &mut FolderWriter, targets: &Targets, split: &Split) -> Result<()> {
    NODE_VALUES.write(set, targets)?;
    for ((_, nodes), file) in split.parts().into_iter().zip(["train.npy", "val.npy", "test.npy"]) {
        set.put(file, ElementType::U32, nodes)?;
    }
    Ok(())
}

/// Reads targets and split, and checks that classes are in range and target values valid, and that the nodes of the split
/// exist and have a target. The targets are those of the nodes from `first` on. Adds a note if parts of the split overlap.
///
/// # Errors
/// Returns [`kiln_store::Error::BadValue`] or [`Error::Feature`](crate::Error::Feature) with the first invalid value.
pub fn verify_targets(
    first: u32,
    arrays: &ArrayFolder,
    n_outputs: usize,
    notes: &mut Vec<Note>,
) -> Result<()> {
    let place = Place::Folder(arrays.folder());
    let targets = read_targets(arrays, n_outputs)?;
    targets.validate().map_err(|error| place.located(error.into()))?;
    check_split_from(first, place, &read_split(arrays)?, &targets, notes)
}
