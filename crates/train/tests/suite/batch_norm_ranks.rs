//! Models with batch normalisation on two ranks: all ranks get rank 0's running statistics, and resume with them.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use kiln_comm::{Communicator, SingleRank};
use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::{CscBuilder, GraphId};
use kiln_loader::{GraphBatcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, Phase, Shard};
use kiln_nn::{Gin, GinConfig};
use kiln_sample::RngKey;
use kiln_train::{
    DeviceBatcher, EpochReport, FitConfig, GraphClassification, MetricSums, OptimizerConfig, Run, RunFolder,
    RunIdentity, StepReport, TaskTrainer, TrainCallback, TrainerConfig, VALIDATION, fit, weights_to_bytes,
};

use crate::common::{ranks, shard};

/// The number of seeds of all ranks in a step. An epoch has 5 steps, the last one short.
const GLOBAL_BATCH: usize = 8;
const N_GRAPHS: u32 = 36;

/// Returns a loader of rings of 3 to 9 nodes with the features `[1, position]`. The class of a ring is 1 if it has more
/// than 5 nodes.
fn loader(shard: Shard) -> Loader<DeviceBatcher<GraphBatcher<dyn FeatureStore>>> {
    let (mut offsets, mut srcs, mut dsts, mut x) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    let n_nodes = |graph: u32| 3 + graph * 5 % 7;
    for graph in 0..N_GRAPHS {
        let start = offsets[offsets.len() - 1];
        for node in 0..n_nodes(graph) {
            srcs.push(start + node);
            dsts.push(start + (node + 1) % n_nodes(graph));
            x.extend([1.0, node as f32]);
        }
        offsets.push(start + n_nodes(graph));
    }
    let graph = CscBuilder::new(x.len() / 2).symmetrize().build(&srcs, &dsts).unwrap();
    let labels: Vec<i32> = (0..N_GRAPHS).map(|graph| i32::from(5 < n_nodes(graph))).collect();
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(x, 2).unwrap());
    let batcher =
        GraphBatcher::new(Arc::new(graph), offsets.into(), features, Arc::new(Labels::new(labels, 2)));
    let batch_size = GLOBAL_BATCH / shard.world_size;
    let items = ItemSamplerConfig { batch_size, seed: 3, shard, ..Default::default() };
    let config = LoaderConfig { workers: 1, ..Default::default() };
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    let graphs: Vec<GraphId> = (0..N_GRAPHS).map(GraphId).collect();
    Loader::new(ItemSampler::new(graphs, items).unwrap(), batcher, config).unwrap()
}

fn trainer(comm: Box<dyn Communicator>) -> TaskTrainer<GraphClassification<Gin>> {
    let model = GinConfig { n_layers: 2, ..GinConfig::paper(2, 6, 2) };
    let config = TrainerConfig { seed: 3, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) };
    let init = |_, device: &Device| model.init(RngKey::new(1), device);
    TaskTrainer::new(GraphClassification::new(), &config, comm, init).unwrap()
}

/// Collects the values that are not trained: running statistics and fixed epsilons.
#[derive(Default)]
struct Buffers(Vec<f32>);

impl ModuleVisitor for Buffers {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.val().is_require_grad() {
            self.0.extend(kiln_kernels::to_vec_f32(param.val()));
        }
    }
}

fn buffers(model: &Gin) -> Vec<f32> {
    // Burn defers the last update of running statistics until they are read. `valid` reads them.
    drop(model.valid());
    let mut buffers = Buffers::default();
    model.visit(&mut buffers);
    buffers.0
}

/// Returns the buffers after one step of training alone, without other ranks, on the items that `rank` has if two ranks
/// share them.
fn statistics_alone(rank: usize) -> Vec<f32> {
    let mut trainer = trainer(Box::new(SingleRank::new()));
    let shard = Shard { rank, world_size: 2 };
    trainer.epoch_of(loader(shard).epoch(Phase::Train { epoch: 0 }).take(1), |_| ()).unwrap();
    buffers(trainer.model())
}

#[test]
fn all_ranks_get_the_running_statistics_of_rank_0() {
    let of_ranks = ranks(2).run(|comm| {
        let loader = loader(shard(&*comm));
        let mut trainer = trainer(comm);
        trainer.epoch_of(loader.epoch(Phase::Train { epoch: 0 }).take(1), |_| ())?;
        Ok(buffers(trainer.model()))
    });
    let of_ranks = of_ranks.unwrap();
    let (first, second) = (statistics_alone(0), statistics_alone(1));
    assert_ne!(first, second);
    assert_eq!(of_ranks, [first.clone(), first]);
}

#[test]
fn all_ranks_have_identical_weights_and_buffers() {
    let of_ranks = ranks(2).run(|comm| {
        let loader = loader(shard(&*comm));
        let mut trainer = trainer(comm);
        for _ in 0..3 {
            // The end of an epoch compares the models of the ranks.
            trainer.epoch(&loader, |_| ())?;
        }
        trainer.evaluate(loader.epoch(VALIDATION), |_, _| ())?;
        Ok((weights_to_bytes(trainer.model())?, buffers(trainer.model())))
    });
    let of_ranks = of_ranks.unwrap();
    assert_eq!(of_ranks[0], of_ranks[1]);
}

/// A callback that panics after this many steps.
struct StopAfter(usize);

impl TrainCallback for StopAfter {
    fn step(&mut self, _: &StepReport) {
        self.0 -= 1;
        assert!(0 < self.0, "injected stop");
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// Starts or resumes a run of 2 epochs on 2 ranks, in which rank 0 panics after `n_steps` more steps. Returns the last
/// and the best weights of each rank.
fn train(
    open: impl Fn() -> kiln_train::Result<RunFolder> + Sync,
    n_steps: usize,
) -> Result<Vec<[Vec<u8>; 2]>, String> {
    let left = ranks(2).run(|comm| {
        let (loader, is_first) = (loader(shard(&*comm)), comm.rank_info().rank == 0);
        let mut trainer = trainer(comm);
        let mut run = Run::start(&mut trainer, &open, RunIdentity::default())?;
        let config = FitConfig { n_epochs: 2, patience: None, checkpoint_every: Some(2) };
        let validate = |trainer: &mut TaskTrainer<_>| trainer.evaluate(loader.epoch(VALIDATION), |_, _| ());
        let mut stop = StopAfter(if is_first { n_steps } else { usize::MAX });
        fit(&mut trainer, &loader, config, validate, &mut run, &mut stop)?;
        let last = weights_to_bytes(trainer.model())?;
        run.load_best(&mut trainer)?;
        Ok([last, weights_to_bytes(trainer.model())?])
    });
    left.map_err(|error| error.to_string())
}

#[test]
fn a_run_killed_within_an_epoch_resumes_to_bit_identical_weights() {
    let whole = tempfile::tempdir().unwrap();
    let expected = train(|| RunFolder::create(whole.path()), usize::MAX).unwrap();
    assert_eq!(expected[0], expected[1]);
    for n_steps in 1..=10 {
        let folder = tempfile::tempdir().unwrap();
        let error = train(|| RunFolder::create(folder.path()), n_steps).unwrap_err();
        assert!(error.contains("injected stop"), "{error}");
        let found = train(|| RunFolder::open(folder.path()), usize::MAX).unwrap();
        assert!(found == expected, "results differ after a stop in step {n_steps}");
    }
}
