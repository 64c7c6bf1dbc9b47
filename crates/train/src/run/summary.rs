use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use kiln_feature::TargetKind;
use kiln_store::counted;

use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::confusion::Metrics;
use crate::metric::kind::Metric;
use crate::run::item_columns::ItemColumns;
use crate::step::memory::MemoryUse;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::negatives::RunNegatives;

/// The information for a run's report that the run itself does not have.
#[derive(Debug, Clone, Copy)]
pub struct ReportInfo<'a> {
    /// The title, such as the model and the dataset.
    pub title: &'a str,
    /// The classes' names, by class; a class without a name is shown by its number.
    pub class_names: &'a [String],
    /// The columns of the test items besides their targets, such as the ends of edges; `None` for items without any.
    pub item_columns: Option<&'a ItemColumns>,
    /// The duration of the run.
    pub elapsed: Duration,
}

/// The outcome of [`fit`](crate::fit()).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FitReport {
    /// The number of trained epochs, including those before a resumption.
    pub n_epochs: usize,
    /// True if early stopping ended the run before the maximum number of epochs.
    pub stopped_early: bool,
    /// True if the run was asked to stop ([`TaskTrainer::with_stop`](crate::TaskTrainer::with_stop)). Its last
    /// checkpoint has the current state.
    pub interrupted: bool,
    /// The peak memory of this process.
    pub peak_memory: MemoryUse,
    /// The negatives of link prediction.
    pub negatives: RunNegatives,
}

/// The epoch whose parameters are kept: the one with the best value of the metric on the validation split.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The epoch, from 1.
    pub epoch: usize,
    /// The metric sums of the epoch on the validation split.
    pub val: MetricSums,
    /// The metric that selected the epoch.
    pub metric: Metric,
    /// The value of that metric on the validation split; `None` if it is undefined.
    pub value: Option<f64>,
    /// SHA-256 of `best.safetensors`, in hexadecimal.
    pub weights_hash: String,
}

impl Best {
    pub(crate) fn new(epoch: usize, validation: Validation, weights_hash: String) -> Self {
        let Validation { sums, metric, value, .. } = validation;
        Self { epoch, val: sums, metric, value, weights_hash }
    }

    /// Returns the validation of the epoch.
    pub fn validation(&self) -> Validation {
        Validation { sums: self.val, metric: self.metric, value: self.value, wall: None }
    }
}

/// The result of a run, as written to `summary.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The accuracy of the best epoch's parameters on the test split; NaN without a test split.
    pub test_accuracy: f64,
    /// The macro F1 on the test split; `None` if it is undefined.
    pub test_f1_macro: Option<f64>,
    /// The area under the ROC curve on the test split; `None` if it is undefined.
    pub test_roc_auc: Option<f64>,
    /// The validation accuracy of the best epoch; NaN without a validation split, where the last epoch is the best.
    pub val_accuracy: f64,
    /// The metric that selected the best epoch.
    pub metric: Metric,
    /// The value of that metric on the validation split; `None` if it is undefined.
    pub val_metric: Option<f64>,
    /// The name of a loss of one's own; `None` for others.
    pub loss: Option<String>,
    /// All metrics on the test split; empty if the accuracy selected the best epoch, or without a test split.
    pub test_metrics: Vec<(Metric, Option<f64>)>,
    /// The number of items of the validation split whose outputs are not finite in the best epoch: they count in no metric.
    pub val_not_finite: u64,
    /// The number of items of the test split whose outputs are not finite: they count in no metric.
    pub test_not_finite: u64,
    /// The best epoch, from 1; 0 if a run was interrupted before the end of its first epoch.
    pub best_epoch: usize,
    /// The number of trained epochs.
    pub n_epochs: usize,
    /// True if early stopping ended the run before the maximum number of epochs.
    pub stopped_early: bool,
    /// The reason that a callback gave for stopping early ([`ValidationEnd::stop`](crate::ValidationEnd::stop)).
    pub stop_reason: Option<String>,
    /// True if the run was asked to stop. It can be resumed, and has no test.
    pub interrupted: bool,
    /// The seconds from the start of the run to the end of the evaluation on the test split. If the run was resumed,
    /// they count from the last resumption.
    pub seconds: f64,
    /// The peak anonymous memory of the run's last process, in bytes.
    pub peak_rss_anon_bytes: u64,
    /// The peak memory of the files that the run's last process has mapped, in bytes.
    pub peak_rss_mapped_bytes: u64,
    /// The mean time of inference per batch of the test on rank 0, after a warm-up of [`Evaluation::WARM_UP`] batches
    /// ([`Evaluation::mean_batch_time`]); `None` if the test has no more batches, or is exact. It is not written to `summary.json`.
    pub mean_batch_time: Option<Duration>,
    /// The negatives of link prediction, with the number of those that should have been rejected.
    pub negatives: RunNegatives,
    /// SHA-256 of `best.safetensors`, in hexadecimal; empty without a best epoch.
    pub weights_hash: String,
}

