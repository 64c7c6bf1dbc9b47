//! Dropout across ranks: the masks of a step belong to the step and its nodes, not to the rank that has them.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use burn::tensor::{Device, Tensor};
use kiln_comm::ThreadRanks;
use kiln_data::{Dataset, synthetic};
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Shard};
use kiln_nn::{Aggregate, ForwardContext, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    DeviceBatcher, MetricSums, NodeClassification, NodeInput, OptimizerConfig, StepOutput, Task, TaskTrainer,
    TrainerConfig,
};

/// Seeds of all ranks in a step; an epoch has 4 steps, the last with 2 seeds, so that of 4 ranks some have none.
const GLOBAL_BATCH: usize = 64;
const N_NODES: usize = 3 * GLOBAL_BATCH + 2;
const N_CLASSES: usize = 4;

/// Outputs are of about 1, and each node's sums are made in the same order on any rank; what may differ is how a
/// product of matrices of another number of rows adds up.
const TOLERANCE: f32 = 1e-5;

/// Each seed's outputs in training mode, by step and node.
type Outputs = BTreeMap<(RngKeyWords, NodeId), Vec<f32>>;
type RngKeyWords = [u32; 2];

/// Node classification that notes what the trainer's forward passes give.
struct Noted<'a> {
    task: NodeClassification<Sage>,
    outputs: &'a Mutex<Outputs>,
}

impl Task for Noted<'_> {
    type Input = NodeInput;
    type Model = Sage;
    type Targets = Vec<i32>;

    fn forward(&self, model: &Sage, input: &NodeInput, ctx: &ForwardContext) -> StepOutput {
        let forward = self.task.forward(model, input, ctx);
        let rows = kiln_kernels::to_vec_f32(forward.outputs.clone());
        let mut outputs = self.outputs.lock().unwrap();
        for (seed, row) in input.seeds.iter().zip(rows.chunks_exact(N_CLASSES)) {
            let before = outputs.insert((ctx.key.words(), *seed), row.to_vec());
            assert!(before.is_none(), "node {} stands twice in a step", seed.0);
        }
        forward
    }

    fn targets(&self, input: &NodeInput) -> Vec<i32> {
        self.task.targets(input)
    }

    fn count(labels: &Vec<i32>, outputs: &Tensor<2>, counts: &mut MetricSums) {
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

fn loader(
    data: &Dataset,
    shard: Shard,
) -> Loader<DeviceBatcher<NodeBatcher<NeighborSampler, dyn FeatureStore>>> {
    // All neighbours: nothing but the masks is random in a step.
    let sampler = NeighborSampler::new(data.graph.clone(), [Fanout::All; 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.features.clone(), data.labels.clone());
    let batch_size = GLOBAL_BATCH / shard.world_size;
    let items = ItemSamplerConfig { batch_size, seed: 1, shard, ..Default::default() };
    let nodes: Vec<NodeId> = (0..N_NODES as u32).map(NodeId).collect();
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, LoaderConfig::default()).unwrap()
}

/// Two epochs of these ranks, of a model that does not move.
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
        };
        let task = Noted { task: NodeClassification::new(), outputs: &outputs };
        // A step of this is lost in rounding.
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

/// The two outputs of each seed, one an epoch.
fn by_seed(outputs: &Outputs) -> BTreeMap<NodeId, Vec<&Vec<f32>>> {
    let mut by_seed = BTreeMap::<_, Vec<_>>::new();
    for ((_, seed), row) in outputs {
        by_seed.entry(*seed).or_default().push(row);
    }
    assert!(by_seed.len() == N_NODES && by_seed.values().all(|rows| rows.len() == 2));
    by_seed
}

#[test]
fn a_seed_has_one_output_for_any_number_of_ranks_and_another_in_another_step() {
    let alone = train(1, 0.5);
    for n_ranks in [2, 4] {
        let together = train(n_ranks, 0.5);
        assert!(alone.keys().eq(together.keys()), "{n_ranks} ranks have other steps or seeds");
        for ((place, one), other) in alone.iter().zip(together.values()) {
            assert!(is_close(one, other), "{n_ranks} ranks, {place:?}: {one:?} and {other:?}");
        }
    }
    for (seed, rows) in by_seed(&alone) {
        assert!(!is_close(rows[0], rows[1]), "node {} has one mask in two steps: {rows:?}", seed.0);
    }
}

/// What the test above says of masks rests on this: nothing else differs from step to step.
#[test]
fn without_dropout_a_seed_has_one_output_in_all_steps() {
    for (seed, rows) in by_seed(&train(2, 0.0)) {
        assert!(is_close(rows[0], rows[1]), "node {}: {rows:?}", seed.0);
    }
}
