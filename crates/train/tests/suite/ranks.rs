//! Tests that several ranks train the same model as one rank: they use the same seeds, samples and masks, and gradients
//! are means over all seeds.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use kiln_comm::{Communicator, SingleRank};
use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_loader::{Phase, Shard};
use kiln_nn::{ForwardContext, Mode, Sage};
use kiln_train::{
    DeviceAllReduce, DeviceBatch, GradientSync, HostAllReduce, LossWeight, NodeClassification, NodeInput,
    Task, TaskTrainer, weights_to_bytes,
};

use crate::common::{config, data, loader, nodes, ranks, sage, shard, trainer};

const TRAIN: Phase = Phase::Train { epoch: 0 };

/// The number of seeds of all ranks together in a step. Each of two ranks has 2048 of them, each of four ranks 1024.
const GLOBAL_BATCH: usize = 4096;

/// The number of seeds of an epoch. The second step has three, so one of four ranks has none.
const N_SEEDS: u32 = 4099;

/// The tolerance for the difference between the gradients of several ranks and of one rank, relative to the norm of the
/// latter. Several ranks add the same terms in another order.
const GRADIENT_TOLERANCE: f64 = 1e-5;

/// Collects the gradients as one array, in the model's order.
struct Flatten<'a> {
    gradients: &'a GradientsParams,
    values: Vec<f32>,
}

impl ModuleVisitor for Flatten<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let gradient = self.gradients.get::<D>(param.id).unwrap();
        self.values.extend(kiln_kernels::to_vec_f32(gradient));
    }
}

fn flatten(model: &Sage, gradients: &GradientsParams) -> Vec<f32> {
    let mut visitor = Flatten { gradients, values: Vec::new() };
    model.visit(&mut visitor);
    visitor.values
}

/// Averages and records the gradients, but returns none, so all steps start with the same parameters.
#[derive(Debug)]
struct Recording {
    sync: HostAllReduce,
    steps: Arc<Mutex<Vec<Vec<f32>>>>,
}

impl GradientSync<Sage> for Recording {
    fn average(
        &mut self,
        comm: &mut dyn Communicator,
        model: &Sage,
        gradients: GradientsParams,
        weight: LossWeight,
    ) -> kiln_train::Result<GradientsParams> {
        let averaged = self.sync.average(comm, model, gradients, weight)?;
        self.steps.lock().unwrap().push(flatten(model, &averaged));
        Ok(GradientsParams::new())
    }
}

/// Returns each step's gradients of the mean loss over all seeds, computed without a trainer or ranks.
fn gradients_of_one(data: &Dataset, seeds: &[NodeId], dropout: [f64; 2]) -> Vec<Vec<f32>> {
    let (task, model) = (NodeClassification::<Sage>::new(), sage(data, dropout));
    let gradients = |batch: kiln_loader::Result<DeviceBatch<NodeInput>>| {
        let batch = batch.unwrap();
        let forward =
            task.forward(&model, &batch.input, &[], &ForwardContext { key: batch.key, mode: Mode::Train });
        let loss = forward.loss_sum / batch.n_items as f32;
        flatten(&model, &GradientsParams::from_grads(loss.backward(), &model))
    };
    loader(data, seeds, GLOBAL_BATCH, Shard::default()).epoch(TRAIN).map(gradients).collect()
}

/// Returns each step's gradients of trainers on several ranks, which must be bit-identical on all ranks.
fn gradients_of(n_ranks: usize, data: &Dataset, seeds: &[NodeId], dropout: [f64; 2]) -> Vec<Vec<f32>> {
    let of_ranks = ranks(n_ranks).run(|comm| {
        let (shard, steps) = (shard(&*comm), Arc::default());
        let recording = Recording { sync: HostAllReduce::default(), steps: Arc::clone(&steps) };
        let trainer =
            TaskTrainer::new(NodeClassification::new(), &config(), comm, |_, _| Ok(sage(data, dropout)))?;
        let mut trainer = trainer.with_sync(recording);
        trainer.epoch(&loader(data, seeds, GLOBAL_BATCH, shard), |_| ())?;
        let steps = steps.lock().unwrap().clone();
        Ok(steps)
    });
    let of_ranks = of_ranks.unwrap();
    assert!(of_ranks.iter().all(|steps| *steps == of_ranks[0]));
    of_ranks[0].clone()
}

