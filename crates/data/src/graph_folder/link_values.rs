//! The target values, the features and the times of links in a folder of arrays.

use kiln_feature::{DenseFeatures, EdgeFeatures, Labels, TargetValues, Targets};
use kiln_graph::LinkId;
use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter, Known};

use super::edges::column_element;
use super::rows::read_dense;
use crate::{LinkTargets, Result};

/// The classes of the links, `[n_links]`; their labels or numbers, `[n_links, n_outputs]`; their features,
/// `[n_links, dim]`; and their times, `[n_links]`.
pub(crate) const LINK_VALUES: [&str; 4] =
    ["link_labels.npy", "link_targets.npy", "link_features.npy", "link_times.npy"];

/// Returns the files of target values, features and times of links. `n_links` and `n_outputs` are those of a set whose links have
/// target values; without these, the files of target values must be absent, which the caller checks.
pub(crate) fn link_value_entries(files: &Entries, n_links: usize, n_outputs: Option<usize>) -> [Known; 4] {
    use ElementType::{BF16, F16, F32, I32, I64, U8};
    let [labels, values, features, times] = LINK_VALUES;
    let has_values = files.contains_key(values);
    let n_columns = files.get(features).and_then(|entry| entry.shape.get(1).copied());
    let known = |name: &'static str, types, shape, is_needed| Known {
        name: name.into(),
        types,
        shape: Some(shape),
        is_needed,
    };
    [
        known(labels, &[I32], vec![n_links], n_outputs.is_some() && !has_values),
        known(values, &[U8, F32], vec![n_links, n_outputs.unwrap_or(0)], false),
        known(features, &[F32, F16, BF16], vec![n_links, n_columns.unwrap_or(1)], false),
        known(times, &[I64], vec![n_links], false),
    ]
}

/// Adds the target values, the features and the times of a folder to its links. The values have `n_outputs` classes or columns with these
/// names; the links have none if it is `None`.
///
/// # Errors
/// Returns the errors of [`ArrayFolder::values`], and [`Error::Feature`](crate::Error::Feature) if a number of columns is not
/// supported.
pub(crate) fn read_link_values(
    arrays: &ArrayFolder,
    links: LinkTargets,
    outputs: Option<(usize, Vec<String>)>,
) -> Result<LinkTargets> {
    let [_, _, features, times] = LINK_VALUES;
    let targets = match outputs {
        Some((n_outputs, class_names)) => Some((targets_of(arrays, n_outputs)?, class_names)),
        None => None,
    };
    let features = arrays.entries().get(features).map(|entry| {
        let dim = entry.shape.get(1).copied().unwrap_or(0);
        read_dense(arrays, features, entry.dtype, dim)
    });
    let features: Option<DenseFeatures> = features.transpose()?;
    let times = arrays.entries().contains_key(times).then(|| arrays.values::<i64>(times)).transpose()?;
    Ok(links.with_unchecked(targets, features.map(EdgeFeatures::from), times))
}

fn targets_of(arrays: &ArrayFolder, n_outputs: usize) -> Result<Targets<LinkId>> {
    let [labels, values, ..] = LINK_VALUES;
    Ok(match arrays.entries().get(values).map(|entry| entry.dtype) {
        None => Labels::new(arrays.values::<i32>(labels)?, n_outputs).into(),
        Some(ElementType::U8) => TargetValues::multi_label(arrays.values::<u8>(values)?, n_outputs)?.into(),
        Some(_) => TargetValues::regression(arrays.values::<f32>(values)?, n_outputs)?.into(),
    })
}

/// Writes the files of the target values, of the features and of the times of links, if they have any.
pub(crate) fn write_link_values(set: &mut FolderWriter, links: &LinkTargets) -> Result<()> {
    let [labels, targets, features, times] = LINK_VALUES;
    match links.values() {
        None => {}
        Some(Targets::Classes(classes)) => set.put(labels, ElementType::I32, classes.as_slice())?,
        Some(Targets::Values(values)) => {
            let dtype = if values.as_labels().is_some() { ElementType::U8 } else { ElementType::F32 };
            let mut rows = set.rows(targets, dtype, values.n_columns())?;
            match (values.as_labels(), values.as_numbers()) {
                (Some(labels), _) => rows.push(labels)?,
                (None, numbers) => rows.push(numbers.unwrap_or_default())?,
            }
            set.add(rows)?;
        }
    }
    if let Some(rows) = links.features() {
        let column = rows.to_column();
        let mut array = set.rows(features, column_element(&column)?, column.width())?;
        array.push_bytes(column.as_bytes())?;
        set.add(array)?;
    }
    if let Some(of_links) = links.times() {
        set.put(times, ElementType::I64, of_links)?;
    }
    Ok(())
}
