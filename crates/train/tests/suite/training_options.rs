//! Tests of training options on several ranks and in resumed runs, with sampling and dropout.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use kiln_comm::{Communicator, SingleRank};
use kiln_data::Dataset;
use kiln_nn::{GcnConfig, JumpingKnowledge, Normalization, Sage, SageConfig};
use kiln_sample::RngKey;
use kiln_train::{
    AdamConfig, EpochReport, Error, FitConfig, LrDecay, LrSchedule, MetricSums, NodeClassification,
    OptimizerConfig, Run, RunFolder, RunIdentity, SgdConfig, StepReport, TaskTrainer, TrainCallback,
    TrainerConfig, TrainerError, TrainingLength, VALIDATION, fit, load_weights, weights_to_bytes,
};

use crate::common::{data, loader, micro_loader, nodes, ranks, sage, shard};
use crate::ranks::{Values, distance};

const N_SEEDS: u32 = 301;

/// The number of seeds of all ranks in a step. An epoch has 5 steps, the last one short.
const GLOBAL_BATCH: usize = 64;

const N_EPOCHS: usize = 3;

fn trainer(
    data: &Dataset,
    optimizer: OptimizerConfig,
    comm: Box<dyn Communicator>,
) -> TaskTrainer<NodeClassification<Sage>> {
    micro_trainer(data, optimizer, 1, comm)
}

fn micro_trainer(
    data: &Dataset,
    optimizer: OptimizerConfig,
    accumulate: usize,
    comm: Box<dyn Communicator>,
) -> TaskTrainer<NodeClassification<Sage>> {
    let config = TrainerConfig { seed: 1, accumulate, ..TrainerConfig::new(optimizer) };
    TaskTrainer::new(NodeClassification::new(), &config, comm, |_, _| Ok(sage(data, [0.1, 0.5]))).unwrap()
}

/// Returns a cosine schedule with warm-up that ends before the last epoch.
fn cosine() -> LrSchedule {
    LrSchedule::cosine(TrainingLength::Steps(12)).warmup(TrainingLength::Epochs(1))
}

fn optimizers() -> Vec<(&'static str, OptimizerConfig)> {
    let line = LrDecay::Linear { over: TrainingLength::Epochs(N_EPOCHS), final_factor: 0.1 };
    let line = LrSchedule::from(line).warmup(TrainingLength::Steps(3));
    vec![
        ("adam, cosine", AdamConfig::new(0.01).schedule(cosine()).into()),
        ("adamw, linear", AdamConfig::new(0.01).decoupled_weight_decay(0.01).schedule(line).into()),
        ("sgd", SgdConfig::new(0.1).momentum(0.9).weight_decay(1e-3).schedule(cosine()).into()),
        ("sgd, nesterov", SgdConfig::new(0.1).nesterov_momentum(0.5).into()),
        ("sgd, clipped", SgdConfig::new(0.5).schedule(cosine()).clip_grad_norm(0.1).into()),
        ("adam, clipped", AdamConfig::new(0.01).clip_grad_norm(0.1).into()),
    ]
}

/// Trains on this many ranks, and returns the weights, which are equal on all ranks.
fn train(n_ranks: usize, data: &Dataset, optimizer: OptimizerConfig) -> Vec<f32> {
    train_in_batches(n_ranks, 1, data, optimizer)
}

/// Trains on this many ranks, which divide their share of a step into `accumulate` batches.
fn train_in_batches(
    n_ranks: usize,
    accumulate: usize,
    data: &Dataset,
    optimizer: OptimizerConfig,
) -> Vec<f32> {
    train_model(n_ranks, accumulate, data, optimizer, || sage(data, [0.1, 0.5]))
}

fn train_model(
    n_ranks: usize,
    accumulate: usize,
    data: &Dataset,
    optimizer: OptimizerConfig,
    model: impl Fn() -> Sage + Sync,
) -> Vec<f32> {
    let of_ranks = ranks(n_ranks).run(|comm| {
        let loader = micro_loader(data, &nodes(N_SEEDS), GLOBAL_BATCH, accumulate, shard(&*comm));
        let config = TrainerConfig { seed: 1, accumulate, ..TrainerConfig::new(optimizer) };
        let mut trainer = TaskTrainer::new(NodeClassification::new(), &config, comm, |_, _| Ok(model()))?;
        for _ in 0..N_EPOCHS {
            let report = trainer.epoch(&loader, |_| ())?;
            assert_eq!((report.n_steps, report.counts.total), (5, u64::from(N_SEEDS)));
        }
        weights_to_bytes(trainer.model()).map_err(Into::into)
    });
    let of_ranks: Vec<Vec<u8>> = of_ranks.unwrap();
    assert!(of_ranks.iter().all(|weights| *weights == of_ranks[0]));
    let mut model = model();
    load_weights(&mut model, of_ranks[0].clone()).unwrap();
    Values::of(&model)
}

