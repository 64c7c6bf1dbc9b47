//! The target values, the features and the times of links in a folder of arrays.

use kiln_feature::{DenseFeatures, EdgeFeatures};
use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter, Known};

use super::edges::column_element;
use super::rows::read_dense;
use super::target_values::ValueFiles;
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
        Some((n_outputs, class_names)) => Some((VALUES.read(arrays, n_outputs)?, class_names)),
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

/// The files of the target values of links.
const VALUES: ValueFiles = ValueFiles::new(LINK_VALUES[0], LINK_VALUES[1]);

/// Writes the files of the target values, of the features and of the times of links, if they have any.
pub(crate) fn write_link_values(set: &mut FolderWriter, links: &LinkTargets) -> Result<()> {
    let [_, _, features, times] = LINK_VALUES;
    if let Some(values) = links.values() {
        VALUES.write(set, values)?;
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
