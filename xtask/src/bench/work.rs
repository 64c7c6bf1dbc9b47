use serde::{Deserialize, Serialize};

/// The work of one iteration, written by `kiln_benches::Work`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) elements: u64,
    pub(super) unit: String,
    pub(super) threads: usize,
    pub(super) streamed: u64,
    pub(super) row_traffic: u64,
    pub(super) access: Access,
    pub(super) lines: u64,
    pub(super) among: u64,
    pub(super) flop: u64,
    /// The seconds for reading the rows alone; 0 if it was not measured, as in old runs.
    #[serde(default)]
    pub(super) replayed: f64,
}

/// The kind of access to the rows of a [`Work`]. The value in a variant is the width of a row in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Access {
    Nothing,
    Gather(u64),
    Read(u64),
}
