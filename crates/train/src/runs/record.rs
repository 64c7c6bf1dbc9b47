use std::collections::BTreeMap;
use std::path::PathBuf;

use kiln_feature::TargetKind;
use kiln_store::folder_lock::is_locked;

use super::find::{is_run, suggest_runs};
use super::setting::{read_json, read_optional, read_settings};
use super::summary_file::SummaryFile;
use crate::error::{Error, Result, RunError};
use crate::metric::kind::Metric;
use crate::run::metrics_file::{EpochRow, parse_rows};
use crate::run::summary::Summary;

/// A run as its folder records it.
///
/// ```no_run
/// let run = kiln_train::RunRecord::read("runs/train-001")?;
/// println!("{:?} of {} after {} epochs", run.best_value(), run.metric(), run.epochs.len());
/// # Ok::<(), kiln_train::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// The folder.
    pub folder: PathBuf,
    /// The settings in `config.json` by name, with their values as text; empty without the file.
    pub settings: BTreeMap<String, String>,
    /// The metric that selects the best epoch; the accuracy before the first epoch.
    pub metric: Metric,
    /// The epochs, in `metrics.jsonl`.
    pub epochs: Vec<EpochRow>,
    /// The result, in `summary.json`; `None` for a run that still trains, or that a crash ended.
    pub summary: Option<Summary>,
    /// How far the run is.
    pub state: RunState,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// The run has ended, and its best model was tested.
    Finished,
    /// The run was asked to stop: it can be resumed.
    Interrupted,
    /// A process trains the run.
    Running,
    /// The run ended without a summary: it failed or was killed, and can be resumed.
    Unfinished,
}

impl RunState {
    /// Returns the name of the state, a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
            Self::Unfinished => "unfinished",
        }
    }
}

impl RunRecord {
    /// Reads the folder of a run. Files and fields that earlier versions did not write are left empty.
    ///
    /// # Errors
    /// Returns [`RunError::NoRun`] if the folder is not that of a run, [`RunError::Io`] if a file cannot be read, and
    /// [`RunError::BadFile`] if it is damaged.
    pub fn read(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        if !is_run(&folder) {
            let suggestion = suggest_runs(&folder);
            return Err(Error::Run(RunError::NoRun { path: folder, suggestion }));
        }
        let settings = read_settings(&folder)?;
        let path = folder.join("summary.json");
        let summary: Option<SummaryFile> = read_json(&path)?;
        let summary = summary.map(|file| file.into_summary(&path)).transpose()?;
        let state = match &summary {
            Some(summary) if summary.interrupted => RunState::Interrupted,
            Some(_) => RunState::Finished,
            None if is_locked(&folder) => RunState::Running,
            None => RunState::Unfinished,
        };
        let path = folder.join("metrics.jsonl");
        let rows = read_optional(&path)?.unwrap_or_default();
        let epochs = parse_rows(&rows)
            .map_err(|error| Error::Run(RunError::BadFile { path, reason: error.to_string() }))?;
        let metric = metric_of(&epochs, summary.as_ref());
        Ok(Self { folder, settings, metric, epochs, summary, state })
    }

    /// Returns the metric that selects the best epoch; the accuracy before the first epoch.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the value of the metric on the validation split in an epoch; `None` if it is undefined, or without a validation.
    pub(crate) fn value_of(row: &EpochRow) -> Option<f64> {
        let accuracy = Some(row.val_accuracy).filter(|_| row.metric.is_empty());
        row.val_metric.or(accuracy).filter(|value| !value.is_nan())
    }

    /// Returns the best epoch, the first of those that tie; the last one without a validation, and `None` before the first epoch.
    pub fn best_epoch(&self) -> Option<&EpochRow> {
        let metric = self.metric();
        let mut best = self.epochs.first()?;
        for row in &self.epochs {
            if metric.is_better(Self::value_of(row), Self::value_of(best)) {
                best = row;
            }
        }
        let has_validation = self.epochs.iter().any(|row| Self::value_of(row).is_some());
        if has_validation { Some(best) } else { self.epochs.last() }
    }

    /// Returns the value of the metric on the validation split in the best epoch.
    pub fn best_value(&self) -> Option<f64> {
        self.best_epoch().and_then(Self::value_of)
    }

    /// Returns the value of the metric on the test split; `None` for a run without a test.
    pub fn test_value(&self) -> Option<f64> {
        let summary = self.summary.as_ref()?;
        let listed = summary.test_metrics.iter().find(|(metric, _)| *metric == summary.metric);
        let accuracy = Some(summary.test_accuracy).filter(|_| summary.metric == Metric::Accuracy);
        listed.map_or(accuracy, |(_, value)| *value).filter(|value| !value.is_nan())
    }

    /// Returns the seconds of training and validation of all epochs, also of those before a resumption.
    pub fn seconds(&self) -> f64 {
        self.epochs.iter().map(|row| row.seconds + row.val_seconds.unwrap_or(0.0)).sum()
    }
}

/// Returns the metric of a run: that of its last epoch, or of its summary.
fn metric_of(epochs: &[EpochRow], summary: Option<&Summary>) -> Metric {
    let Some(row) = epochs.last() else {
        return summary.map_or(Metric::Accuracy, |summary| summary.metric);
    };
    // The kind of targets of a metric of one's own is not recorded, and not needed for its name and direction.
    let named = Metric::recorded(&row.metric, row.higher_is_better, TargetKind::Classes);
    named.unwrap_or(Metric::Accuracy)
}
