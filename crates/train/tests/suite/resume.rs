//! Resumed runs end with bit-identical results; checkpoints of other runs are rejected.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use burn::tensor::Device;
use kiln_comm::ThreadRanks;
use kiln_data::{Dataset, synthetic};
use kiln_graph::NodeId;
use kiln_loader::{ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, Shard};
use kiln_nn::{Sage, SageConfig};
use kiln_sample::{Fanout, NeighborSampler};
use kiln_train::{
    DeviceBatcher, EpochReport, Error, Evaluation, FitConfig, MetricSums, NodeClassification,
    OptimizerConfig, Resumed, Run, RunError, RunFolder, RunIdentity, StepReport, TEST, TaskTrainer,
    TrainCallback, TrainerConfig, VALIDATION, evaluate_best, fit, weights_to_bytes,
};

pub(crate) type Nodes = TaskTrainer<NodeClassification<Sage>>;

/// The number of seeds of all ranks in a step. An epoch has 4 steps, the last one short.
const GLOBAL_BATCH: usize = 60;

pub(crate) fn data() -> Dataset {
    let config = synthetic::SbmConfig {
        n_nodes: 320,
        n_classes: 4,
        degree: 6,
        homophily: 0.8,
        dim: 8,
        noise: 1.5,
        seed: 5,
    };
    synthetic::sbm(config).unwrap()
}

pub(crate) fn identity() -> RunIdentity {
    let settings = [("--hidden", "8"), ("--lr", "0.01")].map(|(name, value)| (name.into(), value.into()));
    RunIdentity { settings: BTreeMap::from(settings), data_hash: "a hash".into() }
}