impl Summary {
    /// Returns true if the metrics are those of labels, with an accuracy, and not those of a regression or of links.
    pub(crate) fn is_of_labels(&self) -> bool {
        let has_mrr = self.test_metrics.iter().any(|(metric, _)| *metric == Metric::Mrr);
        // A run of links without a test has no metric of a test, but negatives of its training.
        let is_of_links = has_mrr || !self.negatives.is_empty();
        let kinds = [TargetKind::Classes, TargetKind::MultiLabel];
        !is_of_links && kinds.iter().any(|kind| self.metric.applies_to(*kind))
    }

    /// Returns true if the run has a test split.
    pub(crate) fn has_test(&self) -> bool {
        !self.test_accuracy.is_nan() || self.test_f1_macro.is_some() || !self.test_metrics.is_empty()
    }

    /// Returns how the run ended, to follow on its number of epochs.
    pub(crate) fn end(&self) -> String {
        match (self.interrupted, self.stopped_early, &self.stop_reason) {
            (true, ..) => ", interrupted".to_owned(),
            (false, true, Some(reason)) => format!(", stopped early: {reason}"),
            (false, true, None) => ", stopped early".to_owned(),
            (false, false, _) => String::new(),
        }
    }

    /// Returns true if the run has a validation split.
    pub(crate) fn has_validation(&self) -> bool {
        !self.val_accuracy.is_nan()
    }

    /// Summarizes a run that took `elapsed` and tested its best epoch.
    pub fn new(test: &Metrics, best: &Best, fit: &FitReport, elapsed: Duration) -> Self {
        Self {
            test_accuracy: test.accuracy,
            test_f1_macro: test.f1_macro,
            test_roc_auc: test.roc_auc,
            val_accuracy: best.val.accuracy(),
            metric: best.metric,
            val_metric: best.value,
            loss: None,
            test_metrics: Vec::new(),
            val_not_finite: best.val.n_not_finite,
            test_not_finite: 0,
            best_epoch: best.epoch,
            n_epochs: fit.n_epochs,
            stopped_early: fit.stopped_early,
            stop_reason: None,
            interrupted: fit.interrupted,
            seconds: elapsed.as_secs_f64(),
            peak_rss_anon_bytes: fit.peak_memory.anon_bytes,
            peak_rss_mapped_bytes: fit.peak_memory.mapped_bytes,
            mean_batch_time: None,
            negatives: fit.negatives,
            weights_hash: best.weights_hash.clone(),
        }
    }

    /// Summarizes a run that was asked to stop after `elapsed`, with its best epoch so far; `None` before the end of the first.
    pub fn summarize_interrupted(best: Option<&Best>, fit: &FitReport, elapsed: Duration) -> Self {
        let untested = Metrics { accuracy: f64::NAN, f1_micro: None, f1_macro: None, roc_auc: None };
        let none = Best::new(0, Validation::without_items(Metric::Accuracy), String::new());
        Self::new(&untested, best.unwrap_or(&none), fit, elapsed)
    }

    /// Adds what the metrics of labels do not say of the evaluation on the test split: all metrics if another one than the
    /// accuracy selected the best epoch, and the number of items that count in none.
    #[must_use]
    pub fn with_test(mut self, test: &Evaluation) -> Self {
        if self.metric != Metric::Accuracy && !test.is_empty() {
            self.test_metrics = test.all_metrics();
            if let Metric::Custom(_) = self.metric {
                let value = test.stats(self.metric).ok().and_then(|stats| stats.value());
                self.test_metrics.push((self.metric, value));
            }
        }
        self.test_not_finite = test.n_not_finite();
        self
    }
}