pub(crate) fn distance(one: &[f32], other: &[f32]) -> f64 {
    assert_eq!(one.len(), other.len());
    let norm = |squares: f64| squares.sqrt();
    let apart = one.iter().zip(other).map(|(a, b)| f64::from(a - b).powi(2)).sum();
    norm(apart) / norm(one.iter().map(|a| f64::from(*a).powi(2)).sum())
}

#[test]
fn gradients_of_several_ranks_equal_those_of_one_rank_with_the_whole_batch() {
    let (data, seeds) = (data(4500), nodes(N_SEEDS));
    for dropout in [[0.0, 0.0], [0.1, 0.5]] {
        let one = gradients_of_one(&data, &seeds, dropout);
        assert_eq!(one.len(), 2);
        for n_ranks in [2, 4] {
            let all = gradients_of(n_ranks, &data, &seeds, dropout);
            assert_eq!(all.len(), 2);
            for (step, (one, all)) in one.iter().zip(&all).enumerate() {
                let distance = distance(one, all);
                println!("dropout {dropout:?}, {n_ranks} ranks, step {step}: {distance:.2e}");
                assert!(distance <= GRADIENT_TOLERANCE, "{n_ranks} ranks, step {step}: {distance:e}");
            }
        }
        // Gradients with other dropout masks differ by much more than the tolerance.
        let masked = gradients_of_one(&data, &seeds, [0.1, 0.5]);
        let plain = gradients_of_one(&data, &seeds, [0.0, 0.0]);
        assert!(distance(&plain[0], &masked[0]) > 1e3 * GRADIENT_TOLERANCE);
    }
}

/// Returns the outputs of a model with dropout for each seed that this shard has in an epoch.
fn outputs(data: &Dataset, seeds: &[NodeId], shard: Shard) -> HashMap<NodeId, Vec<f32>> {
    let (task, model) = (NodeClassification::<Sage>::new(), sage(data, [0.1, 0.5]));
    let mut rows = HashMap::new();
    for batch in loader(data, seeds, GLOBAL_BATCH, shard).epoch(TRAIN) {
        let batch = batch.unwrap();
        if batch.n_items == 0 {
            continue;
        }
        let ctx = ForwardContext { key: batch.key, mode: Mode::Train };
        let values = kiln_kernels::to_vec_f32(task.forward(&model, &batch.input, &[], &ctx).outputs);
        let width = values.len() / batch.n_items;
        for (seed, row) in batch.input.seeds.iter().zip(values.chunks(width)) {
            assert!(rows.insert(*seed, row.to_vec()).is_none(), "{seed:?} twice");
        }
    }
    rows
}

/// Each seed has the same neighbours and masks on any rank. Other neighbours or masks would change the outputs by about
/// 1.
#[test]
fn samples_and_masks_of_a_global_batch_are_equal_on_1_2_and_4_ranks() {
    const ROUNDING: f32 = 1e-5;
    let (data, seeds) = (data(4500), nodes(N_SEEDS));
    let one = outputs(&data, &seeds, Shard::default());
    assert_eq!(one.len(), N_SEEDS as usize);
    for world_size in [2, 4] {
        let shares = (0..world_size).map(|rank| outputs(&data, &seeds, Shard { rank, world_size }));
        let all: Vec<_> = shares.flatten().collect();
        assert_eq!(all.len(), N_SEEDS as usize);
        for (seed, row) in all {
            let close = row.iter().zip(&one[&seed]).all(|(a, b)| (a - b).abs() <= ROUNDING);
            assert!(close, "{seed:?} on {world_size} ranks: {row:?} and {:?}", one[&seed]);
        }
    }
}

/// Trains three epochs. Returns, by rank, the weights and the seeds of each epoch, and checks that the counts are of
/// all seeds.
fn train(n_ranks: usize, data: &Dataset, seeds: &[NodeId], batch: usize) -> Vec<(Vec<u8>, Vec<Vec<NodeId>>)> {
    let of_ranks = ranks(n_ranks).run(|comm| {
        let loader = loader(data, seeds, batch, shard(&*comm));
        let mut trainer = trainer(data, comm);
        let mut visited = Vec::new();
        for _ in 0..3 {
            let mut seen = Vec::new();
            let batches = loader.epoch(trainer.next_phase()).inspect(|batch| {
                seen.extend_from_slice(&batch.as_ref().unwrap().input.seeds);
            });
            let report = trainer.epoch_of(batches, |_| ())?;
            assert_eq!((report.counts.total, report.counts.weight), (seeds.len() as u64, seeds.len() as f64));
            visited.push(seen);
        }
        Ok((weights_to_bytes(trainer.model())?, visited))
    });
    of_ranks.unwrap()
}

