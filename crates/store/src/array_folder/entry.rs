//! What a manifest says of the arrays of a folder, and what a form knows of them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::npy::DType;

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
