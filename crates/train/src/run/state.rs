use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::run::checkpoint::{self, Checkpoint, Fault, Position, Restored, Surroundings};
use crate::run::contract::Provenance;
use crate::run::folder::RunFolder;
use crate::run::identity::{RunIdentity, check_identity};
use crate::run::summary::{Best, FitReport, Summary};
use crate::run::write_failures::{Clock, WriteFailures};
use crate::step::memory::MemoryUse;
use crate::step::metric_sums::MetricSums;
use crate::step::reports::{EpochReport, EpochState};
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;
use crate::step::weights::{hash, load_weights, weights_to_bytes};

/// A training run: where it is, the same on every rank, and what makes it possible to go on from there.
/// The first rank keeps its files.
///
/// A run survives a disk that is full for a while: a write that fails for a transient reason ([`Error::is_transient`]) is
/// a warning ([`Run::take_warnings`]), once until a write succeeds again, and the next checkpoint that is due writes
/// everything that is missing. It fails with [`Error::CheckpointOverdue`] when the last complete checkpoint, or before the
/// first one the start, is older than an hour; and [`Run::complete`], which ends a run, tolerates no failure. The first
/// rank alone writes and decides; its error ends the other ranks as any error of a rank does.
#[derive(Debug)]
pub struct Run {
    position: Position,
    identity: RunIdentity,
    resumed: Option<Resumed>,
    /// On the first rank.
    folder: Option<RunFolder>,
    failures: WriteFailures,
    /// What nobody has reported yet.
    warnings: Vec<String>,
    /// Whether the files hold what the run knows.
    is_saved: bool,
}

/// Information for a run's report besides what the run knows.
#[derive(Debug, Clone, Copy)]
pub struct ReportInfo<'a> {
    /// What was trained on what.
    pub title: &'a str,
    /// The classes' names, by class; a class without one goes by its number.
    pub class_names: &'a [String],
    /// How long the run took.
    pub elapsed: Duration,
}

/// Where a run went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// Epochs that were done.
    pub epoch: usize,
    /// Steps of the next one that were done.
    pub step: usize,
    /// Ranks of the run that was stopped.
    pub n_ranks: usize,
    /// On the first rank, why it was not the last checkpoint but the one before.
    pub damage: Option<String>,
}

impl Run {
    /// Starts a run in the folder, which is made or opened on the first rank alone, or goes on from the
    /// checkpoint that stands in it: then the trainer gets the model and the optimizer of that moment, and
    /// all that follows has the same bits as if nothing had stopped. A meeting.
    ///
    /// On another number of ranks the items, the samples and the masks are the same; sums over the ranks
    /// round otherwise, and a batch normalisation, whose statistics are of each rank's own batches, sees others.
    ///
    /// # Errors
    /// What `folder` says, [`Error::OtherRun`] where the checkpoint is of another run, [`Error::OtherContract`] where it
    /// is of another version of the determinism contract, [`Error::BadFile`] where none is whole or of this version,
    /// [`Error::Io`], [`Error::Drawing`], [`Error::Weights`], [`Error::Ranks`].
    pub fn start<T: Task>(
        trainer: &mut TaskTrainer<T>,
        folder: impl FnOnce() -> Result<RunFolder>,
        identity: RunIdentity,
    ) -> Result<Self> {
        let folder = if trainer.is_rank_zero() { Some(folder()?) } else { None };
        // The first rank looks before the others get it, so that it is the one that fails: it has the paths.
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
            reason: "the first rank's checkpoint did not arrive whole".to_owned(),
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

    /// The same, whose age of the last checkpoint is measured by this clock, which returns the time since a fixed moment;
    /// without one, by the system's. The age counts from now.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Duration + Send + 'static) -> Self {
        Self { failures: self.failures.with_clock(Clock(Box::new(clock))), ..self }
    }

    /// Where the run went on; `None` for one that started here.
    pub fn resumed(&self) -> Option<&Resumed> {
        self.resumed.as_ref()
    }

    /// What the user should know and was not told: files that could not be written, a checkpoint of another version of
    /// kiln or of another kind of CPU. Nothing on other ranks than the first. [`fit`](crate::fit) reports it to the
    /// observer.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The folder, on the first rank.
    pub fn folder(&self) -> Option<&RunFolder> {
        self.folder.as_ref()
    }

    /// Steps that are done of the next epoch.
    pub fn n_steps(&self) -> usize {
        self.position.step
    }

    /// Epochs that are done.
    pub fn n_epochs(&self) -> usize {
        self.position.epoch
    }

    /// Epochs since the best one.
    pub fn n_since_best(&self) -> usize {
        self.position.n_since_best
    }

    /// Takes the steps that were done of an epoch under way.
    pub(crate) fn advance(&mut self, epoch: &EpochState) {
        self.position.step = epoch.n_steps;
        self.position.counts = epoch.counts;
        self.position.timings = epoch.timings;
        self.position.wall = epoch.wall();
        self.is_saved = false;
    }