#[test]
fn each_of_4097_seeds_counts_once_on_4_ranks_of_1024() {
    let (data, seeds) = (data(4500), nodes(4097));
    let of_ranks = train(4, &data, &seeds, GLOBAL_BATCH);
    for epoch in 0..3 {
        let mut seen: Vec<_> = of_ranks.iter().flat_map(|(_, visited)| visited[epoch].clone()).collect();
        seen.sort();
        assert_eq!(seen, seeds);
    }
    // The last of the 4097 seeds of an epoch belongs to rank 0.
    assert_eq!(of_ranks.iter().map(|(_, seen)| seen[0].len()).collect::<Vec<_>>(), [1025, 1024, 1024, 1024]);
    assert!(of_ranks.iter().all(|(weights, _)| *weights == of_ranks[0].0));
}

#[test]
fn a_rank_without_seeds_gets_the_weights_of_the_others() {
    let (data, seeds) = (data(100), nodes(3));
    let of_ranks = train(4, &data, &seeds, 16);
    assert!(of_ranks[3].1.iter().all(Vec::is_empty));
    assert!(of_ranks.iter().all(|(weights, _)| *weights == of_ranks[0].0));
    let start = weights_to_bytes(trainer(&data, Box::new(SingleRank::new())).model()).unwrap();
    assert_ne!(of_ranks[0].0, start);
}

/// All ranks have the same device, as in all tests of this file.
#[test]
fn training_on_ranks_that_share_a_device_is_deterministic() {
    let (data, seeds) = (data(400), nodes(301));
    for n_ranks in [1, 2, 4] {
        let first = train(n_ranks, &data, &seeds, 64);
        for _ in 0..2 {
            assert_eq!(train(n_ranks, &data, &seeds, 64), first);
        }
    }
    let devices = ranks(2).run(|comm| Ok(trainer(&data, comm).device().clone())).unwrap();
    assert_eq!(devices[0], devices[1]);
}

/// Gradients differ by rounding, which 15 steps of Adam accumulate. Adam divides a gradient by its magnitude, so for
/// the few weights whose gradient is almost zero, rounding may change a whole step of 0.01.
#[test]
fn models_of_1_2_and_4_ranks_are_close() {
    const TOLERANCE: f64 = 1e-4;
    let (data, seeds) = (data(400), nodes(301));
    let weights = |n_ranks: usize| -> Vec<f32> {
        let bytes = &train(n_ranks, &data, &seeds, 64)[0].0;
        let mut model = sage(&data, [0.0, 0.0]);
        kiln_train::load_weights(&mut model, bytes.clone()).unwrap();
        Values::of(&model)
    };
    let one = weights(1);
    for n_ranks in [2, 4] {
        let distance = distance(&one, &weights(n_ranks));
        println!("{n_ranks} ranks: {distance:.2e}");
        assert!(distance <= TOLERANCE, "{n_ranks} ranks: {distance:e}");
    }
}

/// Collects the values of all parameters.
pub(crate) struct Values(Vec<f32>);

impl Values {
    pub(crate) fn of(model: &impl Module) -> Vec<f32> {
        let mut values = Self(Vec::new());
        model.visit(&mut values);
        values.0
    }
}

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(kiln_kernels::to_vec_f32(param.val()));
    }
}

/// Training with gradients that are summed as one tensor on their device gives the same weights, bit for bit, as with
/// gradients that are summed through host memory. In the second step, one rank has no seeds.
#[test]
fn gradients_summed_on_the_device_give_identical_weights() {
    let (data, seeds) = (data(4500), nodes(N_SEEDS));
    let train_by = |on_device: bool| {
        let weights = ranks(4).run(|mut comm| {
            let shard = shard(&*comm);
            let mut other = comm.duplicate("gradients")?;
            let sum = move |bucket: Tensor<1>| {
                let device = bucket.device();
                let mut values = kiln_kernels::to_vec_f32(bucket);
                other.all_reduce_sum(kiln_comm::Reduce::F32(&mut values))?;
                Ok(Tensor::from_floats(values.as_slice(), &device))
            };
            let mut trainer = trainer(&data, comm);
            if on_device {
                trainer = trainer.with_sync(DeviceAllReduce::new(sum));
            }
            trainer.epoch(&loader(&data, &seeds, GLOBAL_BATCH, shard), |_| ())?;
            Ok(weights_to_bytes(trainer.model())?)
        });
        weights.unwrap()
    };
    assert!(train_by(true) == train_by(false));
}
