use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use kiln_store::whole_file::{
    UNFINISHED, create_folder, sync_folder, sync_parents, write_unfinished, write_whole,
};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::run::metrics_file::{MetricsFile, MetricsRows};
use crate::run::summary::Summary;
use crate::step::classification::Prediction;
use crate::step::metric_sums::MetricSums;
use crate::step::reports::EpochReport;

/// Where the last checkpoint stands in a run folder, and the one before it.
const CHECKPOINTS: [&str; 2] = ["last/checkpoint.safetensors", "last/previous.safetensors"];

/// What a run writes at its end.
const RESULTS: [&str; 3] = ["summary.json", "report.html", "test_predictions.csv"];

/// The folder that keeps what came of a training run.
///
/// | file | what |
/// |---|---|
/// | `config.json` | what the run was asked for |
/// | `metrics.jsonl` | one object an epoch: losses, accuracies, stage times, memory |
/// | `curves.svg` | loss and accuracy over the epochs (feature `report`) |
/// | `best.safetensors` | the parameters of the best epoch by validation accuracy, the first of those that tie |
/// | `last/checkpoint.safetensors` | what a stopped run goes on from, the first file that is written |
/// | `last/previous.safetensors` | the checkpoint before it, for when it is damaged |
/// | `test_predictions.csv` | each test item with its class and the predicted one |
/// | `summary.json` | the result |
/// | `report.html` | all of it on one page (feature `report`) |
///
/// Every file but `metrics.jsonl`, which grows, is written under another name, brought to the disk and then
/// renamed, so that what stands there is whole, whenever the process or the machine stops. All but the results are held
/// in memory, too, so that a file that could not be written is written later. The folder is locked as long as this
/// lives, where the file system has locks.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    config: Vec<u8>,
    metrics: MetricsFile,
    /// What stands in `best.safetensors`; nothing before the first epoch.
    best: Vec<u8>,
    /// Files that are behind what is held here.
    unwritten: BTreeSet<Held>,
    /// Holds the lock.
    _lock: File,
}

