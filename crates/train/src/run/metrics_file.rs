//! `metrics.jsonl`: one row per epoch.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kiln_feature::TargetKind;
use kiln_store::whole_file::{read_whole, write_whole};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result, RunError};
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::step::reports::{EpochReport, Timings};

/// A parsed line of `metrics.jsonl`. Numbers that are not finite are stored as `null` and parsed as NaN.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EpochRow {
    /// The epoch, from 1.
    pub epoch: usize,
    /// The mean loss on the training split, where the loss of each step is computed before its update.
    #[serde(deserialize_with = "number_or_null")]
    pub train_loss: f64,
    /// The fraction of correct predictions on the training split, computed before each update; NaN for
    /// regression. For links, the fraction of links that score above all their negatives.
    #[serde(default = "nan", deserialize_with = "number_or_null")]
    pub train_accuracy: f64,
    /// The mean loss on the validation split.
    #[serde(deserialize_with = "number_or_null")]
    pub val_loss: f64,
    /// The same on the validation split.
    #[serde(default = "nan", deserialize_with = "number_or_null")]
    pub val_accuracy: f64,
    /// The name of the metric that selects the best epoch; empty if it is the accuracy.
    #[serde(default)]
    pub metric: String,
    /// The value of that metric on the validation split; `None` if it is undefined or the metric is the accuracy.
    #[serde(default)]
    pub val_metric: Option<f64>,
    /// The direction of a metric of one's own; `None` for built-in ones.
    #[serde(default)]
    pub higher_is_better: Option<bool>,
    /// The values that callbacks have logged ([`ValidationEnd::log`](crate::ValidationEnd::log)), by name.
    #[serde(default, deserialize_with = "numbers_or_null")]
    pub logged: BTreeMap<String, f64>,
    /// The number of items of the validation split whose outputs are not finite: they are in no value of the row.
    #[serde(default)]
    pub val_not_finite: u64,
    /// The duration of the validation in seconds; `None` if it was not measured.
    #[serde(default)]
    pub val_seconds: Option<f64>,
    /// The number of training steps.
    #[serde(default)]
    pub n_steps: usize,
    /// The training time in seconds.
    #[serde(deserialize_with = "number_or_null")]
    pub seconds: f64,
    /// The number of training items (seed nodes or graphs) per second.
    #[serde(default = "nan", deserialize_with = "number_or_null")]
    pub seeds_per_second: f64,
    /// The seconds of each stage, by the names of [`Timings::seconds`](crate::Timings::seconds).
    #[serde(default)]
    pub stage_seconds: BTreeMap<String, f64>,
    /// The peak anonymous memory of rank 0's process during the training steps of the epoch, in bytes.
    #[serde(default)]
    pub peak_rss_anon_bytes: u64,
}

/// The metrics file. Its rows are also held in memory: checkpoints store them, and the file is rewritten from them.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    path: PathBuf,
    /// The rows, as the bytes of the file.
    bytes: Vec<u8>,
    epochs: Vec<EpochRow>,
    /// The length of the file in bytes; 0 if unknown.
    n_written: usize,
}

#[derive(Serialize)]
struct EpochLine<'a> {
    epoch: usize,
    train_loss: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    train_accuracy: Option<f64>,
    val_loss: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_metric: Option<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    higher_is_better: Option<bool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    logged: &'a BTreeMap<String, f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_not_finite: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    val_seconds: Option<f64>,
    n_steps: usize,
    seconds: f64,
    seeds_per_second: f64,
    stage_seconds: Timings,
    peak_rss_anon_bytes: u64,
    peak_rss_mapped_bytes: u64,
}

