use std::collections::BTreeMap;
use std::time::Duration;

use kiln_feature::TargetKind;
use serde::Serialize;

use crate::error::{Error, Result, RunError};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::run::checkpoint::{self, Checkpoint, Position, Restored, Surroundings};
use crate::run::contract::Provenance;
use crate::run::data_hash::DataHash;
use crate::run::folder::RunFolder;
use crate::run::identity::{RecordedIdentity, RunIdentity};
use crate::run::last_checkpoint::whole_checkpoint;
use crate::run::summary::{Best, FitReport, ReportInfo, Summary};
use crate::run::write_failures::{Clock, WriteFailures};
use crate::saved::info::ModelInfo;
use crate::step::memory::MemoryUse;
use crate::step::reports::EpochReport;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;
use crate::step::weights::hash;
use crate::step::weights::task_weights;

/// The state of a training run, from which it can be resumed. It is the same on every rank; only rank 0 has the files.
///
/// A run tolerates a disk that is temporarily full. A write that fails for a transient reason ([`Error::is_transient`])
/// causes one warning ([`Run::take_warnings`]) until a write succeeds again, and the next due checkpoint writes
/// everything that is missing. The run fails with [`Error::CheckpointOverdue`] if a write fails more than an hour after
/// the last complete checkpoint (or after the start, if there is no checkpoint yet). [`Run::complete`], which ends a
/// run, tolerates no failure. Only rank 0 writes and decides; its error ends the other ranks like any error of a rank.
#[derive(Debug)]
pub struct Run {
    pub(super) position: Position,
    /// The settings, and the hash of the data once it is known.
    identity: RecordedIdentity,
    /// The reason that a callback gave for stopping the run after its last epoch.
    pub(super) stop_reason: Option<String>,
    /// The name of a loss of one's own.
    loss: Option<String>,
    /// The hash of the data, until all ranks have it and have compared it. Before that there is no checkpoint.
    awaited: Option<DataHash>,
    resumed: Option<Resumed>,
    /// The run folder, on rank 0.
    folder: Option<RunFolder>,
    failures: WriteFailures,
    /// The warnings that [`Run::take_warnings`] has not returned yet.
    warnings: Vec<String>,
    /// True if the files contain the current state.
    is_saved: bool,
}

/// The position from which a run was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// The number of completed epochs.
    pub epoch: usize,
    /// The number of completed steps of the interrupted epoch.
    pub step: usize,
    /// The number of ranks of the stopped run.
    pub n_ranks: usize,
    /// The error of the last checkpoint if it was damaged and the previous one was used; only on rank 0.
    pub damage: Option<String>,
}

