use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use kiln_store::folder_lock::lock_folder;
use kiln_store::whole_file::{
    UNFINISHED, create_folder, read_whole, sync_folder, sync_parents, write_unfinished, write_whole,
};
use serde::Serialize;

use crate::error::{Error, Result, RunError};
use crate::evaluate::validation::Validation;
use crate::run::metrics_file::MetricsFile;
use crate::runs::find::suggest_runs;
use crate::saved::info::ModelInfo;
use crate::saved::model_file::MODEL_FILE;
use crate::step::reports::EpochReport;
use crate::step::weights::hash;

/// The folder of the event files in a run folder.
pub(crate) const TENSORBOARD_FOLDER: &str = "tensorboard";

/// The files of the last checkpoint and of the checkpoint before it.
const CHECKPOINTS: [&str; 2] = ["last/checkpoint.safetensors", "last/previous.safetensors"];

/// The file from which the program repeats the run.
pub const DESCRIPTION_FILE: &str = "run.toml";

/// The files that a run writes at its end.
const RESULTS: [&str; 3] = ["summary.json", "report.html", "test_predictions.csv"];

/// The folder with the files of a training run.
///
/// | file | content |
/// |---|---|
/// | `config.json` | the settings of the run |
/// | `run.toml` | the description from which the program repeats the run, if it has one |
/// | `model.json` | the description of the model ([`ModelInfo`]), with which predictions open `best.safetensors` |
/// | `metrics.jsonl` | one JSON object per epoch: losses, accuracies, stage times, memory |
/// | `curves.svg` | loss and accuracy over the epochs (feature `report`) |
/// | `best.safetensors` | the parameters of the best epoch by the metric on the validation split, the first of those that tie |
/// | `last/checkpoint.safetensors` | the last checkpoint; it is the first file to be written |
/// | `last/previous.safetensors` | the checkpoint before the last one, used if the last one is damaged |
/// | `test_predictions.csv` | each test item with its label and its predicted class, or its targets and outputs |
/// | `tensorboard/` | event files, if the callback [`TensorBoard`](crate::TensorBoard) writes them |
/// | `summary.json` | the result: test metrics, best epoch, time, memory |
/// | `report.html` | a page with the settings, epochs, curves, result and confusion matrix (feature `report`) |
///
/// Every file except `metrics.jsonl`, which grows, is written under another name, synced to disk and then renamed, so a
/// file is always complete, even after a crash. The contents of all files except the checkpoints and the results are
/// also held in memory, so that a file that could not be written is written later. The folder is locked while this
/// value exists, if the file system supports locks.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    config: Vec<u8>,
    /// The content of `run.toml`.
    description: String,
    /// The content of `model.json`; `None` if the run writes none.
    model: Option<ModelInfo>,
    metrics: MetricsFile,
    /// The content of `best.safetensors`; empty before the first epoch.
    best: Vec<u8>,
    /// The files that are older than the content in memory.
    unwritten: BTreeSet<Held>,
    /// The open lock file. Dropping it releases the lock.
    _lock: File,
}

/// A file whose content is held in memory. The order of the variants is the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    Config,
    Description,
    Model,
    Metrics,
    Curves,
    Best,
}

