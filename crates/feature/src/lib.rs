//! Feature rows and labels by node id: [`FeatureStore`] gathers the rows of a list of nodes into a
//! buffer that the caller owns, from rows in memory or in a mapped file ([`DenseFeatures`]), or from rows of which
//! only the values that are not zero are stored ([`SparseFeatures`]).
//!
//! Rows are handed on as they are stored; widening half precision is a step of its own
//! ([`FeatureBuffer::into_f32`]). This crate never sees an edge, draws no random number, starts no thread and
//! knows no tensor.
//!
//! ```
//! use kiln_feature::{DenseFeatures, FeatureBuffer, FeatureStore};
//! use kiln_graph::NodeId;
//! let features = DenseFeatures::from_f32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 2)?;
//! let mut rows = FeatureBuffer::default();
//! features.gather(&[NodeId(2), NodeId(0)], &mut rows)?;
//! assert_eq!(rows.into_f32(), [2.0, 2.5, 0.0, 0.5]);
//! # Ok::<(), kiln_feature::Error>(())
//! ```

mod array;
mod dense;
mod error;
mod labels;
mod sparse;
mod store;

pub use array::{FeatureArray, FeatureBuffer, FeatureDType};
pub use dense::{DenseFeatures, MappedLayout};
pub use error::Error;
pub use labels::Labels;
pub use sparse::SparseFeatures;
pub use store::FeatureStore;

/// No source has more columns: a row would take 64 MiB, and a damaged file that promises more would take all
/// memory when rows are gathered.
pub const MAX_DIM: usize = 1 << 24;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The snippet of this crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