impl Run {
    /// Starts a run in the folder, or resumes from the folder's checkpoint. `folder` is called on rank 0 only. When
    /// resuming, the trainer gets the checkpoint's model, optimizer and position, and the results are bit-identical to
    /// those of an uninterrupted run. Collective: every rank must call it.
    ///
    /// A new run whose data is not hashed yet ([`DataHash::later`]) starts without a checkpoint. [`fit`](crate::fit)
    /// writes its first one after the first step at which all ranks have the hash, and at the latest at the end of the
    /// epoch. A run that resumes waits for the hash here.
    ///
    /// A run can be resumed on another number of ranks, with the same items, samples and dropout masks. Its results
    /// then differ by rounding, because gradients are summed in another order. With batch normalisation they differ
    /// further, because its statistics are computed from each rank's own batches.
    ///
    /// # Errors
    /// Returns the error of `folder`, [`RunError::DataHash`] and [`crate::InputError::DataDiffers`] if the data cannot
    /// be hashed or is not the same on all ranks, [`RunError::OtherRun`] if the checkpoint belongs to another run,
    /// [`RunError::OtherContract`] if it has another version of the determinism contract, [`RunError::BadFile`] if all
    /// checkpoints are damaged or one has another format version, [`RunError::Io`] or [`RunError::Drawing`] if a file
    /// cannot be read or written, [`RunError::Weights`] if the checkpoint does not fit the model, and [`Error::Ranks`]
    /// if another rank fails.
    pub fn start<T: Task>(
        trainer: &mut TaskTrainer<T>,
        folder: impl FnOnce() -> Result<RunFolder>,
        identity: RunIdentity,
    ) -> Result<Self> {
        let folder = if trainer.is_rank_zero() { Some(folder()?) } else { None };
        let RunIdentity { settings, data_hash } = identity;
        let mut run = Self {
            position: Position::default(),
            stop_reason: None,
            loss: trainer.task.loss_name().map(str::to_owned),
            identity: RecordedIdentity { settings, data_hash: String::new() },
            awaited: Some(data_hash),
            resumed: None,
            folder,
            failures: WriteFailures::new(Clock::default()),
            warnings: Vec::new(),
            is_saved: false,
        };
        // A run that resumes needs the hash before it continues. A new run needs it for its first checkpoint, which
        // waits until the hash is computed.
        let needs_hash = run.folder.as_ref().is_some_and(RunFolder::has_checkpoint);
        if trainer.any_rank(needs_hash)? || !trainer.any_rank(!run.has_hash())? {
            run.agree_on_data(trainer)?;
        } else {
            trainer.awaited = run.awaited.clone();
            return Ok(run);
        }
        // Rank 0 validates the checkpoint before it sends it, so the error is rank 0's and contains the path.
        let (mut bytes, damage) = match &run.folder {
            Some(folder) => whole_checkpoint(folder, &run.identity)?,
            None => (Vec::new(), None),
        };
        trainer.comm().broadcast(0, &mut bytes)?;
        if bytes.is_empty() {
            run.checkpoint(trainer)?;
        } else {
            run.resume(trainer, &bytes, damage)?;
        }
        Ok(run)
    }

    /// Returns true if this rank does not wait for the hash of the data.
    pub(crate) fn has_hash(&self) -> bool {
        self.awaited.as_ref().is_none_or(DataHash::is_ready)
    }

    /// Returns true if the first checkpoint waits for the hash of the data.
    pub(crate) fn awaits_hash(&self) -> bool {
        self.awaited.is_some()
    }