impl RunFolder {
    /// Creates the folder, or uses an existing empty folder. The folder of a run that stopped before its first
    /// checkpoint counts as empty.
    ///
    /// # Errors
    /// Returns [`RunError::RunFolderNotEmpty`], [`RunError::RunFolderInUse`] if another run holds its lock, or
    /// [`RunError::Io`] if the folder cannot be created.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        fs::create_dir_all(&path)
            .and_then(|()| sync_parents(&path))
            .map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
        let folder = Self::lock(path.clone())?;
        Self::check_empty(&path)?;
        Ok(folder)
    }

    /// Checks that the folder is absent or counts as empty.
    pub(crate) fn check_empty(path: &Path) -> Result<()> {
        let is_free = match is_as_good_as_empty(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            found => found,
        };
        match is_free.map_err(|source| Error::Run(RunError::Io { path: path.to_owned(), source }))? {
            true => Ok(()),
            false => Err(Error::Run(RunError::RunFolderNotEmpty { path: path.to_owned() })),
        }
    }

    /// Checks that the folder has a checkpoint.
    pub(crate) fn check_checkpoint(path: &Path) -> Result<()> {
        match CHECKPOINTS.iter().any(|name| path.join(name).is_file()) {
            true => Ok(()),
            false => {
                let suggestion = suggest_runs(path);
                Err(Error::Run(RunError::NoCheckpoint { path: path.to_owned(), suggestion }))
            }
        }
    }

    /// Opens the folder of a stopped run, to resume it.
    ///
    /// # Errors
    /// Returns [`RunError::NoCheckpoint`] if the folder has no checkpoint, [`RunError::RunFolderInUse`] if another run
    /// holds its lock, or [`RunError::Io`] if it cannot be opened.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        Self::check_checkpoint(&path)?;
        Self::lock(path)
    }

    fn lock(path: PathBuf) -> Result<Self> {
        let locked = lock_folder(&path);
        let locked = locked.map_err(|source| Error::Run(RunError::Io { path: path.clone(), source }))?;
        let Some(lock) = locked else { return Err(Error::Run(RunError::RunFolderInUse { path })) };
        Ok(Self {
            metrics: MetricsFile::new(path.join("metrics.jsonl")),
            path,
            config: Vec::new(),
            description: String::new(),
            model: None,
            best: Vec::new(),
            unwritten: BTreeSet::new(),
            _lock: lock,
        })
    }

    /// Creates `parent/name-001`, or the folder with the first free number.
    ///
    /// # Errors
    /// Returns the errors of [`RunFolder::create`].
    pub fn create_numbered(parent: impl AsRef<Path>, name: &str) -> Result<Self> {
        let parent = parent.as_ref();
        fs::create_dir_all(parent)
            .map_err(|source| Error::Run(RunError::Io { path: parent.to_owned(), source }))?;
        let mut number = 1;
        loop {
            let path = parent.join(format!("{name}-{number:03}"));
            // `create_dir` is also the test for existence, so that two runs that start at the same time get different
            // folders.
            match fs::create_dir(&path) {
                Ok(()) => return Self::create(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(source) => return Err(Error::Run(RunError::Io { path, source })),
            }
        }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `config.json`.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if it cannot be written.
    pub fn write_config(&self, config: &impl Serialize) -> Result<()> {
        self.write_json("config.json", config)
    }

    /// Sets the content of `config.json`, to be written by [`RunFolder::write_files`].
    pub(crate) fn set_config(&mut self, config: &impl Serialize) -> Result<()> {
        self.config = self.to_json("config.json", config)?;
        self.unwritten.insert(Held::Config);
        Ok(())
    }

    /// Sets the content of `run.toml`, to be written by [`RunFolder::write_files`].
    pub(crate) fn set_description(&mut self, text: &str) {
        text.clone_into(&mut self.description);
        self.unwritten.insert(Held::Description);
    }

    /// Sets the content of `model.json`, to be written by [`RunFolder::write_files`].
    pub(crate) fn set_model(&mut self, model: &ModelInfo) -> Result<()> {
        self.model = Some(model.clone());
        self.unwritten.insert(Held::Model);
        Ok(())
    }

    /// Sets the hash of the data in `model.json`, if it has none.
    pub(crate) fn set_data_hash(&mut self, hash: &str) {
        if let Some(model) = self.model.as_mut().filter(|model| model.data_hash.is_empty()) {
            hash.clone_into(&mut model.data_hash);
        }
    }

    /// Adds the hash of the best epoch's parameters to `model.json` when a run ends. While a run trains, the file has no
    /// hash, because a crash between the writes of two files would leave a hash of other parameters.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if it cannot be written.
    pub(crate) fn seal_model(&mut self) -> Result<()> {
        let Some(model) = self.model.as_mut().filter(|_| !self.best.is_empty()) else { return Ok(()) };
        let hash = hash(&self.best);
        if model.weights_hash.as_ref() == Some(&hash) {
            return Ok(());
        }
        model.weights_hash = Some(hash);
        self.unwritten.insert(Held::Model);
        self.write_files()
    }

    /// Returns true if the folder has a complete checkpoint. Without one, the folder must count as empty, so no other
    /// file may be written.
    pub(crate) fn has_checkpoint(&self) -> bool {
        CHECKPOINTS.iter().any(|name| self.path.join(name).is_file())
    }

    /// Reads the existing checkpoints, newest first. Returns each path with the file's bytes or the error of reading
    /// it.
    pub(crate) fn checkpoints(&self) -> Vec<(PathBuf, io::Result<Vec<u8>>)> {
        let paths = CHECKPOINTS.map(|name| self.path.join(name));
        let read = paths.map(|path| (path.clone(), read_whole(path, u64::MAX)));
        let is_there = |bytes: &io::Result<Vec<u8>>| !matches!(bytes, Err(error) if error.kind() == io::ErrorKind::NotFound);
        read.into_iter().filter(|(_, bytes)| is_there(bytes)).collect()
    }

    /// Renames a damaged checkpoint, so that the next written checkpoint does not keep it as the previous checkpoint.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if it cannot be renamed.
    pub(crate) fn set_aside(&self, checkpoint: &Path) -> Result<()> {
        let mut aside = checkpoint.as_os_str().to_owned();
        aside.push(".damaged");
        let renamed = fs::rename(checkpoint, aside).and_then(|()| sync_folder(&self.path.join("last")));
        renamed.map_err(|source| Error::Run(RunError::Io { path: checkpoint.to_owned(), source }))
    }

    /// Replaces the last checkpoint, which becomes the previous one. Also removes the results that the run wrote when
    /// it ended earlier, because the run has continued since.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if a file cannot be written, renamed or removed. The old checkpoint then still exists, as
    /// the last or the previous one.
    pub(crate) fn write_checkpoint(&self, bytes: &[u8]) -> Result<()> {
        let [last, previous] = CHECKPOINTS.map(|name| self.path.join(name));
        let io = |source| Error::Run(RunError::Io { path: last.clone(), source });
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

    /// Restores the rows of the metrics and the best epoch's parameters to those of a checkpoint. The next
    /// [`RunFolder::write_files`] writes them. Returns a warning if the metrics file has other rows than the
    /// checkpoint.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if a file cannot be removed, and [`RunError::BadFile`] if the rows cannot be parsed
    /// or their number is not `n_epochs`.
    pub(crate) fn restore(
        &mut self,
        n_epochs: usize,
        rows: Vec<u8>,
        best: Vec<u8>,
    ) -> Result<Option<String>> {
        // `metrics.restore` can fail, so it is called before anything is changed.
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
                    return Err(Error::Run(RunError::Io { path, source }));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Records an epoch, counted from 1: appends to the metrics and draws the curves.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] if a file cannot be written, [`RunError::BadFile`] for a row that could not be read
    /// back, or [`RunError::Drawing`] if the curves cannot be drawn.
    pub fn record(&mut self, epoch: usize, train: &EpochReport, val: impl Into<Validation>) -> Result<()> {
        self.add_epoch(epoch, train, &val.into(), &BTreeMap::new())?;
        self.write_files()
    }

    /// Appends the row of an epoch, to be written by [`RunFolder::write_files`].
    ///
    /// # Errors
    /// Returns [`RunError::BadFile`] for a row that could not be read back.
    pub(crate) fn add_epoch(
        &mut self,
        epoch: usize,
        train: &EpochReport,
        val: &Validation,
        logged: &BTreeMap<String, f64>,
    ) -> Result<()> {
        self.metrics.push(epoch, train, val, logged)?;
        self.unwritten.extend([Held::Metrics, Held::Curves]);
        Ok(())
    }

    /// Sets the best epoch's parameters, for checkpoints. Their file is written after the next checkpoint, so it is
    /// never newer than the checkpoint.
    pub(crate) fn set_best(&mut self, bytes: Vec<u8>) {
        self.best = bytes;
        self.unwritten.insert(Held::Best);
        if self.model.as_mut().is_some_and(|model| model.weights_hash.take().is_some()) {
            self.unwritten.insert(Held::Model);
        }
    }

    /// Writes all files that are older than the content in memory. It tries every file; the next call retries those
    /// that failed.
    ///
    /// # Errors
    /// Returns the first error: [`RunError::Io`] or [`RunError::Drawing`].
    pub(crate) fn write_files(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        for file in self.unwritten.clone() {
            // A `model.json` with a hash is replaced before the parameters.
            if file == Held::Best && self.unwritten.contains(&Held::Model) {
                continue;
            }
            let written = match file {
                Held::Config => self.write("config.json", &self.config),
                Held::Description => self.write(DESCRIPTION_FILE, self.description.as_bytes()),
                Held::Model => self.write_json(MODEL_FILE, &self.model),
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

    /// Removes the curves that a program with the feature `report` has drawn, because they lack the last epoch.
    #[cfg(not(feature = "report"))]
    fn draw(&self) -> Result<()> {
        self.remove(&["curves.svg"])
    }

    /// Returns the parsed rows of `metrics.jsonl`.
    #[cfg(feature = "report")]
    pub(crate) fn epochs(&self) -> &[crate::EpochRow] {
        self.metrics.epochs()
    }

    /// Returns the rows of `metrics.jsonl`, as the bytes of the file.
    pub(crate) fn metrics(&self) -> &[u8] {
        self.metrics.bytes()
    }

    /// Returns the best epoch's parameters; empty before the first epoch.
    pub(crate) fn best(&self) -> &[u8] {
        &self.best
    }

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        self.write(name, &self.to_json(name, value)?)
    }

    fn to_json(&self, name: &str, value: &impl Serialize) -> Result<Vec<u8>> {
        let mut json = serde_json::to_vec_pretty(value).map_err(|error: serde_json::Error| {
            Error::Run(RunError::Io { path: self.path.join(name), source: error.into() })
        })?;
        json.push(b'\n');
        Ok(json)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        write_whole(&path, bytes).map_err(|source| Error::Run(RunError::Io { path, source }))
    }
}

/// Returns true if the folder is empty, or contains only unfinished files and event files of a run that stopped before
/// its first checkpoint.
fn is_as_good_as_empty(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // The event files of TensorBoard may precede the first checkpoint.
        if entry.file_name() == TENSORBOARD_FOLDER {
            continue;
        }
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
