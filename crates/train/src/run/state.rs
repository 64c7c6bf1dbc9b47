use std::path::PathBuf;
use std::time::Duration;

use kiln_feature::TargetKind;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::run::checkpoint::{self, Checkpoint, Fault, Position, Restored, Surroundings};
use crate::run::contract::Provenance;
use crate::run::folder::RunFolder;
use crate::run::identity::{RunIdentity, check_identity};
use crate::run::summary::{Best, FitReport, Summary};
use crate::run::write_failures::{Clock, WriteFailures};
use crate::saved::info::ModelInfo;
use crate::step::memory::MemoryUse;
use crate::step::reports::EpochReport;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;
use crate::step::weights::{hash, load_weights, weights_to_bytes};

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
    identity: RunIdentity,
    resumed: Option<Resumed>,
    /// The run folder, on rank 0.
    folder: Option<RunFolder>,
    failures: WriteFailures,
    /// The warnings that [`Run::take_warnings`] has not returned yet.
    warnings: Vec<String>,
    /// True if the files contain the current state.
    is_saved: bool,
}

/// The information for a run's report that the run itself does not have.
#[derive(Debug, Clone, Copy)]
pub struct ReportInfo<'a> {
    /// The title, such as the model and the dataset.
    pub title: &'a str,
    /// The classes' names, by class; a class without a name is shown by its number.
    pub class_names: &'a [String],
    /// The duration of the run.
    pub elapsed: Duration,
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
    /// A run can be resumed on another number of ranks, with the same items, samples and dropout masks. Its results
    /// then differ by rounding, because gradients are summed in another order. With batch normalisation they differ
    /// further, because its statistics are computed from each rank's own batches.
    ///
    /// # Errors
    /// Returns the error of `folder`, [`Error::OtherRun`] if the checkpoint belongs to another run,
    /// [`Error::OtherContract`] if it has another version of the determinism contract, [`Error::BadFile`] if all
    /// checkpoints are damaged or one has another format version, [`Error::Io`] or [`Error::Drawing`] if a file cannot
    /// be read or written, [`Error::Weights`] if the checkpoint does not fit the model, and [`Error::Ranks`] if another
    /// rank fails.
    pub fn start<T: Task>(
        trainer: &mut TaskTrainer<T>,
        folder: impl FnOnce() -> Result<RunFolder>,
        identity: RunIdentity,
    ) -> Result<Self> {
        let folder = if trainer.is_rank_zero() { Some(folder()?) } else { None };
        // Rank 0 validates the checkpoint before it sends it, so the error is rank 0's and contains the path.
        let (mut bytes, damage) = match &folder {
            Some(folder) => whole_checkpoint(folder, &identity)?,
            None => (Vec::new(), None),
        };
        trainer.comm().broadcast(0, &mut bytes)?;
        let failures = WriteFailures::new(Clock::default());
        let position = Position::default();
        let (resumed, warnings, is_saved) = (None, Vec::new(), false);
        let mut run = Self { position, identity, resumed, folder, failures, warnings, is_saved };
        if bytes.is_empty() {
            run.checkpoint(trainer)?;
        } else {
            run.resume(trainer, &bytes, damage)?;
        }
        Ok(run)
    }

    fn resume<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        bytes: &[u8],
        damage: Option<String>,
    ) -> Result<()> {
        let checkpoint = Checkpoint::read(bytes).map_err(|_| Error::Weights {
            reason: "rank 0's checkpoint was damaged in transfer".to_owned(),
        })?;
        let n_ranks = checkpoint.n_ranks();
        let differences = checkpoint.provenance().differences(&Provenance::current());
        let Restored { position, best, metrics } = checkpoint.restore(trainer)?;
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
    /// Returns [`Error::Io`] or [`Error::Drawing`] if a file cannot be written for a reason that is not transient, and
    /// [`Error::CheckpointOverdue`] as described at [`Run`].
    pub fn write_config(&mut self, config: &impl Serialize) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.set_config(config)?;
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
    /// [`Run`].
    ///
    /// # Errors
    /// Returns [`Error::Weights`] if the state cannot be serialized, [`Error::Drawing`] or [`Error::Io`] if a file
    /// cannot be written for a reason that is not transient, and [`Error::CheckpointOverdue`]. The last checkpoint then
    /// still exists.
    pub fn checkpoint<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        let outcome = self.save(trainer);
        self.tolerate(outcome)
    }

    /// Writes everything that is not on disk yet, and the hash of the best parameters to `model.json`. It is called at
    /// the end of a run, when the last checkpoint must be complete.
    ///
    /// # Errors
    /// Returns [`Error::Weights`] if the state cannot be serialized, and [`Error::Drawing`] or [`Error::Io`] if a file
    /// cannot be written, even if the failure is transient.
    pub fn complete<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
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

    /// Records a trained and validated epoch, and keeps the parameters if the metric of its validation is better than
    /// that of all earlier epochs. Returns true if they were kept. `val` must be the same on every rank; metric sums
    /// stand for the accuracy.
    ///
    /// # Errors
    /// Returns the errors of [`Run::checkpoint`], [`Error::BadFile`] if the metrics cannot be stored, and
    /// [`Error::OtherRun`] if earlier epochs were validated by another metric.
    pub fn record<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        train: &EpochReport,
        val: impl Into<Validation>,
    ) -> Result<bool> {
        let (epoch, val) = (self.position.epoch + 1, val.into());
        trainer.comm().set_stage("recording the epoch");
        let Position { best, n_since_best, .. } = &self.position;
        if let Some(then) = best.as_ref().map(|best| best.metric).filter(|then| *then != val.metric) {
            let (name, then, now) = ("the metric".to_owned(), then.to_string(), val.metric.to_string());
            return Err(Error::OtherRun { name, then, now });
        }
        if let Some(folder) = &mut self.folder {
            folder.add_epoch(epoch, train, &val)?;
        }
        let is_best = best.as_ref().is_none_or(|best| val.is_better_than(&best.validation()));
        let mut next =
            Position { epoch, n_since_best: n_since_best + 1, best: best.clone(), ..Position::default() };
        next.negatives = trainer.negatives();
        if is_best {
            let bytes = weights_to_bytes(trainer.model())?;
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
    /// Returns [`Error::NoEpoch`] before the first epoch was recorded.
    pub fn best(&self) -> Result<&Best> {
        self.position.best.as_ref().ok_or(Error::NoEpoch)
    }

    /// Loads the best epoch's parameters into the trainer. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::NoEpoch`] if no epoch was recorded, [`Error::Weights`] if the parameters do not fit the model,
    /// and [`Error::Ranks`] if another rank fails.
    pub fn load_best<T: Task>(&self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.best()?;
        let mut bytes = self.folder.as_ref().map_or_else(Vec::new, |folder| folder.best().to_vec());
        trainer.comm().broadcast(0, &mut bytes)?;
        load_weights(&mut trainer.model, bytes)
    }

    /// Writes the predictions, the summary and, with the feature `report`, the report page on rank 0, and returns the
    /// summary; `None` on the other ranks.
    ///
    /// # Errors
    /// Returns [`Error::NoEpoch`] if no epoch was recorded, and the errors of writing the files.
    pub fn finish(
        &self,
        said: &Evaluation,
        report: &FitReport,
        info: &ReportInfo<'_>,
    ) -> Result<Option<Summary>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let report = FitReport { peak_memory: report.peak_memory.max(MemoryUse::now()), ..*report };
        match said.kind() {
            TargetKind::Classes => folder.write_predictions(&said.predictions())?,
            TargetKind::MultiLabel | TargetKind::Regression | TargetKind::Links => {
                folder.write_outputs(said)?;
            }
        }
        let mut summary = Summary::new(&said.metrics(), self.best()?, &report, info.elapsed);
        if summary.metric != Metric::Accuracy {
            summary.test_metrics = said.all_metrics();
        }
        folder.write_summary(&summary)?;
        #[cfg(feature = "report")]
        folder.write_report(info.title, &summary, said, info.class_names)?;
        Ok(Some(summary))
    }
}

