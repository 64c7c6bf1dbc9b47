//! Tests of the trainer with tasks that the tests define: custom batches, several ranks, and faults.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::time::Duration;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_comm::{Communicator, SingleRank, ThreadRanks};
use kiln_loader::{BatchError, StageTimes};
use kiln_nn::{ForwardContext, Mode};
use kiln_sample::RngKey;
use kiln_train::{
    DeviceBatch, Error, GradientSync, HostAllReduce, LossWeight, MeanStepTime, MetricSums, Optimizer,
    OptimizerConfig, StepOutput, StepReport, Task, TaskTrainer, TrainerConfig, TrainerError,
};

/// A linear model with one output, weights `[d, 1]`.
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
        kiln_kernels::to_vec_f32(self.weight.val())
    }
}

/// Regression on points of a plane: `(x, y) -> target`.
struct Plane;

type Point = ([f32; 2], f32);

impl Task for Plane {
    type Input = (Tensor<2>, Tensor<2>);
    type Model = Linear;
    type Targets = Tensor<2>;

    fn forward(
        &self,
        model: &Linear,
        (x, target): &Self::Input,
        _: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let tracked = |tensor: &Tensor<2>| match ctx.mode {
            Mode::Train => tensor.clone().autodiff(),
            Mode::Eval => tensor.clone(),
        };
        let (x, target) = (tracked(x), tracked(target));
        let outputs = x.clone().matmul(model.weight.val());
        let loss_sum = (outputs.clone() - target.clone()).powi_scalar(2).sum();
        StepOutput { outputs, loss_sum, weight: x.dims()[0] as f64 }
    }

    fn targets(&self, (_, target): &Self::Input) -> Tensor<2> {
        target.clone()
    }

    fn count(target: &Tensor<2>, outputs: &Tensor<2>, counts: &mut MetricSums) {
        let pairs = kiln_kernels::to_vec_f32(target.clone())
            .into_iter()
            .zip(kiln_kernels::to_vec_f32(outputs.clone()));
        counts.hits = pairs.filter(|(target, output)| (target - output).abs() < 0.1).count() as u64;
        counts.total = target.dims()[0] as u64;
    }
}

/// Creates a batch from points, as a loader does.
fn batch(points: Vec<Point>) -> kiln_loader::Result<DeviceBatch<(Tensor<2>, Tensor<2>)>> {
    let (n_items, device) = (points.len(), Device::flex());
    let x: Vec<f32> = points.iter().flat_map(|(x, _)| *x).collect();
    let target: Vec<f32> = points.iter().map(|(_, target)| *target).collect();
    let x = Tensor::from_data(TensorData::new(x, [n_items, 2]), &device);
    let target = Tensor::from_data(TensorData::new(target, [n_items, 1]), &device);
    let (key, times, input) = (RngKey::new(0), StageTimes::default(), (x, target));
    Ok(DeviceBatch { key, n_items, n_bytes: 12 * n_items, times, device, input })
}

/// Generates points of the plane `2 x - y`.
fn points(n: usize) -> Vec<Point> {
    let point = |i: usize| {
        let (x, y) = ((i * 37 % 19) as f32 / 19.0, (i * 53 % 23) as f32 / 23.0);
        ([x, y], 2.0 * x - y)
    };
    (0..n).map(point).collect()
}

fn adam(learning_rate: f64) -> TrainerConfig {
    TrainerConfig::new(OptimizerConfig::adam(learning_rate, 0.0))
}

fn trainer(comm: Box<dyn Communicator>) -> TaskTrainer<Plane> {
    TaskTrainer::new(Plane, &adam(0.05), comm, |_, _| Ok(Linear::new([0.0, 0.0]))).unwrap()
}

