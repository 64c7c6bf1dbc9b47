//! Complete runs through the library: learning, the best epoch, early stopping, and empty splits.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use burn::tensor::Device;
use kiln_comm::SingleRank;
use kiln_data::{Dataset, synthetic};
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase};
use kiln_nn::{Aggregate, Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    DeviceBatcher, EpochReport, Error, Evaluation, FitConfig, FitReport, InputError, Metric, MetricError,
    MetricSums, NodeClassification, OptimizerConfig, Run, RunError, RunFolder, RunIdentity, SelectionError,
    StepReport, TEST, TaskTrainer, TrainCallback, TrainerConfig, TrainerError, VALIDATION, Validation,
    evaluate_best, fit, weights_to_bytes,
};

use crate::run_config::Warnings;

const TRAIN: Phase = Phase::Train { epoch: 0 };

#[derive(Default)]
struct Heard {
    n_steps: usize,
    epochs: Vec<(usize, f64, bool)>,
}

impl TrainCallback for Heard {
    fn step(&mut self, _: &StepReport) {
        self.n_steps += 1;
    }

    fn epoch(&mut self, epoch: usize, _: &EpochReport, val: &MetricSums, is_best: bool) {
        self.epochs.push((epoch, val.accuracy(), is_best));
    }
}

fn data() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 2000,
        n_classes: 4,
        degree: 8,
        homophily: 0.8,
        dim: 8,
        noise: 1.5,
        seed: 5,
    };
    synthetic::sbm(config).unwrap()
}

type NodeLoader = Loader<DeviceBatcher<NodeBatcher<NeighborSampler>>>;

fn loader(data: &Dataset, nodes: &[NodeId]) -> NodeLoader {
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::UpTo(5); 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let items = ItemSamplerConfig { batch_size: 100, seed: 1, ..Default::default() };
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, LoaderConfig::default()).unwrap()
}

type SageTrainer = TaskTrainer<NodeClassification<Sage>>;

fn trainer(data: &Dataset) -> SageTrainer {
    let model = SageConfig {
        d_in: data.node_features().unwrap().dim(),
        hidden: 16,
        n_classes: 4,
        n_layers: 2,
        aggregate: Aggregate::Mean,
        input_dropout: 0.0,
        dropout: 0.2,
        ..SageConfig::new(data.node_features().unwrap().dim(), 4)
    };
    let config = TrainerConfig { seed: 1, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.0)) };
    let init = |key, device: &Device| model.init(key, device);
    TaskTrainer::new(NodeClassification::new(), &config, Box::new(SingleRank), init).unwrap()
}

fn run(trainer: &mut SageTrainer, folder: &Path) -> Run {
    Run::start(trainer, || RunFolder::create(folder), RunIdentity::default()).unwrap()
}

fn judge(trainer: &mut SageTrainer, loader: &NodeLoader) -> kiln_train::Result<Evaluation> {
    let mut said = Evaluation::default();
    trainer.evaluate(loader.epoch(TEST), |input, forward| said.add(&input.seeds, &input.labels, forward))?;
    Ok(said)
}

fn epochs(n_epochs: usize) -> FitConfig {
    FitConfig { n_epochs, patience: None, checkpoint_every: None }
}

#[test]
fn a_run_learns_and_tests_its_best_epoch() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let (train, val) = (loader(&data, &data.split().train), loader(&data, &data.split().val));
    let mut trainer = trainer(&data);
    let mut run = run(&mut trainer, folder.path());
    let mut heard = Heard::default();
    let validate = |trainer: &mut SageTrainer| trainer.evaluate(val.epoch(VALIDATION), |_, _| ());
    let report = fit(&mut trainer, &train, epochs(6), validate, &mut run, &mut heard).unwrap();

    assert_eq!((report.n_epochs, report.stopped_early), (6, false));
    assert_eq!(heard.n_steps, 6 * train.n_steps(TRAIN));
    let epochs: Vec<usize> = heard.epochs.iter().map(|(epoch, ..)| *epoch).collect();
    assert_eq!(epochs, [1, 2, 3, 4, 5, 6]);
    let (best, accuracy, _) = heard.epochs.iter().rev().find(|(.., is_best)| *is_best).unwrap();
    assert_eq!((run.best().unwrap().epoch, run.best().unwrap().val.accuracy()), (*best, *accuracy));
    assert!(heard.epochs.iter().all(|(_, other, _)| other <= accuracy));

    let test = loader(&data, &data.split().test);
    let said = evaluate_best(trainer, &run, |trainer| judge(trainer, &test)).unwrap();
    assert_eq!(said.predictions().len(), data.split().test.len());
    assert!(said.metrics().accuracy > 0.85, "{}", said.metrics().accuracy);
}

