//! What a manifest says of the arrays of a folder, and what a form knows of them.

use std::collections::BTreeMap;
use std::fmt;

use kiln_feature::RowType;
use serde::{Deserialize, Serialize};

use crate::npy::DType;
use crate::{Error, Result};

/// What a manifest says of the arrays of its folder, by file name.
pub type Entries = BTreeMap<String, Entry>;

/// What a manifest says of one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What the array consists of.
    pub dtype: ElementType,
    /// Length of each dimension.
    pub shape: Vec<usize>,
    /// SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
}

/// What an array consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names say it")]
pub enum ElementType {
    U8,
    U32,
    U64,
    I32,
    F16,
    /// NumPy has no such type: the file says `<u2`, the manifest what the bits mean.
    BF16,
    F32,
}

impl ElementType {
    /// The type of the elements of feature rows.
    ///
    /// # Errors
    /// [`Error::BadParameter`] for a type that has no name here.
    pub fn of_rows(row_type: RowType) -> Result<Self> {
        match row_type {
            RowType::F32 => Ok(Self::F32),
            RowType::F16 => Ok(Self::F16),
            RowType::BF16 => Ok(Self::BF16),
            other => Err(Error::unknown_row_type(other)),
        }
    }

    /// What the file's own header says.
    pub fn stored_as(self) -> DType {
        match self {
            Self::U8 => DType::U8,
            Self::U32 => DType::U32,
            Self::U64 => DType::U64,
            Self::I32 => DType::I32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::U16,
            Self::F32 => DType::F32,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// One array that a form knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The file's name.
    pub name: &'static str,
    /// What it may consist of.
    pub types: &'static [ElementType],
    /// Length of each dimension; `None` for one dimension of any length.
    pub shape: Option<Vec<usize>>,
    /// Whether a folder without it is refused.
    pub is_needed: bool,
}

/// The files of feature rows: one array of all values, or the three of a CSR matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowFiles {
    /// `[n_rows, dim]`, as stored.
    pub dense: &'static str,
    /// Where each row's values start, the column of each value, and the values.
    pub sparse: [&'static str; 3],
}

/// The files of the features of a set.
pub const FEATURES: RowFiles = RowFiles {
    dense: "features.npy",
    sparse: ["features_indptr.npy", "features_indices.npy", "features_data.npy"],
};

impl RowFiles {
    /// What a form knows of `n_rows` such rows. That one of the two ways is there is told by
    /// [`RowFiles::check`].
    pub fn known(&self, n_rows: usize, dim: usize) -> [Known; 4] {
        use ElementType::{BF16, F16, F32, U32, U64};
        let known = |name, types, shape| Known { name, types, shape, is_needed: false };
        let [indptr, columns, values] = self.sparse;
        [
            known(self.dense, &[F32, F16, BF16], Some(vec![n_rows, dim])),
            known(indptr, &[U64], Some(vec![n_rows.saturating_add(1)])),
            known(columns, &[U32], None),
            known(values, &[F32], None),
        ]
    }
}
