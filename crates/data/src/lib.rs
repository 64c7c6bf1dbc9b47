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

pub mod array_folder;
mod arrays;
mod check;
mod classes;
pub mod convert;
mod dataset;
mod debian;
mod draws;
mod error;
mod files;
mod folder;
pub mod format;
pub mod gin;
mod graph_dataset;
pub mod graphbolt;
mod hash;
mod kind;
mod mutag;
mod names;
mod node_features;
mod note;
pub mod npy;
mod npz;
pub mod ogb;
mod relabel;
mod stored;
pub mod synthetic;
mod text;
pub mod tu;
mod yaml;

pub use dataset::{Dataset, Split};
pub use debian::{debian_packages, read_debian_packages};
pub use error::Error;
pub use graph_dataset::GraphDataset;
pub use kind::{Kind, open, open_within, recognize};
pub use mutag::mutag;
pub use names::Names;
pub use note::Note;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;
