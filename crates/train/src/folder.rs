use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::curves::Curves;
use crate::{
    ConfusionMatrix, Counts, EpochReport, EpochRow, Error, Prediction, ReportPage, Result, Summary, Timings,
};

/// Where the last checkpoint stands in a run folder, and the one before it.
const CHECKPOINTS: [&str; 2] = ["last/checkpoint.safetensors", "last/previous.safetensors"];

/// What a file is called until it is whole.
const UNFINISHED: &str = ".unfinished";

/// What a run writes at its end.
const RESULTS: [&str; 3] = ["summary.json", "report.html", "test_predictions.csv"];

/// The folder that keeps what came of a training run.
///
/// | file | what |
/// |---|---|
/// | `config.json` | what the run was asked for |
/// | `metrics.jsonl` | one object an epoch: losses, accuracies, stage times, memory |
/// | `curves.svg` | loss and accuracy over the epochs |
/// | `best.safetensors` | the parameters of the best epoch by validation accuracy, the first of those that tie |
/// | `last/checkpoint.safetensors` | what a stopped run goes on from, the first file that is written |
/// | `last/previous.safetensors` | the checkpoint before it, for when it is damaged |
/// | `test_predictions.csv` | each test item with its class and the predicted one |
/// | `summary.json` | the result |
/// | `report.html` | all of it on one page |
///
/// Every file but `metrics.jsonl`, which grows, is written under another name, brought to the disk and then
/// renamed, so that what stands there is whole, whenever the process or the machine stops. The folder is
/// locked as long as this lives, where the file system has locks.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The lines of `metrics.jsonl`, and their bytes.
    epochs: Vec<EpochRow>,
    metrics_bytes: u64,
    /// What stands in `best.safetensors`; nothing before the first epoch.
    best: Vec<u8>,
    /// Holds the lock.
    _lock: File,
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
    /// Makes the folder, or takes an empty one; that of a run which was stopped before its first checkpoint
    /// counts as empty.
    ///
    /// # Errors
    /// [`Error::RunFolderNotEmpty`], [`Error::RunFolderInUse`], or [`Error::Io`] when it cannot be made.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let io = |source| Error::Io { path: path.clone(), source };
        fs::create_dir_all(&path).and_then(|()| sync_parents(&path)).map_err(io)?;
        let folder = Self::lock(path.clone())?;
        match is_as_good_as_empty(&path).map_err(io)? {
            true => Ok(folder),
            false => Err(Error::RunFolderNotEmpty { path }),
        }
    }

    /// The folder of a run that was stopped, to go on with it.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`] when there is nothing to go on from, [`Error::RunFolderInUse`], [`Error::Io`].
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match CHECKPOINTS.iter().any(|name| path.join(name).is_file()) {
            true => Self::lock(path),
            false => Err(Error::NoCheckpoint { path }),
        }
    }

    fn lock(path: PathBuf) -> Result<Self> {
        let lock = File::open(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Error::RunFolderInUse { path }),
            // Without locks in the file system, two runs in one folder are the user's to avoid.
            Err(TryLockError::Error(_)) | Ok(()) => {
                Ok(Self { path, epochs: Vec::new(), metrics_bytes: 0, best: Vec::new(), _lock: lock })
            }
        }
    }

    /// Makes `parent/name-001`, or the same with the first number that is free.
    ///
    /// # Errors
    /// As [`RunFolder::create`].
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

    /// The checkpoints that there are, the last one first, with their paths: their bytes, or why they cannot
    /// be read.
    pub(crate) fn checkpoints(&self) -> Vec<(PathBuf, std::io::Result<Vec<u8>>)> {
        let paths = CHECKPOINTS.map(|name| self.path.join(name));
        let read = paths.map(|path| (path.clone(), fs::read(path)));
        let is_there = |bytes: &std::io::Result<Vec<u8>>| !matches!(bytes, Err(error) if error.kind() == std::io::ErrorKind::NotFound);
        read.into_iter().filter(|(_, bytes)| is_there(bytes)).collect()
    }

    /// Takes a damaged checkpoint out of the way, so that it does not become the one before the next.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn set_aside(&self, checkpoint: &Path) -> Result<()> {
        let mut aside = checkpoint.as_os_str().to_owned();
        aside.push(".damaged");
        let renamed = fs::rename(checkpoint, aside).and_then(|()| sync_folder(&self.path.join("last")));
        renamed.map_err(|source| Error::Io { path: checkpoint.to_owned(), source })
    }

    /// Puts a checkpoint in the place of the last one, which becomes the one before it. What an end of the run
    /// wrote goes: the run is past it.
    ///
    /// # Errors
    /// [`Error::Io`]; the last one is then still there, under one of the two names.
    pub(crate) fn write_checkpoint(&self, bytes: &[u8]) -> Result<()> {
        let [last, previous] = CHECKPOINTS.map(|name| self.path.join(name));
        let io = |source| Error::Io { path: last.clone(), source };
        let folder = self.path.join("last");
        if !folder.is_dir() {
            fs::create_dir(&folder).and_then(|()| sync_folder(&self.path)).map_err(io)?;
        }
        self.remove(&RESULTS)?;
        let unfinished = write_unfinished(&last, bytes).map_err(io)?;
        if last.is_file() {
            fs::rename(&last, previous).map_err(io)?;
        }
        fs::rename(unfinished, &last).and_then(|()| sync_folder(&folder)).map_err(io)
    }

    /// Takes the files back to where a checkpoint was made: the metrics to so many bytes of so many epochs, the
    /// best epoch's parameters to these.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Drawing`], [`Error::BadFile`] for other metrics than the run's.
    pub(crate) fn restore(&mut self, n_epochs: usize, metrics_bytes: u64, best: Vec<u8>) -> Result<()> {
        let path = self.path.join("metrics.jsonl");
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            text => text.map_err(|source| Error::Io { path: path.clone(), source })?,
        };
        let bad = |reason| Error::BadFile { path: path.clone(), reason };
        let Some(text) = usize::try_from(metrics_bytes).ok().and_then(|n_bytes| text.get(..n_bytes)) else {
            return Err(bad(format!("it has {} bytes, the checkpoint knows of {metrics_bytes}", text.len())));
        };
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let epochs: serde_json::Result<Vec<EpochRow>> = lines.map(serde_json::from_slice).collect();
        let epochs = epochs.map_err(|error| bad(error.to_string()))?;
        if epochs.len() != n_epochs {
            return Err(bad(format!("it has {} epochs, the checkpoint knows of {n_epochs}", epochs.len())));
        }
        // Nothing is changed before all of it can be.
        self.write("metrics.jsonl", text)?;
        (self.epochs, self.metrics_bytes, self.best) = (epochs, metrics_bytes, best);
        match self.best.is_empty() {
            true => self.remove(&["best.safetensors", "curves.svg"]),
            false => self.draw().and_then(|()| self.write_best()),
        }
    }

    fn remove(&self, names: &[&str]) -> Result<()> {
        for path in names.iter().map(|name| self.path.join(name)) {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::Io { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records an epoch, counted from 1: appends to the metrics and draws the curves.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Drawing`].
    pub fn record(&mut self, epoch: usize, train: &EpochReport, val: &Counts) -> Result<()> {
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
        let path = self.path.join("metrics.jsonl");
        let mut append = || {
            let line = serde_json::to_string(&line)? + "\n";
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(line.as_bytes())?;
            // The checkpoint that follows counts on these bytes.
            file.sync_all()?;
            self.metrics_bytes += line.len() as u64;
            self.epochs.push(serde_json::from_str(&line)?);
            Ok(())
        };
        append().map_err(|source| Error::Io { path: path.clone(), source })?;
        self.draw()
    }

    fn draw(&self) -> Result<()> {
        if self.epochs.is_empty() {
            return Ok(());
        }
        self.write("curves.svg", Curves::of(&self.epochs).to_svg()?.as_bytes())
    }

    /// Bytes of `metrics.jsonl`.
    pub(crate) fn metrics_bytes(&self) -> u64 {
        self.metrics_bytes
    }

    /// Takes these bytes as the best epoch's parameters, for checkpoints. Their file is written by
    /// [`RunFolder::write_best`], which comes after the checkpoint: so the file is never ahead of it.
    pub(crate) fn set_best(&mut self, bytes: Vec<u8>) {
        self.best = bytes;
    }

    /// Writes `best.safetensors`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write_best(&self) -> Result<()> {
        self.write("best.safetensors", &self.best)
    }

    /// The best epoch's parameters; nothing before the first epoch.
    pub(crate) fn best(&self) -> &[u8] {
        &self.best
    }

    /// Writes `test_predictions.csv`: `item,label,predicted`, in the order given.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_predictions(&self, predictions: &[Prediction]) -> Result<()> {
        let mut csv = String::from("item,label,predicted\n");
        for said in predictions {
            csv.push_str(&format!("{},{},{}\n", said.item.0, said.label, said.predicted));
        }
        self.write("test_predictions.csv", csv.as_bytes())
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write_json("summary.json", summary)
    }

    /// Writes `report.html`: the run as its files have it, with what it said of the test split.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::BadFile`] or [`Error::Drawing`].
    pub fn write_report(
        &self,
        title: &str,
        summary: &Summary,
        confusion: ConfusionMatrix,
        class_names: &[String],
    ) -> Result<()> {
        let page = ReportPage {
            title: title.to_owned(),
            config: self.config()?,
            epochs: self.epochs.clone(),
            summary: summary.clone(),
            confusion: Some(confusion),
            class_names: class_names.to_vec(),
        };
        self.write("report.html", page.to_html()?.as_bytes())
    }

    /// What stands in `config.json`, a setting an entry.
    fn config(&self) -> Result<BTreeMap<String, String>> {
        let path = self.path.join("config.json");
        let text = fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let config = serde_json::from_str::<BTreeMap<String, serde_json::Value>>(&text);
        let config = config.map_err(|error| Error::BadFile { path, reason: error.to_string() })?;
        let plain = |value: serde_json::Value| match value {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(config.into_iter().map(|(name, value)| (name, plain(value))).collect())
    }

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let io = |error: serde_json::Error| Error::Io { path: self.path.join(name), source: error.into() };
        let mut json = serde_json::to_string_pretty(value).map_err(io)?;
        json.push('\n');
        self.write(name, json.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let write = || {
            fs::rename(write_unfinished(&path, bytes)?, &path)?;
            sync_folder(&self.path)
        };
        write().map_err(|source| Error::Io { path: path.clone(), source })
    }
}

/// Writes a file under another name and brings it to the disk.
fn write_unfinished(path: &Path, bytes: &[u8]) -> std::io::Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    let mut file = File::create(&name)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(name.into())
}

/// Brings the names in a folder to the disk.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

/// Brings the names of a folder and of those that it is in to the disk: any of them may be new.
fn sync_parents(path: &Path) -> std::io::Result<()> {
    for folder in path.ancestors().skip(1) {
        // A relative path ends in the folder that it is relative to.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        match sync_folder(folder) {
            // Not ours to read, and so not ours to have made.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
            synced => synced?,
        }
    }
    Ok(())
}

/// Whether a folder has nothing in it but what a run leaves that was stopped before its first checkpoint.
fn is_as_good_as_empty(path: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name() != "last" || !entry.file_type()?.is_dir() {
            return Ok(false);
        }
        for inner in fs::read_dir(entry.path())? {
            if !inner?.file_name().to_string_lossy().ends_with(UNFINISHED) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
