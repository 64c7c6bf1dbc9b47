//! Reads the targets of nodes and graphs from arrays and tables: classes, several labels, or regression targets.

use std::path::{Path, PathBuf};

use half::f16;
use kiln_feature::{Labels, MAX_DIM, TargetValues, Targets};
use kiln_graph::{ItemId, SharedArray};
use kiln_store::npy::DType;
use kiln_store::text::TextTable;
use kiln_store::{ArrayFile, Error as StoreError};

use crate::arrays::labels_of;
use crate::check::VALUES_AT_ONCE;
use crate::limits::{MAX_CLASSES, bad_dim, check_n_classes};
use crate::readers::classes::n_classes;
use crate::{Note, Result};

const EXPECTED: &str = "a number, or nan for a missing target";

const EXPECTED_LABEL: &str = "1, 0, or a negative number for a missing label";

/// Returns the targets in an array: classes for integers `[n]` or `[n, 1]`, several labels for integers or booleans
/// `[n, k]`, and regression targets for floats `[n, k]`. Arrays of 32-bit classes, labels of type u8 and 32-bit floats
/// stay mapped.
pub(crate) fn of_array(array: &ArrayFile, notes: &mut Vec<Note>) -> Result<Targets> {
    let is_float = matches!(array.dtype(), DType::F16 | DType::F32 | DType::F64);
    match (array.shape(), is_float) {
        (&[_, n_columns], true) => {
            let values = numbers_of(array, check_columns(array.path(), n_columns)?)?;
            Ok(TargetValues::regression(values, n_columns)?.into())
        }
        (&[_, n_columns], false) if n_columns != 1 => {
            let labels = bits_of(array, check_columns(array.path(), n_columns)?)?;
            Ok(TargetValues::multi_label(labels, n_columns)?.into())
        }
        _ => {
            array.check_vector()?;
            let labels = labels_of(array, notes)?;
            let n_classes = check_n_classes(array.path(), n_classes(&labels) as u64)?;
            Ok(Labels::new(labels, n_classes).into())
        }
    }
}

/// Returns an array of labels as bytes. Negative numbers are missing.
fn bits_of(array: &ArrayFile, n_columns: usize) -> Result<SharedArray<u8>> {
    if array.dtype() == DType::U8 {
        return Ok(array.elements()?);
    }
    let mut labels = array.room()?;
    array.for_each_integer_or_bool(|position, value| -> Result<()> {
        labels.push(label_bit(array, n_columns, position, value)?);
        Ok(())
    })?;
    Ok(labels.into())
}

/// Returns the byte of the label at a position of an array of integers `[n, n_columns]`.
pub(crate) fn label_bit(array: &ArrayFile, n_columns: usize, position: usize, value: i128) -> Result<u8> {
    let bad = || array.bad_value("a label of row", position / n_columns, EXPECTED_LABEL, value);
    Ok(bit_of(value as f64).ok_or_else(bad)?)
}

/// Returns an array of numbers as 32-bit floats.
fn numbers_of(array: &ArrayFile, n_columns: usize) -> Result<SharedArray<f32>> {
    if array.dtype() == DType::F32 {
        return Ok(array.elements()?);
    }
    let mut values = array.room()?;
    for_each_number(array, n_columns, |numbers| {
        values.extend_from_slice(numbers);
        Ok(())
    })?;
    Ok(values.into())
}

/// Calls `visit` with chunks of the numbers of an array of floats, as 32-bit floats.
pub(crate) fn for_each_number(
    array: &ArrayFile,
    n_columns: usize,
    mut visit: impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let n_bytes = match array.dtype() {
        DType::F16 => 2,
        DType::F32 => 4,
        _ => 8,
    };
    for (chunk, bytes) in array.value_bytes().chunks(n_bytes * VALUES_AT_ONCE).enumerate() {
        let number = |bytes: &[u8]| match n_bytes {
            2 => bytemuck::pod_read_unaligned::<f16>(bytes).to_f32(),
            4 => bytemuck::pod_read_unaligned(bytes),
            _ => bytemuck::pod_read_unaligned::<f64>(bytes) as f32,
        };
        let values: Vec<f32> = bytes.chunks_exact(n_bytes).map(number).collect();
        if let Some(position) = values.iter().position(|value| value.is_infinite()) {
            let row = (chunk * VALUES_AT_ONCE + position) / n_columns;
            let expected = "finite numbers of 32 bits, or NaN";
            return Err(array.bad_value("a target of row", row, expected, values[position]).into());
        }
        visit(&values)?;
    }
    Ok(())
}

/// A table of numbers with the same number of columns in each row, row-major; NaN for a missing number.
#[derive(Debug)]
pub(crate) struct TargetTable {
    path: PathBuf,
    values: Vec<f32>,
    n_columns: usize,
}

