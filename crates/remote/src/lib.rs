//! Neighbour sampling and features of a graph whose partitions are held by other processes. A [`Server`] serves the
//! edges and feature rows of one partition, and a [`DistGraph`] connects to the servers of all partitions.
//! [`DistNeighborSampler`], [`DistFeatureStore`] and [`DistEdgeFeatureStore`] return blocks and rows that are bit-identical
//! to those of the whole graph.
//!
//! A heterogeneous graph is sampled by [`DistGraph::hetero_sampler`], and its features are read by a
//! [`DistFeatureStore`] per node type.
//!
//! In worker mode, each training process holds a partition and serves it to the others. In server-client mode,
//! dedicated servers hold the partitions, and training processes hold none. Both modes use the same client.
//! `kiln-partition` creates partitions; `docs/distributed.md` has diagrams of both modes.
//!
//! ```
//! use std::sync::Arc;
//! use kiln_comm::rpc::Token;
//! use kiln_graph::NodeId;
//! use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};
//! use kiln_remote::{ConnectConfig, DistGraph, DistNeighborSampler, ServeConfig, Server};
//! use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};
//! // A ring whose nodes alternate between two partitions.
//! let data = kiln_data::synthetic::ring(60)?;
//! let owners: Vec<u16> = (0..60).map(|node| node % 2).collect();
//! let book = PartitionBook::from_parts(&owners, 2)?;
//! let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges: data.graph.n_edges() };
//! let root = tempfile::tempdir()?;
//! let folder = root.path().join("ring2");
//! write_parts(&data, &book, &meta, None, &folder)?;
//! // Partition 1 is served, partition 0 is local.
//! let part = |part| Part::open(part_dir(&folder, part)).map(Arc::new);
//! let token = Token::new("a-long-random-secret")?;
//! let server = Server::start(part(1)?, ServeConfig::new("127.0.0.1:0", token.clone()))?;
//! let config = ConnectConfig::new(vec![server.address().to_string()], token);
//! let graph = Arc::new(DistGraph::connect(ConnectConfig { own: Some(part(0)?), ..config })?);
//! let (seeds, key) = (Seeds::nodes(vec![NodeId(7)]), RngKey::new(0));
//! let fanouts = [Fanout::UpTo(1); 3];
//! let sampled = DistNeighborSampler::new(graph, fanouts).sample_blocks(&seeds, key, &mut Scratch::default())?;
//! let whole = NeighborSampler::new(data.csc()?.clone(), fanouts).sample_blocks(&seeds, key, &mut Scratch::default())?;
//! assert_eq!(sampled, whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod client;
mod cuts;
mod edges;
mod error;
mod lazy_edges;
mod local_part;
mod rule_registry;
mod server;
mod wire;

pub use client::colocated_worker::{ColocatedWorker, ColocatedWorkerConfig};
pub use client::connect::ConnectConfig;
pub use client::edge_features::DistEdgeFeatureStore;
pub use client::features::DistFeatureStore;
pub use client::fetch_stats::FetchStats;
pub use client::graph::DistGraph;
pub use client::health::Health;
pub use client::partitions::{JoinedPartition, Partitions, PartitionsConfig};
pub use client::partitions_info::{PartitionsInfo, TargetsInfo};
pub use client::sampler::DistNeighborSampler;
pub use error::{ContentError, Error, ServerError};
pub use rule_registry::RuleRegistry;
pub use server::serve::{ServeConfig, Server};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
