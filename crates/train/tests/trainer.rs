//! The trainer over tasks of its own: kinds of batches that it knows nothing of, ranks, faults.

// Helpers of tests unwrap as tests do.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_loader::StageTimes;
use kiln_nn::Ctx;
use kiln_sample::RngKey;
use kiln_train::{
    BucketSync, Counts, DeviceBatch, Error, Forward, GradientSync, MeanStepTime, Optimizer, OptimizerConfig,
    SingleRank, StepReport, Task, Trainer,
};

/// A linear model of one weight row, `[d, 1]`.
#[derive(Module, Debug)]
struct Linear {
    weight: Param<Tensor<2>>,
}

impl Linear {
    fn new(values: [f32; 2]) -> Self {
        let device = Device::flex().autodiff();
        let weight = Tensor::from_data(TensorData::new(values.to_vec(), [2, 1]), &device);
        Self { weight: Param::from_tensor(weight) }
    }

    fn values(&self) -> Vec<f32> {
        kiln_kernels::read_f32(self.weight.val())
    }
}

/// Regression on points of a plane: `(x, y) -> target`.
struct Plane;

type Point = ([f32; 2], f32);

impl Task for Plane {
    type Batch = Vec<Point>;
    type Input = (Tensor<2>, Tensor<2>);
    type Model = Linear;

    fn upload(&self, batch: Vec<Point>, device: &Device) -> DeviceBatch<Self::Input> {
        let n_items = batch.len();
        let x: Vec<f32> = batch.iter().flat_map(|(x, _)| *x).collect();
        let target: Vec<f32> = batch.iter().map(|(_, target)| *target).collect();
        let x = Tensor::from_data(TensorData::new(x, [n_items, 2]), device);
        let target = Tensor::from_data(TensorData::new(target, [n_items, 1]), device);
        let key = RngKey::new(0);
        DeviceBatch { key, n_items, times: StageTimes::default(), input: (x, target) }
    }

    fn forward(&self, model: &Linear, (x, target): &Self::Input, _: &Ctx) -> Forward {
        let outputs = x.clone().matmul(model.weight.val());
        let loss_sum = (outputs.clone() - target.clone()).powi_scalar(2).sum();
        Forward { outputs, loss_sum, weight: x.dims()[0] as f64 }
    }

    fn count(&self, (_, target): &Self::Input, outputs: &Tensor<2>, counts: &mut Counts) {
        let pairs =
            kiln_kernels::read_f32(target.clone()).into_iter().zip(kiln_kernels::read_f32(outputs.clone()));
        counts.hits = pairs.filter(|(target, output)| (target - output).abs() < 0.1).count() as u64;
        counts.total = target.dims()[0] as u64;
    }
}

/// Points of the plane `2 x - y`.
fn points(n: usize) -> Vec<Point> {
    let point = |i: usize| {
        let (x, y) = ((i * 37 % 19) as f32 / 19.0, (i * 53 % 23) as f32 / 23.0);
        ([x, y], 2.0 * x - y)
    };
    (0..n).map(point).collect()
}

fn adam(learning_rate: f64) -> OptimizerConfig {
    OptimizerConfig::adam(learning_rate, 0.0)
}

fn trainer<S: GradientSync<Linear>>(sync: S) -> Trainer<Plane, S> {
    Trainer::new(Plane, Linear::new([0.0, 0.0]), &adam(0.05), sync, Device::flex()).unwrap()
}

#[test]
fn any_task_trains() {
    let mut trainer = trainer(SingleRank);
    let mut seen = 0;
    for _ in 0..60 {
        let batches = points(64).chunks(16).map(|chunk| Ok(chunk.to_vec())).collect::<Vec<_>>();
        let mut steps = Duration::ZERO;
        let heard = |step: &StepReport| {
            seen += step.counts.total;
            steps += step.wall;
        };
        let report = trainer.epoch(batches, heard).unwrap();
        assert_eq!((report.n_steps, report.counts.total), (4, 64));
        let timings = report.timings;
        let parts = timings.wait + timings.upload + timings.forward + timings.backward + timings.update;
        // A step's time has all of its stages in it, and an epoch's all of its steps.
        assert!(parts <= steps && steps <= report.wall, "{parts:?}, {steps:?}, {:?}", report.wall);
    }
    assert_eq!(seen, 60 * 64);
    let values = trainer.model().values();
    assert!((values[0] - 2.0).abs() < 0.05 && (values[1] + 1.0).abs() < 0.05, "{values:?}");
    let counts = trainer.evaluate([Ok(points(10)), Ok(Vec::new())], |_, _| ()).unwrap();
    assert_eq!((counts.hits, counts.total), (10, 10));
    assert_eq!(counts.accuracy(), 1.0);
}

