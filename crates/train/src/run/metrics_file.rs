//! `metrics.jsonl`: a row an epoch.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kiln_store::whole_file::write_whole;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};
use crate::step::metric_sums::MetricSums;
use crate::step::reports::{EpochReport, Timings};

/// A line of `metrics.jsonl`, read back. A number that is not finite stands there as `null` and is NaN here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EpochRow {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Mean loss on the training split, each step's under its own parameters.
    #[serde(deserialize_with = "number_or_null")]
    pub train_loss: f64,
    /// Fraction of the training split predicted right, likewise.
    #[serde(deserialize_with = "number_or_null")]
    pub train_accuracy: f64,
    /// Mean loss on the validation split.
    #[serde(deserialize_with = "number_or_null")]
    pub val_loss: f64,
    /// Fraction of the validation split predicted right.
    #[serde(deserialize_with = "number_or_null")]
    pub val_accuracy: f64,
    /// Steps of training.
    pub n_steps: usize,
    /// Seconds of training.
    #[serde(deserialize_with = "number_or_null")]
    pub seconds: f64,
    /// Training seeds a second.
    #[serde(deserialize_with = "number_or_null")]
    pub seeds_per_second: f64,
    /// Seconds of each stage by its name, as [`Timings::seconds`](crate::Timings::seconds) has them.
    pub stage_seconds: BTreeMap<String, f64>,
    /// The most anonymous memory seen, in bytes.
    pub peak_rss_anon_bytes: u64,
}

/// The rows of `metrics.jsonl` of the epochs that a checkpoint knows of.
#[derive(Debug)]
pub(crate) enum MetricsRows {
    /// They are in the checkpoint.
    Stored(Vec<u8>),
    /// So many bytes at the start of the file, of which a checkpoint of an older program holds no copy.
    InFile(u64),
}

/// The file, whose rows are held in memory, too: checkpoints store them, and the file is rewritten from them.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    path: PathBuf,
    /// The rows, as they are stored and read back.
    bytes: Vec<u8>,
    epochs: Vec<EpochRow>,
    /// Bytes that the file has; 0 where that is not known.
    n_written: usize,
}

#[derive(Serialize)]
struct EpochLine {
    epoch: usize,
    train_loss: f64,
    train_accuracy: f64,
    val_loss: f64,
    val_accuracy: f64,
    n_steps: usize,
    seconds: f64,
    seeds_per_second: f64,
    stage_seconds: Timings,
    peak_rss_anon_bytes: u64,
    peak_rss_mapped_bytes: u64,
}

impl MetricsFile {
    /// A file without rows, which is not written yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, bytes: Vec::new(), epochs: Vec::new(), n_written: 0 }
    }

    /// The rows as the file has them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The rows.
    #[cfg_attr(not(feature = "report"), allow(dead_code, reason = "the report alone shows them"))]
    pub(crate) fn epochs(&self) -> &[EpochRow] {
        &self.epochs
    }

    /// Takes the row of an epoch, counted from 1.
    ///
    /// # Errors
    /// [`Error::BadFile`] for a row that could not be read back.
    pub(crate) fn push(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums) -> Result<()> {
        let seconds = train.wall.as_secs_f64();
        let line = EpochLine {
            epoch,
            train_loss: train.counts.loss(),
            train_accuracy: train.counts.accuracy(),
            val_loss: val.loss(),
            val_accuracy: val.accuracy(),
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

    /// Takes the rows that a checkpoint knows of, to be written. Returns a warning where the file has other rows than the
    /// checkpoint.
    ///
    /// # Errors
    /// [`Error::BadFile`] for other rows than the checkpoint's, where it has no copy, and [`Error::Io`].
    pub(crate) fn restore(&mut self, n_epochs: usize, rows: MetricsRows) -> Result<Option<String>> {
        let (warning, bytes) = match rows {
            MetricsRows::Stored(bytes) => (self.differs(&bytes), bytes),
            MetricsRows::InFile(n_bytes) => (None, self.first_bytes(n_bytes)?),
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let epochs: serde_json::Result<Vec<EpochRow>> = lines.map(serde_json::from_slice).collect();
        let epochs = epochs.map_err(|error| self.bad(error.to_string()))?;
        if epochs.len() != n_epochs {
            let reason = format!("it has {} epochs, the checkpoint knows of {n_epochs}", epochs.len());
            return Err(self.bad(reason));
        }
        (self.epochs, self.bytes, self.n_written) = (epochs, bytes, 0);
        Ok(warning)
    }

    /// A warning where the file holds anything but these rows, or the first of them. Further rows are those of epochs
    /// after the checkpoint.
    fn differs(&self, rows: &[u8]) -> Option<String> {
        let reason = match fs::read(&self.path) {
            Ok(found) if found.starts_with(rows) || rows.starts_with(&found) => return None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Ok(_) => "it has other rows than the checkpoint".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("{}: {reason}: it is rewritten from the checkpoint", self.path.display()))
    }

    /// The first bytes of the file; one that is missing is empty.
    fn first_bytes(&self, n_bytes: u64) -> Result<Vec<u8>> {
        let mut bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            bytes => bytes.map_err(|source| Error::Io { path: self.path.clone(), source })?,
        };
        let got = bytes.len();
        match usize::try_from(n_bytes) {
            Ok(n_bytes) if n_bytes <= got => {
                bytes.truncate(n_bytes);
                Ok(bytes)
            }
            _ => Err(self.bad(format!(
                "it has {got} bytes, the checkpoint, which has no copy of its rows, knows of {n_bytes}: put the file back, \
                 or start a new run"
            ))),
        }
    }

    fn bad(&self, reason: String) -> Error {
        Error::BadFile { path: self.path.clone(), reason }
    }

    /// Appends the rows that the file lacks.
    ///
    /// # Errors
    /// [`Error::Io`]; the next call then rewrites the file, which may end with a part of a row.
    pub(crate) fn write(&mut self) -> Result<()> {
        let written = match std::mem::take(&mut self.n_written) {
            0 => write_whole(&self.path, &self.bytes),
            n_written => append(&self.path, &self.bytes[n_written..]),
        };
        written.map_err(|source| Error::Io { path: self.path.clone(), source })?;
        self.n_written = self.bytes.len();
        Ok(())
    }
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn number_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::step::memory::MemoryUse;

    fn push(file: &mut MetricsFile, epoch: usize) {
        let counts = MetricSums { loss_sum: 1.0, weight: 2.0, hits: 1, total: 2 };
        let (wall, peak_memory) = (Duration::from_secs(1), MemoryUse::default());
        let train = EpochReport { n_steps: 1, counts, timings: Timings::default(), wall, peak_memory };
        file.push(epoch, &train, &counts).expect("a row of numbers");
    }

    /// `/dev/full` takes the name of a file on a full disk, also for root.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_append_that_failed_is_followed_by_a_whole_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("metrics.jsonl");
        let mut file = MetricsFile::new(path.clone());
        push(&mut file, 1);
        file.write().expect("a first row");
        fs::remove_file(&path).expect("it is there");
        std::os::unix::fs::symlink("/dev/full", &path).expect("the name is free");
        push(&mut file, 2);
        let error = file.write().expect_err("the disk is full");
        assert!(error.is_transient() && error.to_string().contains("metrics.jsonl"), "{error}");
        push(&mut file, 3);
        file.write().expect("there is room again");
        assert_eq!(fs::read(&path).expect("it was written"), file.bytes());
        assert_eq!((file.epochs().len(), file.bytes().iter().filter(|byte| **byte == b'\n').count()), (3, 3));
    }
}
