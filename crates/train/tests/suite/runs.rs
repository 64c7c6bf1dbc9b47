//! Tests of runs as their folders record them.

use std::fs;
use std::path::Path;

use kiln_train::{Metric, RunRecord, RunState, RunTable, Summary, find_runs};

type TestResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The summaries of a run on classes by the accuracy, of one on regression, of one on links, of an interrupted one, and of one by a
/// metric of one's own, with all fields that a run writes.
const SUMMARIES: [&str; 5] = [
    r#"{"test_accuracy": 0.5, "test_f1_macro": 0.25, "test_roc_auc": null, "val_accuracy": 0.75, "test_not_finite": 2,
        "loss": "focal", "best_epoch": 3, "n_epochs": 4, "stopped_early": true, "stop_reason": "enough", "seconds": 2.5, "peak_rss_anon_bytes": 7,
        "peak_rss_mapped_bytes": 9, "weights_hash": "c0ffee"}"#,
    r#"{"metric": "rmse", "val_metric": 0.5, "test_metrics": {"mae": 0.25, "r2": null, "rmse": 0.75}, "val_not_finite": 1,
        "best_epoch": 1, "n_epochs": 2, "stopped_early": false, "seconds": 1.0, "peak_rss_anon_bytes": 0,
        "peak_rss_mapped_bytes": 0, "weights_hash": "c0ffee"}"#,
    r#"{"metric": "mrr", "val_metric": 0.5, "test_metrics": {"hits@10": 1.0, "mrr": 0.75}, "best_epoch": 1, "n_epochs": 1,
        "stopped_early": false, "seconds": 1.0, "peak_rss_anon_bytes": 0, "peak_rss_mapped_bytes": 0,
        "negatives": {"training": {"n_negatives": 8, "n_rejected": 1}, "validation": {"n_negatives": 4, "n_rejected": 0},
        "test": {"n_negatives": 4, "n_rejected": 0}}, "weights_hash": "c0ffee"}"#,
    r#"{"n_epochs": 0, "stopped_early": false, "interrupted": true, "seconds": 1.0, "peak_rss_anon_bytes": 0,
        "peak_rss_mapped_bytes": 0}"#,
    r#"{"test_accuracy": 0.5, "test_f1_macro": 0.25, "test_roc_auc": null, "val_accuracy": 0.75, "metric": "cost",
        "val_metric": 0.5, "higher_is_better": false, "test_metrics": {"accuracy": 0.5, "cost": 0.75}, "best_epoch": 1,
        "n_epochs": 1, "stopped_early": false, "seconds": 1.0, "peak_rss_anon_bytes": 0, "peak_rss_mapped_bytes": 0,
        "weights_hash": "c0ffee"}"#,
];

