//! Tests of complete runs by `RunConfig`: start, fit, stop, resume, test of the best model, and rejected calls.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kiln_comm::Communicator;
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Phase, Shard};
use kiln_nn::Sage;
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    DeviceBatcher, EpochReport, Error, Evaluator, FitConfig, InputError, MetricError, MetricSums,
    NodeClassification, Outcome, Resumed, Run, RunConfig, RunDir, RunError, RunIdentity, RunRecord, RunState,
    SelectionError, StepReport, TaskTrainer, Tested, TrainCallback, TrainerError, weights_to_bytes,
};

use crate::common::{NodeLoader, data, loader, ranks, shard, trainer};

type SageTrainer = TaskTrainer<NodeClassification<Sage>>;

fn config(folder: &Path, n_epochs: usize) -> RunConfig {
    let fit = FitConfig { n_epochs, patience: None, checkpoint_every: None };
    let settings = [("--lr".to_owned(), "0.01".to_owned())].into();
    RunConfig { settings, ..RunConfig::new(RunDir::StartOrResume(folder.to_owned()), fit) }
}

/// Raises the stop flag after some steps, and records the position from which the run was resumed.
#[derive(Default)]
struct Watch {
    stop: Arc<AtomicBool>,
    steps_left: Option<usize>,
    resumed: Option<Resumed>,
}

impl TrainCallback for Watch {
    fn started(&mut self, run: &Run, _: usize) {
        self.resumed = run.resumed().cloned();
    }

    fn step(&mut self, _: &StepReport) {
        self.steps_left = self.steps_left.map(|left| left.saturating_sub(1));
        self.stop.store(self.steps_left == Some(0), Ordering::Relaxed);
    }

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}
}

fn validate(trainer: &mut SageTrainer, val: &NodeLoader, phase: Phase) -> kiln_train::Result<MetricSums> {
    Evaluator::Sampled.count(trainer, val, phase)
}

/// The result and the weights of the tested model (`None` if the run was stopped), and the position from which the run
/// was resumed.
type Ended = (Option<(Tested, Vec<u8>)>, Option<Resumed>);

/// Runs two epochs of four steps and the test. A run that is stopped after `steps_left` steps has a summary without a test.
fn run(folder: &Path, comm: Box<dyn Communicator>, steps_left: Option<usize>) -> kiln_train::Result<Ended> {
    let (data, shard) = (data(320), shard(&*comm));
    let [train, val, test] = [&data.split().train, &data.split().val, &data.split().test]
        .map(|nodes| loader(&data, nodes, 60, shard));
    let mut watch = Watch { steps_left, ..Watch::default() };
    let trainer = trainer(&data, comm).with_stop(Arc::clone(&watch.stop));
    let outcome = config(folder, 2).fit(trainer, &train, &val, validate, &mut watch)?;
    let tested = match outcome {
        Outcome::Interrupted(run) => {
            if let Some(folder) = run.folder() {
                let record = RunRecord::read(folder.path())?;
                assert_eq!((record.state, record.test_value()), (RunState::Interrupted, None));
                assert_eq!(record.epochs.len(), run.n_epochs());
                assert_eq!(folder.path().join("report.html").is_file(), cfg!(feature = "report"));
            }
            None
        }
        Outcome::Trained(best) => {
            let weights = weights_to_bytes(best.model())?;
            assert_eq!((best.report().n_epochs, best.run().n_epochs()), (2, 2));
            let test =
                best.test(&test, |trainer, test, phase| Evaluator::Sampled.evaluate(trainer, test, phase));
            Some((test?, weights))
        }
    };
    Ok((tested, watch.resumed))
}

#[test]
fn a_run_tests_its_best_model_and_writes_its_files() {
    for n_ranks in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let of_ranks = ranks(n_ranks).run(|comm| {
            let (tested, resumed) = run(folder.path(), comm, None)?;
            let (Tested { evaluation, summary, run }, weights) = tested.unwrap();
            assert_eq!(resumed, None);
            Ok((evaluation.predictions().len(), summary, run.folder().is_some(), weights))
        });
        let of_ranks = of_ranks.unwrap();
        for (rank, (n_predictions, summary, has_folder, weights)) in of_ranks.iter().enumerate() {
            let is_first = rank == 0;
            assert_eq!((summary.is_some(), *has_folder, 0 < *n_predictions), (is_first, is_first, is_first));
            assert_eq!(*weights, std::fs::read(folder.path().join("best.safetensors")).unwrap());
        }
        let summary = of_ranks[0].1.as_ref().unwrap();
        assert!(summary.test_accuracy > 0.3 && summary.n_epochs == 2, "{summary}");
        for name in ["config.json", "metrics.jsonl", "summary.json", "test_predictions.csv"] {
            assert!(folder.path().join(name).is_file(), "{name}");
        }
        for name in ["curves.svg", "report.html"] {
            assert_eq!(folder.path().join(name).is_file(), cfg!(feature = "report"), "{name}");
        }
    }
}