/// Trains a run whose epochs have these validation accuracies, in percent. Returns the report, the progress and the
/// best epoch.
fn told(percents: &'static [u64], config: FitConfig) -> (kiln_train::Result<FitReport>, Heard, usize) {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = trainer(&data);
    let mut run = run(&mut trainer, folder.path());
    let mut heard = Heard::default();
    let mut percents = percents.iter();
    let validate = |_: &mut SageTrainer| {
        let hits =
            *percents.next().expect("a run should stop after its last epoch or when its patience ends");
        Ok(MetricSums { loss_sum: 1.0, weight: 100.0, hits, total: 100, ..MetricSums::default() })
    };
    let train = loader(&data, &data.split().train[..100]);
    let report = fit(&mut trainer, &train, config, validate, &mut run, &mut heard);
    let best = run.best().map_or(0, |best| best.epoch);
    (report, heard, best)
}

#[test]
fn a_run_stops_when_its_patience_ends() {
    let patience = |patience| FitConfig { n_epochs: 6, patience, checkpoint_every: None };
    let cases = [
        (&[50, 60, 60, 55][..], Some(2), 4, true, 2),
        (&[50, 40], Some(1), 2, true, 1),
        // A better epoch restarts the patience.
        (&[50, 40, 51, 40, 52, 40], Some(2), 6, false, 5),
        // The patience ends with the last epoch, so no epoch was skipped.
        (&[10, 20, 30, 40, 30, 20], Some(2), 6, false, 4),
        (&[10, 20, 30, 30, 30], Some(2), 5, true, 3),
        (&[50, 40, 30, 20, 10, 0], None, 6, false, 1),
    ];
    for (percents, n, n_epochs, stopped_early, best) in cases {
        let (report, heard, kept) = told(percents, patience(n));
        let report = report.unwrap();
        assert_eq!((report.n_epochs, report.stopped_early), (n_epochs, stopped_early), "{percents:?}");
        assert_eq!((heard.epochs.len(), kept), (n_epochs, best), "{percents:?}");
    }
    let (error, heard, _) = told(&[], patience(Some(0)));
    assert!(
        matches!(error, Err(Error::Trainer(TrainerError::BadSetting { what: "the patience", .. }))),
        "{error:?}"
    );
    assert_eq!(heard.n_steps, 0);
}

#[test]
fn rejects_empty_splits() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(&mut trainer(&data), folder.path());
    let (some, none) = (loader(&data, &data.split().train), loader(&data, &[]));
    let mut heard = Heard::default();
    let validate = |trainer: &mut SageTrainer| trainer.evaluate(some.epoch(VALIDATION), |_, _| ());
    let error = fit(&mut trainer(&data), &none, epochs(1), validate, &mut run, &mut heard).unwrap_err();
    assert!(matches!(error, Error::Input(InputError::EmptySplit { split: "training" })), "{error}");
    assert_eq!(heard.n_steps, 0);
    assert!(matches!(run.best(), Err(Error::Run(RunError::NoEpoch))));
    fit(&mut trainer(&data), &some, epochs(1), validate, &mut run, &mut heard).unwrap();
    let error = evaluate_best(trainer(&data), &run, |trainer| judge(trainer, &none));
    assert!(matches!(error, Err(Error::Input(InputError::EmptySplit { split: "test" }))), "{error:?}");
}

