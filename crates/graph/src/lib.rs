//! Graph topology for graph neural networks.
//!
//! [`Csc`] stores the in-neighbours of each node, in memory or memory-mapped; [`CscBuilder`] builds it from an edge
//! list. Samplers pass a [`Block`] (message-flow graph) to each layer. Its [`TransposedBlock`] lists the same edges by
//! source, for the backward pass.
//!
//! The crate contains no features, no sampling, no batches and no random numbers. Parallel work runs on the current
//! rayon pool.
//!
//! ```
//! use kiln_graph::{CscBuilder, NodeId};
//! // 0 -> 2, 1 -> 2, 2 -> 0
//! let graph = CscBuilder::new(3).build(&[0, 1, 2], &[2, 2, 0])?;
//! assert_eq!(graph.in_neighbors(NodeId(2)), [NodeId(0), NodeId(1)]);
//! # Ok::<(), kiln_graph::Error>(())
//! ```

mod block;
mod build_options;
mod builder;
mod bus_error;
mod by_dst;
mod by_relation;
mod coo;
mod csc;
mod edge_columns;
mod edge_times;
mod error;
mod file_version;
mod graph_schema;
mod ids;
mod link_negatives;
mod links;
mod mapped_file;
mod metagraph;
mod node_types;
mod norm;
mod order_by_time;
mod relation_groups;
mod relations;
mod self_loops;
mod shared_array;
mod similar_name;
mod sort_neighbors;
mod symmetrize;
mod transposed_block;

pub use block::{Block, BlockParts};
pub use build_options::{Duplicates, SelfLoops};
pub use builder::{CscBuilder, EdgeOrigin, TracedGraph};
pub use bus_error::{EXIT_FILE_LOST, handle_bus_errors};
pub use by_relation::{ByRelation, ByRelationError};
pub use csc::Csc;
pub use edge_columns::{ColumnValues, EdgeColumn, EdgeColumns};
pub use edge_times::{EdgeTimes, TimeScale};
pub use error::{ColumnError, Error, RelationEdgesError, SchemaError};
pub use file_version::FileVersion;
pub use graph_schema::{GraphSchema, RelationSchema};
pub use ids::{EdgeId, GraphId, ItemId, LinkId, LocalId, NodeId};
pub use link_negatives::LinkNegatives;
pub use links::Links;
pub use mapped_file::{MappedFile, check_mapped_files, inode, open_file};
pub use metagraph::Metagraph;
pub use node_types::NodeTypes;
pub use norm::gcn_norm;
pub use relation_groups::{RelationGroupParts, RelationGroups, TransposedGroups, TypeGroup};
pub use relations::{Relation, RelationEdges, Relations};
pub use self_loops::{
    add_self_loops, add_self_loops_of_type, features_with_self_loops, times_with_self_loops,
};
pub use shared_array::{SharedArray, file_prefix};
pub use similar_name::{did_you_mean, similar_alias, similar_name};
pub use symmetrize::symmetrize;
pub use transposed_block::TransposedBlock;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The code example of this crate's README, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
