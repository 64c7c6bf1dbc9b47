//! Predictions: the selection of items and links, and their files, which are written batch by batch: of nodes, edges and graphs,
//! of scored links, and of several ranks.
//!
//! A folder of files is unfinished until it is committed, and then renamed to its target. Dropping the writer removes it.
//!
//! ```no_run
//! use kiln_data::Dataset;
//! use kiln_graph::NodeId;
//! use kiln_predictions::{LinkNodes, LinkPredictionFiles, PredictionFormat};
//! use kiln_train::ScoredLink;
//! let data = Dataset::open("ratings")?;
//! let ids = data.graph.schema().node_ranges(0);
//! let nodes = LinkNodes { ids, names: [None, None] };
//! let mut files = LinkPredictionFiles::create("predictions", PredictionFormat::Csv, nodes)?;
//! files.write(&[ScoredLink { src: NodeId(0), dst: NodeId(7), score: 0.25 }])?;
//! let (folder, totals) = files.complete()?;
//! folder.commit()?;
//! println!("{} links", totals.n_items);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod files;
mod format;
mod link_files;
mod link_request;
mod predicted_data;
mod predicted_edges;
mod rank_folders;
mod selection;
mod selection_error;
mod totals;
mod training_split;

pub use error::{EdgeRequestError, Error};
pub use files::{EdgeEnds, PredictionFiles, PredictionRequest};
pub use format::PredictionFormat;
pub use link_files::{LinkNodes, LinkPredictionFiles};
pub use link_request::LinkRequest;
pub use predicted_data::PredictedData;
pub use predicted_edges::PredictedEdges;
pub use rank_folders::{RankFolders, WRITING_TIMEOUT, Written, totals_of_ranks};
pub use selection::{ItemSelection, SelectableItems, id_bytes, read_named_nodes};
pub use selection_error::ItemSelectionError;
pub use totals::{PartCounts, PredictionTotals, SplitPart, SplitParts};
pub use training_split::split_of_training;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The README, whose example is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