#[test]
fn trains_a_custom_task() {
    let mut trainer = trainer(Box::new(SingleRank));
    let mut seen = 0;
    for _ in 0..60 {
        let batches = points(64).chunks(16).map(|chunk| batch(chunk.to_vec())).collect::<Vec<_>>();
        let mut steps = Duration::ZERO;
        let heard = |step: &StepReport| {
            seen += step.counts.total;
            steps += step.wall;
        };
        let report = trainer.epoch_of(batches, heard).unwrap();
        assert_eq!((report.n_steps, report.counts.total), (4, 64));
        let timings = report.timings;
        let parts = timings.wait + timings.upload + timings.forward + timings.backward + timings.update;
        // The time of a step includes its stages, and the time of an epoch includes its steps.
        assert!(parts <= steps && steps <= report.wall, "{parts:?}, {steps:?}, {:?}", report.wall);
    }
    assert_eq!(seen, 60 * 64);
    let values = trainer.model().values();
    assert!((values[0] - 2.0).abs() < 0.05 && (values[1] + 1.0).abs() < 0.05, "{values:?}");
    let counts = trainer.evaluate([batch(points(10)), batch(Vec::new())], |_, _| ()).unwrap();
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

/// Returns ranks that are threads of this process, with a short deadline.
fn ranks(n_ranks: usize) -> ThreadRanks {
    ThreadRanks { n_ranks, threads_per_rank: 1, deadline: Duration::from_secs(60) }
}

/// Ranks with unequal shares, one of them empty in a step, learn the same as one rank with all items.
#[test]
fn gradients_are_averaged_by_the_weights_of_the_ranks_items() {
    let steps: [[Vec<Point>; 3]; 2] = [
        [points(9)[..4].to_vec(), points(9)[4..5].to_vec(), points(9)[5..].to_vec()],
        [points(3), Vec::new(), points(12)[3..].to_vec()],
    ];
    let mut alone = trainer(Box::new(SingleRank));
    let whole = alone.epoch_of(steps.iter().map(|step| batch(step.concat())), |_| ()).unwrap();

    let together = ranks(3).run(|comm| {
        let rank = comm.rank_info().rank;
        let mut trainer = trainer(comm);
        let report = trainer.epoch_of(steps.iter().map(|step| batch(step[rank].clone())), |_| ())?;
        Ok((trainer.model().values(), report.counts))
    });
    let together = together.unwrap();
    for (values, counts) in &together {
        assert_eq!(values, &together[0].0, "the weights should be bit-identical on every rank");
        for (together, alone) in values.iter().zip(alone.model().values()) {
            // The sums are computed in another order, so they differ by a few units in the last place.
            assert!((together - alone).abs() < 1e-6, "{values:?} and {:?}", alone);
        }
        // The counts cover the items of all ranks, each with weight 1.
        assert_eq!((counts.total, counts.weight, counts.hits), (21, 21.0, whole.counts.hits));
        assert!((counts.loss() - whole.counts.loss()).abs() < 1e-6, "{counts:?}");
    }
}

/// Every rank starts with the parameters of rank 0, whatever its own initialization was.
#[test]
fn all_ranks_start_with_the_parameters_of_rank_0() {
    let models = ranks(3).run(|comm| {
        let start = Linear::new([comm.rank_info().rank as f32 + 1.0, 0.5]);
        let trainer = TaskTrainer::new(Plane, &adam(0.05), comm, |_, _| Ok(start))?;
        Ok(trainer.model().values())
    });
    assert_eq!(models.unwrap(), [[1.0, 0.5]; 3]);
}

/// If a rank fails, the others get an error that contains its rank, and the run returns the rank's own error.
#[test]
fn a_failed_rank_ends_the_step_of_the_other_ranks() {
    let told = Mutex::new(Vec::new());
    let error = ranks(3).run(|comm| {
        let rank = comm.rank_info().rank;
        let last = if rank == 1 { vec![([f32::NAN, 0.0], 1.0)] } else { points(4) };
        let outcome = trainer(comm).epoch_of([batch(points(4)), batch(last)], |_| ());
        told.lock().unwrap().push((rank, outcome.as_ref().unwrap_err().to_string()));
        outcome?;
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("rank 1") && error.contains("the loss of training step 1 is NaN"), "{error}");
    let told = told.into_inner().unwrap();
    assert_eq!(told.len(), 3);
    for (_, text) in told.iter().filter(|(rank, _)| *rank != 1) {
        assert!(text.contains("rank 1") && text.contains("step 1"), "{text}");
    }
}

/// A model that differs on one rank is detected at the end of the epoch.
#[test]
fn rejects_ranks_whose_models_differ() {
    /// Averages correctly, except on rank 1, where it drops the gradients.
    #[derive(Debug)]
    struct Wrong(HostAllReduce);

    impl GradientSync<Linear> for Wrong {
        fn average(
            &mut self,
            comm: &mut dyn Communicator,
            model: &Linear,
            gradients: GradientsParams,
            weight: LossWeight,
        ) -> kiln_train::Result<GradientsParams> {
            let rank = comm.rank_info().rank;
            let averaged = self.0.average(comm, model, gradients, weight)?;
            Ok(if rank == 1 { GradientsParams::new() } else { averaged })
        }
    }
    let error = ranks(2).run(|comm| {
        let mut trainer = trainer(comm).with_sync(Wrong(HostAllReduce::default())).with_epoch(2);
        trainer.epoch_of([batch(points(4))], |_| ())?;
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("rank 1 and rank 0 have different parameters after epoch 3"), "{error}");
}

/// A step in which no rank has an item changes nothing, and a frozen parameter gets no gradient.
#[test]
fn empty_steps_and_frozen_parameters_change_nothing() {
    let values = |n_empty: usize| {
        let models = ranks(2).run(|comm| {
            let mut trainer = trainer(comm);
            let batches = std::iter::once(points(4)).chain(vec![Vec::new(); n_empty]);
            trainer.epoch_of(batches.map(batch), |_| ())?;
            Ok(trainer.model().values())
        });
        models.unwrap()
    };
    assert_eq!(values(0), values(2));

    let frozen = ranks(2).run(|comm| {
        let model = Linear::new([2.0, -1.0]).no_grad();
        let mut sync = HostAllReduce::default();
        let mut comm = comm;
        let weight = LossWeight { own: 2.0, all: 4.0 };
        Ok(sync.average(&mut *comm, &model, GradientsParams::new(), weight)?.is_empty())
    });
    assert_eq!(frozen.unwrap(), [true, true]);
}

#[test]
fn rejects_an_evaluation_with_an_infinite_loss() {
    let mut trainer = trainer(Box::new(SingleRank));
    let bad = vec![([f32::INFINITY, 0.0], 1.0)];
    let error = trainer.evaluate([batch(points(4)), batch(bad)], |_, _| ()).unwrap_err();
    assert!(
        matches!(error, Error::Trainer(TrainerError::LossNotFinite { pass: "evaluation", step: 1, .. })),
        "{error}"
    );
}

/// Steps are reported in order up to the invalid one, even if another error ends the epoch first.
#[test]
fn an_invalid_loss_that_is_read_later_ends_the_epoch() {
    let bad = || batch(vec![([f32::NAN, 0.0], 1.0)]);
    let failed = || Err(kiln_loader::Error::Batch { step: 3, source: BatchError::other("no file") });
    let told = |batches: Vec<kiln_loader::Result<_>>, read_every: usize| {
        let mut trainer = trainer(Box::new(SingleRank)).with_read_every(read_every);
        let mut steps = Vec::new();
        let outcome = trainer.epoch_of(batches, |report| steps.push((report.step, report.counts)));
        (outcome.map(|report| report.counts), steps)
    };
    let good = || (0..5).map(|_| batch(points(4))).collect::<Vec<_>>();
    let (expected, expected_steps) = told(good(), 1);
    for read_every in [2, 5, 100] {
        let (got, steps) = told(good(), read_every);
        assert_eq!(
            (got.unwrap(), &steps),
            (expected.as_ref().copied().unwrap(), &expected_steps),
            "every {read_every}"
        );
        let (error, steps) = told(vec![batch(points(4)), bad(), batch(points(4)), failed()], read_every);
        assert!(
            matches!(error, Err(Error::Trainer(TrainerError::LossNotFinite { step: 1, .. }))),
            "{error:?}"
        );
        assert_eq!(steps, expected_steps[..1], "every {read_every}");
        let (error, steps) =
            told(vec![batch(points(4)), batch(points(4)), batch(points(4)), failed()], read_every);
        assert!(matches!(error, Err(Error::Loader(_))), "{error:?}");
        assert_eq!(steps, expected_steps[..3], "every {read_every}");
    }
}

#[test]
fn a_nan_loss_ends_the_epoch_and_keeps_the_parameters() {
    let mut trainer = trainer(Box::new(SingleRank));
    let bad = vec![([f32::NAN, 0.0], 1.0)];
    let error = trainer.epoch_of([batch(points(4)), batch(bad)], |_| ()).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::LossNotFinite { step: 1, .. })), "{error}");
    assert!(trainer.model().values().iter().all(|value| value.is_finite()));
}

