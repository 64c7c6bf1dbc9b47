//! Shared helpers of the tests on ranks: a dataset, a model for it, and loaders of a rank's share.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use burn::tensor::Device;
use kiln_comm::{Communicator, ThreadRanks};
use kiln_data::{Dataset, synthetic};
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Shard};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler, RngKey};
use kiln_train::{DeviceBatcher, NodeClassification, OptimizerConfig, TaskTrainer, TrainerConfig};

pub(crate) type NodeLoader = Loader<DeviceBatcher<NodeBatcher<NeighborSampler>>>;

/// Returns ranks that are threads of this process, with one compute thread each. The deadline is so long that only a
/// deadlock reaches it.
pub(crate) fn ranks(n_ranks: usize) -> ThreadRanks {
    ThreadRanks { n_ranks, threads_per_rank: 1, deadline: Duration::from_secs(600) }
}

pub(crate) fn shard(comm: &dyn Communicator) -> Shard {
    let rank_info = comm.rank_info();
    Shard { rank: rank_info.rank, world_size: rank_info.world_size }
}

/// Generates nodes of four classes, whose neighbours and features are informative but noisy.
pub(crate) fn data(n_nodes: usize) -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes,
        n_classes: 4,
        degree: 6,
        homophily: 0.8,
        dim: 8,
        noise: 1.5,
        seed: 5,
    };
    synthetic::sbm(config).unwrap()
}

pub(crate) fn nodes(n_nodes: u32) -> Vec<NodeId> {
    (0..n_nodes).map(NodeId).collect()
}

/// Returns a loader of a rank's share of each step. A step has `global_batch` seeds on all ranks together. The loader
/// has no worker threads.
pub(crate) fn loader(data: &Dataset, nodes: &[NodeId], global_batch: usize, shard: Shard) -> NodeLoader {
    micro_loader(data, nodes, global_batch, 1, shard)
}

/// Same as [`loader`], but divides a rank's share of a step into `accumulate` batches.
pub(crate) fn micro_loader(
    data: &Dataset,
    nodes: &[NodeId],
    global_batch: usize,
    accumulate: usize,
    shard: Shard,
) -> NodeLoader {
    assert_eq!(global_batch % (shard.world_size * accumulate), 0);
    let batch_size = global_batch / (shard.world_size * accumulate);
    let items = ItemSamplerConfig { batch_size, accumulate, seed: 1, shard, ..Default::default() };
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::UpTo(3); 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let config = LoaderConfig { workers: 0, ..Default::default() };
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, config).unwrap()
}

/// Returns a model with these dropout rates for the features and between the layers.
pub(crate) fn sage(data: &Dataset, [input_dropout, dropout]: [f64; 2]) -> Sage {
    let (d_in, n_classes) = (data.node_features().unwrap().dim(), data.labels().n_classes());
    let aggregate = Aggregate::Mean;
    let config = SageConfig {
        d_in,
        hidden: 16,
        n_classes,
        n_layers: 2,
        aggregate,
        input_dropout,
        dropout,
        ..SageConfig::new(d_in, n_classes)
    };
    config.init(RngKey::new(1), &Device::flex().autodiff()).unwrap()
}

/// Returns a trainer that trains a model with dropout by Adam. The trainers of all ranks use the same device.
pub(crate) fn trainer(data: &Dataset, comm: Box<dyn Communicator>) -> TaskTrainer<NodeClassification<Sage>> {
    TaskTrainer::new(NodeClassification::new(), &config(), comm, |_, _| Ok(sage(data, [0.1, 0.5]))).unwrap()
}

/// Configures Adam on the CPU, with the seed of [`loader`].
pub(crate) fn config() -> TrainerConfig {
    TrainerConfig { seed: 1, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) }
}
