//! Data sets: the built-in [`debian_packages`] and [`mutag`], [`synthetic`] graphs, graphs to classify in the
//! formats of [`gin`] and [`tu`], and whatever folder [`open`] recognises: kiln's own form on disk
//! ([`mod@format`]), `.npy` arrays ([`npy`]), [`graphbolt`]'s and [`ogb`]'s. [`convert`] makes kiln's form of
//! folders and edge lists that do not fit the memory.
//!
//! Nothing is fetched from a network. This crate knows no sampler, no tensor and no thread.
//!
//! ```
//! use kiln_graph::NodeId;
//! let data = kiln_data::synthetic::ring(6)?;
//! assert_eq!(data.graph.in_neighbors(NodeId(0)), [NodeId(1), NodeId(5)]);
//! assert_eq!(data.labels.get(NodeId(3)), Some(1));
//! # Ok::<(), kiln_data::Error>(())
//! ```

mod arrays;
mod builder;
mod builtin;
mod check;
pub mod convert;
mod dataset;
mod dataset_format;
mod draws;
mod edges;
mod error;
pub mod format;
mod graph_dataset;
pub mod graph_folder;
mod hash;
mod limits;
mod node_features;
mod node_names;
mod note;
mod readers;

pub use builder::DatasetBuilder;
pub use builtin::{debian_packages, mutag, read_debian_packages, synthetic};
pub use dataset::{Dataset, Split};
pub use dataset_format::{DatasetFormat, detect_format, open, open_within};
pub use error::{BuildError, Error, Result};
pub use graph_dataset::GraphDataset;
pub use node_names::NodeNames;
pub use note::Note;
pub use readers::{gin, graphbolt, npy, ogb, tu};

/// The example of the README, which the tests of the docs run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
