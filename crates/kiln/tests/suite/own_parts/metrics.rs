//! A metric of one's own selects the best epoch as a built-in one does, and is in the files of the run.

use kiln::train::{Error as TrainError, MetricError, RunError, RunTable, TensorBoard};

use super::*;
use crate::links::{linear, random_graph};

/// The share of wrong classes, or its negative.
struct ErrorRate {
    name: &'static str,
    is_negative: bool,
}

const ERROR_RATE: ErrorRate = ErrorRate { name: "error-rate", is_negative: false };

impl CustomMetric for ErrorRate {
    fn name(&self) -> &str {
        self.name
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }

    fn higher_is_better(&self) -> bool {
        self.is_negative
    }

    fn value(&self, items: &MetricItems<'_>) -> Option<f64> {
        let is_wrong = |(row, class): (&[f32], &i32)| row.iter().any(|output| row[*class as usize] < *output);
        let n_wrong = items.rows().zip(items.classes).filter(|pair| is_wrong(*pair)).count();
        assert_eq!(items.n_items, items.classes.len());
        let rate = n_wrong as f64 / items.n_items as f64;
        Some(if self.is_negative { -rate } else { rate })
    }
}

/// The mean reciprocal rank.
struct OwnMrr;

impl CustomMetric for OwnMrr {
    fn name(&self) -> &str {
        "own-mrr"
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Links
    }

    fn value(&self, items: &MetricItems<'_>) -> Option<f64> {
        let rank = |row: &[f32]| {
            let above = row[1..].iter().filter(|score| row[0] < **score).count() as f64;
            let tied = row[1..].iter().filter(|score| row[0] == **score).count() as f64;
            1.0 + above + tied / 2.0
        };
        Some(items.rows().map(|row| 1.0 / rank(row)).sum::<f64>() / items.n_items as f64)
    }
}

/// The root of the mean squared error of all columns together, without missing targets.
struct OwnRmse;

impl CustomMetric for OwnRmse {
    fn name(&self) -> &str {
        "own-rmse"
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Regression
    }

    fn higher_is_better(&self) -> bool {
        false
    }

    fn value(&self, items: &MetricItems<'_>) -> Option<f64> {
        let errors = items.rows().zip(items.target_rows()).map(|(row, values)| f64::from(row[0] - values[0]));
        Some((errors.map(|error| error * error).sum::<f64>() / items.n_items as f64).sqrt())
    }
}

/// Always the same.
struct Constant;

impl CustomMetric for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }

    fn value(&self, _: &MetricItems<'_>) -> Option<f64> {
        Some(0.25)
    }
}

#[test]
fn it_selects_the_epoch_on_any_number_of_ranks_and_is_in_all_files() {
    let (data, folder) = (cycle(160, 3), tempfile::tempdir().unwrap());
    let run = |name: &str, n_ranks: usize, metric: Metric| {
        let out = folder.path().join(name);
        let loader = loader(&data).batch_size(32 / n_ranks);
        let mut best = launch(RankConfig::threads(n_ranks).threads_per_rank(1), |rank| {
            let tensorboard = rank.is_zero().then(|| TensorBoard::new(|error| panic!("{error}")));
            let config = quiet(5, &out).metric(metric).callback(tensorboard);
            let best = trainer(&data).rank(&rank).fit(&loader, config)?;
            best.write_report(&loader)?;
            Ok(best.best)
        });
        let best = best.as_mut().unwrap();
        assert!(best.iter().all(|of_rank| *of_rank == best[0]), "{best:?}");
        (out, best.remove(0))
    };
    let metric = Metric::from(ERROR_RATE);
    for n_ranks in [1, 2] {
        let (_, by_accuracy) = run(&format!("accuracy-{n_ranks}"), n_ranks, Metric::Accuracy);
        let (out, best) = run(&format!("own-{n_ranks}"), n_ranks, metric);
        assert_eq!((best.epoch, &best.weights_hash), (by_accuracy.epoch, &by_accuracy.weights_hash));
        let value = best.value.unwrap();
        assert!((1.0 - value - by_accuracy.val.accuracy()).abs() < 1e-12, "{value}");
        let row = &rows(&out)[best.epoch - 1];
        assert_eq!((&row["metric"], &row["val_metric"]), (&"error-rate".into(), &value.into()));
        assert_eq!(row["higher_is_better"], false);
        assert!(row["val_accuracy"].is_f64());
        let summary = summary(&out);
        assert_eq!((&summary["metric"], &summary["val_metric"]), (&"error-rate".into(), &value.into()));
        let of_test = summary["test_metrics"]["error-rate"].as_f64().unwrap();
        assert!((1.0 - of_test - summary["test_accuracy"].as_f64().unwrap()).abs() < 1e-12);
        let events = std::fs::read_dir(out.join("tensorboard")).unwrap().next().unwrap().unwrap().path();
        assert!(String::from_utf8_lossy(&std::fs::read(events).unwrap()).contains("error-rate/validation"));

        let record = record(&out);
        assert_eq!((record.metric(), record.best_value()), (metric, Some(value)));
        assert_eq!((record.best_epoch().unwrap().epoch, record.test_value()), (best.epoch, Some(of_test)));
        let printed = record.summary.as_ref().unwrap().to_string();
        assert!(
            printed.contains("test error-rate ") && printed.contains("(validation error-rate "),
            "{printed}"
        );
        assert!(RunTable::new(vec![record]).to_string().contains("validation error-rate"));
    }
}