/// A file whose contents are held in memory, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Config,
    Metrics,
    Curves,
    Best,
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
            Err(TryLockError::Error(_)) | Ok(()) => Ok(Self {
                metrics: MetricsFile::new(path.join("metrics.jsonl")),
                path,
                config: Vec::new(),
                best: Vec::new(),
                unwritten: BTreeSet::new(),
                _lock: lock,
            }),
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
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
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

    /// Takes what `config.json` is to hold.
    pub(crate) fn set_config(&mut self, config: &impl Serialize) -> Result<()> {
        self.config = self.to_json("config.json", config)?;
        self.unwritten.insert(Held::Config);
        Ok(())
    }

    /// Whether there is a complete checkpoint, without which the folder must count as empty.
    pub(crate) fn has_checkpoint(&self) -> bool {
        CHECKPOINTS.iter().any(|name| self.path.join(name).is_file())
    }

    /// The checkpoints that there are, the last one first, with their paths: their bytes, or why they cannot
    /// be read.
    pub(crate) fn checkpoints(&self) -> Vec<(PathBuf, io::Result<Vec<u8>>)> {
        let paths = CHECKPOINTS.map(|name| self.path.join(name));
        let read = paths.map(|path| (path.clone(), fs::read(path)));
        let is_there = |bytes: &io::Result<Vec<u8>>| !matches!(bytes, Err(error) if error.kind() == io::ErrorKind::NotFound);
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
        create_folder(&folder, &self.path).map_err(io)?;
        let unfinished = write_unfinished(&last, bytes).map_err(io)?;
        let replace = || {
            self.remove(&RESULTS)?;
            if last.is_file() {
                fs::rename(&last, previous).map_err(io)?;
            }
            fs::rename(&unfinished, &last).and_then(|()| sync_folder(&folder)).map_err(io)
        };
        replace().inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    /// Takes what the files held when a checkpoint was made, to be written: the rows of the metrics, the best epoch's
    /// parameters. Returns a warning where the file has other rows than the checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::BadFile`] for other metrics than the run's, where the checkpoint has no copy.
    pub(crate) fn restore(
        &mut self,
        n_epochs: usize,
        rows: MetricsRows,
        best: Vec<u8>,
    ) -> Result<Option<String>> {
        // Nothing is changed before all of it can be.
        let warning = self.metrics.restore(n_epochs, rows)?;
        self.best = best;
        self.unwritten.insert(Held::Metrics);
        match self.best.is_empty() {
            true => self.remove(&["best.safetensors", "curves.svg"])?,
            false => self.unwritten.extend([Held::Curves, Held::Best]),
        }
        Ok(warning)
    }

    fn remove(&self, names: &[&str]) -> Result<()> {
        for path in names.iter().map(|name| self.path.join(name)) {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
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
    pub fn record(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums) -> Result<()> {
        self.add_epoch(epoch, train, val)?;
        self.write_files()
    }

    /// Takes the row of an epoch, to be written by [`RunFolder::write_files`].
    ///
    /// # Errors
    /// [`Error::BadFile`] for a row that could not be read back.
    pub(crate) fn add_epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums) -> Result<()> {
        self.metrics.push(epoch, train, val)?;
        self.unwritten.extend([Held::Metrics, Held::Curves]);
        Ok(())
    }

    /// Takes these bytes as the best epoch's parameters, for checkpoints. Their file is written after the checkpoint: so
    /// the file is never ahead of it.
    pub(crate) fn set_best(&mut self, bytes: Vec<u8>) {
        self.best = bytes;
        self.unwritten.insert(Held::Best);
    }

    /// Writes the files that are behind what is held here. Tries all of them; those that fail stay behind.
    ///
    /// # Errors
    /// The first one's: [`Error::Io`] or [`Error::Drawing`].
    pub(crate) fn write_files(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for file in self.unwritten.clone() {
            let written = match file {
                Held::Config => self.write("config.json", &self.config),
                Held::Metrics => self.metrics.write(),
                Held::Curves => self.draw(),
                Held::Best => self.write("best.safetensors", &self.best),
            };
            match written {
                Ok(()) => {
                    self.unwritten.remove(&file);
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    #[cfg(feature = "report")]
    fn draw(&self) -> Result<()> {
        let curves = crate::report::curves::Curves::of(self.metrics.epochs());
        self.write("curves.svg", curves.to_svg()?.as_bytes())
    }

    /// Removes the curves that a program with the feature `report` has drawn: they lack the last epoch.
    #[cfg(not(feature = "report"))]
    fn draw(&self) -> Result<()> {
        self.remove(&["curves.svg"])
    }

    /// The rows of `metrics.jsonl`, read back.
    #[cfg(feature = "report")]
    pub(crate) fn epochs(&self) -> &[crate::EpochRow] {
        self.metrics.epochs()
    }

    /// The rows of `metrics.jsonl`.
    pub(crate) fn metrics(&self) -> &[u8] {
        self.metrics.bytes()
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
            csv.push_str(&format!("{},{},{}\n", said.item, said.label, said.predicted));
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

    fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        self.write(name, &self.to_json(name, value)?)
    }

    fn to_json(&self, name: &str, value: &impl Serialize) -> Result<Vec<u8>> {
        let io = |error: serde_json::Error| Error::Io { path: self.path.join(name), source: error.into() };
        let mut json = serde_json::to_vec_pretty(value).map_err(io)?;
        json.push(b'\n');
        Ok(json)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        write_whole(&path, bytes).map_err(|source| Error::Io { path, source })
    }
}

/// Whether a folder has nothing in it but what a run leaves that was stopped before its first checkpoint.
fn is_as_good_as_empty(path: &Path) -> io::Result<bool> {
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