impl TargetTable {
    /// Reads a text file with at most `n_rows` lines of one or more numbers, or `nan`.
    pub(crate) fn read(path: impl Into<PathBuf>, n_rows: usize) -> Result<Self> {
        let path = path.into();
        let mut table = TextTable::open(&path)?;
        let (mut values, mut n_columns, mut n_read) = (Vec::new(), 0, 0);
        while let Some(row) = table.next_row()? {
            if n_read == n_rows {
                return Err(row.bad(0, &format!("no more than {n_rows} lines")).into());
            }
            n_columns = row.n_fields();
            for field in 0..n_columns {
                let value: f32 = row.parse(field, EXPECTED)?;
                if value.is_infinite() {
                    return Err(row.bad(field, EXPECTED).into());
                }
                values.push(value);
            }
            n_read += 1;
        }
        Ok(Self { path, values, n_columns })
    }

    /// Returns a table of the numbers of an array `[n, k]`.
    pub(crate) fn of_array(array: &ArrayFile) -> Result<Self> {
        let n_columns = array.shape().get(1).copied().unwrap_or(1);
        let values = match array.dtype() {
            DType::F16 | DType::F32 | DType::F64 => numbers_of(array, n_columns.max(1))?.to_vec(),
            _ => {
                let mut values = array.room()?;
                array.for_each_integer_or_bool(|_, value| -> Result<()> {
                    values.push(if value < 0 { f32::NAN } else { value as f32 });
                    Ok(())
                })?;
                values
            }
        };
        Ok(Self { path: array.path().to_owned(), values, n_columns })
    }

    /// Returns the number of lines.
    pub(crate) fn n_rows(&self) -> usize {
        self.values.len() / self.n_columns.max(1)
    }

    /// Returns classes if there is a single column of whole numbers, some of which are above 1, and otherwise
    /// [`TargetTable::targets`].
    pub(crate) fn targets_or_classes<I: ItemId>(self) -> Result<Targets<I>> {
        let is_class = |value: &f32| {
            value.is_nan() || (value.fract() == 0.0 && (0.0..MAX_CLASSES as f32).contains(value))
        };
        let has_classes = self.values.iter().any(|&value| 1.0 < value) && self.values.iter().all(is_class);
        if self.n_columns != 1 || !has_classes {
            return self.targets();
        }
        let class = |&value: &f32| if value.is_nan() { -1 } else { value as i32 };
        let classes: Vec<i32> = self.values.iter().map(class).collect();
        let n_classes = n_classes(&classes);
        Ok(Labels::new(classes, n_classes).into())
    }

    /// Returns several labels if every number is 1, 0 or missing, and regression targets otherwise.
    pub(crate) fn targets<I: ItemId>(self) -> Result<Targets<I>> {
        let Self { path, values, n_columns } = self;
        let n_columns = check_columns(&path, n_columns)?;
        let bits: Option<Vec<u8>> = values.iter().map(|&value| bit_of(f64::from(value))).collect();
        match bits.filter(|_| values.iter().all(|&value| value.is_nan() || 0.0 <= value)) {
            Some(bits) => Ok(TargetValues::multi_label(bits, n_columns)?.into()),
            None => Ok(TargetValues::regression(values, n_columns)?.into()),
        }
    }
}

/// Returns several labels per row, `[n, n_columns]`, of integers that are 1, 0, or negative if missing.
pub(crate) fn labels_of_integers<I: ItemId>(
    path: &Path,
    values: &[i64],
    n_columns: usize,
) -> Result<Targets<I>> {
    let bit = |(position, &value): (usize, &i64)| {
        bit_of(value as f64).ok_or_else(|| StoreError::BadValue {
            path: path.to_owned(),
            what: "a label of line",
            position: (position / n_columns) as u64 + 1,
            expected: EXPECTED_LABEL.to_owned(),
            found: value.to_string(),
        })
    };
    let bits = values.iter().enumerate().map(bit).collect::<kiln_store::Result<Vec<u8>>>()?;
    Ok(TargetValues::multi_label(bits, check_columns(path, n_columns)?)?.into())
}

/// Returns the byte of a label; `None` if the value is not a label.
fn bit_of(value: f64) -> Option<u8> {
    match value {
        0.0 => Some(0),
        1.0 => Some(1),
        _ if value.is_nan() || value < 0.0 => Some(u8::MAX),
        _ => None,
    }
}

/// Checks the number of columns of targets.
pub(crate) fn check_columns(path: &Path, n_columns: usize) -> Result<usize> {
    match (1..=MAX_DIM).contains(&n_columns) {
        true => Ok(n_columns),
        false => Err(bad_dim(path, n_columns).into()),
    }
}
