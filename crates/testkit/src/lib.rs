//! Test material shared by the workspace: small graphs, strategies for random ones, and checks that say
//! what is wrong. A dev-dependency only, used from `tests/` folders.
//!
//! ```
//! let graph = kiln_testkit::ring(5);
//! assert_eq!(graph.in_degree(kiln_graph::NodeId(0)), 2);
//! ```

mod checks;
mod graphs;
mod ports;

pub use checks::{check_block, check_same_edges, chi_square_p_value};
pub use graphs::{CooGraph, arb_coo, hub, ring, six_nodes};
pub use ports::free_port;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
