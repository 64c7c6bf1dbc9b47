//! Graphs whose parts other processes hold: [`Server`] gives out a part's edges and rows, [`DistGraph`] knows all
//! parts of a graph, and [`DistNeighborSampler`] and [`DistFeatureStore`] are samplers and features like those of a
//! graph that lies here: the same blocks and the same rows, to the bit.
//!
//! A process that trains and holds a part of its own serves it to the others (worker mode); or parts lie in processes
//! that do nothing else, and those that train hold none (server-client mode). It is the same client with other
//! addresses. How parts are made: `kiln-partition`. Pictures of both: `docs/distributed.md`.
//!
//! ```
//! use std::sync::Arc;
//! use kiln_comm::rpc::Token;
//! use kiln_graph::NodeId;
//! use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};
//! use kiln_remote::{ConnectConfig, DistGraph, DistNeighborSampler, ServeConfig, Server};
//! use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};
//! // A ring, of which every other node is in the other part.
//! let data = kiln_data::synthetic::ring(60)?;
//! let owners: Vec<u16> = (0..60).map(|node| node % 2).collect();
//! let book = PartitionBook::from_parts(&owners, 2)?;
//! let meta = PartitionMeta { hash: data.hash()?, method: Method::Random, n_cut_edges: data.graph.n_edges() };
//! let root = tempfile::tempdir()?;
//! let folder = root.path().join("ring2");
//! write_parts(&data, &book, &meta, None, &folder)?;
//! // One part is served, the other lies here.
//! let part = |part| Part::open(part_dir(&folder, part)).map(Arc::new);
//! let token = Token::new("a-word-that-nobody-guesses")?;
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
mod edges;
mod error;
mod features;
mod fetch_stats;
mod graph;
mod health;
mod hot;
mod leases;
mod local_part;
mod peer;
mod proto;
mod ranges;
mod respond;
mod rule_registry;
mod sampler;
mod server;
mod service;
mod sieve;
mod wire;

use std::time::Duration;

pub use colocated_worker::{ColocatedWorker, ColocatedWorkerConfig};
pub use connect::ConnectConfig;
pub use error::Error;
pub use features::DistFeatureStore;
pub use fetch_stats::FetchStats;
pub use graph::DistGraph;
pub use health::Health;
pub use rule_registry::RuleRegistry;
pub use sampler::DistNeighborSampler;
pub use server::{ServeConfig, Server};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The version of what clients and servers say to each other.
const PROTOCOL: u32 = 2;

/// How often each side of a connection asks whether the other is there.
const BEAT: Duration = Duration::from_secs(2);

/// How long the other side may take to say so, before the connection is given up.
const SILENCE: Duration = Duration::from_secs(3);

/// Bytes that may be under way in a stream, and in a connection, before the other side has taken them.
const WINDOW_BYTES: u32 = 16 << 20;

/// The largest message: a piece of an answer, of which wide rows may make a long one.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The longest question.
const MAX_QUESTION_BYTES: usize = 2 << 20;

/// The most rows of features of one question: its own length is then a MiB.
const MAX_ROWS: usize = 1 << 18;

/// The most nodes of one question for edges: what is drawn of them is some MiB.
const MAX_DSTS: usize = 1 << 14;

/// Questions that a client may have under way in one connection.
const MAX_QUESTIONS: u32 = 512;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
