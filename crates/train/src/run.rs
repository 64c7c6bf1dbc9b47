use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use burn::module::Module;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::curves::{Curves, Point};
use crate::{
    Counts, EpochReport, Error, FitReport, Metrics, Prediction, Result, Timings, load_weights,
    weights_to_bytes,
};

/// The folder that keeps what came of a training run.
///
/// | file | what |
/// |---|---|
/// | `config.json` | what the run was asked for |
/// | `metrics.jsonl` | one object an epoch: losses, accuracies, stage times, memory |
/// | `curves.svg` | loss and accuracy over the epochs |
/// | `best.safetensors` | the parameters of the best epoch by validation accuracy, the first of those that tie |
/// | `test_predictions.csv` | each test seed with its class and the predicted one |
/// | `summary.json` | the result |
///
/// Every file but `metrics.jsonl`, which grows, is written under another name and renamed, so that what
/// stands there is whole.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    curves: Curves,
    best: Option<Best>,
}

/// The epoch whose parameters are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Best {
    /// The epoch, from 1.
    pub epoch: usize,
    /// Its validation accuracy.
    pub val_accuracy: f64,
    /// SHA-256 of `best.safetensors`, in hexadecimal.
    pub weights_hash: String,
}

/// The result of a run: what `summary.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Accuracy on the test split, of the best epoch's parameters.
    pub test_accuracy: f64,
    /// Macro F1 on the test split; `None` for tasks that have none.
    pub test_f1_macro: Option<f64>,
    /// Area under the ROC curve on the test split; `None` where it is undefined.
    pub test_roc_auc: Option<f64>,
    /// Validation accuracy of the best epoch.
    pub val_accuracy: f64,
    /// The best epoch, from 1.
    pub best_epoch: usize,
    /// Epochs that were trained.
    pub n_epochs: usize,
    /// Whether the run ended before all its epochs, because none was better any more.
    pub stopped_early: bool,
    /// Seconds from the start of the run to its end, the test included.
    pub seconds: f64,
    /// The most anonymous memory seen, in bytes.
    pub peak_rss_anon_bytes: u64,
    /// The most mapped file pages seen, in bytes.
    pub peak_rss_mapped_bytes: u64,
    /// SHA-256 of `best.safetensors`, in hexadecimal.
    pub weights_hash: String,
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