    /// Writes `config.json`, on the first rank: after the first checkpoint, because a folder without one must count as
    /// empty.
    ///
    /// # Errors
    /// [`Error::Io`], if it is not transient.
    pub fn write_config(&mut self, config: &impl Serialize) -> Result<()> {
        let Some(folder) = &mut self.folder else { return Ok(()) };
        folder.set_config(config)?;
        if folder.has_checkpoint() {
            return self.write_files();
        }
        self.is_saved = false;
        Ok(())
    }

    /// Writes the place where the run is to the disk, in the place of the last one: the first rank does. A transient
    /// failure is a warning; see [`Run`].
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::Drawing`], [`Error::Io`] or [`Error::CheckpointOverdue`]; the last checkpoint is then
    /// still there.
    pub fn checkpoint<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        let outcome = self.save(trainer);
        self.tolerate(outcome)
    }

    /// Writes what is not on the disk yet: at the end of a run, whose last checkpoint must be complete.
    ///
    /// # Errors
    /// [`Error::Weights`], [`Error::Drawing`] or [`Error::Io`], also if it is transient.
    pub fn complete<T: Task>(&mut self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        if self.is_saved { Ok(()) } else { self.save(trainer) }
    }

    /// Writes the checkpoint, and then the files that are behind it.
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

    /// Writes the files that are behind the checkpoint; what fails is written with the next one.
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

    /// Records the epoch that was trained and validated, and keeps the parameters if none had a better
    /// validation accuracy. Says whether they were kept. The counts must be the same on every rank.
    ///
    /// # Errors
    /// As [`Run::checkpoint`].
    pub fn record<T: Task>(
        &mut self,
        trainer: &mut TaskTrainer<T>,
        train: &EpochReport,
        val: &MetricSums,
    ) -> Result<bool> {
        let epoch = self.position.epoch + 1;
        trainer.comm().set_stage("recording the epoch");
        if let Some(folder) = &mut self.folder {
            folder.add_epoch(epoch, train, val)?;
        }
        let Position { best, n_since_best, .. } = &self.position;
        let is_best = best.as_ref().is_none_or(|best| val.accuracy() > best.val.accuracy());
        let mut next =
            Position { epoch, n_since_best: n_since_best + 1, best: best.clone(), ..Position::default() };
        if is_best {
            let bytes = weights_to_bytes(trainer.model())?;
            next.best = Some(Best { epoch, val: *val, weights_hash: hash(&bytes) });
            next.n_since_best = 0;
            if let Some(folder) = &mut self.folder {
                folder.set_best(bytes);
            }
        }
        self.position = next;
        self.checkpoint(trainer)?;
        Ok(is_best)
    }

    /// The best epoch so far.
    ///
    /// # Errors
    /// [`Error::NoEpoch`] before the first one was recorded.
    pub fn best(&self) -> Result<&Best> {
        self.position.best.as_ref().ok_or(Error::NoEpoch)
    }

    /// Puts the best epoch's parameters into the trainer. A meeting.
    ///
    /// # Errors
    /// [`Error::NoEpoch`], [`Error::Weights`] or [`Error::Ranks`].
    pub fn load_best<T: Task>(&self, trainer: &mut TaskTrainer<T>) -> Result<()> {
        self.best()?;
        let mut bytes = self.folder.as_ref().map_or_else(Vec::new, |folder| folder.best().to_vec());
        trainer.comm().broadcast(0, &mut bytes)?;
        load_weights(&mut trainer.model, bytes)
    }

    /// Writes the predictions, the summary and, with the feature `report`, the page of a run that took `elapsed`, on the
    /// first rank, and gives the summary; `None` on the others.
    ///
    /// # Errors
    /// [`Error::NoEpoch`], and what writing the files says.
    pub fn finish(
        &self,
        said: &Evaluation,
        report: &FitReport,
        info: &ReportInfo<'_>,
    ) -> Result<Option<Summary>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let report = FitReport { peak_memory: report.peak_memory.max(MemoryUse::now()), ..*report };
        folder.write_predictions(&said.predictions())?;
        let summary = Summary::new(&said.metrics(), self.best()?, &report, info.elapsed);
        folder.write_summary(&summary)?;
        #[cfg(feature = "report")]
        folder.write_report(info.title, &summary, said.confusion_matrix(), info.class_names)?;
        Ok(Some(summary))
    }
}

/// The last checkpoint that is whole, if there is any, of this run; and what is wrong with the one after it,
/// which is then out of the way.
fn whole_checkpoint(folder: &RunFolder, identity: &RunIdentity) -> Result<(Vec<u8>, Option<String>)> {
    let mut damaged: Vec<(PathBuf, Error)> = Vec::new();
    for (path, bytes) in folder.checkpoints() {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(source) => {
                let error = Error::Io { path: path.clone(), source };
                // The file may be whole: it is neither passed over nor put out of the way.
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
                let reason = format!("it is of version {version}: go on with the program that wrote it");
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
