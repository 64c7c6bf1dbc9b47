use std::path::PathBuf;

use crate::npy;

/// Why a data set could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter of a synthetic set is out of its range.
    #[error("{what} is {got}, expected {expected}")]
    BadParameter {
        /// Which parameter.
        what: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        got: String,
    },
    /// A file could not be read or decompressed.
    #[error("{path}: {source}")]
    Io {
        /// The file; for the built-in set, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// A file is no array of the expected element type.
    #[error("{path}: {source}")]
    Npy {
        /// The file; for the built-in set, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: npy::Error,
    },
    /// The manifest is not what a reader of this version expects.
    #[error("{path}: {source}")]
    Manifest {
        /// The file; for the built-in set, its name.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The set was made in another version of the layout.
    #[error("the set has format {got}, expected {expected}")]
    Format {
        /// The format that this version reads.
        expected: u32,
        /// The format that the manifest states.
        got: u32,
    },
    /// An array does not fit the other arrays.
    #[error("{file}: {what} is {got}, expected {expected}")]
    Inconsistent {
        /// The file.
        file: &'static str,
        /// What does not fit.
        what: &'static str,
        /// What the other arrays ask for.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// The arcs are no graph.
    #[error("graph: {0}")]
    Graph(#[from] kiln_graph::Error),
    /// The features or labels are not valid.
    #[error("features: {0}")]
    Feature(#[from] kiln_feature::Error),
}
