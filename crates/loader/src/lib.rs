//! Minibatch loading: shuffled and sharded seeds, and worker threads that prefetch batches.
//!
//! An [`ItemSampler`] splits a list of items into shuffled, sharded batches of seeds. A [`Batcher`] turns the seeds
//! of a batch into the inputs of a task: a [`NodeBatcher`] into blocks, features and labels, a [`GraphBatcher`] into
//! one block of many small graphs, and a [`LinkBatcher`] into the nodes of links and of their negatives. A [`Loader`] runs the batcher in worker threads and returns the batches in order.
//!
//! This crate does not use tensors or models and does not communicate with other ranks. Its only random numbers are
//! those that shuffle the items.
//!
//! ```
//! use std::sync::Arc;
//! use kiln_feature::{DenseFeatures, Labels};
//! use kiln_graph::{CscBuilder, NodeId};
//! use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase};
//! use kiln_sample::{Fanout, NeighborSampler};
//!
//! let graph = Arc::new(CscBuilder::new(4).build(&[0, 1, 2, 3], &[1, 2, 3, 0])?);
//! let sampler = Arc::new(NeighborSampler::new(graph, [Fanout::UpTo(10), Fanout::All]));
//! let features = Arc::new(DenseFeatures::from_f32(vec![0.0, 1.0, 2.0, 3.0], 1)?);
//! let labels = Arc::new(Labels::new(vec![0, 1, 0, 1], 2));
//! let config = ItemSamplerConfig { batch_size: 2, shuffle: false, ..Default::default() };
//! let items = ItemSampler::new([0, 1, 2].map(NodeId), config)?;
//!
//! let batcher = NodeBatcher::new(sampler, features, labels);
//! let loader = Loader::new(items, batcher, LoaderConfig::default())?;
//! let mut all_labels = Vec::new();
//! for batch in loader.epoch(Phase::Train { epoch: 0 }) {
//!     all_labels.push(batch?.sampled.labels);
//! }
//! assert_eq!(all_labels, [vec![0, 1], vec![0]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ages;
mod background;
mod batch;
mod batcher;
mod cached_nodes;
mod error;
mod graph;
mod item;
mod link;
mod link_relation;
mod loader;
mod phase;
mod queue;
mod rows;
mod seed_batch;
mod time;

pub use ages::Ages;
pub use background::Background;
pub use batch::{EdgeRows, MiniBatch, SampledBatch};
pub use batcher::{Batcher, NodeBatcher, NodeTargets};
pub use cached_nodes::CachedNodes;
pub use error::{BatchError, Error};
pub use graph::{GraphBatch, GraphBatcher};
pub use item::{EpochPlan, ItemSampler, ItemSamplerConfig, Shard, UnevenShards};
pub use link::{LinkBatch, LinkBatcher, LinkExclusion};
pub use link_relation::LinkRelation;
pub use loader::{Batches, Loader, LoaderConfig};
pub use phase::Phase;
pub use rows::{FeatureRows, FeatureStores, NodeRows, RowsOfType};
pub use seed_batch::{SeedBatch, StepItems};
pub use time::StageTimes;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The example in the README, compiled and run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