fn loader(
    data: &Dataset,
    nodes: &[NodeId],
    shard: Shard,
) -> Loader<DeviceBatcher<NodeBatcher<NeighborSampler>>> {
    let sampler = NeighborSampler::new(data.csc().unwrap().clone(), [Fanout::UpTo(3); 2]);
    let batcher = NodeBatcher::new(sampler.into(), data.node_features().unwrap().clone(), data.labels());
    let batch_size = GLOBAL_BATCH / shard.world_size;
    let items = ItemSamplerConfig { batch_size, seed: 1, shard, ..Default::default() };
    let config = LoaderConfig { workers: 1, ..Default::default() };
    let batcher = DeviceBatcher::new(batcher, &Device::flex());
    Loader::new(ItemSampler::new(nodes, items).unwrap(), batcher, config).unwrap()
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

/// The part of a run's results that must be the same if the run was stopped and resumed.
#[derive(Debug, PartialEq)]
pub(crate) struct Result {
    weights: Vec<u8>,
    best: Vec<u8>,
    pub(crate) metrics: Vec<serde_json::Value>,
    hits: usize,
}

/// Starts or resumes a run of 3 epochs, in which rank 0 panics after `n_steps` more steps.
pub(crate) fn train(
    n_ranks: usize,
    open: impl Fn() -> kiln_train::Result<RunFolder> + Sync,
    checkpoint_every: Option<usize>,
    n_steps: usize,
) -> std::result::Result<(Result, Option<Resumed>), String> {
    let data = data();
    let ranks = ThreadRanks { n_ranks, threads_per_rank: 1, deadline: Duration::from_secs(60) };
    let result = ranks.run(|comm| {
        let rank_info = comm.rank_info();
        let shard = Shard { rank: rank_info.rank, world_size: rank_info.world_size };
        let mut trainer = trainer(&data, comm);
        let mut run = Run::start(&mut trainer, &open, identity())?;
        let config = FitConfig { n_epochs: 3, patience: None, checkpoint_every };
        let [train, val, test] = [&data.split().train, &data.split().val, &data.split().test]
            .map(|nodes| loader(&data, nodes, shard));
        let validate = |trainer: &mut Nodes| trainer.evaluate(val.epoch(VALIDATION), |_, _| ());
        let mut stop = StopAfter(if rank_info.rank == 0 { n_steps } else { usize::MAX });
        fit(&mut trainer, &train, config, validate, &mut run, &mut stop)?;
        let weights = weights_to_bytes(trainer.model())?;
        let said = evaluate_best(trainer, &run, |trainer| {
            let mut said = Evaluation::default();
            trainer.evaluate(test.epoch(TEST), |input, forward| {
                said.add(&input.seeds, &input.labels, forward)
            })?;
            Ok(said)
        })?;
        let resumed = run.resumed().cloned();
        Ok(run.folder().map(|folder| (result_of(folder.path(), weights, &said), resumed)))
    });
    match result {
        Ok(mut ranks) => Ok(ranks.remove(0).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn trainer(data: &Dataset, comm: Box<dyn kiln_comm::Communicator>) -> Nodes {
    let d_in = data.node_features().unwrap().dim();
    let model = SageConfig::new(d_in, 4).hidden(8).layers(2).input_dropout(0.1).dropout(0.3);
    let config = TrainerConfig { seed: 1, ..TrainerConfig::new(OptimizerConfig::adam(0.01, 0.01)) };
    let init = |key, device: &Device| model.init(key, device);
    TaskTrainer::new(NodeClassification::new(), &config, comm, init).unwrap().with_read_every(4)
}

fn result_of(folder: &Path, weights: Vec<u8>, said: &Evaluation) -> Result {
    let metrics = std::fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    let without_times = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = line.as_object_mut().unwrap();
        fields.retain(|name, _| !name.contains("second") && !name.contains("rss"));
        line
    };
    let right = said.predictions().iter().filter(|said| Some(said.label) == said.predicted).count();
    Result {
        weights,
        best: std::fs::read(folder.join("best.safetensors")).unwrap(),
        metrics: metrics.lines().map(without_times).collect(),
        hits: right,
    }
}

#[test]
fn a_run_killed_at_any_step_resumes_to_bit_identical_results() {
    for n_ranks in [1, 2] {
        let whole = tempfile::tempdir().unwrap();
        let (expected, resumed) =
            train(n_ranks, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
        assert_eq!((resumed, expected.metrics.len()), (None, 3));
        // The run has three epochs of four steps.
        // `a_run_killed_repeatedly_completes_with_bit_identical_results` has two ranks and a checkpoint per step.
        let intervals = if n_ranks == 1 { &[None, Some(1), Some(3)][..] } else { &[None, Some(3)] };
        for n_steps in 1..=12 {
            for &checkpoint_every in intervals {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path();
                let error =
                    train(n_ranks, || RunFolder::create(path), checkpoint_every, n_steps).unwrap_err();
                assert!(error.contains("injected stop"), "{error}");
                let (found, resumed) =
                    train(n_ranks, || RunFolder::open(path), checkpoint_every, usize::MAX).unwrap();
                assert_eq!(found, expected, "{n_ranks} ranks stopped in step {n_steps}");
                // The last step before the stop was not in a checkpoint, so it is repeated.
                let done = n_steps - 1;
                let step = done % 4 / checkpoint_every.unwrap_or(4) * checkpoint_every.unwrap_or(4);
                assert_eq!(resumed, Some(Resumed { epoch: done / 4, step, n_ranks, damage: None }));
            }
        }
    }
}

#[test]
fn a_run_killed_repeatedly_completes_with_bit_identical_results() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(2, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut outcome = train(2, || RunFolder::create(folder.path()), Some(1), 2);
    let mut n_stops = 0;
    while outcome.is_err() {
        n_stops += 1;
        assert!(n_stops < 20, "{outcome:?}");
        outcome = train(2, || RunFolder::open(folder.path()), Some(1), 2);
    }
    assert_eq!(outcome.unwrap().0, expected);
    // Each attempt except the last advanced by one step.
    assert_eq!(n_stops, 11);
}

/// Seeds, samples and masks are the same, but sums over the ranks round differently.
#[test]
fn a_run_resumes_on_another_number_of_ranks() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(1, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    let folder = tempfile::tempdir().unwrap();
    train(3, || RunFolder::create(folder.path()), Some(1), 7).unwrap_err();
    let (found, resumed) = train(2, || RunFolder::open(folder.path()), Some(1), usize::MAX).unwrap();
    assert_eq!(resumed, Some(Resumed { epoch: 1, step: 2, n_ranks: 3, damage: None }));
    let loss = |result: &Result| result.metrics[2]["train_loss"].as_f64().unwrap();
    assert!((loss(&found) - loss(&expected)).abs() < 1e-4, "{found:?} {expected:?}");
    assert_ne!(found.weights, expected.weights, "sums over three ranks should round otherwise");
}

#[test]
fn resuming_a_completed_run_keeps_weights_and_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let create = || RunFolder::create(folder.path());
    let (expected, _) = train(1, create, None, usize::MAX).unwrap();
    let (found, resumed) = train(1, || RunFolder::open(folder.path()), None, usize::MAX).unwrap();
    assert_eq!(found, expected);
    assert_eq!(resumed, Some(Resumed { epoch: 3, step: 0, n_ranks: 1, damage: None }));
}

#[test]
fn rejects_a_checkpoint_of_another_run_and_names_the_difference() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let solo = || Box::new(kiln_comm::SingleRank);
    let start = |identity| {
        let open = || match folder.path().join("last").exists() {
            true => RunFolder::open(folder.path()),
            false => RunFolder::create(folder.path()),
        };
        Run::start(&mut trainer(&data, solo()), open, identity)
    };
    start(identity()).unwrap();
    assert!(start(identity()).unwrap().resumed().is_some());
    let with = |name: &str, value: &str| {
        let mut other = identity();
        other.settings.insert(name.into(), value.into());
        other
    };
    let mut without = identity();
    without.settings.remove("--lr");
    let other_data = RunIdentity { data_hash: "another".into(), ..identity() };
    for (other, expected) in [
        (with("--lr", "0.02"), ["--lr", "0.01", "0.02"]),
        (with("--patience", "3"), ["--patience", "not set", "3"]),
        (without, ["--lr", "0.01", "not set"]),
        (other_data, ["the hash of the data", "a hash", "another"]),
    ] {
        match start(other) {
            Err(Error::Run(RunError::OtherRun { name, then, now })) => {
                assert_eq!([&name[..], &then, &now], expected)
            }
            other => panic!("{other:?} where {expected:?} differ"),
        }
    }
}

#[test]
fn rejects_a_damaged_checkpoint_with_its_path() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last/checkpoint.safetensors");
    let solo = || Box::new(kiln_comm::SingleRank);
    let create = || RunFolder::create(folder.path());
    Run::start(&mut trainer(&data, solo()), create, identity()).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&bytes[..bytes.len() - 1], &bytes[..100], &[], &flipped] {
        std::fs::write(&path, damaged).unwrap();
        let open = || RunFolder::open(folder.path());
        let error = Run::start(&mut trainer(&data, solo()), open, identity()).unwrap_err();
        assert!(
            matches!(&error, Error::Run(RunError::BadFile { path: named, .. }) if *named == path),
            "{error}"
        );
    }
}

