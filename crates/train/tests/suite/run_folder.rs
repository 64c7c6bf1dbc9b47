//! Tests of the run folder: the files that it contains, and that nothing is overwritten.

// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_comm::SingleRank;
use kiln_nn::ForwardContext;
use kiln_train::{
    EpochReport, Error, FitReport, MemoryUse, MetricSums, Metrics, OptimizerConfig, Prediction, Run,
    RunError, RunFolder, RunIdentity, StepOutput, Summary, Task, TaskTrainer, Timings, TrainerConfig,
    load_weights, weights_to_bytes,
};
use sha2::{Digest, Sha256};

#[derive(Module, Debug)]
pub(crate) struct Line {
    slope: Param<Tensor<1>>,
    shift: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Longer {
    slope: Param<Tensor<1>>,
    shift: Param<Tensor<1>>,
    bend: Param<Tensor<1>>,
}

fn param<const N: usize>(values: [f32; N]) -> Param<Tensor<1>> {
    Param::from_tensor(Tensor::from_floats(values, &Device::flex().autodiff()))
}

fn line(slope: f32) -> Line {
    Line { slope: param([slope, 1.0]), shift: param([0.5]) }
}

fn slope(trainer: &TaskTrainer<Nothing>) -> f32 {
    kiln_kernels::to_vec_f32(trainer.model().slope.val())[0]
}

/// A task for trainers that never train.
pub(crate) struct Nothing;

impl Task for Nothing {
    type Input = ();
    type Model = Line;
    type Targets = ();

    fn forward(&self, _: &Line, _: &(), _: &[Tensor<2>], _: &ForwardContext) -> StepOutput {
        unreachable!("no batch is taken")
    }

    fn targets(&self, _: &()) {
        unreachable!("no batch is taken")
    }

    fn count(_: &(), _: &Tensor<2>, _: &mut MetricSums) {
        unreachable!("no batch is taken")
    }
}

pub(crate) fn trainer(slope: f32) -> TaskTrainer<Nothing> {
    let config = TrainerConfig::new(OptimizerConfig::adam(0.1, 0.0));
    TaskTrainer::new(Nothing, &config, Box::new(SingleRank), |_, _| Ok(line(slope))).unwrap()
}

pub(crate) fn run(folder: &Path) -> Run {
    Run::start(&mut trainer(0.0), || RunFolder::create(folder), RunIdentity::default()).unwrap()
}

fn counts(hits: u64) -> MetricSums {
    MetricSums { loss_sum: 5.0, weight: 10.0, hits, total: 10, ..MetricSums::default() }
}

pub(crate) fn report() -> EpochReport {
    EpochReport {
        n_steps: 3,
        counts: counts(4),
        timings: Timings::default(),
        wall: Duration::from_secs(2),
        peak_memory: MemoryUse { anon_bytes: 1 << 20, mapped_bytes: 1 << 21 },
    }
}

#[test]
fn the_first_epoch_with_the_best_accuracy_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(&folder.path().join("run"));
    assert!(matches!(run.best(), Err(Error::Run(RunError::NoEpoch))));
    assert!(matches!(run.load_best(&mut trainer(0.0)), Err(Error::Run(RunError::NoEpoch))));
    for (epoch, hits, kept) in [(1, 5, true), (2, 7, true), (3, 7, false), (4, 6, false)] {
        let is_best = run.record(&mut trainer(epoch as f32), &report(), counts(hits)).unwrap();
        assert_eq!((is_best, run.n_epochs()), (kept, epoch), "epoch {epoch}");
    }
    assert_eq!((run.best().unwrap().epoch, run.best().unwrap().val), (2, counts(7)));
    let mut best = trainer(0.0);
    run.load_best(&mut best).unwrap();
    assert_eq!(slope(&best), 2.0);

    let path = run.folder().unwrap().path();
    let bytes = std::fs::read(path.join("best.safetensors")).unwrap();
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(run.best().unwrap().weights_hash, hash);

