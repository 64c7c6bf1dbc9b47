//! A rank that panics, or whose loader does, ends the run of all ranks with its name.
//!
//! The deadline is ten minutes, and nobody waits for it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use kiln_comm::{Failure, RankError};
use kiln_feature::FeatureStore;
use kiln_graph::NodeId;
use kiln_loader::{
    BatchError, Batcher, ItemSampler, LoaderConfig, MiniBatch, NodeBatcher, SeedBatch, StageTimes,
};
use kiln_nn::{ForwardContext, Sage};
use kiln_sample::{NeighborSampler, Scratch};
use kiln_train::{Error, MetricSums, NodeClassification, NodeInput, StepOutput, Task, TaskTrainer};

use crate::common::{config, data, loader, nodes, ranks, sage, shard, trainer};

/// What is promised is two seconds, which a machine that does other things besides may not keep.
const SOON: Duration = Duration::from_secs(20);

/// Classifies nodes, and panics in its forward pass of that step if there is one.
struct Panicking {
    task: NodeClassification<Sage>,
    steps_left: Mutex<Option<usize>>,
    panicked: Arc<Mutex<Option<Instant>>>,
}

impl Task for Panicking {
    type Input = NodeInput;
    type Model = Sage;
    type Targets = Vec<i32>;

    fn forward(&self, model: &Sage, input: &NodeInput, ctx: &ForwardContext) -> StepOutput {
        if let Some(steps_left) = &mut *self.steps_left.lock().unwrap() {
            if *steps_left == 0 {
                *self.panicked.lock().unwrap() = Some(Instant::now());
                panic!("the layer of glass broke");
            }
            *steps_left -= 1;
        }
        self.task.forward(model, input, ctx)
    }

    fn targets(&self, input: &NodeInput) -> Vec<i32> {
        self.task.targets(input)
    }

    fn count(labels: &Vec<i32>, outputs: &Tensor<2>, counts: &mut MetricSums) {
        NodeClassification::<Sage>::count(labels, outputs, counts);
    }
}

/// What each rank but the second was told, by rank, and what the run said.
struct Told {
    others: Vec<(usize, String)>,
    error: RankError,
}

#[test]
fn a_panic_of_one_rank_in_a_step_ends_all_with_its_name() {
    let data = data(400);
    let (others, panicked) = (Mutex::new(Vec::new()), Arc::default());
    let outcome = ranks(4).run(|comm| {
        let shard = shard(&*comm);
        let steps_left = Mutex::new((shard.rank == 1).then_some(3));
        let task = Panicking { task: NodeClassification::new(), steps_left, panicked: Arc::clone(&panicked) };
        let mut trainer = TaskTrainer::new(task, &config(), comm, |_, _| Ok(sage(&data, [0.0, 0.0])))?;
        let outcome = trainer.epoch(&loader(&data, &nodes(400), 40, shard), |_| ());
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Ranks(_)), "{error}");
        others.lock().unwrap().push((shard.rank, error.to_string()));
        Err::<(), _>(error.into())
    });
    let panicked = panicked.lock().unwrap().unwrap();
    println!("all ranks had ended {:?} after the panic", panicked.elapsed());
    assert!(panicked.elapsed() < SOON);
    check(&Told { others: others.into_inner().unwrap(), error: outcome.unwrap_err() });
}

fn check(told: &Told) {
    let RankError::Rank { rank: 1, n_ranks: 4, failure: Failure::Panicked { message } } = &told.error else {
        panic!("{:?}", told.error);
    };
    assert_eq!(message, "the layer of glass broke");
    assert_eq!(told.error.to_string(), "rank 1: panicked: the layer of glass broke");
    let mut ranks: Vec<usize> = told.others.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 2, 3]);
    for (rank, text) in &told.others {
        assert!(text.contains("rank 1 panicked in step 3: the layer of glass broke"), "rank {rank}: {text}");
    }
}

/// Makes batches for nodes, and panics at that step if there is one.
struct PanickingBatcher {
    batcher: NodeBatcher<NeighborSampler, dyn FeatureStore>,
    at_step: Option<usize>,
}

impl Batcher for PanickingBatcher {
    type Item = NodeId;
    type Batch = MiniBatch;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<MiniBatch, BatchError> {
        assert_ne!(Some(seeds.step), self.at_step, "the shelf is empty");
        self.batcher.batch(seeds, scratch, times)
    }

    fn n_bytes(batch: &MiniBatch) -> usize {
        batch.n_bytes()
    }
}

#[test]
fn a_panic_of_one_ranks_loader_ends_all_with_its_name() {
    let data = data(400);
    for workers in [0, 1, 3] {
        let others = Mutex::new(Vec::new());
        let outcome = ranks(3).run(|comm| {
            let shard = shard(&*comm);
            let sampler = NeighborSampler::new(data.graph.clone(), [kiln_sample::Fanout::UpTo(3); 2]);
            let batcher = NodeBatcher::new(sampler.into(), data.features.clone(), data.labels.clone());
            let batcher = PanickingBatcher { batcher, at_step: (shard.rank == 2).then_some(5) };
            let items =
                kiln_loader::ItemSamplerConfig { batch_size: 10, seed: 1, shard, ..Default::default() };
            let config = LoaderConfig { workers, ..Default::default() };
            let mut trainer = trainer(&data, comm);
            let loader = trainer.loader(ItemSampler::new(nodes(400), items)?, batcher, config)?;
            let error = trainer.epoch(&loader, |_| ()).unwrap_err();
            others.lock().unwrap().push((shard.rank, error.to_string()));
            Err::<(), _>(error.into())
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.rank(), Some(2), "{error}");
        let message = error.to_string();
        assert!(message.contains("the shelf is empty") && message.contains("step 5"), "{message}");
        let others = others.into_inner().unwrap();
        assert_eq!(others.len(), 3);
        for (rank, text) in others.iter().filter(|(rank, _)| *rank != 2) {
            let is_named = text.contains("rank 2 failed in step 5") && text.contains("the shelf is empty");
            assert!(is_named, "rank {rank} with {workers} workers: {text}");
        }
    }
}