/// Writes a run with rows of a metric, whose values on the validation split are given, and with settings.
fn write_run(folder: &Path, settings: &str, metric: &str, values: &[Option<f64>]) -> TestResult {
    fs::create_dir_all(folder)?;
    let mut rows = String::new();
    for (epoch, value) in (1..).zip(values) {
        let value = value.map_or("null".to_owned(), |value| value.to_string());
        let of_metric = match metric {
            "accuracy" => format!(r#""val_accuracy": {value}"#),
            metric => format!(r#""metric": "{metric}", "val_metric": {value}"#),
        };
        rows.push_str(&format!(
            "{{\"epoch\": {epoch}, \"train_loss\": 1.0, \"val_loss\": 1.0, {of_metric}, \"seconds\": 0.5}}\n"
        ));
    }
    fs::write(folder.join("metrics.jsonl"), rows)?;
    Ok(fs::write(folder.join("config.json"), settings)?)
}

#[test]
fn summaries_are_read_as_they_were_written() -> TestResult {
    let root = tempfile::tempdir()?;
    write_run(root.path(), "{}", "accuracy", &[])?;
    for text in SUMMARIES {
        fs::write(root.path().join("summary.json"), text)?;
        let run = RunRecord::read(root.path())?;
        let summary: Summary = run.summary.ok_or("there is a summary")?;
        let written: serde_json::Value = serde_json::from_str(text)?;
        assert_eq!(serde_json::to_value(&summary)?, written);
        assert_eq!(run.state == RunState::Interrupted, text.contains("interrupted"));
    }
    fs::write(root.path().join("summary.json"), r#"{"metric": "speed"}"#)?;
    let error = RunRecord::read(root.path()).expect_err("the metric is unknown").to_string();
    assert!(error.contains("summary.json: unknown metric 'speed'"), "{error}");
    Ok(())
}

#[test]
fn the_best_epoch_is_that_of_the_metric() -> TestResult {
    let root = tempfile::tempdir()?;
    let best = |metric: &str, values: &[Option<f64>]| -> TestResult<(Metric, Option<usize>, Option<f64>)> {
        write_run(root.path(), "{}", metric, values)?;
        let run = RunRecord::read(root.path())?;
        assert_eq!((run.state, run.seconds()), (RunState::Unfinished, 0.5 * values.len() as f64));
        Ok((run.metric(), run.best_epoch().map(|row| row.epoch), run.best_value()))
    };
    let up = [Some(0.25), Some(0.75), Some(0.75), None];
    assert_eq!(best("accuracy", &up)?, (Metric::Accuracy, Some(2), Some(0.75)));
    assert_eq!(best("f1-macro", &up)?, (Metric::F1Macro, Some(2), Some(0.75)));
    assert_eq!(best("rmse", &up)?, (Metric::Rmse, Some(1), Some(0.25)));
    assert_eq!(best("mrr", &[None, Some(0.5)])?, (Metric::Mrr, Some(2), Some(0.5)));
    // Without a validation, the last epoch is kept.
    assert_eq!(best("accuracy", &[None, None])?, (Metric::Accuracy, Some(2), None));
    assert_eq!(best("accuracy", &[])?, (Metric::Accuracy, None, None));
    Ok(())
}

/// The folder of a run of an earlier version, with which its checkpoint is tested.
#[test]
fn a_run_of_an_earlier_version_is_read() -> TestResult {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/checkpoint-9350b4b");
    let run = RunRecord::read(folder)?;
    assert_eq!(
        (run.state, run.metric(), run.best_value()),
        (RunState::Unfinished, Metric::Accuracy, Some(0.25))
    );
    assert!(run.settings.is_empty() && run.summary.is_none() && run.test_value().is_none());
    Ok(())
}

#[test]
fn tables_have_the_settings_that_differ() -> TestResult {
    let root = tempfile::tempdir()?;
    let run = |name: &str| root.path().join("deep/er").join(name);
    write_run(&run("a"), r#"{"lr": "0.5", "seed": "1", "out": "a"}"#, "rmse", &[Some(2.0)])?;
    write_run(&run("b"), r#"{"lr": "0.50", "seed": 2, "out": "b", "new": "x"}"#, "rmse", &[Some(1.0)])?;
    write_run(&run("c"), r#"{"lr": "0.5", "seed": "1"}"#, "rmse", &[None])?;
    // A folder that is no run, one that is hidden, and one that is too deep.
    fs::create_dir_all(root.path().join("empty"))?;
    write_run(&root.path().join(".hidden"), "{}", "rmse", &[])?;
    write_run(&root.path().join("1/2/3/4/5"), "{}", "rmse", &[])?;
    let folders = find_runs(root.path())?;
    assert_eq!(folders, [run("a"), run("b"), run("c")]);
    let runs = folders.into_iter().map(RunRecord::read).collect::<Result<Vec<_>, _>>()?;
    let table = RunTable::new(runs);
    assert_eq!(table.differing, ["new", "seed"]);
    let order: Vec<_> = table.runs.iter().map(|run| run.folder.clone()).collect();
    assert_eq!(order, [run("b"), run("a"), run("c")]);
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("validation rmse") && lines[0].ends_with("new  seed"), "{text}");
    assert!(lines[1].ends_with("unfinished  x    2") && lines[2].ends_with("unfinished       1"), "{text}");
    let error = RunRecord::read(root.path()).expect_err("it is no run").to_string();
    assert!(error.contains("is no run") && error.contains("(runs in it: "), "{error}");
    Ok(())
}
