use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use kiln_train::{EpochReport, Metric, MetricSums, RunDir, TrainCallback, Validation};

/// The settings of a run: the number of epochs, checkpoints, early stopping and the run's folder.
#[must_use = "pass it to Trainer::fit"]
pub struct FitConfig {
    pub(crate) schedule: kiln_train::FitConfig,
    pub(crate) metric: Option<Metric>,
    /// The run's folder; by default a numbered folder with the dataset's name.
    pub(crate) dir: Option<RunDir>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) callback: Box<dyn TrainCallback>,
    pub(crate) is_quiet: bool,
    /// The settings in `config.json`; by default those of the run's identity.
    pub(crate) settings: Option<BTreeMap<String, String>>,
    /// The content of `run.toml`.
    pub(crate) description: Option<String>,
    /// The title of the report; by default the dataset's name.
    pub(crate) title: Option<String>,
    /// The start of the run; by default the time of the call of `fit`.
    pub(crate) started: Option<Instant>,
}

impl FitConfig {
    /// Returns settings for at most `n_epochs` epochs, each of which prints a line. The run's files are written to `runs/NAME-001`,
    /// or the next free number, where NAME is the dataset's name. Notes and warnings, such as of an epoch with fewer than 10 steps,
    /// are events of `tracing`, which [`print_log`](crate::print_log) prints.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: NeighborLoader, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// // The files of the run are in `runs/NAME-001`, where NAME is the dataset's name.
    /// let best = trainer.fit(&loader, FitConfig::epochs(20))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn epochs(n_epochs: usize) -> Self {
        let schedule = kiln_train::FitConfig { n_epochs, patience: None, checkpoint_every: None };
        let (stop, callback) = (Arc::default(), Box::new(()));
        Self {
            schedule,
            metric: None,
            dir: None,
            stop,
            callback,
            is_quiet: false,
            settings: None,
            description: None,
            title: None,
            started: None,
        }
    }

    /// Sets the metric on the validation split that selects the best epoch and ends the patience. The default is the
    /// accuracy for classes, the area under the ROC curve for several labels, the RMSE for regression, and the mean
    /// reciprocal rank (MRR) for links.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// // The best epoch is the one with the largest macro F1, for classes of different sizes.
    /// let config = FitConfig::epochs(100).metric(Metric::F1Macro);
    /// ```
    ///
    /// A metric of your own implements [`CustomMetric`](kiln_train::CustomMetric):
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// /// The largest error of a number.
    /// struct LargestError;
    /// impl CustomMetric for LargestError {
    ///     fn name(&self) -> &str {
    ///         "largest-error"
    ///     }
    ///     fn target_kind(&self) -> TargetKind {
    ///         TargetKind::Regression
    ///     }
    ///     fn higher_is_better(&self) -> bool {
    ///         false
    ///     }
    ///     fn value(&self, items: &MetricItems<'_>) -> Option<f64> {
    ///         let errors = items.outputs.iter().zip(items.values).map(|(output, value)| f64::from((output - value).abs()));
    ///         errors.filter(|error| !error.is_nan()).max_by(f64::total_cmp)
    ///     }
    /// }
    /// let config = FitConfig::epochs(100).metric(LargestError).patience(10);
    /// ```
    pub fn metric(self, metric: impl Into<Metric>) -> Self {
        Self { metric: Some(metric.into()), ..self }
    }

    /// Stops early after `n_epochs` epochs without a better value of the metric on the validation split.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// // At most 500 epochs, and no more than 20 after the best one.
    /// let config = FitConfig::epochs(500).patience(20);
    /// ```
    pub fn patience(mut self, n_epochs: usize) -> Self {
        self.schedule.patience = Some(n_epochs);
        self
    }

    /// Writes a checkpoint after every `n_steps` steps of an epoch, in addition to the one at its end.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// // An epoch takes hours: a killed run repeats at most 1,000 steps.
    /// let config = FitConfig::epochs(5).checkpoint_every(1_000);
    /// ```
    pub fn checkpoint_every(mut self, n_steps: usize) -> Self {
        self.schedule.checkpoint_every = Some(n_steps);
        self
    }

    /// Sets the run's folder, which must be new or empty.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let config = FitConfig::epochs(20).out("runs/hidden-64");
    /// ```
    pub fn out(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::New(folder.into())), ..self }
    }

    /// Resumes the run in this folder from its last checkpoint. The weights are bit-identical to those of an
    /// uninterrupted run. Settings, patience and data must be the same; the number of epochs may grow.
    ///
    /// `kiln train` and programs resume the runs of each other. `kiln train` identifies data in the kiln format by the hash of its
    /// manifest, which a program passes with [`GraphSource::with_hash`](crate::GraphSource::with_hash).
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: NeighborLoader, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// // The run had 20 epochs; 10 more follow.
    /// let best = trainer.fit(&loader, FitConfig::epochs(30).resume("runs/hidden-64"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::Resume(folder.into())), ..self }
    }

    /// Resumes the run in this folder if it contains a checkpoint, and starts it otherwise: for jobs that are requeued.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: NeighborLoader, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// // A job that the batch system starts again continues with the same command.
    /// let best = trainer.fit(&loader, FitConfig::epochs(100).start_or_resume("runs/job"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn start_or_resume(self, folder: impl Into<PathBuf>) -> Self {
        Self { dir: Some(RunDir::StartOrResume(folder.into())), ..self }
    }

    /// Sets the flag that stops the run. When it is true on any rank after a step, all ranks stop with a checkpoint.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: NeighborLoader, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// // A batch system sends SIGTERM before it kills the job.
    /// let config = FitConfig::epochs(100).start_or_resume("runs/job").stop_flag(kiln::stop_on_signals()?);
    /// match trainer.fit(&loader, config) {
    ///     Err(Error::Interrupted { n_epochs, .. }) => println!("stopped after {n_epochs} epochs, with a checkpoint"),
    ///     result => println!("epoch {} was the best one", result?.best.epoch),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_flag(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop, ..self }
    }

    /// Sets a callback for each step and epoch, on every rank; a pair of callbacks for several. It may read the outputs of each
    /// validation, log values to `metrics.jsonl`, and stop the run ([`TrainCallback::validation_end`]).
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::train::{EpochReport, MetricSums, StepReport, TrainCallback};
    /// struct Losses(Vec<f64>);
    /// impl TrainCallback for Losses {
    ///     fn step(&mut self, report: &StepReport) {
    ///         self.0.push(report.counts.loss());
    ///     }
    ///     fn epoch(&mut self, epoch: usize, _: &EpochReport, val: &MetricSums, _: bool) {
    ///         println!("epoch {epoch}: {} steps, validation loss {:.4}", self.0.len(), val.loss());
    ///     }
    /// }
    /// let config = FitConfig::epochs(10).callback(Losses(Vec::new()));
    /// ```
    pub fn callback(self, callback: impl TrainCallback + 'static) -> Self {
        Self { callback: Box::new(callback), ..self }
    }

    /// Sets the settings that `config.json` records, instead of those by which a resumed run is compared.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use std::collections::BTreeMap;
    /// // `config.json` has the flags of the program.
    /// let flags = BTreeMap::from([("--hidden".to_owned(), "64".to_owned())]);
    /// let config = FitConfig::epochs(10).settings(flags);
    /// ```
    pub fn settings(self, settings: BTreeMap<String, String>) -> Self {
        Self { settings: Some(settings), ..self }
    }

    /// Sets the content of `run.toml` in the folder of the run, from which your program repeats it. Without a description, there is
    /// no such file.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let config = FitConfig::epochs(10).description("hidden = 64\n");
    /// ```
    pub fn description(self, description: impl Into<String>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// Sets the title of the report.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let config = FitConfig::epochs(10).title("Payments of May, without amounts");
    /// ```
    pub fn title(self, title: impl Into<String>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Sets the start of the run, from which the elapsed time in the summary counts.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use std::time::Instant;
    /// let started = Instant::now();
    /// // Loading the data is part of the elapsed time in the summary.
    /// let data = kiln::data::synthetic::ring(100)?;
    /// let config = FitConfig::epochs(10).started(started);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn started(self, started: Instant) -> Self {
        Self { started: Some(started), ..self }
    }

    /// Sets the run's folder, and whether the run is new or resumed.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::train::RunDir;
    /// // The folder `runs/payments-001`, or the first free number.
    /// let config = FitConfig::epochs(10).dir(RunDir::Numbered { parent: "runs".into(), name: "payments".into() });
    /// ```
    pub fn dir(self, dir: RunDir) -> Self {
        Self { dir: Some(dir), ..self }
    }

    /// Disables the line per epoch.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// // The lines of ten runs in parallel would mix.
    /// let config = FitConfig::epochs(10).quiet();
    /// ```
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

/// A callback that prints a line per epoch.
pub(crate) struct EpochLines {
    n_epochs: usize,
    /// The last validation.
    val: Option<Validation>,
}

impl EpochLines {
    pub(crate) fn new(n_epochs: usize) -> Self {
        Self { n_epochs, val: None }
    }
}

impl TrainCallback for EpochLines {
    fn validated(&mut self, val: &Validation) {
        self.val = Some(*val);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &MetricSums, is_best: bool) {
        let (n_epochs, seconds, mark) =
            (self.n_epochs, train.wall.as_secs_f64(), if is_best { "  *" } else { "" });
        let loss = train.counts.loss();
        let metric = self.val.unwrap_or(val.into()).progress(&train.counts);
        // Errors are ignored: a closed pipe must not stop a run that writes files.
        let _ = writeln!(
            io::stdout(),
            "epoch {epoch:3}/{n_epochs}  loss {loss:.4}  {metric}  {seconds:.2} s{mark}"
        );
    }
}
