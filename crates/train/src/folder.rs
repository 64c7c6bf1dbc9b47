use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::curves::Curves;
use crate::weights::hash;
use crate::{
    Best, ConfusionMatrix, Counts, EpochReport, EpochRow, Error, Prediction, ReportPage, Result, Summary,
    Timings,
};

/// Where the last checkpoint stands in a run folder.
const CHECKPOINT: &str = "last/checkpoint.safetensors";

/// The folder that keeps what came of a training run.
///
/// | file | what |
/// |---|---|
/// | `config.json` | what the run was asked for |
/// | `metrics.jsonl` | one object an epoch: losses, accuracies, stage times, memory |
/// | `curves.svg` | loss and accuracy over the epochs |
/// | `best.safetensors` | the parameters of the best epoch by validation accuracy, the first of those that tie |
/// | `last/checkpoint.safetensors` | what a stopped run goes on from |
/// | `test_predictions.csv` | each test item with its class and the predicted one |
/// | `summary.json` | the result |
/// | `report.html` | all of it on one page |
///
/// Every file but `metrics.jsonl`, which grows, is written under another name, brought to the disk and then
/// renamed, so that what stands there is whole, whenever the process or the machine stops.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// The lines of `metrics.jsonl`.
    pub(crate) lines: Vec<String>,
}

/// A line of `metrics.jsonl`.
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
        Ok(Self { path, lines: Vec::new() })
    }

    /// The folder of a run that was stopped, to go on with it.
    ///
    /// # Errors
    /// [`Error::NoRunFolder`] when there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match path.join("config.json").is_file() {
            true => Ok(Self { path, lines: Vec::new() }),
            false => Err(Error::NoRunFolder { path }),
        }
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

    /// The bytes of the last checkpoint, if there is one.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::BadFile`] for a file without bytes.
    pub(crate) fn checkpoint(&self) -> Result<Option<Vec<u8>>> {
        let path = self.checkpoint_path();
        match fs::read(&path) {
            Ok(bytes) if bytes.is_empty() => {
                Err(Error::BadFile { path, reason: "it is empty: the checkpoint is lost".to_owned() })
            }
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { path, source }),
        }
    }

    /// Where the last checkpoint stands.
    pub(crate) fn checkpoint_path(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    /// Puts a checkpoint in the place of the last one.
    ///
    /// # Errors
    /// [`Error::Io`]; the last one is then still there.
    pub(crate) fn write_checkpoint(&self, bytes: &[u8]) -> Result<()> {
        let folder = self.path.join("last");
        fs::create_dir_all(&folder).map_err(|source| Error::Io { path: folder, source })?;
        self.write(CHECKPOINT, bytes)
    }

    /// Takes the lines of the epochs before a resumption, in the place of what the stopped run wrote.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Drawing`].
    pub(crate) fn restore(&mut self, lines: Vec<String>) -> Result<()> {
        self.lines = lines;
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        self.write("metrics.jsonl", text.as_bytes())?;
        self.draw()
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
        let line = serde_json::to_string(&line);
        let append = || {
            let line = line?;
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)?
                .write_all(format!("{line}\n").as_bytes())?;
            Ok(line)
        };
        self.lines.push(append().map_err(|source| Error::Io { path: path.clone(), source })?);
        self.draw()
    }

    fn draw(&self) -> Result<()> {
        match self.epochs()? {
            epochs if epochs.is_empty() => Ok(()),
            epochs => self.write("curves.svg", Curves::of(&epochs).to_svg()?.as_bytes()),
        }
    }

    /// The lines of `metrics.jsonl`, read back.
    fn epochs(&self) -> Result<Vec<EpochRow>> {
        let row = |line: &String| serde_json::from_str(line);
        let rows: serde_json::Result<_> = self.lines.iter().map(row).collect();
        let path = self.path.join("metrics.jsonl");
        rows.map_err(|error| Error::BadFile { path, reason: error.to_string() })
    }

    /// Keeps these bytes as the best epoch's parameters.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn write_best(&self, bytes: &[u8]) -> Result<()> {
        self.write("best.safetensors", bytes)
    }

    /// The best epoch's parameters as they were written.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::BadFile`] when the file is another one by now.
    pub(crate) fn read_best(&self, best: &Best) -> Result<Vec<u8>> {
        let path = self.path.join("best.safetensors");
        let bytes = fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let found = hash(&bytes);
        if found != best.weights_hash {
            let reason = format!("its SHA-256 is {found}, epoch {} wrote {}", best.epoch, best.weights_hash);
            return Err(Error::BadFile { path, reason });
        }
        Ok(bytes)
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
            epochs: self.epochs()?,
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
        let unfinished = self.path.join(format!("{name}.unfinished"));
        let write = || {
            let mut file = File::create(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            // The new name is on the disk when the folder is.
            path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        write().map_err(|source| Error::Io { path: path.clone(), source })
    }
}
