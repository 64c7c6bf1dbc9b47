//! Dropout on several ranks: the masks depend on the step and its nodes, not on the rank.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use kiln_comm::ThreadRanks;
use kiln_data::{Dataset, synthetic};
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Shard};
use kiln_nn::{Aggregate, ForwardContext, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    BatchTargets, DeviceBatcher, MetricSums, NodeClassification, NodeInput, OptimizerConfig, StepOutput,
    Task, TaskTrainer, TrainerConfig,
};

/// The number of seeds of all ranks in a step. An epoch has 4 steps, the last with 2 seeds, so some of 4 ranks have
/// none.
const GLOBAL_BATCH: usize = 64;
const N_NODES: usize = 3 * GLOBAL_BATCH + 2;
const N_CLASSES: usize = 4;

/// The tolerance for outputs of about 1. Each node's neighbours are summed in the same order on any rank, but matrix
/// products may sum in another order for another number of rows.
const TOLERANCE: f32 = 1e-5;

/// The outputs of each seed in training mode, by step and node.
type Outputs = BTreeMap<(RngKeyWords, NodeId), Vec<f32>>;
type RngKeyWords = [u32; 2];

/// A node classification task that records the outputs of the trainer's forward passes.
struct Noted<'a> {
    task: NodeClassification<Sage>,
    outputs: &'a Mutex<Outputs>,
}

impl Task for Noted<'_> {
    type Input = NodeInput;
    type Model = Sage;
    type Targets = BatchTargets;

    fn forward(
        &self,
        model: &Sage,
        input: &NodeInput,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let forward = self.task.forward(model, input, embedded, ctx);
        let rows = kiln_kernels::to_vec_f32(forward.outputs.clone());
        let mut outputs = self.outputs.lock().unwrap();
        for (seed, row) in input.seeds.iter().zip(rows.chunks_exact(N_CLASSES)) {
            let before = outputs.insert((ctx.key.words(), *seed), row.to_vec());
            assert!(before.is_none(), "node {} occurs twice in a step", seed.0);
        }
        forward
    }

    fn targets(&self, input: &NodeInput) -> BatchTargets {
        self.task.targets(input)
    }

    fn count(labels: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        NodeClassification::<Sage>::count(labels, outputs, counts);
    }
}

fn data() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: N_NODES,
        n_classes: N_CLASSES,
        degree: 6,
        homophily: 0.8,
        dim: 8,
        noise: 1.5,
        seed: 5,
    };
    synthetic::sbm(config).unwrap()
}

fn loader(data: &Dataset, shard: Shard) -> Loader<DeviceBatcher<NodeBatcher<NeighborSampler>>> {
    // All neighbours are taken, so only the masks are random.
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::All; 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let batch_size = GLOBAL_BATCH / shard.world_size;
    let items = ItemSamplerConfig { batch_size, seed: 1, shard, ..Default::default() };
    let nodes: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, LoaderConfig::default()).unwrap()
}

/// Trains a model for two epochs on `n_ranks` ranks, with a learning rate so small that no weight changes.
fn train(n_ranks: usize, dropout: f64) -> Outputs {
    let (data, outputs) = (data(), Mutex::new(Outputs::new()));
    let ranks = ThreadRanks { n_ranks, threads_per_rank: 1, deadline: Duration::from_secs(60) };
    let done = ranks.run(|comm| {
        let rank_info = comm.rank_info();
        let (d_in, aggregate) = (8, Aggregate::Mean);
        let model = SageConfig {
            d_in,
            hidden: 16,
            n_classes: N_CLASSES,
            n_layers: 2,
            aggregate,
            input_dropout: dropout,
            dropout,
            ..SageConfig::new(d_in, N_CLASSES)
        };
        let task = Noted { task: NodeClassification::new(), outputs: &outputs };
        // The learning rate is so small that, after rounding, no step changes the weights.
        let optimizer = OptimizerConfig::adam(1e-30, 0.0);
        let config = TrainerConfig { seed: 1, ..TrainerConfig::new(optimizer) };
        let mut trainer = TaskTrainer::new(task, &config, comm, |key, device| model.init(key, device))?;
        let loader = loader(&data, Shard { rank: rank_info.rank, world_size: rank_info.world_size });
        for _ in 0..2 {
            trainer.epoch(&loader, |_| ())?;
        }
        Ok(())
    });
    done.unwrap();
    outputs.into_inner().unwrap()
}

fn is_close(one: &[f32], other: &[f32]) -> bool {
    one.iter().zip(other).all(|(one, other)| (one - other).abs() <= TOLERANCE)
}

/// Returns the two outputs of each seed, one per epoch.
fn by_seed(outputs: &Outputs) -> BTreeMap<NodeId, Vec<&Vec<f32>>> {
    let mut by_seed = BTreeMap::<_, Vec<_>>::new();
    for ((_, seed), row) in outputs {
        by_seed.entry(*seed).or_default().push(row);
    }
    assert!(by_seed.len() == N_NODES && by_seed.values().all(|rows| rows.len() == 2));
    by_seed
}

#[test]
fn dropout_masks_depend_on_the_step_but_not_on_the_number_of_ranks() {
    let alone = train(1, 0.5);
    for n_ranks in [2, 4] {
        let together = train(n_ranks, 0.5);
        assert!(alone.keys().eq(together.keys()), "{n_ranks} ranks should have the same steps and seeds");
        for ((place, one), other) in alone.iter().zip(together.values()) {
            assert!(is_close(one, other), "{n_ranks} ranks, {place:?}: {one:?} and {other:?}");
        }
    }
    for (seed, rows) in by_seed(&alone) {
        assert!(!is_close(rows[0], rows[1]), "node {} has equal outputs in two steps: {rows:?}", seed.0);
    }
}

/// The test above relies on this: without dropout, no output changes from step to step.
#[test]
fn without_dropout_a_seeds_output_is_equal_in_all_steps() {
    for (seed, rows) in by_seed(&train(2, 0.0)) {
        assert!(is_close(rows[0], rows[1]), "node {}: {rows:?}", seed.0);
    }
}
