use std::path::Path;

use kiln_loader::{Fetch, Loader, Pass};

use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::run::state::Run;
use crate::run::summary::FitReport;
use crate::step::counts::Counts;
use crate::step::memory::PeakMemory;
use crate::step::reports::{EpochReport, StepReport};
use crate::step::task::Task;
use crate::step::trainer::Trainer;

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
    /// Writes a checkpoint after so many steps of an epoch, besides the one at its end; `None` for no other.
    pub checkpoint_every: Option<usize>,
}

/// Hears of a run's progress.
pub trait Observer {
    /// A training step was done.
    fn step(&mut self, report: &StepReport);

    /// An epoch, counted from 1, was trained, validated and recorded.
    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &Counts, is_best: bool);

    /// The run has a warning for its user ([`Run::take_warnings`]). Ignored where an observer has no use for it.
    fn warning(&mut self, _text: &str) {}

    /// A file that this process has mapped was replaced: its path names another file, or none. The run goes on with the
    /// old one. Called before each [`Observer::epoch`] from then on.
    fn file_replaced(&mut self, _path: &Path) {}
}

/// Hears nothing.
impl Observer for () {
    fn step(&mut self, _: &StepReport) {}

    fn epoch(&mut self, _: usize, _: &EpochReport, _: &Counts, _: bool) {}
}

/// Nobody, or somebody: on ranks that print nothing and the one that does.
impl<O: Observer> Observer for Option<O> {
    fn step(&mut self, report: &StepReport) {
        if let Some(observer) = self {
            observer.step(report);
        }
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &Counts, is_best: bool) {
        if let Some(observer) = self {
            observer.epoch(epoch, train, val, is_best);
        }
    }

    fn warning(&mut self, text: &str) {
        if let Some(observer) = self {
            observer.warning(text);
        }
    }

    fn file_replaced(&mut self, path: &Path) {
        if let Some(observer) = self {
            observer.file_replaced(path);
        }
    }
}

/// Two, in this order.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn step(&mut self, report: &StepReport) {
        self.0.step(report);
        self.1.step(report);
    }

    fn epoch(&mut self, epoch: usize, train: &EpochReport, val: &Counts, is_best: bool) {
        self.0.epoch(epoch, train, val, is_best);
        self.1.epoch(epoch, train, val, is_best);
    }

    fn warning(&mut self, text: &str) {
        self.0.warning(text);
        self.1.warning(text);
    }

    fn file_replaced(&mut self, path: &Path) {
        self.0.file_replaced(path);
        self.1.file_replaced(path);
    }
}

/// Trains from where the run is, validates after each epoch, and records both in the run, which keeps the
/// best model. A meeting: every rank calls it, with its own share of the batches. A checkpoint that cannot be written for
/// a while is a warning, but must be complete when this returns: see [`Run`].
///
/// `validate` says what the trainer's model does on the validation split, by sampled neighbourhoods
/// (`|trainer| trainer.evaluate(val.epoch(VALIDATION), |_, _| ())`) or in a way of its own. Its counts must be
/// those of all ranks ([`Trainer::evaluate`] and [`Trainer::on_first`] see to it), so that all ranks keep the
/// same epoch and stop after the same one.
///
/// # Errors
/// What the loader, the trainer, `validate` and the run say; those of [`Trainer::check_files`], and the epoch is then not
/// recorded; [`Error::EmptySplit`] when there is
/// nothing to train on or `validate` counted no items; [`Error::BadSetting`] for a patience or a number of
/// steps of 0, and for fewer epochs than the run has done.
pub fn fit<T, F>(
    trainer: &mut Trainer<T>,
    train: &Loader<F>,
    config: FitConfig,
    mut validate: impl FnMut(&mut Trainer<T>) -> Result<Counts>,
    run: &mut Run,
    observer: &mut impl Observer,
) -> Result<FitReport>
where
    T: Task,
    F: Fetch<Batch = T::Batch>,
{
    check(&config)?;
    if config.n_epochs < run.n_epochs() {
        let (what, got) = ("the number of epochs", config.n_epochs as f64);
        return Err(Error::BadSetting { what, expected: "at least as many as the run has done", got });
    }
    if train.n_steps(Pass::Train { epoch: 0 }) == 0 {
        return Err(Error::EmptySplit { split: "training" });
    }
    report_warnings(run, observer);
    let mut memory = PeakMemory::default();
    let is_patient = |run: &Run| config.patience.is_none_or(|patience| run.n_since_best() < patience);
    while run.n_epochs() < config.n_epochs && is_patient(run) {
        let Some(trained) = train_epoch(trainer, train, config.checkpoint_every, run, observer)? else {
            let (n_epochs, peak_memory) = (run.n_epochs(), memory.get());
            return Ok(FitReport { n_epochs, interrupted: true, peak_memory, ..FitReport::default() });
        };
        let val = non_empty("validation", validate(trainer)?)?;
        for path in trainer.check_files()? {
            observer.file_replaced(&path);
        }
        let is_best = run.record(trainer, &trained, &val)?;
        report_warnings(run, observer);
        memory.merge(trained.peak_memory);
        memory.look();
        observer.epoch(run.n_epochs(), &trained, &val, is_best);
    }
    run.complete(trainer)?;
    let n_epochs = run.n_epochs();
    let stopped_early = n_epochs < config.n_epochs;
    Ok(FitReport { n_epochs, stopped_early, interrupted: false, peak_memory: memory.get() })
}

