use burn::module::Module;
use kiln_loader::{Fetch, Loader, Pass};

use crate::{
    Counts, EpochReport, Error, GradientSync, MemoryUse, PeakMemory, Result, RunFolder, StepReport, Task,
    Trainer,
};

/// The pass of a loader over the validation split: the same samples after every epoch.
pub const VALIDATION: Pass = Pass::Evaluate { split: 0 };

/// The pass of a loader over the test split.
pub const TEST: Pass = Pass::Evaluate { split: 1 };

/// How long a run trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FitConfig {
    /// Passes over the training items, at most.
    pub n_epochs: usize,
    /// Stops when so many epochs in a row were not better than the best one on the validation split;
    /// `None` for never.
    pub patience: Option<usize>,
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FitReport {
    /// Epochs that were trained.
    pub n_epochs: usize,
    /// Whether the patience ran out before the epochs did.
    pub stopped_early: bool,
    /// The most memory seen.
    pub peak_memory: MemoryUse,
}

/// Hears of a run's progress.
pub trait Observer {
    /// A training step was done.
    fn step(&mut self, report: &StepReport);

    /// An epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &Counts, is_best: bool);
}

/// Trains, validates after each epoch, and records both in the run folder, which keeps the best model.
///
/// `validate` says what the trainer's model does on the validation split, by sampled neighbourhoods
/// (`|trainer| trainer.evaluate(val.epoch(VALIDATION), |_, _| ())`) or in a way of its own.
///
/// Counts are this rank's own: with several ranks, each must validate on the whole split, not on a shard
/// of it, so that all of them keep the same epoch and stop after the same one.
///
/// # Errors
/// What the loader, the trainer, `validate` and the run folder say; [`Error::EmptySplit`] when there is
/// nothing to train on or `validate` counted no items; [`Error::BadSetting`] for a patience of 0.
pub fn fit<T, S, F>(
    trainer: &mut Trainer<T, S>,
    train: &Loader<F>,
    config: FitConfig,
    mut validate: impl FnMut(&Trainer<T, S>) -> Result<Counts>,
    run: &mut RunFolder,
    observer: &mut impl Observer,
) -> Result<FitReport>
where
    T: Task,
    S: GradientSync<T::Model>,
    F: Fetch<Batch = T::Batch>,
{
    if config.patience == Some(0) {
        return Err(Error::BadSetting { what: "the patience", expected: "at least 1 epoch", got: 0.0 });
    }
    if train.n_steps(Pass::Train { epoch: 0 }) == 0 {
        return Err(Error::EmptySplit { split: "training" });
    }
    let mut memory = PeakMemory::default();
    let mut report = FitReport::default();
    let mut n_since_best = 0;
    for epoch in 0..config.n_epochs {
        let pass = Pass::Train { epoch: epoch as u64 };
        let trained = trainer.epoch(train.epoch(pass), |step| observer.step(step))?;
        let val = non_empty("validation", validate(trainer)?)?;
        let is_best = run.record(epoch + 1, &trained, &val, trainer.model())?;
        memory.merge(trained.peak_memory);
        memory.look();
        observer.epoch(epoch + 1, &trained, &val, is_best);
        report.n_epochs = epoch + 1;
        n_since_best = if is_best { 0 } else { n_since_best + 1 };
        if config.patience == Some(n_since_best) {
            report.stopped_early = epoch + 1 < config.n_epochs;
            break;
        }
    }
    report.peak_memory = memory.get();
    Ok(report)
}

/// Puts the model of the best recorded epoch into the trainer and has `test` judge it. It takes the
/// trainer, so that it is the last thing a run does.
///
/// # Errors
/// What `test` and the run folder say, and [`Error::EmptySplit`] when `test` counted no items.
pub fn test_best<T, S>(
    mut trainer: Trainer<T, S>,
    run: &RunFolder,
    test: impl FnOnce(&Trainer<T, S>) -> Result<Counts>,
) -> Result<Counts>
where
    T: Task,
    T::Model: Module,
    S: GradientSync<T::Model>,
{
    let mut model = trainer.model().clone();
    run.load_best(&mut model)?;
    trainer.set_model(model);
    non_empty("test", test(&trainer)?)
}

/// Counts of nothing compare with nothing: their accuracy is not a number.
fn non_empty(split: &'static str, counts: Counts) -> Result<Counts> {
    if counts.total == 0 { Err(Error::EmptySplit { split }) } else { Ok(counts) }
}