#[test]
fn the_mean_step_time_leaves_out_the_first_steps() {
    let mut mean = MeanStepTime::new(2);
    let mut means = Vec::new();
    for millis in [900, 50, 10, 20, 60] {
        mean.add(Duration::from_millis(millis));
        means.push(mean.mean().map(|mean| mean.as_millis()));
    }
    assert_eq!(means, [None, None, Some(10), Some(15), Some(30)]);
    assert_eq!(mean.n_steps(), 3);
    assert_eq!((MeanStepTime::new(0).mean(), MeanStepTime::new(0).n_steps()), (None, 0));
}

/// Sums over the ranks of one process, in rank order.
struct Meeting {
    parts: Mutex<Vec<Option<Vec<f32>>>>,
    barrier: Barrier,
}

impl Meeting {
    fn all_reduce_sum(&self, rank: usize, bucket: &mut [f32]) {
        self.parts.lock().unwrap()[rank] = Some(bucket.to_vec());
        self.barrier.wait();
        for (position, value) in bucket.iter_mut().enumerate() {
            let parts = self.parts.lock().unwrap();
            *value = parts.iter().map(|part| part.as_ref().unwrap()[position]).sum();
        }
        self.barrier.wait();
    }
}

/// Ranks with unequal shares, one of them empty in a step, learn what one rank with all items learns.
#[test]
fn gradients_of_ranks_average_by_weight() {
    let steps: [[Vec<Point>; 3]; 2] = [
        [points(9)[..4].to_vec(), points(9)[4..5].to_vec(), points(9)[5..].to_vec()],
        [points(3), Vec::new(), points(12)[3..].to_vec()],
    ];
    let mut alone = trainer(SingleRank);
    alone.epoch(steps.iter().map(|step| Ok(step.concat())), |_| ()).unwrap();

    let meeting = Arc::new(Meeting { parts: Mutex::new(vec![None; 3]), barrier: Barrier::new(3) });
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let meeting = Arc::clone(&meeting);
            let batches: Vec<_> = steps.iter().map(|step| Ok(step[rank].clone())).collect();
            std::thread::spawn(move || {
                let mut trainer = trainer(BucketSync::new(move |bucket: &mut [f32]| {
                    meeting.all_reduce_sum(rank, bucket);
                    Ok(())
                }));
                trainer.epoch(batches, |_| ()).unwrap();
                trainer.model().values()
            })
        })
        .collect();
    let values: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert_eq!(values[0], values[1]);
    assert_eq!(values[0], values[2]);
    for (together, alone) in values[0].iter().zip(alone.model().values()) {
        // Sums in another order: a few units in the last place.
        assert!((together - alone).abs() < 1e-6, "{values:?} and {:?}", trainer(SingleRank).model().values());
    }
}

/// A rank that fails ends the others' step with an error, too.
#[test]
fn a_rank_that_cannot_go_on_keeps_nobody_waiting() {
    let meeting = Arc::new(Meeting { parts: Mutex::new(vec![None; 2]), barrier: Barrier::new(2) });
    let ranks = [points(4), vec![([f32::NAN, 0.0], 1.0)]].into_iter().enumerate().map(|(rank, batch)| {
        let meeting = Arc::clone(&meeting);
        std::thread::spawn(move || {
            let mut trainer = trainer(BucketSync::new(move |bucket: &mut [f32]| {
                meeting.all_reduce_sum(rank, bucket);
                Ok(())
            }));
            trainer.epoch([Ok(batch)], |_| ()).unwrap_err().to_string()
        })
    });
    let ranks: Vec<_> = ranks.collect();
    let errors: Vec<String> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert!(errors[0].contains("another rank could not go on"), "{errors:?}");
    assert!(errors[1].contains("the loss of training step 0 is NaN"), "{errors:?}");
}