fn report_warnings(run: &mut Run, observer: &mut impl Observer) {
    for warning in run.take_warnings() {
        observer.warning(&warning);
    }
}

fn check(config: &FitConfig) -> Result<()> {
    for (what, number, expected) in [
        ("the patience", config.patience, "at least 1 epoch"),
        ("the steps from checkpoint to checkpoint", config.checkpoint_every, "at least 1 step"),
    ] {
        if number == Some(0) {
            return Err(Error::BadSetting { what, expected, got: 0.0 });
        }
    }
    Ok(())
}

/// Trains what is left of the run's next epoch; `None` where it was asked to stop before its end.
fn train_epoch<T, F>(
    trainer: &mut Trainer<T>,
    train: &Loader<F>,
    checkpoint_every: Option<usize>,
    run: &mut Run,
    observer: &mut impl Observer,
) -> Result<Option<EpochReport>>
where
    T: Task,
    F: Fetch<Batch = T::Batch>,
{
    let mut so_far = run.next_epoch();
    let pass = Pass::Train { epoch: so_far.epoch as u64 };
    let mut batches = train.epoch_from(pass, so_far.n_steps);
    while trainer.step(&mut batches, &mut so_far, |report| observer.step(report))? {
        let is_due = checkpoint_every.is_some_and(|every| so_far.n_steps.is_multiple_of(every));
        if is_due || trainer.is_stopping() {
            trainer.read_back(&mut so_far, |report| observer.step(report))?;
            run.advance(&so_far);
            trainer.check_files()?;
            match trainer.is_stopping() {
                true => run.complete(trainer)?,
                false => run.checkpoint(trainer)?,
            }
            report_warnings(run, observer);
        }
        if trainer.is_stopping() {
            return Ok(None);
        }
    }
    trainer.compare(so_far.epoch)?;
    Ok(Some(so_far.report()))
}

/// Puts the model of the run's best epoch into the trainer and has `test` judge it; brings what the ranks say
/// of their items to the first one, and nothing to the others. It takes the trainer, so that it is the last
/// thing a run does. A meeting.
///
/// # Errors
/// What `test` and the run say, those of [`Trainer::check_files`], and [`Error::EmptySplit`] when `test` judged no items.
pub fn test_best<T: Task>(
    mut trainer: Trainer<T>,
    run: &Run,
    test: impl FnOnce(&mut Trainer<T>) -> Result<Evaluation>,
) -> Result<Evaluation> {
    run.load_best(&mut trainer)?;
    let said = test(&mut trainer)?;
    trainer.check_files()?;
    let said = said.gather(trainer.comm())?;
    if trainer.is_first() {
        non_empty("test", said.counts()?)?;
    }
    Ok(said)
}

/// Counts of nothing compare with nothing: their accuracy is not a number.
fn non_empty(split: &'static str, counts: Counts) -> Result<Counts> {
    if counts.total == 0 { Err(Error::EmptySplit { split }) } else { Ok(counts) }
}