#[test]
fn a_stopped_run_resumes_by_the_same_call_to_identical_weights() {
    let whole = tempfile::tempdir().unwrap();
    let solo = || Box::new(kiln_comm::SingleRank);
    let (expected, _) = run(whole.path(), solo(), None).unwrap();
    let (expected, weights) = expected.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The callback is called after a step, so the run stops after the next step.
    let (stopped, _) = run(folder.path(), solo(), Some(5)).unwrap();
    assert!(stopped.is_none());
    let (found, resumed) = run(folder.path(), solo(), None).unwrap();
    let (found, found_weights) = found.unwrap();
    assert_eq!(resumed, Some(Resumed { epoch: 1, step: 2, n_ranks: 1, damage: None }));
    assert_eq!(found_weights, weights);
    assert_eq!(found.evaluation.predictions(), expected.evaluation.predictions());
}

/// Returns the error of a call of `RunConfig::fit`. Panics if the call has created the folder of the run.
fn refused(change: impl FnOnce(&mut RunConfig), splits: [&[NodeId]; 2], items: ItemSamplerConfig) -> Error {
    let (data, folder) = (data(320), tempfile::tempdir().unwrap());
    let path = folder.path().join("run");
    let trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
    let [train, val] = splits.map(|nodes| {
        let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::UpTo(3); 2]);
        let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
        let batcher = DeviceBatcher::new(batcher, trainer.device());
        Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, LoaderConfig::default()).unwrap()
    });
    let mut config = config(&path, 2);
    change(&mut config);
    let error = config.fit(trainer, &train, &val, validate, &mut ()).unwrap_err();
    assert!(!path.exists(), "{error}");
    error
}

#[test]
fn rejects_invalid_calls_before_a_file_is_written() {
    let nodes: Vec<NodeId> = (0..100).map(NodeId).collect();
    let items = ItemSamplerConfig { batch_size: 60, seed: 1, ..ItemSamplerConfig::default() };
    let splits = [&nodes[..], &nodes[..]];
    let error = refused(|config| config.fit.n_epochs = 0, splits, items);
    assert!(
        matches!(error, Error::Trainer(TrainerError::BadSetting { what: "the number of epochs", .. })),
        "{error}"
    );
    let error = refused(|config| config.fit.patience = Some(0), splits, items);
    assert!(
        matches!(error, Error::Trainer(TrainerError::BadSetting { what: "the patience", .. })),
        "{error}"
    );
    let error = refused(|_| (), [&[], &nodes], items);
    assert!(matches!(error, Error::Input(InputError::EmptySplit { split: "training" })), "{error}");
    let error = refused(|config| config.fit.patience = Some(2), [&nodes, &[]], items);
    let is_refused =
        matches!(error, Error::Metric(MetricError::Selection(SelectionError::PatienceWithoutValidation)));
    assert!(is_refused, "{error}");
    let error = refused(|_| (), splits, ItemSamplerConfig { batch_size: 101, drop_last: true, ..items });
    assert!(matches!(error, Error::Input(InputError::NoStep { n_items: 100, per_step: 101 })), "{error}");
    let error = refused(|_| (), splits, ItemSamplerConfig { seed: 2, ..items });
    assert!(matches!(error, Error::Trainer(TrainerError::OtherLoader { .. })), "{error}");
    let shard = Shard { rank: 1, world_size: 2 };
    let error = refused(|_| (), splits, ItemSamplerConfig { shard, ..items });
    assert!(matches!(error, Error::Trainer(TrainerError::OtherLoader { .. })), "{error}");
}

#[test]
fn rejects_fewer_epochs_than_the_run_has_done_and_another_identity() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), Box::new(kiln_comm::SingleRank), None).unwrap();
    let data = data(320);
    let [train, val] =
        [&data.split().train, &data.split().val].map(|nodes| loader(&data, nodes, 60, Shard::default()));
    let again = |config: RunConfig| {
        let trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
        config.fit(trainer, &train, &val, validate, &mut ()).unwrap_err()
    };
    let error = again(config(folder.path(), 1));
    assert!(matches!(error, Error::TooFewEpochs { n_epochs: 1, n_done: 2 }), "{error}");
    let identity = RunIdentity { data_hash: "another".into(), ..RunIdentity::default() };
    let error = again(RunConfig { identity, ..config(folder.path(), 2) });
    assert!(matches!(error, Error::Run(RunError::OtherRun { .. })), "{error}");
}