/// Gradients differ by rounding, which 15 steps accumulate; see `models_of_1_2_and_4_ranks_are_close`.
#[test]
fn optimizers_schedules_and_clipping_give_the_same_weights_on_1_2_and_4_ranks() {
    const TOLERANCE: f64 = 1e-5;
    let data = data(400);
    for (name, optimizer) in optimizers() {
        let one = train(1, &data, optimizer);
        for n_ranks in [2, 4] {
            let distance = distance(&one, &train(n_ranks, &data, optimizer));
            println!("{name}, {n_ranks} ranks: {distance:.2e}");
            assert!(distance <= TOLERANCE, "{name}, {n_ranks} ranks: {distance:e}");
        }
        // The options have an effect that is much larger than the tolerance.
        let plain = OptimizerConfig { schedule: LrSchedule::default(), clip_grad_norm: None, ..optimizer };
        if plain != optimizer {
            assert!(distance(&one, &train(1, &data, plain)) > 100.0 * TOLERANCE, "{name}");
        }
    }
}

/// A callback that sets the flag to stop after this many steps.
struct StopAfter(usize, Arc<AtomicBool>);

impl TrainCallback for StopAfter {
    fn step(&mut self, _: &StepReport) {
        self.0 -= 1;
        self.1.store(self.0 == 0, Ordering::Relaxed);
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

/// Starts or resumes a run in the folder, which stops with a checkpoint after this many steps. A step has two batches,
/// and losses are read after three steps. Returns the weights.
fn fit_until(n_steps: usize, data: &Dataset, optimizer: OptimizerConfig, folder: &Path) -> Vec<u8> {
    let train = micro_loader(data, &nodes(N_SEEDS), GLOBAL_BATCH, 2, Default::default());
    let stop = Arc::<AtomicBool>::default();
    let trainer = micro_trainer(data, optimizer, 2, Box::new(SingleRank));
    let mut trainer = trainer.with_stop(Arc::clone(&stop)).with_read_every(3);
    let open = || match folder.join("config.json").exists() || folder.join("last").exists() {
        true => RunFolder::open(folder),
        false => RunFolder::create(folder),
    };
    let mut run = Run::start(&mut trainer, open, RunIdentity::default()).unwrap();
    let config = FitConfig { n_epochs: N_EPOCHS, patience: Some(2), checkpoint_every: None };
    let validate = |trainer: &mut TaskTrainer<_>| trainer.evaluate(train.epoch(VALIDATION), |_, _| ());
    let mut callback = StopAfter(n_steps, stop);
    fit(&mut trainer, &train, config, validate, &mut run, &mut callback).unwrap();
    weights_to_bytes(trainer.model()).unwrap()
}

#[test]
fn resumed_runs_with_training_options_end_with_identical_weights() {
    let data = data(400);
    for (name, optimizer) in optimizers() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let whole = fit_until(usize::MAX, &data, optimizer, folders[0].path());
        // The stops are in the warm-up and in the middle of the last epoch.
        fit_until(2, &data, optimizer, folders[1].path());
        fit_until(10, &data, optimizer, folders[1].path());
        let resumed = fit_until(usize::MAX, &data, optimizer, folders[1].path());
        assert!(whole == resumed, "{name}");
    }
}

#[test]
fn batches_from_no_loader_need_the_number_of_steps_for_a_schedule() {
    let data = data(400);
    let loader = loader(&data, &nodes(N_SEEDS), GLOBAL_BATCH, Default::default());
    let optimizer = AdamConfig::new(0.01).schedule(cosine()).into();
    let of_batches = |mut trainer: TaskTrainer<_>| {
        trainer.epoch_of(loader.epoch(trainer.next_phase()), |_| ())?;
        weights_to_bytes(trainer.model())
    };
    let trainer = || trainer(&data, optimizer, Box::new(SingleRank));
    assert!(matches!(of_batches(trainer()), Err(Error::Trainer(TrainerError::UnknownEpochSteps))));
    let mut of_loader = trainer();
    of_loader.epoch(&loader, |_| ()).unwrap();
    let weights = weights_to_bytes(of_loader.model()).unwrap();
    assert!(of_batches(trainer().with_epoch_steps(5)).unwrap() == weights);
}

/// The sums of a step are rounded in another order; see `models_of_1_2_and_4_ranks_are_close`. The last step of an epoch
/// has 45 seeds, so its batches differ in size.
#[test]
fn accumulated_batches_train_the_weights_of_one_batch_with_all_their_seeds() {
    const TOLERANCE: f64 = 1e-5;
    let data = data(400);
    for (at, (name, optimizer)) in optimizers().into_iter().enumerate() {
        let one = train(1, &data, optimizer);
        // The optimizers receive the same gradients, so only the first is tried with all numbers of batches.
        let numbers = if at == 0 { &[(1, 2), (1, 4), (1, 64), (2, 2), (4, 4)][..] } else { &[(2, 2)] };
        for &(n_ranks, accumulate) in numbers {
            let distance = distance(&one, &train_in_batches(n_ranks, accumulate, &data, optimizer));
            println!("{name}, {n_ranks} ranks, {accumulate} batches: {distance:.2e}");
            assert!(distance <= TOLERANCE, "{name}, {n_ranks} ranks, {accumulate} batches: {distance:e}");
        }
    }
}

#[test]
fn models_with_options_train_the_same_weights_on_1_2_and_4_ranks_and_in_batches() {
    const TOLERANCE: f64 = 1e-4;
    let (data, adam) = (data(400), AdamConfig::new(0.01).schedule(cosine()).into());
    for jumping in [JumpingKnowledge::Last, JumpingKnowledge::Cat, JumpingKnowledge::Max] {
        let config =
            SageConfig::new(data.node_features().unwrap().dim(), 4).hidden(16).layers(2).input_dropout(0.1);
        let config = config.norm(Normalization::Layer).residual(true).jumping(jumping);
        let model = || config.init(RngKey::new(1), &Device::flex().autodiff()).unwrap();
        let one = train_model(1, 1, &data, adam, model);
        for (n_ranks, accumulate) in [(2, 1), (4, 1), (1, 4), (2, 2)] {
            let distance = distance(&one, &train_model(n_ranks, accumulate, &data, adam, model));
            println!("{jumping:?}, {n_ranks} ranks, {accumulate} batches: {distance:.2e}");
            assert!(
                distance <= TOLERANCE,
                "{jumping:?}, {n_ranks} ranks, {accumulate} batches: {distance:e}"
            );
        }
    }
}

/// A `model.json` of an earlier version opens as the model without options.
#[test]
fn configurations_without_model_options_have_the_defaults() {
    let sage = r#"{"d_in":8,"hidden":4,"n_classes":3,"n_layers":2,"aggregate":"mean","input_dropout":0.0,"dropout":0.5}"#;
    let expected = SageConfig::new(8, 3).hidden(4).layers(2);
    assert_eq!(serde_json::from_str::<SageConfig>(sage).unwrap(), expected);
    let gcn = r#"{"d_in":8,"hidden":4,"n_classes":3,"n_layers":2,"input_dropout":0.0,"dropout":0.5}"#;
    let expected = GcnConfig::new(8, 3).hidden(4).layers(2);
    assert_eq!(serde_json::from_str::<GcnConfig>(gcn).unwrap(), expected);
    let options = expected.norm(Normalization::Layer).residual(true).jumping(JumpingKnowledge::Max);
    let text = serde_json::to_string(&options).unwrap();
    assert!(text.ends_with(r#""norm":"layer","residual":true,"jumping":"max"}"#), "{text}");
    assert_eq!(serde_json::from_str::<GcnConfig>(&text).unwrap(), options);
}

#[test]
fn rejects_a_loader_of_another_number_of_batches_per_step() {
    let data = data(400);
    let loader = micro_loader(&data, &nodes(N_SEEDS), GLOBAL_BATCH, 2, Default::default());
    let adam = OptimizerConfig::adam(0.01, 0.0);
    let error = trainer(&data, adam, Box::new(SingleRank)).epoch(&loader, |_| ()).unwrap_err().to_string();
    assert!(error.contains("2 batches per step") && error.contains("1 batches per step"), "{error}");
    let config = TrainerConfig { accumulate: 0, ..TrainerConfig::new(adam) };
    let model = |_, _: &_| Ok(sage(&data, [0.0, 0.0]));
    let none = TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), model);
    let expected = "the number of batches to accumulate in a step is 0, expected at least 1";
    assert_eq!(none.unwrap_err().to_string(), expected);
}
