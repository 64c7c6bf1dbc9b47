use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kiln_train::{EpochReport, MetricSums, RunDir, RunIdentity, StepReport, TrainCallback};

/// How long a run trains, and where it keeps its files.
#[must_use = "pass it to Trainer::fit"]
pub struct FitConfig {
    pub(crate) schedule: kiln_train::FitConfig,
    /// If not set, a numbered folder with the dataset's name.
    pub(crate) dir: Option<RunDir>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) callback: Box<dyn TrainCallback>,
    pub(crate) is_quiet: bool,
    /// If not set, the settings of model, optimizer and loader, and the hash of the data.
    pub(crate) fingerprint: Option<RunIdentity>,
    /// If not set, the settings of the fingerprint.
    pub(crate) settings: Option<BTreeMap<String, String>>,
    /// If not set, the dataset's name.
    pub(crate) title: Option<String>,
    /// If not set, when `fit` was called.
    pub(crate) started: Option<Instant>,
}

impl FitConfig {
    /// So many epochs at most, each of which prints a line. The run's files go to `runs/NAME-001`, or the first number
    /// that is free, where NAME is the dataset's.
    pub fn epochs(n_epochs: usize) -> Self {
        let schedule = kiln_train::FitConfig { n_epochs, patience: None, checkpoint_every: None };
        let (stop, callback) = (Arc::default(), Box::new(()));
        let (fingerprint, settings, title, started) = (None, None, None, None);
        Self { schedule, dir: None, stop, callback, is_quiet: false, fingerprint, settings, title, started }
    }

    /// Stops after so many epochs without a better validation accuracy.
    pub fn patience(mut self, n_epochs: usize) -> Self {
        self.schedule.patience = Some(n_epochs);
        self
    }

    /// Writes a checkpoint after so many steps of an epoch, besides the one at its end.
    pub fn checkpoint_every(mut self, n_steps: usize) -> Self {
        self.schedule.checkpoint_every = Some(n_steps);
        self
    }

    /// Sets the run's folder, which is new or empty.
    pub fn out(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::New(folder.into())), ..self }
    }

    /// Continues the run of this folder from its last checkpoint, to the weights of a run that never stopped. Settings and
    /// data must be the same; the number of epochs may grow.
    pub fn resume(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::Resume(folder.into())), ..self }
    }

    /// Continues the run of this folder where it has a checkpoint, and starts it otherwise: for jobs that are requeued.
    pub fn start_or_resume(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::StartOrResume(folder.into())), ..self }
    }

    /// Stops the run with a checkpoint after a step in which the flag is set on some rank.
    pub fn stop_flag(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Notifies an observer of each step and epoch, on every rank.
    pub fn callback(self, callback: impl TrainCallback + 'static) -> Self {
        Self { callback: Box::new(callback), ..self }
    }

    /// Sets the settings and the hash of the data by which a resumed run recognizes itself, in the place of those of model,
    /// optimizer and loader.
    pub fn fingerprint(self, fingerprint: RunIdentity) -> Self {
        Self { fingerprint: Some(fingerprint), ..self }
    }

    /// Sets the settings that `config.json` records.
    pub fn settings(self, settings: BTreeMap<String, String>) -> Self {
        Self { settings: Some(settings), ..self }
    }

    /// Sets the title of the report.
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets the start of the run, for the time in the summary.
    pub fn started(self, started: Instant) -> Self {
        Self { started: Some(started), ..self }
    }

    /// Sets the folder of the run.
    pub fn dir(self, dir: RunDir) -> Self {
        Self { dir: Some(dir), ..self }
    }

    /// Prints nothing.
    pub fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }
}

impl fmt::Debug for FitConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, dir, .. } = self;
        f.debug_struct("FitConfig").field("schedule", schedule).field("dir", dir).finish_non_exhaustive()
    }
}

/// Prints a line per epoch.
pub(crate) struct EpochLines {
    pub(crate) n_epochs: usize,
}

impl TrainCallback for EpochLines {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        let (n_epochs, seconds, mark) =
            (self.n_epochs, train.wall.as_secs_f64(), if is_best { "  *" } else { "" });
        let (loss, accuracy, val) = (train.counts.loss(), train.counts.accuracy(), val.accuracy());
        // That nobody reads it any more is no reason to stop a run that writes files.
        let _ = writeln!(
            io::stdout(),
            "epoch {epoch:3}/{n_epochs}  loss {loss:.4}  train {accuracy:.4}  val {val:.4}  {seconds:.2} s{mark}"
        );
    }

    fn warning(&mut self, text: &str) {
        eprintln!("warning: {text}");
    }
}
