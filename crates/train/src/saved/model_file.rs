//! The name, the format and the tasks of `model.json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of the file in a run folder.
pub(crate) const MODEL_FILE: &str = "model.json";

/// The maximum size of that file. Names of a million classes take some megabytes.
pub(crate) const MOST_MODEL_BYTES: u64 = 1 << 28;

/// The highest format of `model.json` that this version reads and writes. A file with a higher format is rejected.
pub const MODEL_FORMAT: u64 = 5;

/// The items for which a saved model was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelTask {
    /// The nodes of a graph.
    Nodes,
    /// Whole graphs.
    Graphs,
    /// Pairs of nodes of a graph.
    Links,
    /// Edges of a graph, with classes, labels or numbers.
    Edges,
}

impl fmt::Display for ModelTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Graphs => "whole graphs",
            Self::Links => "links",
            Self::Edges => "edges",
        })
    }
}