/// A step in which no rank has an item changes nothing, and a frozen parameter does not travel.
#[test]
fn empty_steps_and_frozen_parameters_change_nothing() {
    let alone = || BucketSync::new(|_: &mut [f32]| Ok(()));
    let mut empty = trainer(alone());
    empty.epoch([Ok(points(4)), Ok(Vec::new())], |_| ()).unwrap();
    let mut once = trainer(alone());
    once.epoch([Ok(points(4))], |_| ()).unwrap();
    assert_eq!(empty.model().values(), once.model().values());

    let frozen = Linear::new([2.0, -1.0]).no_grad();
    let mut lengths = Vec::new();
    let mut sync = BucketSync::new(|bucket: &mut [f32]| {
        lengths.push(bucket.len());
        Ok(())
    });
    assert!(sync.average(&frozen, GradientsParams::new(), 4.0).unwrap().is_empty());
    assert_eq!(lengths, [1], "only the weight travels");
}

#[test]
fn an_evaluation_whose_loss_is_no_number_is_an_error() {
    let trainer = trainer(SingleRank);
    let bad = vec![([f32::INFINITY, 0.0], 1.0)];
    let error = trainer.evaluate([Ok(points(4)), Ok(bad)], |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::LossNotFinite { pass: "evaluation", step: 1, .. }), "{error}");
}

#[test]
fn a_loss_that_is_no_number_ends_the_epoch_and_keeps_the_model() {
    let mut trainer = trainer(SingleRank);
    let bad = vec![([f32::NAN, 0.0], 1.0)];
    let error = trainer.epoch([Ok(points(4)), Ok(bad)], |_| ()).unwrap_err();
    assert!(matches!(error, Error::LossNotFinite { step: 1, .. }), "{error}");
    assert!(trainer.model().values().iter().all(|value| value.is_finite()));
}

#[test]
fn the_loaders_and_the_communicators_errors_arrive() {
    let mut plain = trainer(SingleRank);
    let error = plain.epoch([Ok(points(4)), Err(kiln_loader::Error::ZeroBatchSize)], |_| ()).unwrap_err();
    assert!(matches!(error, Error::Loader(_)), "{error}");
    let mut cut_off = trainer(BucketSync::new(|_: &mut [f32]| Err("rank 3 is gone".into())));
    let error = cut_off.epoch([Ok(points(4))], |_| ()).unwrap_err();
    assert_eq!(error.to_string(), "gradients of step 0 were not averaged: rank 3 is gone");
}

#[test]
fn numbers_that_no_optimizer_can_use_are_refused() {
    let config = |learning_rate, weight_decay| OptimizerConfig {
        kind: Optimizer::AdamW,
        learning_rate,
        weight_decay,
        decay: None,
    };
    for bad in [config(0.0, 0.0), config(-1.0, 0.0), config(f64::NAN, 0.0), config(0.1, -0.1)] {
        assert!(matches!(bad.init(), Err(Error::BadSetting { .. })), "{bad:?}");
    }
    config(0.1, 0.0).init().unwrap();
}

/// Weight decay of Adam goes through the gradient, of AdamW through the weights: with a zero gradient
/// AdamW shrinks by `lr * decay`, and Adam takes a step of `lr`.
#[test]
fn weight_decay_is_the_optimizers_own() {
    let step = |kind| {
        let config = OptimizerConfig { kind, learning_rate: 0.1, weight_decay: 0.5, decay: None };
        let model = Linear::new([2.0, -1.0]);
        let mut trainer = Trainer::new(Plane, model, &config, SingleRank, Device::flex()).unwrap();
        trainer.epoch([Ok(points(8))], |_| ()).unwrap();
        trainer.model().values()
    };
    let close = |one: Vec<f32>, other: [f32; 2]| one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(step(Optimizer::AdamW), [2.0 * 0.95, -0.95]), "{:?}", step(Optimizer::AdamW));
    assert!(close(step(Optimizer::Adam), [1.9, -0.9]), "{:?}", step(Optimizer::Adam));
}