/// Returns the bytes of the newest undamaged checkpoint (empty if the folder has no checkpoint), and the error of the
/// first damaged checkpoint. Renames damaged checkpoints.
fn whole_checkpoint(folder: &RunFolder, identity: &RunIdentity) -> Result<(Vec<u8>, Option<String>)> {
    let mut damaged: Vec<(PathBuf, Error)> = Vec::new();
    for (path, bytes) in folder.checkpoints() {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(source) => {
                let error = Error::Io { path: path.clone(), source };
                // After a transient error the file may be intact, so it is neither skipped nor renamed.
                if error.is_transient() {
                    return Err(error);
                }
                damaged.push((path, error));
                continue;
            }
        };
        match Checkpoint::read(&bytes) {
            Ok(checkpoint) => {
                check_identity(checkpoint.identity(), identity)?;
                damaged.iter().try_for_each(|(path, _)| folder.set_aside(path))?;
                return Ok((bytes, damaged.first().map(|(_, error)| error.to_string())));
            }
            Err(Fault::Damaged(reason)) => damaged.push((path.clone(), Error::BadFile { path, reason })),
            Err(Fault::Version(version)) => {
                let reason = format!(
                    "it has format version {version}, which this program cannot read: resume with the program that \
                     wrote it"
                );
                return Err(Error::BadFile { path, reason });
            }
            Err(Fault::Contract(wrote)) => {
                let (version, program) = (wrote.contract, wrote.program());
                return Err(Error::OtherContract { path, version, program });
            }
        }
    }
    match damaged.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok((Vec::new(), None)),
    }
}