/// Writes the fields as a map. With the accuracy as metric, the fields of other metrics are left out, and with a metric
/// of regression or of links, those of labels. Without a test split or a validation split, their metrics are left out.
/// `higher_is_better`, `loss` and `stop_reason` are those of metrics and losses of one's own and of a callback.
/// `val_not_finite` and `test_not_finite` are left out if they are 0, `interrupted` if it is false, and the best epoch and its
/// weights if there is none. Only runs of link prediction have the field `negatives`.
impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.is_of_labels() && self.has_test() {
            map.serialize_entry("test_accuracy", &self.test_accuracy)?;
            map.serialize_entry("test_f1_macro", &self.test_f1_macro)?;
            map.serialize_entry("test_roc_auc", &self.test_roc_auc)?;
        }
        if self.is_of_labels() && self.has_validation() {
            map.serialize_entry("val_accuracy", &self.val_accuracy)?;
        }
        if self.metric != Metric::Accuracy && self.has_validation() {
            map.serialize_entry("metric", self.metric.name())?;
            map.serialize_entry("val_metric", &self.val_metric)?;
        }
        if let Some(higher_is_better) = self.metric.recorded_direction() {
            map.serialize_entry("higher_is_better", &higher_is_better)?;
        }
        if let Some(loss) = &self.loss {
            map.serialize_entry("loss", loss)?;
        }
        if self.metric != Metric::Accuracy && self.has_test() {
            let test: BTreeMap<&str, _> =
                self.test_metrics.iter().map(|(metric, value)| (metric.name(), value)).collect();
            map.serialize_entry("test_metrics", &test)?;
        }
        for (name, n_items) in
            [("val_not_finite", self.val_not_finite), ("test_not_finite", self.test_not_finite)]
        {
            if n_items != 0 {
                map.serialize_entry(name, &n_items)?;
            }
        }
        if self.best_epoch != 0 {
            map.serialize_entry("best_epoch", &self.best_epoch)?;
        }
        map.serialize_entry("n_epochs", &self.n_epochs)?;
        map.serialize_entry("stopped_early", &self.stopped_early)?;
        if let Some(reason) = &self.stop_reason {
            map.serialize_entry("stop_reason", reason)?;
        }
        if self.interrupted {
            map.serialize_entry("interrupted", &true)?;
        }
        map.serialize_entry("seconds", &self.seconds)?;
        map.serialize_entry("peak_rss_anon_bytes", &self.peak_rss_anon_bytes)?;
        map.serialize_entry("peak_rss_mapped_bytes", &self.peak_rss_mapped_bytes)?;
        if !self.negatives.is_empty() {
            map.serialize_entry("negatives", &self.negatives)?;
        }
        if !self.weights_hash.is_empty() {
            map.serialize_entry("weights_hash", &self.weights_hash)?;
        }
        map.end()
    }
}

fn or_undefined(value: Option<f64>) -> String {
    value.map_or("undefined".into(), |value| format!("{value:.4}"))
}

impl Summary {
    /// Writes the metrics of labels on the test split, and the one that selected the epoch.
    fn fmt_labels(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "test accuracy   {:.4}", self.test_accuracy)?;
        writeln!(f, "test macro F1   {}", or_undefined(self.test_f1_macro))?;
        writeln!(f, "test ROC-AUC    {}", or_undefined(self.test_roc_auc))?;
        let shown = [Metric::Accuracy, Metric::F1Macro, Metric::RocAuc];
        let others = self.test_metrics.iter().filter(|(metric, _)| *metric == self.metric);
        for &(metric, value) in others.filter(|(metric, _)| !shown.contains(metric)) {
            writeln!(f, "{:15} {}", format!("test {metric}"), or_undefined(value))?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        if self.interrupted {
            writeln!(f, "test            none: the run was interrupted")?;
        } else if !self.has_test() {
            writeln!(f, "test            none: the test split has no items")?;
        } else if self.is_of_labels() {
            self.fmt_labels(f)?;
        } else {
            for (metric, value) in &self.test_metrics {
                writeln!(f, "{:15} {}", format!("test {metric}"), or_undefined(*value))?;
            }
        }
        if self.test_not_finite != 0 {
            writeln!(
                f,
                "not finite      the outputs of {} of the test split, which count in no metric",
                counted(self.test_not_finite, "item")
            )?;
        }
        let val = match self.metric {
            Metric::Accuracy => format!("{:.4}", self.val_accuracy),
            _ => or_undefined(self.val_metric),
        };
        match self.has_validation() {
            _ if self.best_epoch == 0 => writeln!(f, "best epoch      none: no epoch was completed")?,
            true => writeln!(f, "best epoch      {} (validation {} {val})", self.best_epoch, self.metric)?,
            false => {
                writeln!(f, "best epoch      {} (the last one: no validation split)", self.best_epoch)?;
            }
        }
        if let Some(loss) = &self.loss {
            writeln!(f, "loss            {loss}")?;
        }
        writeln!(f, "epochs          {}{}", self.n_epochs, self.end())?;
        writeln!(f, "time            {:.1} s", self.seconds)?;
        let anon = mib(self.peak_rss_anon_bytes);
        let mapped = mib(self.peak_rss_mapped_bytes);
        // Without /proc, as in a root folder of a program alone, the memory is not known.
        if self.peak_rss_anon_bytes != 0 {
            writeln!(f, "peak memory     {anon:.0} MiB anonymous, {mapped:.0} MiB mapped files")?;
        }
        match self.weights_hash.as_str() {
            "" => write!(f, "weights         none{}", self.negatives),
            hash => write!(f, "weights         sha256 {hash}{}", self.negatives),
        }
    }
}