/// The checkpoint of a best epoch contains its parameters, and is written before their file.
#[test]
fn a_missing_best_file_is_restored_from_the_checkpoint() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(1, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The file cannot be written, so the run stops after its first epoch.
    let in_the_way = folder.path().join("best.safetensors.unfinished");
    let error = train(
        1,
        || RunFolder::create(folder.path()).inspect(|_| std::fs::create_dir(&in_the_way).unwrap()),
        None,
        usize::MAX,
    );
    assert!(error.unwrap_err().contains("best.safetensors"));
    std::fs::remove_dir(&in_the_way).unwrap();

    let mut trainer = trainer(&data(), Box::new(kiln_comm::SingleRank::new()));
    let run = Run::start(&mut trainer, || RunFolder::open(folder.path()), identity()).unwrap();
    assert_eq!(run.resumed(), Some(&Resumed { epoch: 1, step: 0, n_ranks: 1, damage: None }));
    drop(run);
    let best = std::fs::read(folder.path().join("best.safetensors")).unwrap();
    assert_eq!(best, weights_to_bytes(trainer.model()).unwrap());
    let (found, _) = train(1, || RunFolder::open(folder.path()), None, usize::MAX).unwrap();
    assert_eq!(found, expected);
}

/// Rank 0 reports the error, because the other ranks do not have the path.
#[test]
fn rejects_a_folder_of_damaged_checkpoints_on_several_ranks() {
    let folder = tempfile::tempdir().unwrap();
    train(2, || RunFolder::create(folder.path()), Some(1), 3).unwrap_err();
    let path = damage(folder.path(), "checkpoint");
    damage(folder.path(), "previous");
    for _ in 0..10 {
        let error = train(2, || RunFolder::open(folder.path()), None, usize::MAX).unwrap_err();
        assert!(error.starts_with("rank 0: ") && error.contains(path.to_str().unwrap()), "{error}");
    }
}

/// Changes a digit in the header of a checkpoint: the number of epochs since the best epoch.
fn damage(folder: &Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(format!("last/{name}.safetensors"));
    let mut bytes = std::fs::read(&path).unwrap();
    let field = b"n_since_best\\\":";
    let at = bytes.windows(field.len()).position(|window| window == field).unwrap();
    bytes[at + field.len()] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    path
}

