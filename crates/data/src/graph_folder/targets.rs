use std::path::Path;

use bytemuck::Pod;
use kiln_feature::{Labels, TargetValues, Targets};
use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter, Known, bad_key};

use super::read_split;
use crate::check::{Place, check_split_from};
use crate::{Note, Result, Split};

/// The file of the classes, `[n]`.
pub const LABELS: &str = "labels.npy";

/// The file of target values, `[n, n_columns]`: u8 for several labels, f32 for regression.
pub const TARGETS: &str = "targets.npy";

/// Returns the types and shapes of the files of the classes and of the target values of `n_items` items, one of which is
/// needed. `n_outputs` is the number of classes or of columns.
pub fn target_files(entries: &Entries, n_items: usize, n_outputs: usize) -> [Known; 2] {
    use ElementType::{F32, I32, U8};
    let has_values = entries.contains_key(TARGETS);
    [
        Known { name: LABELS.into(), types: &[I32], shape: Some(vec![n_items]), is_needed: !has_values },
        Known {
            name: TARGETS.into(),
            types: &[U8, F32],
            shape: Some(vec![n_items, n_outputs]),
            is_needed: has_values,
        },
    ]
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
    Ok(match arrays.entries().get(TARGETS).map(|entry| entry.dtype) {
        None => Labels::new(arrays.values::<i32>(LABELS)?, n_outputs).into(),
        Some(ElementType::U8) => TargetValues::multi_label(arrays.values::<u8>(TARGETS)?, n_outputs)?.into(),
        Some(_) => TargetValues::regression(arrays.values::<f32>(TARGETS)?, n_outputs)?.into(),
    })
}

/// Writes the file of classes or of target values, and the split.
///
/// # Errors
/// Returns [`kiln_store::Error::Io`] if a file cannot be written.
pub fn write_targets(set: &mut FolderWriter, targets: &Targets, split: &Split) -> Result<()> {
    match targets {
        Targets::Classes(labels) => set.put(LABELS, ElementType::I32, labels.as_slice())?,
        Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
            (Some(labels), _) => put_rows(set, ElementType::U8, values.n_columns(), labels)?,
            (None, numbers) => {
                put_rows(set, ElementType::F32, values.n_columns(), numbers.unwrap_or_default())?;
            }
        },
    }
    for ((_, nodes), file) in split.parts().into_iter().zip(["train.npy", "val.npy", "test.npy"]) {
        set.put(file, ElementType::U32, nodes)?;
    }
    Ok(())
}

/// Writes the file of target values.
fn put_rows<T: Pod>(
    set: &mut FolderWriter,
    dtype: ElementType,
    n_columns: usize,
    values: &[T],
) -> Result<()> {
    let mut rows = set.rows(TARGETS, dtype, n_columns)?;
    rows.push(values)?;
    Ok(set.add(rows)?)
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