impl MetricsFile {
    /// Returns a metrics file without rows. Nothing is written yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, bytes: Vec::new(), epochs: Vec::new(), n_written: 0 }
    }

    /// Returns the rows, as the bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the parsed rows.
    #[cfg_attr(not(feature = "report"), allow(dead_code, reason = "the report alone shows them"))]
    pub(crate) fn epochs(&self) -> &[EpochRow] {
        &self.epochs
    }

    /// Appends the row of an epoch, counted from 1, with the values that callbacks have logged.
    ///
    /// # Errors
    /// Returns [`RunError::BadFile`] for a row that could not be read back.
    pub(crate) fn push(
        &mut self,
        epoch: usize,
        train: &EpochReport,
        val: &Validation,
        logged: &BTreeMap<String, f64>,
    ) -> Result<()> {
        let &Validation { sums, metric, value, wall } = val;
        let is_other = metric != Metric::Accuracy;
        let has_accuracy = !metric.applies_to(TargetKind::Regression);
        let seconds = train.wall.as_secs_f64();
        let line = EpochLine {
            epoch,
            train_loss: train.counts.loss(),
            train_accuracy: has_accuracy.then(|| train.counts.accuracy()),
            val_loss: sums.loss(),
            val_accuracy: has_accuracy.then(|| sums.accuracy()),
            metric: is_other.then(|| metric.name()),
            val_metric: is_other.then_some(value),
            higher_is_better: metric.recorded_direction(),
            logged,
            val_not_finite: Some(sums.n_not_finite).filter(|n| *n != 0),
            val_seconds: wall.map(|wall| wall.as_secs_f64()),
            n_steps: train.n_steps,
            seconds,
            seeds_per_second: train.counts.total as f64 / seconds,
            stage_seconds: train.timings,
            peak_rss_anon_bytes: train.peak_memory.anon_bytes,
            peak_rss_mapped_bytes: train.peak_memory.mapped_bytes,
        };
        let to_row = || -> serde_json::Result<(EpochRow, String)> {
            let line = serde_json::to_string(&line)?;
            Ok((serde_json::from_str(&line)?, line))
        };
        let (row, line) = to_row().map_err(|error| self.bad(error.to_string()))?;
        self.epochs.push(row);
        self.bytes.extend(line.bytes().chain([b'\n']));
        Ok(())
    }

    /// Restores the rows of a checkpoint, as the bytes of the file. The next [`MetricsFile::write`] writes them. Returns a
    /// warning if the file has other rows than the checkpoint.
    ///
    /// # Errors
    /// Returns [`RunError::BadFile`] if the rows cannot be parsed or their number is not `n_epochs`.
    pub(crate) fn restore(&mut self, n_epochs: usize, bytes: Vec<u8>) -> Result<Option<String>> {
        let warning = self.differs(&bytes);
        let epochs = parse_rows(&bytes).map_err(|error| self.bad(error.to_string()))?;
        if epochs.len() != n_epochs {
            let reason = format!("it has {} epochs, expected {n_epochs} as in the checkpoint", epochs.len());
            return Err(self.bad(reason));
        }
        (self.epochs, self.bytes, self.n_written) = (epochs, bytes, 0);
        Ok(warning)
    }

    /// Returns a warning if the file cannot be read, or if its rows differ from these. A missing file, missing last
    /// rows and additional rows (of epochs after the checkpoint) cause no warning.
    fn differs(&self, rows: &[u8]) -> Option<String> {
        let reason = match read_whole(&self.path, u64::MAX) {
            Ok(found) if found.starts_with(rows) || rows.starts_with(&found) => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Ok(_) => "its rows differ from those in the checkpoint".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {reason}: the file is rewritten from the checkpoint", self.path.display()))
    }

    fn bad(&self, reason: String) -> Error {
        Error::Run(RunError::BadFile { path: self.path.clone(), reason })
    }

    /// Appends the rows that the file lacks.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if the file cannot be written. The next call then rewrites the whole file, because it may
    /// end with an incomplete row.
    pub(crate) fn write(&mut self) -> Result<()> {
        let written = match std::mem::take(&mut self.n_written) {
            0 => write_whole(&self.path, &self.bytes),
            n_written => append(&self.path, &self.bytes[n_written..]),
        };
        written.map_err(|source| Error::Run(RunError::Io { path: self.path.clone(), source }))?;
        self.n_written = self.bytes.len();
        Ok(())
    }
}

/// Parses the rows of the file. A last row that a crash has left incomplete has no end of the line, and is left out.
pub(crate) fn parse_rows(bytes: &[u8]) -> serde_json::Result<Vec<EpochRow>> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(serde_json::from_slice).collect()
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn nan() -> f64 {
    f64::NAN
}

fn numbers_or_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<BTreeMap<String, f64>, D::Error> {
    let values: BTreeMap<String, Option<f64>> = Deserialize::deserialize(deserializer)?;
    Ok(values.into_iter().map(|(name, value)| (name, value.unwrap_or(f64::NAN))).collect())
}

fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use std::time::Duration;

    use super::*;
    use crate::step::memory::MemoryUse;
    use crate::step::task::metric_sums::MetricSums;

    fn push(file: &mut MetricsFile, epoch: usize) {
        let counts = MetricSums { loss_sum: 1.0, weight: 2.0, hits: 1, total: 2, ..MetricSums::default() };
        let wall = Duration::from_secs(1);
        let peak_memory = MemoryUse::default();
        let train = EpochReport { n_steps: 1, counts, timings: Timings::default(), wall, peak_memory };
        file.push(epoch, &train, &counts.into(), &BTreeMap::new())
            .expect("a row of numbers should be readable");
    }

    /// A link to `/dev/full` behaves like a file on a full disk, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn rewrites_the_file_after_a_failed_append() {
        let folder = tempfile::tempdir().expect("a temporary folder should be created");
        let path = folder.path().join("metrics.jsonl");
        let mut file = MetricsFile::new(path.clone());
        push(&mut file, 1);
        file.write().expect("the first row should be written");
        fs::remove_file(&path).expect("the file should exist");
        std::os::unix::fs::symlink("/dev/full", &path).expect("the link should be created");
        push(&mut file, 2);
        let error = file.write().expect_err("writing to a full disk should fail");
        assert!(error.is_transient() && error.to_string().contains("metrics.jsonl"), "{error}");
        push(&mut file, 3);
        file.write().expect("the rows should be written");
        assert_eq!(fs::read(&path).expect("the file should be readable"), file.bytes());
        assert_eq!((file.epochs().len(), file.bytes().iter().filter(|byte| **byte == b'\n').count()), (3, 3));
    }
}