impl RunFolder {
    /// Makes the folder, or takes an empty one.
    ///
    /// # Errors
    /// [`Error::RunFolderNotEmpty`], or [`Error::Io`] when it cannot be made.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let io = |source| Error::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io)?;
        if fs::read_dir(&path).map_err(io)?.next().is_some() {
            return Err(Error::RunFolderNotEmpty { path });
        }
        Ok(Self { path, curves: Curves::default(), best: None })
    }

    /// Makes `parent/name-001`, or the same with the first number that is free.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be made.
    pub fn create_numbered(parent: impl AsRef<Path>, name: &str) -> Result<Self> {
        let parent = parent.as_ref();
        fs::create_dir_all(parent).map_err(|source| Error::Io { path: parent.to_owned(), source })?;
        let mut number = 1;
        loop {
            let path = parent.join(format!("{name}-{number:03}"));
            // Making it is the test, so that two runs that start together get a folder each.
            match fs::create_dir(&path) {
                Ok(()) => return Self::create(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(Error::Io { path, source }),
            }
        }
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `config.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_config(&self, config: &impl Serialize) -> Result<()> {
        self.write_json("config.json", config)
    }

    /// Records an epoch, counted from 1: appends to the metrics, draws the curves, and keeps the
    /// parameters if none had a better validation accuracy. Says whether they were kept.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Drawing`] or [`Error::Weights`].
    pub fn record<M: Module>(
        &mut self,
        epoch: usize,
        train: &EpochReport,
        val: &Counts,
        model: &M,
    ) -> Result<bool> {
        let point = Point {
            epoch,
            train_loss: train.counts.loss(),
            val_loss: val.loss(),
            train_accuracy: train.counts.accuracy(),
            val_accuracy: val.accuracy(),
        };
        self.append_metrics(&point, train)?;
        self.curves.push(point);
        self.write("curves.svg", self.curves.to_svg()?.as_bytes())?;
        let is_best = self.best.as_ref().is_none_or(|best| val.accuracy() > best.val_accuracy);
        if is_best {
            let bytes = weights_to_bytes(model)?;
            self.write("best.safetensors", &bytes)?;
            let weights_hash = hex(&Sha256::digest(&bytes));
            self.best = Some(Best { epoch, val_accuracy: val.accuracy(), weights_hash });
        }
        Ok(is_best)
    }

    fn append_metrics(&self, point: &Point, train: &EpochReport) -> Result<()> {
        let seconds = train.wall.as_secs_f64();
        let line = EpochLine {
            epoch: point.epoch,
            train_loss: point.train_loss,
            train_accuracy: point.train_accuracy,
            val_loss: point.val_loss,
            val_accuracy: point.val_accuracy,
            n_steps: train.n_steps,
            seconds,
            seeds_per_second: train.counts.total as f64 / seconds,
            stage_seconds: train.timings,
            peak_rss_anon_bytes: train.peak_memory.anon_bytes,
            peak_rss_mapped_bytes: train.peak_memory.mapped_bytes,
        };
        let path = self.path.join("metrics.jsonl");
        let append = || {
            let mut text = serde_json::to_string(&line)?;
            text.push('\n');
            OpenOptions::new().create(true).append(true).open(&path)?.write_all(text.as_bytes())
        };
        append().map_err(|source| Error::Io { path: path.clone(), source })
    }

    /// The best epoch so far.
    ///
    /// # Errors
    /// [`Error::NoEpoch`] before the first one was recorded.
    pub fn best(&self) -> Result<&Best> {
        self.best.as_ref().ok_or(Error::NoEpoch)
    }

    /// Puts the best epoch's parameters into the model.
    ///
    /// # Errors
    /// [`Error::NoEpoch`], [`Error::Io`] or [`Error::Weights`].
    pub fn load_best<M: Module>(&self, model: &mut M) -> Result<()> {
        self.best()?;
        let path = self.path.join("best.safetensors");
        let bytes = fs::read(&path).map_err(|source| Error::Io { path, source })?;
        load_weights(model, bytes)
    }

    /// Writes `test_predictions.csv`: `node,label,predicted`, in the order given.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_predictions(&self, predictions: &[Prediction]) -> Result<()> {
        let mut csv = String::from("node,label,predicted\n");
        for said in predictions {
            csv.push_str(&format!("{},{},{}\n", said.node.0, said.label, said.predicted));
        }
        self.write("test_predictions.csv", csv.as_bytes())
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(&self, summary: &Summary) -> Result<()> {
        self.write_json("summary.json", summary)
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let io = |error: serde_json::Error| Error::Io { path: self.path.join(name), source: error.into() };
        let mut json = serde_json::to_string_pretty(value).map_err(io)?;
        json.push('\n');
        self.write(name, json.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let unfinished = self.path.join(format!("{name}.unfinished"));
        let write = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|source| Error::Io { path: path.clone(), source })
    }
}

impl Summary {
    /// The result of a run that took `elapsed` and tested its best epoch.
    pub fn new(test: &Metrics, best: &Best, fit: &FitReport, elapsed: Duration) -> Self {
        Self {
            test_accuracy: test.accuracy,
            test_f1_macro: test.f1_macro,
            test_roc_auc: test.roc_auc,
            val_accuracy: best.val_accuracy,
            best_epoch: best.epoch,
            n_epochs: fit.n_epochs,
            stopped_early: fit.stopped_early,
            seconds: elapsed.as_secs_f64(),
            peak_rss_anon_bytes: fit.peak_memory.anon_bytes,
            peak_rss_mapped_bytes: fit.peak_memory.mapped_bytes,
            weights_hash: best.weights_hash.clone(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "test accuracy   {:.4}", self.test_accuracy)?;
        let or_undefined =
            |value: Option<f64>| value.map_or("undefined".into(), |value| format!("{value:.4}"));
        writeln!(f, "test macro F1   {}", or_undefined(self.test_f1_macro))?;
        writeln!(f, "test ROC-AUC    {}", or_undefined(self.test_roc_auc))?;
        writeln!(f, "best epoch      {} (validation accuracy {:.4})", self.best_epoch, self.val_accuracy)?;
        let stopped = if self.stopped_early { ", stopped early" } else { "" };
        writeln!(f, "epochs          {}{stopped}", self.n_epochs)?;
        writeln!(f, "time            {:.1} s", self.seconds)?;
        let (anon, mapped) = (mib(self.peak_rss_anon_bytes), mib(self.peak_rss_mapped_bytes));
        writeln!(f, "peak memory     {anon:.0} MiB anonymous, {mapped:.0} MiB mapped files")?;
        write!(f, "weights         sha256 {}", self.weights_hash)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