#[test]
fn the_last_epoch_is_kept_without_a_validation() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let mut trainer = trainer(&data);
    let mut run = run(&mut trainer, folder.path());
    let (train, none) = (loader(&data, &data.split().train[..100]), loader(&data, &[]));
    let validate = |trainer: &mut SageTrainer| trainer.evaluate(none.epoch(VALIDATION), |_, _| ());
    let mut heard = Heard::default();
    let patient = FitConfig { patience: Some(2), ..epochs(3) };
    let error = fit(&mut trainer, &train, patient, validate, &mut run, &mut heard).unwrap_err();
    let expected = SelectionError::PatienceWithoutValidation.to_string();
    assert_eq!(error.to_string(), expected);
    drop(run);

    let folder = tempfile::tempdir().unwrap();
    let mut trainer = self::trainer(&data);
    let mut run = self::run(&mut trainer, folder.path());
    let report = fit(&mut trainer, &train, epochs(3), validate, &mut run, &mut heard).unwrap();
    assert_eq!((report.n_epochs, report.stopped_early, run.n_since_best()), (3, false, 0));
    let best = run.best().unwrap();
    assert_eq!((best.epoch, best.value, best.val.total), (3, None, 0));
    let kept = std::fs::read(folder.path().join("best.safetensors")).unwrap();
    assert_eq!(kept, weights_to_bytes(trainer.model()).unwrap());
}

#[test]
fn a_metric_that_is_undefined_for_the_first_epoch_is_an_error() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let mut trainer = trainer(&data);
    let mut run = run(&mut trainer, folder.path());
    let train = loader(&data, &data.split().train[..100]);
    let sums = MetricSums { loss_sum: 1.0, weight: 10.0, hits: 3, total: 10, ..MetricSums::default() };
    let validate =
        |_: &mut SageTrainer| Ok(Validation { metric: Metric::RocAuc, value: None, ..sums.into() });
    let error = fit(&mut trainer, &train, epochs(3), validate, &mut run, &mut Heard::default()).unwrap_err();
    let is_undefined = matches!(
        error,
        Error::Metric(MetricError::Selection(SelectionError::Undefined { metric: "roc-auc" }))
    );
    assert!(is_undefined, "{error}");
    assert!(matches!(run.best(), Err(Error::Run(RunError::NoEpoch))));
}

/// Values over fewer items cannot be compared: an epoch in which more outputs are not finite is not better. A resumed run has
/// the same best epoch.
#[test]
fn an_epoch_with_fewer_finite_outputs_is_not_better() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let mut trainer = trainer(&data);
    let mut run = run(&mut trainer, folder.path());
    let train = loader(&data, &data.split().train[..100]);
    let mut epochs_of_run = [(50, 3), (90, 9), (60, 3), (59, 3), (80, 10)].into_iter();
    let validate = |_: &mut SageTrainer| {
        let (hits, n_not_finite) = epochs_of_run.next().unwrap();
        Ok(MetricSums { loss_sum: 1.0, weight: 90.0, hits, total: 90, n_not_finite })
    };
    let mut warnings = Warnings::default();
    fit(&mut trainer, &train, epochs(5), validate, &mut run, &mut warnings).unwrap();
    let best = run.best().unwrap().clone();
    assert_eq!((best.epoch, best.val.hits, best.val.n_not_finite), (3, 60, 3));
    let expected = ["3 items", "9 items", "10 items"];
    assert_eq!(warnings.0.len(), expected.len(), "{:?}", warnings.0);
    for (warning, expected) in warnings.0.iter().zip(expected) {
        let expected = format!("the outputs of {expected} of the validation split are not finite");
        assert!(warning.starts_with(&expected), "{warning}");
    }
    drop(run);
    let mut trainer = self::trainer(&data);
    let folder = || RunFolder::open(folder.path());
    let resumed = Run::start(&mut trainer, folder, RunIdentity::default()).unwrap();
    assert_eq!(*resumed.best().unwrap(), best);
}
