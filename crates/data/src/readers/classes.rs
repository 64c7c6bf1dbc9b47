//! Reads classes in the form of other libraries: integers, or floats with NaN for no class.

use std::path::{Path, PathBuf};

use half::f16;
use kiln_store::ArrayFile;
use kiln_store::npy::DType;
use kiln_store::text::TextTable;

use crate::limits::MAX_CLASSES;
use crate::{Error, Result};

const EXPECTED: &str = "a class, a whole number below 2^20, or nan for none";

/// Returns the class of each row of an array `[n]` or `[n, 1]`; -1 for no class.
pub(crate) fn from_array(array: &ArrayFile) -> Result<Vec<i32>> {
    if let Some(&n_columns) = array.shape().get(1).filter(|&&n_columns| n_columns > 1) {
        return Err(several_labels(array.path(), n_columns));
    }
    array.check_vector()?;
    let mut classes = array.room()?;
    let mut push = |position, value: f64| {
        let class = class_of(value);
        classes.push(class.ok_or_else(|| array.bad_value("the label of row", position, EXPECTED, value))?);
        Ok(())
    };
    match array.dtype() {
        DType::F16 => for_each(values::<f16>(array).map(f16::to_f64), push)?,
        DType::F32 => for_each(values::<f32>(array).map(f64::from), push)?,
        DType::F64 => for_each(values::<f64>(array), push)?,
        // An integer that a double cannot represent exactly is above every valid class, so rounding it is harmless.
        _ => array.for_each_integer_or_bool(|position, value| push(position, value as f64))?,
    }
    Ok(classes)
}

/// Returns the class of each line of a text file, which may have at most `n_rows` lines; -1 for no class.
pub(crate) fn from_table(path: impl Into<PathBuf>, n_rows: usize) -> Result<Vec<i32>> {
    let path = path.into();
    let mut table = TextTable::open(&path)?;
    let mut classes = Vec::new();
    while let Some(row) = table.next_row()? {
        if row.n_fields() > 1 {
            return Err(several_labels(&path, row.n_fields()));
        }
        if classes.len() == n_rows {
            return Err(row.bad(0, &format!("no more than {n_rows} lines, one per node")).into());
        }
        let class = class_of(row.parse(0, EXPECTED)?);
        classes.push(class.ok_or_else(|| row.bad(0, EXPECTED))?);
    }
    classes.shrink_to_fit();
    Ok(classes)
}

/// Returns the number of classes: the largest class plus 1, or 0 if all are negative.
pub(crate) fn n_classes(classes: &[i32]) -> usize {
    classes.iter().max().map_or(0, |&largest| (i64::from(largest) + 1).max(0) as usize)
}

fn class_of(value: f64) -> Option<i32> {
    match value {
        _ if value.is_nan() => Some(-1),
        _ if value.fract() != 0.0 || value >= MAX_CLASSES as f64 => None,
        _ => Some(value.max(-1.0) as i32),
    }
}

fn for_each(
    values: impl Iterator<Item = f64>,
    mut visit: impl FnMut(usize, f64) -> Result<()>,
) -> Result<()> {
    for (position, value) in values.enumerate() {
        visit(position, value)?;
    }
    Ok(())
}

/// Iterates over the elements of an array, which need not be aligned, without a copy.
fn values<T: bytemuck::Pod>(array: &ArrayFile) -> impl Iterator<Item = T> {
    array.value_bytes().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

fn several_labels(path: &Path, n_columns: usize) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what: format!("a set with {n_columns} labels per node"),
        instead: "save only the column to learn".into(),
    }
}