/// The previous checkpoint may have an earlier best epoch, whose file was overwritten since.
#[test]
fn resumes_from_the_previous_checkpoint_if_the_last_one_is_damaged() {
    let whole = tempfile::tempdir().unwrap();
    let (expected, _) = train(1, || RunFolder::create(whole.path()), None, usize::MAX).unwrap();
    for (n_steps, epoch) in [(5, 0), (9, 1)] {
        let folder = tempfile::tempdir().unwrap();
        train(1, || RunFolder::create(folder.path()), None, n_steps).unwrap_err();
        let path = damage(folder.path(), "checkpoint");
        let (found, resumed) = train(1, || RunFolder::open(folder.path()), None, usize::MAX).unwrap();
        assert_eq!(found, expected);
        let resumed = resumed.filter(|then| (then.epoch, then.step) == (epoch, 0)).unwrap();
        assert!(resumed.damage.unwrap().contains(path.to_str().unwrap()));
        assert!(path.with_extension("safetensors.damaged").exists(), "the file should be renamed");
    }
}

/// A run that stopped before its first checkpoint has done nothing, so its folder counts as empty.
#[test]
fn a_run_starts_in_the_folder_of_one_that_stopped_before_its_first_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("last")).unwrap();
    std::fs::write(folder.path().join("last/checkpoint.safetensors.unfinished"), "{").unwrap();
    assert!(matches!(RunFolder::open(folder.path()), Err(Error::Run(RunError::NoCheckpoint { .. }))));
    let (_, resumed) = train(1, || RunFolder::create(folder.path()), None, usize::MAX).unwrap();
    assert_eq!(resumed, None);
    assert!(!folder.path().join("last/checkpoint.safetensors.unfinished").exists());
    assert!(matches!(RunFolder::create(folder.path()), Err(Error::Run(RunError::RunFolderNotEmpty { .. }))));
}

/// Files of another origin are neither resumed from nor overwritten.
#[test]
fn rejects_a_folder_with_files_but_without_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    std::fs::write(folder.path().join("best.safetensors"), "mine").unwrap();
    assert!(matches!(RunFolder::open(folder.path()), Err(Error::Run(RunError::NoCheckpoint { .. }))));
    assert!(matches!(RunFolder::create(folder.path()), Err(Error::Run(RunError::RunFolderNotEmpty { .. }))));
    assert_eq!(std::fs::read(folder.path().join("best.safetensors")).unwrap(), b"mine");
}

#[test]
fn rejects_a_folder_that_another_run_uses() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    let mut trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
    let run = Run::start(&mut trainer, || RunFolder::create(folder.path()), identity()).unwrap();
    assert!(matches!(RunFolder::open(folder.path()), Err(Error::Run(RunError::RunFolderInUse { .. }))));
    assert!(matches!(RunFolder::create(folder.path()), Err(Error::Run(RunError::RunFolderInUse { .. }))));
    drop(run);
    RunFolder::open(folder.path()).unwrap();
}

/// A resumed run has epochs that the earlier results do not include, so they are removed.
#[test]
fn resuming_a_completed_run_removes_summary_report_and_predictions() {
    let (data, folder) = (data(), tempfile::tempdir().unwrap());
    train(1, || RunFolder::create(folder.path()), None, usize::MAX).unwrap();
    for name in ["summary.json", "report.html", "test_predictions.csv"] {
        std::fs::write(folder.path().join(name), "old").unwrap();
    }
    let metrics = folder.path().join("metrics.jsonl");
    let whole = std::fs::read_to_string(&metrics).unwrap();
    std::fs::write(&metrics, format!("{whole}{{\"epoch\":4")).unwrap(); // An incomplete row of a later epoch.
    let start = || {
        let mut trainer = trainer(&data, Box::new(kiln_comm::SingleRank));
        Run::start(&mut trainer, || RunFolder::open(folder.path()), identity())
    };
    let mut run = start().unwrap();
    run.checkpoint(&mut trainer(&data, Box::new(kiln_comm::SingleRank))).unwrap();
    drop(run);
    for name in ["summary.json", "report.html", "test_predictions.csv"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(&metrics).unwrap(), whole);
    std::fs::write(&metrics, &whole[1..]).unwrap();
    start().unwrap();
    assert_eq!(std::fs::read_to_string(&metrics).unwrap(), whole);
}