#[test]
fn it_ends_the_patience_and_a_resumed_run_knows_it() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let config = quiet(9, &out).metric(Constant).patience(2);
    let best = trainer(&data).fit(&loader(&data), config).unwrap();
    assert_eq!((best.report.n_epochs, best.report.stopped_early, best.best.epoch), (3, true, 1));
    // A trained model holds the folder of its run.
    drop(best);
    let resumed = || FitConfig::epochs(9).resume(&out).quiet().patience(2);
    let best = trainer(&data).fit(&loader(&data), resumed().metric(Constant)).unwrap();
    assert_eq!((best.report.n_epochs, best.best.epoch), (3, 1));
    // The checkpoint has the name of the metric, the run the metric itself.
    let summary = best.write_report(&loader(&data)).unwrap().unwrap();
    assert!(summary.test_metrics.contains(&(Constant.into(), Some(0.25))), "{summary:?}");
    drop(best);
    for other in [Metric::F1Macro, ERROR_RATE.into()] {
        let error = trainer(&data).fit(&loader(&data), resumed().metric(other)).map(drop).unwrap_err();
        let Error::Train(TrainError::Run(RunError::OtherRun { name, then, .. })) = &error else {
            panic!("{error}")
        };
        assert_eq!((name.as_str(), then.as_str()), ("metric", "constant"));
    }
}

#[test]
fn it_reads_numbers_and_links() {
    let folder = tempfile::tempdir().unwrap();
    let data = crate::targets::data(TargetKind::Regression);
    let out = folder.path().join("numbers");
    let best = trainer(&data).fit(&loader(&data), quiet(2, &out).metric(OwnRmse)).unwrap();
    let outputs = best.predict(&loader(&data), Phase::Validation).unwrap();
    let column = outputs.column(0);
    let squares = column.iter().map(|said| f64::from(said.output - said.target).powi(2)).sum::<f64>();
    assert_eq!(best.best.value, Some((squares / column.len() as f64).sqrt()));
    best.write_report(&loader(&data)).unwrap();
    let summary = summary(&out);
    assert_eq!((summary.get("test_accuracy"), rows(&out)[0].get("val_accuracy")), (None, None));
    assert!(summary["test_metrics"]["own-rmse"].is_f64() && summary["test_metrics"]["rmse"].is_f64());

    let (data, _) = random_graph(200, 800);
    let split = LinkSplit::random(&data.graph, &LinkSplitConfig::default(), 1).unwrap();
    let nodes = NeighborLoader::new(&data, [2]).batch_size(64).workers(0);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let fit = |metric: Metric, name: &str| {
        let config = quiet(1, &folder.path().join(name)).metric(metric);
        Trainer::new(linear(), AdamConfig::new(1e-2)).fit(&loader, config).unwrap().best.value.unwrap()
    };
    let [own, built_in] = [fit(OwnMrr.into(), "own"), fit(Metric::Mrr, "mrr")];
    assert!((own - built_in).abs() < 1e-12, "{own} and {built_in}");
}

#[test]
fn a_name_or_kind_that_does_not_fit_is_an_error_before_training() {
    let (data, folder) = (cycle(80, 3), tempfile::tempdir().unwrap());
    let out = folder.path().join("run");
    let error = |metric: Metric| {
        let error = trainer(&data).fit(&loader(&data), quiet(1, &out).metric(metric)).map(drop).unwrap_err();
        assert!(!out.exists());
        match error {
            Error::Train(TrainError::Metric(error)) => error,
            other => panic!("{other}"),
        }
    };
    for name in ["", "two words", "accuracy", "hits@10"] {
        let error = error(ErrorRate { name, ..ERROR_RATE }.into());
        assert!(matches!(&error, MetricError::CustomName { name: got } if got == name), "{error}");
    }
    assert!(matches!(error(OwnRmse.into()), MetricError::OtherMetric { .. }));
    let negative = Metric::from(ErrorRate { name: "error-rate", is_negative: true });
    assert_ne!(negative, ERROR_RATE.into());
    assert!(negative.is_better(Some(-0.1), Some(-0.2)));
}