    /// Waits for the hash of the data on all ranks and compares it, if that was not done yet. Collective.
    fn agree_on_data<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        let Some(hash) = &self.awaited else { return Ok(()) };
        self.identity.data_hash = hash.agree(trainer.comm())?;
        (self.awaited, trainer.awaited) = (None, None);
        // Hashing may take longer than failed writes are tolerated.
        self.failures.restart();
        if let Some(folder) = &mut self.folder {
            folder.set_data_hash(&self.identity.data_hash);
        }
        Ok(())
    }

    fn resume<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        bytes: &[u8],
        damage: Option<String>,
    ) -> Result<()> {
        let checkpoint = Checkpoint::read(bytes).map_err(|_| {
            Error::Run(RunError::Weights { reason: "rank 0's checkpoint was damaged in transfer".to_owned() })
        })?;
        let n_ranks = checkpoint.n_ranks();
        let differences = checkpoint.provenance().differences(&Provenance::current());
        let Restored { position, best, metrics, stop_reason } = checkpoint.restore(trainer)?;
        self.stop_reason = stop_reason;
        self.resumed = Some(Resumed { epoch: position.epoch, step: position.step, n_ranks, damage });
        self.position = position;
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let rewritten = folder.restore(self.position.epoch, metrics, best)?;
        self.warnings.extend(differences.into_iter().chain(rewritten));
        self.is_saved = true;
        self.write_files()
    }

    /// Measures the age of the last checkpoint with this clock instead of the system's, counting from now. The clock
    /// returns the time since a fixed moment.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Duration + Send + 'static) -> Self {
        Self { failures: self.failures.with_clock(Clock(Box::new(clock))), ..self }
    }

    /// Returns the position from which the run was resumed; `None` if it was started by this process.
    pub fn resumed(&self) -> Option<&Resumed> {
        self.resumed.as_ref()
    }

    /// Returns the warnings for the user since the last call, such as files that could not be written, or a checkpoint
    /// of another version of kiln or another kind of CPU. There are none on ranks other than rank 0.
    /// [`fit`](crate::fit) passes the warnings to the callback.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the run folder; `None` on ranks other than rank 0.
    pub fn folder(&self) -> Option<&RunFolder> {
        self.folder.as_ref()
    }

    /// Returns the number of completed steps of the current epoch.
    pub fn n_steps(&self) -> usize {
        self.position.step
    }

    /// Returns the number of completed epochs.
    pub fn n_epochs(&self) -> usize {
        self.position.epoch
    }

    /// Returns the number of epochs since the best epoch.
    pub fn n_since_best(&self) -> usize {
        self.position.n_since_best
    }

    /// Returns the reason that a callback gave for stopping the run ([`ValidationEnd::stop`](crate::ValidationEnd::stop)). Such a run
    /// is complete.
    pub fn stop_reason(&self) -> Option<&str> {
        self.stop_reason.as_deref()
    }

    /// Sets the metric of the validation, in whose place a checkpoint has the name only.
    ///
    /// # Errors
    /// Returns [`RunError::OtherRun`] if earlier epochs were validated by another metric.
    pub(crate) fn set_metric(&mut self, metric: Metric) -> Result<()> {
        self.check_metric(metric)?;
        if let Some(best) = &mut self.position.best {
            best.metric = metric;
        }
        Ok(())
    }

    fn check_metric(&self, now: Metric) -> Result<()> {
        match self.position.best.as_ref().map(|best| best.metric) {
            Some(then) if then != now => {
                let name = "the metric".to_owned();
                let then = then.to_string();
                let now = now.to_string();
                Err(Error::Run(RunError::OtherRun { name, then, now }))
            }
            _ => Ok(()),
        }
    }

    /// Sets the position to the completed steps of the trainer's current epoch.
    pub(crate) fn advance<T: Task>(&mut self, trainer: &TaskTrainer<T>) {
        let epoch = &trainer.epoch;
        (self.position.step, self.position.counts) = (epoch.n_steps, epoch.counts);
        (self.position.timings, self.position.wall) = (epoch.timings, epoch.wall());
        self.position.negatives.train = trainer.train_negatives;
        self.is_saved = false;
    }

    /// Writes `config.json` on rank 0. Until the folder has a checkpoint, the write is deferred to the next checkpoint,
    /// because a folder without a checkpoint must count as empty.
    ///
    /// # Errors
    /// Returns [`RunError::Io`] or [`RunError::Drawing`] if a file cannot be written for a reason that is not
    /// transient, and [`Error::CheckpointOverdue`] as described at [`Run`].
    pub fn write_config(&mut self, config: &impl Serialize) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.set_config(config)?;
        self.write_or_defer()
    }

    /// Writes `run.toml`, from which the program repeats the run, on rank 0. The write is deferred like that of
    /// [`Run::write_config`].
    ///
    /// # Errors
    /// Returns the errors of [`Run::write_config`].
    pub fn write_description(&mut self, text: &str) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.set_description(text);
        self.write_or_defer()
    }

    /// Writes `model.json`, from which [`SavedModel`](crate::SavedModel) opens the best model, on rank 0. The write is
    /// deferred like that of [`Run::write_config`].
    ///
    /// # Errors
    /// Returns the errors of [`Run::write_config`].
    pub fn write_model(&mut self, model: &ModelInfo) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.set_model(model)?;
        folder.set_data_hash(&self.identity.data_hash);
        self.write_or_defer()
    }

    /// Writes the files that are older than their content, or defers them to the next checkpoint if there is none yet.
    fn write_or_defer(&mut self) -> Result<()> {
        if self.folder.as_ref().is_some_and(RunFolder::has_checkpoint) {
            return self.write_files();
        }
        self.is_saved = false;
        Ok(())
    }

    /// Replaces the last checkpoint by one of the current state, on rank 0. A transient failure is a warning; see
    /// [`Run`]. The first checkpoint waits for the hash of the data, which the ranks then compare. Collective: every
    /// rank must call it.
    ///
    /// # Errors
    /// Returns [`RunError::DataHash`] and [`crate::InputError::DataDiffers`] as [`Run::start`] does,
    /// [`RunError::Weights`] if the state cannot be serialized, [`RunError::Drawing`] or [`RunError::Io`] if a file
    /// cannot be written for a reason that is not transient, and [`Error::CheckpointOverdue`]. The last checkpoint then
    /// still exists.
    pub fn checkpoint<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.agree_on_data(trainer)?;
        let outcome = self.save(trainer);
        self.tolerate(outcome)
    }

    /// Writes everything that is not on disk yet, and the hash of the best parameters to `model.json`. It is called at
    /// the end of a run, when the last checkpoint must be complete. Collective, like [`Run::checkpoint`].
    ///
    /// # Errors
    /// Returns the errors of [`Run::checkpoint`] except [`Error::CheckpointOverdue`]: no failure is transient here.
    pub fn complete<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.agree_on_data(trainer)?;
        if !self.is_saved {
            self.save(trainer)?;
        }
        self.folder.as_mut().map_or(Ok(()), RunFolder::seal_model)
    }

    /// Writes the checkpoint, then the files that are older than it.
    fn save<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.is_saved = false;
        let Some(folder) = &mut self.folder else { return Ok(()) };
        trainer.comm().set_stage("checkpoint");
        let around = Surroundings {
            position: &self.position,
            identity: &self.identity,
            n_ranks: trainer.comm().rank_info().world_size,
            best: folder.best(),
            metrics: folder.metrics(),
            stop_reason: self.stop_reason.as_deref(),
        };
        folder.write_checkpoint(&checkpoint::to_bytes(trainer, &around)?)?;
        self.failures.checkpoint_written();
        folder.write_files()?;
        self.failures.all_written();
        self.is_saved = true;
        Ok(())
    }

    /// Writes the files that are older than the checkpoint. Files that fail are written with the next checkpoint.
    fn write_files(&mut self) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        let outcome = folder.write_files();
        self.is_saved &= outcome.is_ok();
        self.tolerate(outcome)
    }

    fn tolerate(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = outcome {
            self.warnings.extend(self.failures.tolerate(error)?);
        }
        Ok(())
    }

    /// Records a trained and validated epoch, and keeps the parameters if the metric of its validation is better than that of
    /// all earlier epochs, or without items of a validation. Returns true if they were kept. `val` must be the same on
    /// every rank; metric sums stand for the accuracy.
    ///
    /// # Errors
    /// Returns the errors of [`Run::checkpoint`], [`RunError::BadFile`] if the metrics cannot be stored, and
    /// [`RunError::OtherRun`] if earlier epochs were validated by another metric.
    pub fn record<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        train: &EpochReport,
        val: impl Into<Validation>,
    ) -> Result<bool> {
        self.record_with(trainer, train, val.into(), &BTreeMap::new())
    }

    /// Records an epoch like [`Run::record`], with the values that callbacks have logged.
    pub(crate) fn record_with<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        train: &EpochReport,
        val: Validation,
        logged: &BTreeMap<String, f64>,
    ) -> Result<bool> {
        let epoch = self.position.epoch + 1;
        trainer.comm().set_stage("recording the epoch");
        self.check_metric(val.metric)?;
        if let Some(folder) = &mut self.folder {
            folder.add_epoch(epoch, train, &val, logged)?;
        }
        let Position { best, n_since_best, .. } = &self.position;
        let is_best =
            val.is_empty() || best.as_ref().is_none_or(|best| val.is_better_than(&best.validation()));
        let mut next =
            Position { epoch, n_since_best: n_since_best + 1, best: best.clone(), ..Position::default() };
        next.negatives = trainer.negatives();
        if is_best {
            let bytes = task_weights::to_bytes(&trainer.model, &trainer.embeddings)?;
            next.best = Some(Best::new(epoch, val, hash(&bytes)));
            next.n_since_best = 0;
            if let Some(folder) = &mut self.folder {
                folder.set_best(bytes);
            }
        }
        self.position = next;
        self.checkpoint(trainer)?;
        Ok(is_best)
    }

    /// Returns the best epoch so far.
    ///
    /// # Errors
    /// Returns [`RunError::NoEpoch`] before the first epoch was recorded.
    pub fn best(&self) -> Result<&Best> {
        self.position.best.as_ref().ok_or(Error::Run(RunError::NoEpoch))
    }

    /// Loads the best epoch's parameters into the trainer. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`RunError::NoEpoch`] if no epoch was recorded, [`RunError::Weights`] if the parameters do not fit the
    /// model, and [`Error::Ranks`] if another rank fails.
    pub fn load_best<T: Task>(&self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.best()?;
        let mut bytes = self.folder.as_ref().map_or_else(Vec::new, |folder| folder.best().to_vec());
        trainer.comm().broadcast(0, &mut bytes)?;
        task_weights::load(&mut trainer.model, &mut trainer.embeddings, bytes)
    }

    /// Writes the predictions, the summary and, with the feature `report`, the report page on rank 0, and returns the
    /// summary; `None` on the other ranks. An evaluation without items stands for a run without a test.
    ///
    /// # Errors
    /// Returns [`RunError::NoEpoch`] if no epoch was recorded, and the errors of writing the files.
    pub fn finish(
        &self,
        said: &Evaluation,
        report: &FitReport,
        info: &ReportInfo<'_>,
    ) -> Result<Option<Summary>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let report = FitReport { peak_memory: report.peak_memory.max(MemoryUse::now()), ..*report };
        match said.kind() {
            _ if said.is_empty() => {}
            TargetKind::Classes => folder.write_predictions(&said.predictions(), info.item_columns)?,
            TargetKind::MultiLabel | TargetKind::Regression | TargetKind::Links => {
                folder.write_outputs(said, info.item_columns)?;
            }
        }
        let summary = Summary {
            loss: self.loss.clone(),
            stop_reason: self.stop_reason.clone(),
            mean_batch_time: said.mean_batch_time(Evaluation::WARM_UP),
            ..Summary::new(&said.metrics(), self.best()?, &report, info.elapsed).with_test(said)
        };
        Self::write_results(folder, &summary, said, info)?;
        Ok(Some(summary))
    }

    /// Writes the summary and, with the feature `report`, the report page of a run that was asked to stop, without a test, on
    /// rank 0, and returns the summary; `None` on the other ranks. The next checkpoint removes both files.
    ///
    /// # Errors
    /// Returns the errors of writing the files.
    pub fn finish_interrupted(&self, report: &FitReport, info: &ReportInfo<'_>) -> Result<Option<Summary>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let report = FitReport { peak_memory: report.peak_memory.max(MemoryUse::now()), ..*report };
        let summary = Summary {
            loss: self.loss.clone(),
            ..Summary::summarize_interrupted(self.position.best.as_ref(), &report, info.elapsed)
        };
        Self::write_results(folder, &summary, &Evaluation::default(), info)?;
        Ok(Some(summary))
    }

    fn write_results(
        folder: &RunFolder,
        summary: &Summary,
        test: &Evaluation,
        info: &ReportInfo<'_>,
    ) -> Result<()> {
        folder.write_summary(summary)?;
        #[cfg(feature = "report")]
        folder.write_report(info.title, summary, test, info.class_names)?;
        #[cfg(not(feature = "report"))]
        let _ = (test, info);
        Ok(())
    }
}
