use std::collections::BTreeMap;
use std::path::Path;

use kiln_feature::TargetKind;
use serde::Deserialize;

use crate::error::{Error, Result, RunError};
use crate::metric::kind::Metric;
use crate::run::summary::Summary;
use crate::step::task::negatives::RunNegatives;

/// The content of `summary.json`. Fields that an earlier version did not write, or that do not apply to the run, are absent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SummaryFile {
    test_accuracy: Option<f64>,
    test_f1_macro: Option<f64>,
    test_roc_auc: Option<f64>,
    val_accuracy: Option<f64>,
    metric: Option<String>,
    val_metric: Option<f64>,
    higher_is_better: Option<bool>,
    loss: Option<String>,
    stop_reason: Option<String>,
    test_metrics: BTreeMap<String, Option<f64>>,
    val_not_finite: u64,
    test_not_finite: u64,
    best_epoch: usize,
    n_epochs: usize,
    stopped_early: bool,
    interrupted: bool,
    seconds: f64,
    peak_rss_anon_bytes: u64,
    peak_rss_mapped_bytes: u64,
    negatives: RunNegatives,
    weights_hash: String,
}

impl SummaryFile {
    /// Returns the summary. `path` is that of the file, for the error.
    pub(super) fn into_summary(self, path: &Path) -> Result<Summary> {
        let bad =
            |error: Error| Error::Run(RunError::BadFile { path: path.to_owned(), reason: error.to_string() });
        let is_of_labels = self.test_accuracy.or(self.val_accuracy).is_some();
        let kind = if is_of_labels { TargetKind::Classes } else { TargetKind::Regression };
        let of_name = |name: &str| Metric::recorded(name, self.higher_is_better, kind).map_err(bad);
        let metric = self.metric.as_deref().map_or(Ok(Metric::Accuracy), of_name)?;
        let mut test_metrics = Vec::new();
        for (name, value) in self.test_metrics {
            let listed = if name == metric.name() { metric } else { name.parse().map_err(bad)? };
            test_metrics.push((listed, value));
        }
        // The order in which a run lists them.
        test_metrics.sort_by_key(|(metric, _)| {
            let position = Metric::ALL.iter().position(|other| other == metric);
            position.unwrap_or(Metric::ALL.len())
        });
        Ok(Summary {
            test_accuracy: self.test_accuracy.unwrap_or(f64::NAN),
            test_f1_macro: self.test_f1_macro,
            test_roc_auc: self.test_roc_auc,
            // Metrics without labels have no accuracy in the file, but a value if there was a validation.
            val_accuracy: self.val_accuracy.or(self.val_metric).unwrap_or(f64::NAN),
            metric,
            val_metric: self.val_metric.or(self.val_accuracy),
            test_metrics,
            val_not_finite: self.val_not_finite,
            test_not_finite: self.test_not_finite,
            best_epoch: self.best_epoch,
            n_epochs: self.n_epochs,
            stopped_early: self.stopped_early,
            stop_reason: self.stop_reason,
            loss: self.loss,
            interrupted: self.interrupted,
            seconds: self.seconds,
            peak_rss_anon_bytes: self.peak_rss_anon_bytes,
            peak_rss_mapped_bytes: self.peak_rss_mapped_bytes,
            mean_batch_time: None,
            negatives: self.negatives,
            weights_hash: self.weights_hash,
        })
    }
}
