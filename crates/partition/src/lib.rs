//! Graph partitioning: partitioners ([`partition_nodes()`]), the assignment of nodes to partitions ([`PartitionBook`])
//! and partitions on disk, each a memory-mapped folder that opens without the others ([`Part`]).
//!
//! A partition stores the in-edges and features of the nodes that it owns. It can also cache the remote feature rows
//! that its training nodes read most often ([`CacheConfig`]). Node ids are always those of the whole graph, so samples
//! of a partitioned graph are bit-identical to samples of the whole graph.
//!
//! A partition consists of node types and relations. A graph with one type of nodes has one of each. Programs assign the
//! nodes of all types together, by the edges of all relations ([`kiln_graph::Relations::to_homogeneous`]). Except for that
//! graph and for METIS, memory grows with the nodes, and not with the edges or features.
//!
//! This crate uses no network, no ranks and no clock.
//!
//! ```
//! use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, PartitionStats, part_dir, partition_nodes, write_parts};
//! let data = kiln_data::synthetic::ring(60)?;
//! let parts = partition_nodes(data.csc()?, &data.split().train, 2, Method::Fennel, 0)?;
//! let n_cut_edges = PartitionStats::of(data.csc()?, &data.split().train, &parts, 2)?.n_cut_edges;
//! let book = PartitionBook::from_parts(&parts, 2)?;
//! let meta = PartitionMeta { hash: data.hash()?, method: Method::Fennel, n_cut_edges };
//! let root = tempfile::tempdir()?;
//! write_parts(&data, &book, &meta, None, root.path().join("ring2"))?;
//! let part = Part::open(part_dir(root.path().join("ring2"), 1))?;
//! assert_eq!(part.relations[0].graph.n_nodes(), part.books.of_type(0).n_owned(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assign;
mod balance;
mod book;
mod books;
mod draws;
mod error;
mod fennel;
mod hotness;
mod known_edges;
mod layout;
mod manifest;
#[cfg(feature = "metis")]
mod metis;
mod part;
mod partition_meta;
mod random;
mod row;
mod rows;
mod stats;
#[cfg_attr(not(any(test, feature = "metis")), expect(dead_code, reason = "only METIS reads the graph"))]
mod symmetric;
mod verify;
mod whole_set;
mod write;

pub use assign::{MAX_PARTS, Method, partition_nodes};
pub use book::{PartitionBook, Place};
pub use books::PartitionBooks;
pub use error::Error;
pub use hotness::CacheConfig;
pub use known_edges::KnownEdges;
pub use part::{Cache, Part, PartOfRelation, PartOfType, part_dir};
pub use partition_meta::PartitionMeta;
pub use row::PartitionRow;
pub use stats::PartitionStats;
pub use verify::PartVerifyReport;
pub use write::{WriteReport, write_parts};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
