//! Data sets: the built-in [`debian_packages`] and [`mutag`], sets that `cargo xtask data` made
//! ([`read_debian_packages`]), graphs to classify in the formats of [`gin`] and [`tu`], and [`synthetic`]
//! graphs.
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

#[allow(dead_code, reason = "the readers come next")]
mod arrays;
mod check;
mod dataset;
mod debian;
mod draws;
mod error;
mod files;
mod folder;
pub mod format;
pub mod gin;
mod graph_dataset;
mod mutag;
mod names;
mod note;
pub mod npy;
mod relabel;
pub mod synthetic;
#[allow(dead_code, reason = "the readers come next")]
mod text;
pub mod tu;

pub use dataset::{Dataset, Split};
pub use debian::{debian_packages, read_debian_packages};
pub use error::Error;
pub use graph_dataset::GraphDataset;
pub use mutag::mutag;
pub use names::Names;
pub use note::Note;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;
