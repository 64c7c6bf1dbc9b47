//! Neighbour sampling: picks the edges that carry messages in each layer and relabels them to blocks (MFGs).
//!
//! Samplers are pure functions: equal keys and seeds give equal blocks on any thread, rank or device. This crate has no
//! thread pool, no clock and no I/O, and does not handle features. The picks of a node depend on the step's key and the
//! layer, never on the batch that contains the node. Tables and buffers belong to the caller ([`Scratch`]) and hold no
//! result.
//!
//! ```
//! use std::sync::Arc;
//! use kiln_graph::{CscBuilder, NodeId};
//! use kiln_sample::{Fanout, FrontierSampler, NeighborSampler, RngKey, Scratch, Seeds};
//!
//! let graph = Arc::new(CscBuilder::new(4).build(&[0, 1, 2, 3], &[1, 2, 3, 0])?);
//! let sampler = NeighborSampler::new(graph, [Fanout::UpTo(10), Fanout::All]);
//! let seeds = Seeds::nodes(vec![NodeId(2)]);
//! let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?;
//! assert_eq!(sampled.blocks[0].srcs(), [NodeId(2), NodeId(1), NodeId(0)]);
//! assert_eq!(sampled.blocks[1].dsts(), [NodeId(2)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod checked_sampler;
mod config;
mod custom_sampler;
mod dsts;
mod error;
mod excluded;
mod frontier;
mod frontier_sampler;
mod group_picks;
mod hetero;
mod hop;
mod hop_rule;
mod hop_timed;
mod hotness;
mod known_edges;
mod known_positives;
mod lanes;
mod most_recent;
mod negative;
mod negative_sampler;
mod neighbor;
mod past_negatives;
mod relabel;
mod relation_fanouts;
mod relation_sampler;
mod rng;
mod rule;
mod sampling_rule;
mod seeds;
mod selection;
mod subgraph;
mod time_limits;
mod time_order;
mod uniform;
mod uniform_negatives;

pub use block::{RelationScratch, SampledBlocks, Scratch, to_block};
pub use config::{EdgeWeights, Fanout, HopRequest, SamplerConfig};
pub use custom_sampler::CustomSampler;
pub use dsts::{DstTimes, Dsts};
pub use error::{
    DamagedGraphError, Error, FanoutsError, NegativesError, RuleError, SamplerError, TimesError,
};
pub use excluded::ExcludedEdges;
pub use frontier::Frontier;
pub use frontier_sampler::FrontierSampler;
pub use hetero::HeteroNeighborSampler;
pub use hop::in_edge_range;
pub use hotness::count_node_accesses;
pub use negative::{DegreeNegatives, InBatchNegatives, Negatives, SampledNegatives};
pub use negative_sampler::{NegativeSampler, PositiveLink};
pub use neighbor::NeighborSampler;
pub use past_negatives::PastNegatives;
pub use relation_fanouts::RelationFanouts;
pub use relation_sampler::{RelationHop, RelationSampler};
pub use rng::{KeyDomain, NodeKey, NodeRng, ROUNDS, RngKey};
pub use rule::Rule;
pub use sampling_rule::{Neighbors, SamplingRule};
pub use seeds::Seeds;
pub use selection::Selection;
pub use subgraph::SubgraphSampler;
pub use time_limits::TimeLimits;
pub use time_order::check_time_order;
pub use uniform_negatives::{UniformNegatives, UniformPairNegatives};

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, Error>;

/// The code example of this crate's README, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadMe;