    let metrics = std::fs::read_to_string(path.join("metrics.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[1]["epoch"], 2);
    assert_eq!(lines[1]["val_accuracy"], 0.7);
    assert_eq!(lines[1]["seeds_per_second"], 5.0);
    assert_eq!(lines[1]["stage_seconds"]["backward"], 0.0);

    let curves = path.join("curves.svg");
    assert_eq!(curves.exists(), cfg!(feature = "report"));
    if curves.exists() {
        let svg = std::fs::read_to_string(curves).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("accuracy") && svg.contains("polyline"), "{svg}");
    }
}

#[test]
fn writes_summary_and_predictions_without_leaving_unfinished_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(folder.path());
    run.record(&mut trainer(1.0), &report(), counts(5)).unwrap();
    let said = |item, label, predicted| Prediction { item, label, predicted };
    let files = run.folder().unwrap();
    files.write_predictions(&[said(7, 1, Some(1)), said(3, 0, Some(1)), said(9, 1, None)], None).unwrap();
    let memory = MemoryUse { anon_bytes: 3 << 20, mapped_bytes: 5 << 20 };
    let fit = FitReport { n_epochs: 4, stopped_early: true, peak_memory: memory, ..FitReport::default() };
    let accuracy = counts(9).accuracy();
    let test = Metrics { accuracy, f1_micro: Some(accuracy), f1_macro: Some(0.75), roc_auc: None };
    let summary = Summary::new(&test, run.best().unwrap(), &fit, Duration::from_secs(3));
    files.write_summary(&summary).unwrap();

    let read = |name: &str| std::fs::read_to_string(files.path().join(name)).unwrap();
    assert_eq!(read("test_predictions.csv"), "item,label,predicted\n7,1,1\n3,0,1\n9,1,\n");
    let json: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(json["test_accuracy"], 0.9);
    assert_eq!((&json["test_f1_macro"], &json["test_roc_auc"]), (&0.75.into(), &serde_json::Value::Null));
    let printed = summary.to_string();
    assert!(printed.contains("test macro F1   0.7500\ntest ROC-AUC    undefined\n"), "{printed}");
    assert_eq!(json["val_accuracy"], 0.5);
    assert_eq!(json["best_epoch"], 1);
    assert_eq!((&json["n_epochs"], &json["stopped_early"]), (&4.into(), &true.into()));
    assert!(printed.contains("epochs          4, stopped early"), "{printed}");
    assert!(json.get("negatives").is_none(), "only runs of link prediction have negatives: {json}");
    assert_eq!(json["seconds"], 3.0);
    assert_eq!(json["peak_rss_anon_bytes"], 3 << 20);
    assert_eq!(json["weights_hash"], run.best().unwrap().weights_hash.as_str());
    assert!(
        std::fs::read_dir(files.path())
            .unwrap()
            .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(".unfinished") })
    );
}

#[test]
fn earlier_results_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let first = RunFolder::create_numbered(folder.path(), "run").unwrap();
    let second = RunFolder::create_numbered(folder.path(), "run").unwrap();
    assert_eq!(first.path(), folder.path().join("run-001"));
    assert_eq!(second.path(), folder.path().join("run-002"));
    let error = RunFolder::create(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Run(RunError::RunFolderNotEmpty { .. })), "{error}");
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(RunFolder::create(&file), Err(Error::Run(RunError::Io { .. }))));
}

#[test]
fn rejects_weights_that_do_not_fit_the_model() {
    let bytes = weights_to_bytes(&line(1.0)).unwrap();
    assert_eq!(bytes, weights_to_bytes(&line(1.0)).unwrap(), "equal parameters should give identical bytes");
    assert_ne!(bytes, weights_to_bytes(&line(2.0)).unwrap());

    let mut other_shape = Line { slope: param([1.0, 2.0, 3.0]), shift: param([0.5]) };
    assert!(matches!(
        load_weights(&mut other_shape, bytes.clone()),
        Err(Error::Run(RunError::Weights { .. }))
    ));
    let mut longer = Longer { slope: param([1.0, 2.0]), shift: param([0.5]), bend: param([0.0]) };
    assert!(matches!(load_weights(&mut longer, bytes.clone()), Err(Error::Run(RunError::Weights { .. }))));
    let longer = weights_to_bytes(&longer).unwrap();
    assert!(matches!(load_weights(&mut line(0.0), longer), Err(Error::Run(RunError::Weights { .. }))));
    let cut = bytes[..bytes.len() - 3].to_vec();
    assert!(matches!(load_weights(&mut line(0.0), cut), Err(Error::Run(RunError::Weights { .. }))));
}