/// Before the first update, the learning rate is no cause. In a later epoch, it may be one.
#[test]
fn the_first_loss_that_is_not_finite_blames_the_input() {
    let bad = || batch(vec![([f32::NAN, 0.0], 1.0)]);
    for read_every in [1, 5] {
        let mut trainer = trainer(Box::new(SingleRank)).with_read_every(read_every);
        let error = trainer.epoch_of([bad(), batch(points(4))], |_| ()).unwrap_err();
        assert!(matches!(error, Error::Trainer(TrainerError::FirstLossNotFinite { .. })), "{error}");
        assert!(!error.to_string().contains("learning rate"), "{error}");
    }
    let mut trainer = trainer(Box::new(SingleRank));
    trainer.epoch_of([batch(points(4))], |_| ()).unwrap();
    let error = trainer.epoch_of([bad()], |_| ()).unwrap_err();
    assert!(matches!(error, Error::Trainer(TrainerError::LossNotFinite { step: 0, .. })), "{error}");
}

#[test]
fn returns_the_loaders_errors() {
    let mut plain = trainer(Box::new(SingleRank));
    let batches = [batch(points(4)), Err(kiln_loader::Error::ZeroBatchSize)];
    let error = plain.epoch_of(batches, |_| ()).unwrap_err();
    assert!(matches!(error, Error::Loader(_)), "{error}");
}

