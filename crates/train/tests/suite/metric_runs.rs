//! Runs whose best epoch another metric than the accuracy selects: direction, patience, files and resumption.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::path::Path;
use std::time::Duration;

use kiln_comm::SingleRank;
use kiln_feature::{DenseFeatures, Labels};
use kiln_graph::NodeId;
use kiln_train::{
    Error, Evaluation, FitReport, Metric, MetricError, MetricSums, Metrics, Run, RunError, RunFolder,
    RunIdentity, Summary, Validation,
};

use crate::common::ranks;
use crate::run_folder::{report, run, trainer};

fn by(metric: Metric, value: Option<f64>) -> Validation {
    let sums = MetricSums { loss_sum: 5.0, weight: 10.0, hits: 5, total: 10, ..MetricSums::default() };
    Validation { sums, metric, value, wall: None }
}

fn resume(folder: &Path) -> Run {
    Run::start(&mut trainer(0.0), || RunFolder::open(folder), RunIdentity::default()).unwrap()
}

#[test]
fn the_lowest_error_is_kept_and_a_resumed_run_compares_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut first = run(&path);
    // The first value is undefined: it is kept until a defined value, and an undefined one never replaces that.
    let values = [(None, true), (Some(2.0), true), (Some(1.0), true), (None, false), (Some(1.0), false)];
    for (value, kept) in values {
        let is_best = first.record(&mut trainer(1.0), &report(), by(Metric::Rmse, value)).unwrap();
        assert_eq!(is_best, kept, "{value:?}");
    }
    assert_eq!((first.best().unwrap().epoch, first.n_since_best()), (3, 2));
    drop(first);

    let mut run = resume(&path);
    assert_eq!(run.best().unwrap().validation(), by(Metric::Rmse, Some(1.0)));
    // The resumed trainer is not at the run's epoch; only the run's decision matters here.
    assert!(!run.record(&mut trainer(1.0), &report(), by(Metric::Rmse, Some(1.5))).unwrap());
    assert!(run.record(&mut trainer(1.0), &report(), by(Metric::Rmse, Some(0.5))).unwrap());
    let error = run.record(&mut trainer(1.0), &report(), by(Metric::Mae, Some(0.1))).unwrap_err();
    assert!(matches!(&error, Error::Run(RunError::OtherRun { name, .. }) if name == "the metric"), "{error}");

    let lines = std::fs::read_to_string(path.join("metrics.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[1]["metric"], &lines[1]["val_metric"]), (&"rmse".into(), &2.0.into()));
    assert_eq!(lines[3]["val_metric"], serde_json::Value::Null);
}

#[test]
fn the_files_of_a_run_by_accuracy_do_not_name_the_metric() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let sums = by(Metric::Accuracy, None).sums;
    run(&path).record(&mut trainer(1.0), &report(), sums).unwrap();
    assert!(!std::fs::read_to_string(path.join("metrics.jsonl")).unwrap().contains("metric"));
    let checkpoint = std::fs::read(path.join("last/checkpoint.safetensors")).unwrap();
    let header = String::from_utf8_lossy(&checkpoint);
    assert!(header.contains(r#"\"best\":{\"epoch\":1,\"val\":["#) && !header.contains(r#"\"metric\""#));
    assert_eq!(resume(&path).best().unwrap().validation(), sums.into());
}

#[test]
fn the_summary_names_the_metric_and_all_test_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = run(&folder.path().join("run"));
    run.record(&mut trainer(1.0), &report(), by(Metric::AveragePrecision, Some(0.25))).unwrap();
    let test = Metrics { accuracy: 0.5, f1_micro: None, f1_macro: None, roc_auc: None };
    let mut summary = Summary::new(&test, run.best().unwrap(), &FitReport::default(), Duration::from_secs(1));
    summary.test_metrics = vec![(Metric::AveragePrecision, Some(0.75)), (Metric::RocAuc, None)];
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!((&json["metric"], &json["val_metric"]), (&"average-precision".into(), &0.25.into()));
    assert_eq!(json["test_metrics"], serde_json::json!({ "average-precision": 0.75, "roc-auc": null }));
    let printed = summary.to_string();
    assert!(printed.contains("test average-precision 0.7500\n"), "{printed}");
    assert!(printed.contains("best epoch      1 (validation average-precision 0.2500)\n"), "{printed}");
}

/// Rank 0 holds all outputs, as in exact evaluation; the other rank has none and does not know their number.
#[test]
fn a_validation_is_equal_on_all_ranks_if_one_holds_all_outputs() {
    let outputs = DenseFeatures::from_f32(vec![1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 2.0, 1.0, -0.5], 3).unwrap();
    let labels = Labels::new(vec![0, 1, 2], 3);
    let nodes: Vec<NodeId> = (0..3).map(NodeId).collect();
    let all = Evaluation::of(&outputs, &nodes, &labels).unwrap();
    for metric in [Metric::F1Macro, Metric::RocAuc, Metric::AveragePrecision] {
        let expected = Validation::of(&all, metric, &mut SingleRank).unwrap();
        let of_ranks = ranks(2).run(|mut comm| {
            let own = if comm.rank_info().rank == 0 { all.clone() } else { Evaluation::default() };
            Ok(Validation::of(&own, metric, &mut *comm)?)
        });
        assert_eq!(of_ranks.unwrap(), [expected, expected], "{metric}");
        assert!(expected.value.is_some_and(|value| 0.0 < value && value < 1.0), "{metric}: {expected:?}");
    }
    assert!(matches!(
        Validation::of(&all, Metric::R2, &mut SingleRank),
        Err(Error::Metric(MetricError::OtherMetric { .. }))
    ));
}
