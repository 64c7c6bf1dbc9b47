//! The entries of a manifest, and the arrays that a folder format defines.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::npy::DType;

/// The arrays that a manifest lists, by file name.
pub type Entries = BTreeMap<String, Entry>;

/// A manifest's entry for one array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The type of the elements.
    pub dtype: ElementType,
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// The SHA-256 of the whole file, in lower-case hexadecimal.
    pub sha256: String,
}

/// The element type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum ElementType {
    U8,
    U32,
    U64,
    I32,
    I64,
    F16,
    /// A bfloat16. NumPy has no such type, so the file's header has `<u2`.
    BF16,
    F32,
}

impl ElementType {
    /// Returns the element type in the file's header.
    pub fn stored_as(self) -> DType {
        match self {
            Self::U8 => DType::U8,
            Self::U32 => DType::U32,
            Self::U64 => DType::U64,
            Self::I32 => DType::I32,
            Self::I64 => DType::I64,
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
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// An array that a folder format defines.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The file's name.
    pub name: Cow<'static, str>,
    /// The allowed element types.
    pub types: &'static [ElementType],
    /// The length of each dimension; `None` for one dimension of any length.
    pub shape: Option<Vec<usize>>,
    /// True if the array is required.
    pub is_needed: bool,
}
