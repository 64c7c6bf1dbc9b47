//! A panic of one rank, or of its loader, ends the run of all ranks with an error that contains the rank.
//!
//! The deadline is ten minutes, so the tests would notice ranks that wait for it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::tensor::Tensor;
use kiln_comm::{Failure, RankError};
use kiln_graph::NodeId;
use kiln_loader::{
    BatchError, Batcher, ItemSampler, LoaderConfig, MiniBatch, NodeBatcher, SeedBatch, StageTimes,
};
use kiln_nn::{ForwardContext, Sage};
use kiln_sample::{NeighborSampler, Scratch};
use kiln_train::{
    BatchTargets, Error, MetricSums, NodeClassification, NodeInput, StepOutput, Task, TaskTrainer,
};

use crate::common::{config, data, loader, nodes, ranks, sage, shard, trainer};

/// The time limit for all ranks to end. The documented limit is two seconds, but a busy machine may take longer.
const SOON: Duration = Duration::from_secs(120);

/// Classifies nodes and, if `steps_left` is set, panics in the forward pass after that many steps.
struct Panicking {
    task: NodeClassification<Sage>,
    steps_left: Mutex<Option<usize>>,
    panicked: Arc<Mutex<Option<Instant>>>,
}

impl Task for Panicking {
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
        if let Some(steps_left) = &mut *self.steps_left.lock().unwrap() {
            if *steps_left == 0 {
                *self.panicked.lock().unwrap() = Some(Instant::now());
                panic!("injected panic in the forward pass");
            }
            *steps_left -= 1;
        }
        self.task.forward(model, input, embedded, ctx)
    }

    fn targets(&self, input: &NodeInput) -> BatchTargets {
        self.task.targets(input)
    }

    fn count(labels: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        NodeClassification::<Sage>::count(labels, outputs, counts);
    }
}

/// The error of each rank except the panicking one, with the rank, and the error of the run.
struct Told {
    others: Vec<(usize, String)>,
    error: RankError,
}

#[test]
fn a_panic_of_one_rank_ends_all_ranks_with_an_error_that_names_it() {
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
    assert_eq!(message, "injected panic in the forward pass");
    assert_eq!(told.error.to_string(), "rank 1: panicked: injected panic in the forward pass");
    let mut ranks: Vec<usize> = told.others.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 2, 3]);
    for (rank, text) in &told.others {
        assert!(
            text.contains("rank 1 panicked in step 3: injected panic in the forward pass"),
            "rank {rank}: {text}"
        );
    }
}

/// Makes batches for nodes, and panics at the step `at_step` if it is set.
struct PanickingBatcher {
    batcher: NodeBatcher<NeighborSampler>,
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
        assert_ne!(Some(seeds.step), self.at_step, "injected panic in the loader");
        self.batcher.batch(seeds, scratch, times)
    }

    fn n_bytes(batch: &MiniBatch) -> usize {
        batch.n_bytes()
    }
}

#[test]
fn a_panic_of_one_ranks_loader_ends_all_ranks_with_an_error_that_names_it() {
    let data = data(400);
    for workers in [0, 1, 3] {
        let others = Mutex::new(Vec::new());
        let outcome = ranks(3).run(|comm| {
            let shard = shard(&*comm);
            let sampler =
                NeighborSampler::new(data.csc().unwrap().clone(), [kiln_sample::Fanout::UpTo(3); 2]);
            let batcher =
                NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
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
        assert!(message.contains("injected panic in the loader") && message.contains("step 5"), "{message}");
        let others = others.into_inner().unwrap();
        assert_eq!(others.len(), 3);
        for (rank, text) in others.iter().filter(|(rank, _)| *rank != 2) {
            let is_named =
                text.contains("rank 2 failed in step 5") && text.contains("injected panic in the loader");
            assert!(is_named, "rank {rank} with {workers} workers: {text}");
        }
    }
}