#[test]
fn rejects_invalid_optimizer_settings() {
    let config = |learning_rate, weight_decay| OptimizerConfig {
        weight_decay,
        ..OptimizerConfig::new(Optimizer::AdamW, learning_rate)
    };
    for bad in [config(0.0, 0.0), config(-1.0, 0.0), config(f64::NAN, 0.0), config(0.1, -0.1)] {
        assert!(matches!(bad.init(), Err(Error::Trainer(TrainerError::BadSetting { .. }))), "{bad:?}");
    }
    config(0.1, 0.0).init().unwrap();
}

/// Adam adds weight decay to the gradient, AdamW applies it to the weights. With a zero gradient AdamW shrinks the
/// weights by `lr * decay`, and Adam takes a step of `lr`.
#[test]
fn adam_applies_weight_decay_to_gradients_and_adamw_to_weights() {
    let step = |kind| {
        let optimizer = OptimizerConfig { weight_decay: 0.5, ..OptimizerConfig::new(kind, 0.1) };
        let (config, model) = (TrainerConfig::new(optimizer), Linear::new([2.0, -1.0]));
        let mut trainer = TaskTrainer::new(Plane, &config, Box::new(SingleRank), |_, _| Ok(model)).unwrap();
        trainer.epoch_of([batch(points(8))], |_| ()).unwrap();
        trainer.model().values()
    };
    let close = |one: Vec<f32>, other: [f32; 2]| one.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(close(step(Optimizer::AdamW), [2.0 * 0.95, -0.95]), "{:?}", step(Optimizer::AdamW));
    assert!(close(step(Optimizer::Adam), [1.9, -0.9]), "{:?}", step(Optimizer::Adam));
}
