//! Test fixtures of the workspace: small graphs, `proptest` strategies for random graphs, checks of sampled blocks,
//! comparisons with files of expected text, runs of the corpora of fuzz targets, and the pages of the book. The crate is a
//! dev-dependency only.
//!
//! ```
//! let graph = kiln_testkit::ring(5);
//! assert_eq!(graph.in_degree(kiln_graph::NodeId(0)), 2);
//! ```

mod book;
mod checks;
mod corpus;
mod golden;
mod graphs;
mod log;
mod ports;

pub use book::{BookPage, book_pages};
pub use checks::{check_block, check_same_edges, chi_square_p_value};
pub use corpus::{CorpusCounts, check_corpus};
pub use golden::check_golden;
pub use graphs::{CooGraph, arb_coo, hub, ring, six_nodes};
pub use log::{LogEvent, print_log, record_log, recorded_log};
pub use ports::free_port;

/// The code example of this crate's README, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
