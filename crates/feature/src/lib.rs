//! Feature rows, labels and target values by node id, and feature rows by edge id ([`EdgeFeatures`], and
//! [`EdgeFeatureStore`] for rows that are elsewhere).
//!
//! A [`FeatureStore`] gathers the rows of a list of nodes into a buffer that the caller owns. [`DenseFeatures`]
//! stores whole rows and [`SparseFeatures`] stores the nonzero values only; both work in memory and on mapped files.
//!
//! Rows keep their stored element type; [`FeatureBuffer::into_f32`] widens half precision. This crate does not use
//! random numbers, threads or tensors, and no topology except the block whose edges' rows are gathered.
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
//!
//! # Features
//! `serde`, off by default, serializes a [`Preparation`] and a [`TargetScaler`].

mod array;
mod columns;
mod dense;
mod edges;
mod error;
mod labels;
mod preparation;
mod relation_edges;
mod sparse;
mod store;
mod target_kind;
mod target_scaler;
mod targets;

pub use array::{FeatureArray, FeatureBuffer, FeatureDType};
pub use columns::{ColumnDifference, FeatureColumn, order_of_columns, reorder_rows, with_column_order};
pub use dense::{DenseFeatures, MappedLayout};
pub use edges::{EdgeFeatureStore, EdgeFeatures};
pub use error::{EdgeColumnError, Error, ScalingError, SparseError, TargetsError};
pub use labels::Labels;
pub use preparation::{Preparation, PreparationStep, Scaling, normalize_row};
pub use relation_edges::{
    EdgeColumnStores, RelationEdgeFeatures, RelationRows, check_column_name, copy_padded, edge_column_of,
    edge_rows_of, padded_format,
};
pub use sparse::SparseFeatures;
pub use store::FeatureStore;
pub use target_kind::TargetKind;
pub use target_scaler::TargetScaler;
pub use targets::{TargetValues, Targets};

/// The largest number of feature columns, at which a row of f32 takes 64 MiB. The limit rejects damaged files before
/// a gather allocates memory for their rows.
pub const MAX_DIM: usize = 1 << 24;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The example in the README, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
