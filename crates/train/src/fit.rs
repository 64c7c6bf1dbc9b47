use burn::module::Module;
use kiln_loader::{Fetch, Loader, Pass};

use crate::{
    Counts, EpochReport, Error, Forward, GradientSync, MemoryUse, PeakMemory, Result, RunFolder, StepReport,
    Task, Trainer,
};

/// The evaluation pass of the validation split.
const VALIDATION: Pass = Pass::Evaluate { split: 0 };

/// The evaluation pass of the test split.
const TEST: Pass = Pass::Evaluate { split: 1 };

/// Hears of a run's progress.
pub trait Observer {
    /// A training step was done.
    fn step(&mut self, report: &StepReport);

    /// An epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &Counts, is_best: bool);
}

/// Trains for `n_epochs`, validates after each, and records both in the run folder, which keeps the best
/// model. Gives the most memory seen.
///
/// Counts are this rank's own: with several ranks, every rank's `val` has the whole split, not a shard of
/// it, so that all of them keep the same epoch.
///
/// # Errors
/// What the loaders, the trainer and the run folder say, and [`Error::EmptySplit`] when there is nothing to
/// train or to validate on.
pub fn fit<T, S, F>(
    trainer: &mut Trainer<T, S>,
    train: &Loader<F>,
    val: &Loader<F>,
    n_epochs: usize,
    run: &mut RunFolder,
    observer: &mut impl Observer,
) -> Result<MemoryUse>
where
    T: Task,
    S: GradientSync<T::Model>,
    F: Fetch<Batch = T::Batch>,
{
    for (split, n_steps) in [("training", train.n_steps()), ("validation", val.n_steps())] {
        if n_steps == 0 {
            return Err(Error::EmptySplit { split });
        }
    }
    let mut memory = PeakMemory::default();
    for epoch in 0..n_epochs {
        let pass = Pass::Train { epoch: epoch as u64 };
        let report = trainer.epoch(train.epoch(pass), |step| observer.step(step))?;
        let counts = trainer.evaluate(val.epoch(VALIDATION), |_, _| ())?;
        let is_best = run.record(epoch + 1, &report, &counts, trainer.model())?;
        memory.merge(report.peak_memory);
        memory.look();
        observer.epoch(epoch + 1, &report, &counts, is_best);
    }
    Ok(memory.get())
}

/// Reads the test split with the model of the best recorded epoch. It takes the trainer, so that it is the
/// last thing a run does. `visit` sees each batch with its outputs.
///
/// # Errors
/// What the loader, the trainer and the run folder say, and [`Error::EmptySplit`] when there is nothing to
/// test on.
pub fn test_best<T, S, F>(
    mut trainer: Trainer<T, S>,
    test: &Loader<F>,
    run: &RunFolder,
    visit: impl FnMut(&T::Input, &Forward),
) -> Result<Counts>
where
    T: Task,
    T::Model: Module,
    S: GradientSync<T::Model>,
    F: Fetch<Batch = T::Batch>,
{
    if test.n_steps() == 0 {
        return Err(Error::EmptySplit { split: "test" });
    }
    let mut model = trainer.model().clone();
    run.load_best(&mut model)?;
    trainer.set_model(model);
    trainer.evaluate(test.epoch(TEST), visit)
}
