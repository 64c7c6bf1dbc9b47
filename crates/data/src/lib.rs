//! Data sets for graph neural networks.
//!
//! - [`open`] detects the format of a folder and opens it: the kiln format ([`mod@format`]), `.npy` arrays and edge
//!   lists ([`npy`]), DGL GraphBolt ([`graphbolt`]) or the Open Graph Benchmark ([`ogb`]).
//! - [`locate`] decides whether a text is a name or a path.
//! - [`gin`] and [`tu`] read sets of small graphs for graph classification.
//! - [`LinkSplit`] divides edges for link prediction, or takes the links and fixed negatives of a set.
//! - [`debian_packages`], [`debian_tags`] (several labels per node) and [`mutag`] are built in, and [`synthetic`] generates graphs.
//!   [`debian_archive`] is the built-in heterogeneous set.
//! - [`convert`] writes folders and edge lists that do not fit in memory in the kiln format.
//!
//! A [`Dataset`] is homogeneous, with one node type and one relation, or heterogeneous: node types with features of their own,
//! and relations. [`Dataset::to_homogeneous`] joins the relations of one node type into one graph.
//!
//! A data set is a struct that a function builds; there is no trait of data sets. Nothing is fetched from a network. Files
//! with arbitrary bytes give a data set or an error that names a file, within memory that is proportional to their size.
//! This crate contains no sampler, no tensors and no threads.
//!
//! ```
//! use kiln_graph::NodeId;
//! let data = kiln_data::synthetic::ring(6)?;
//! assert_eq!(data.csc()?.in_neighbors(NodeId(0)), [NodeId(1), NodeId(5)]);
//! assert_eq!(data.labels().get(NodeId(3)), Some(1));
//! # Ok::<(), kiln_data::Error>(())
//! ```

mod arrays;
mod builder;
mod builtin;
pub mod calendar;
mod check;
mod checked_hash;
pub mod convert;
mod dataset;
mod dataset_name;
mod dataset_targets;
mod draws;
mod edges;
mod error;
pub mod format;
mod graph_dataset;
pub mod graph_folder;
mod hash;
mod ignored_files;
mod layout;
mod limits;
mod link_split;
mod mask;
mod node_features;
mod node_names;
mod note;
mod open;
mod preparation;
mod readers;
mod recorded_hash;
mod split;
mod summary;
mod task_table;
mod times;
mod to_homogeneous;

pub use builder::DatasetBuilder;
pub use builtin::{
    debian_archive, debian_packages, debian_tags, mutag, read_debian_archive, read_debian_packages,
    read_debian_tags, synthetic,
};
pub use checked_hash::hash_checked;
pub use dataset::Dataset;
pub use dataset_name::{DatasetLocation, DatasetName, locate, note_on_name, suggest_location};
pub use dataset_targets::DatasetTargets;
pub use edges::read_pairs;
pub use error::{BuildError, Error, LinkSplitError, NotHomogeneousError, Result};
pub use graph_dataset::GraphDataset;
pub use hash::HashedPart;
pub use layout::Layout;
pub use link_split::{DatasetLinks, LinkDirection, LinkSplit, LinkSplitConfig, LinkTargets};
pub use node_features::NodeFeatures;
pub use node_names::NodeNames;
pub use note::Note;
pub use open::{DatasetFormat, detect_format, is_heterogeneous, open, open_within};
pub use readers::ids::read_ids;
pub use readers::{gin, graphbolt, npy, ogb, tu};
pub use recorded_hash::recorded_hash;
pub use split::Split;
pub use summary::{
    ColumnSummary, DatasetSummary, DegreeSummary, FeatureSummary, OutputSummary, RelationSummary,
    TargetSummary, TaskSummary, TimesSummary, TypeSummary,
};
pub use task_table::{TaskTable, TaskTableError};
pub use times::{DatasetTimes, StoredOrders, TimeError, TimeKind, TimeSplit, TimeText};

/// The README, so that the doc tests run its example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
