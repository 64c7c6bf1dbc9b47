//! Neighbour sampling and features of a graph whose partitions are held by other processes. A [`Server`] serves the
//! edges and feature rows of one partition, and a [`DistGraph`] connects to the servers of all partitions.
//! [`DistNeighborSampler`], [`DistFeatureStore`] and [`DistEdgeFeatureStore`] return blocks and rows that are bit-identical
//! to those of the whole graph.
//!
//! A heterogeneous graph is sampled by [`DistGraph::typed_sampler`], and its features are read by a
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
//! let whole = NeighborSampler::new(data.graph, fanouts).sample_blocks(&seeds, key, &mut Scratch::default())?;
//! assert_eq!(sampled, whole);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod colocated_worker;
mod connect;
mod edge_features;
mod edges;
mod error;
mod features;
mod fetch_stats;
mod graph;
mod graph_info;
mod health;
mod hot;
mod leases;
mod local_part;
mod node_keys;
mod partitions;
mod peer;
mod proto;
mod question;
mod ranges;
mod replies;
mod requests;
mod respond;
mod row_format;
mod row_requests;
mod rule_registry;
mod sampler;
mod server;
mod service;
mod sieve;
mod typed_sampler;
mod wanted;
mod wire;

use std::time::Duration;

pub use colocated_worker::{ColocatedWorker, ColocatedWorkerConfig};
pub use connect::ConnectConfig;
pub use edge_features::DistEdgeFeatureStore;
pub use error::Error;
pub use features::DistFeatureStore;
pub use fetch_stats::FetchStats;
pub use graph::DistGraph;
pub use health::Health;
pub use partitions::{JoinedPartition, Partitions, PartitionsConfig, PartitionsInfo, TargetsInfo};
pub use rule_registry::RuleRegistry;
pub use sampler::DistNeighborSampler;
pub use server::{ServeConfig, Server};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The version of the protocol between clients and servers.
const PROTOCOL: u32 = 5;

/// The interval of HTTP/2 keep-alive pings, on both sides of a connection.
const BEAT: Duration = Duration::from_secs(2);

/// The timeout of a keep-alive ping, after which the connection is closed.
const SILENCE: Duration = Duration::from_secs(3);

/// The HTTP/2 flow-control window of a stream and of a connection, in bytes.
const WINDOW_BYTES: u32 = 16 << 20;

/// The largest message in bytes that a client accepts. A chunk of a response has at least one row, which may be wide.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The largest request in bytes.
const MAX_QUESTION_BYTES: usize = 2 << 20;

/// The maximum number of feature rows in one request. That many row ids take 1 MiB.
const MAX_ROWS: usize = 1 << 18;

/// The maximum number of feature rows of edges in one request. That many edges take 1.5 MiB.
const MAX_EDGES: usize = 1 << 17;

/// The maximum number of destinations in one request for edges. With usual fanouts, the response to such a request has
/// a few MiB.
const MAX_DSTS: usize = 1 << 14;

/// The maximum number of edges to leave out in one request. They take 1 MiB.
const MAX_EXCLUDED: usize = 1 << 17;

/// The maximum number of in-flight requests on one connection.
const MAX_QUESTIONS: u32 = 512;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