#[test]
fn rejects_a_test_split_without_nodes() {
    let (data, folder) = (data(320), tempfile::tempdir().unwrap());
    let nodes = |nodes: &[NodeId]| loader(&data, nodes, 60, Shard::default());
    let (train, val, test) = (nodes(&data.split().train), nodes(&data.split().val), nodes(&[]));
    let trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
    let outcome = config(folder.path(), 1).fit(trainer, &train, &val, validate, &mut ()).unwrap();
    let Outcome::Trained(best) = outcome else { panic!("the run should complete") };
    let tested = best.test(&test, |trainer, test, phase| Evaluator::Sampled.evaluate(trainer, test, phase));
    assert!(matches!(tested, Err(Error::Input(InputError::EmptySplit { split: "test" }))));
}

/// Collects warnings.
#[derive(Default)]
pub(crate) struct Warnings(pub(crate) Vec<String>);

impl TrainCallback for Warnings {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &MetricSums, _: bool) {}

    fn warning(&mut self, text: &str) {
        self.0.push(text.to_owned());
    }
}

#[test]
fn a_run_without_validation_and_test_keeps_the_last_epoch_and_reports_it() {
    for n_ranks in [1, 2] {
        let folder = tempfile::tempdir().unwrap();
        let of_ranks = ranks(n_ranks).run(|comm| {
            let (data, shard) = (data(320), shard(&*comm));
            let [train, none] = [&data.split().train[..], &[]].map(|nodes| loader(&data, nodes, 60, shard));
            let trainer = trainer(&data, comm);
            let mut warnings = Warnings::default();
            let outcome = config(folder.path(), 2).fit(trainer, &train, &none, validate, &mut warnings)?;
            let Outcome::Trained(last) = outcome else { panic!("the run should complete") };
            let tested = last.finish_without_test()?;
            Ok((tested.summary, warnings.0))
        });
        let of_ranks = of_ranks.unwrap();
        for (rank, (summary, warnings)) in of_ranks.iter().enumerate() {
            assert_eq!((summary.is_some(), warnings.len()), (rank == 0, usize::from(rank == 0)));
        }
        let (summary, warnings) = &of_ranks[0];
        assert!(warnings[0].contains("the validation split has no items"), "{warnings:?}");
        let summary = summary.as_ref().unwrap();
        assert_eq!((summary.best_epoch, summary.n_epochs), (2, 2));
        let printed = summary.to_string();
        assert!(printed.contains("test            none: the test split has no items"), "{printed}");
        assert!(printed.contains("best epoch      2 (the last one: no validation split)"), "{printed}");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
        let has_metric = |key: &String| key.starts_with("test") || key.starts_with("val") || key == "metric";
        assert!(!json.as_object().unwrap().keys().any(has_metric), "{json}");
        let row: serde_json::Value =
            serde_json::from_str(read("metrics.jsonl").lines().last().unwrap()).unwrap();
        assert_eq!((&row["epoch"], &row["val_loss"]), (&2.into(), &serde_json::Value::Null));
        assert!(row.get("val_seconds").is_none() && row["train_loss"].is_f64(), "{row}");
        assert!(!folder.path().join("test_predictions.csv").exists());
        if cfg!(feature = "report") {
            let page = read("report.html");
            assert!(page.contains("the test split has no items") && page.contains("no validation split"));
        }
    }
}

/// Each variant of [`RunDir`] opens the expected folder or fails.
#[test]
fn run_dir_variants_open_the_expected_folder_or_fail() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    assert!(matches!(RunDir::Resume(path.clone()).open(), Err(Error::Run(RunError::NoCheckpoint { .. }))));
    run(&path, Box::new(kiln_comm::SingleRank), None).unwrap();
    assert!(matches!(RunDir::New(path.clone()).open(), Err(Error::Run(RunError::RunFolderNotEmpty { .. }))));
    for dir in [RunDir::Resume(path.clone()), RunDir::StartOrResume(path.clone())] {
        assert_eq!(dir.open().unwrap().path(), path);
    }
    let numbered = RunDir::Numbered { parent: parent.path().to_owned(), name: "run".into() };
    assert_eq!(numbered.open().unwrap().path(), parent.path().join("run-001"));
}
