use kiln_loader::{Batcher, Loader, Phase};

use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::run::callback::TrainCallback;
use crate::run::state::Run;
use crate::run::summary::FitReport;
use crate::step::batch::DeviceBatch;
use crate::step::metric_sums::MetricSums;
use crate::step::reports::EpochReport;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// The pass of a loader over the validation split: the same samples after every epoch.
pub const VALIDATION: Phase = Phase::Validation;

/// The pass of a loader over the test split.
pub const TEST: Phase = Phase::Test;

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

/// Trains from where the run is, validates after each epoch, and records both in the run, which keeps the
/// best model. A meeting: every rank calls it, with its own share of the batches. A checkpoint that cannot be written for
/// a while is a warning, but must be complete when this returns: see [`Run`].
///
/// `validate` says what the trainer's model does on the validation split, by sampled neighbourhoods
/// (`|trainer| trainer.evaluate(val.epoch(VALIDATION), |_, _| ())`) or in a way of its own. Its counts must be
/// those of all ranks ([`TaskTrainer::evaluate`] and [`TaskTrainer::on_rank_zero`] see to it), so that all ranks keep the
/// same epoch and stop after the same one.
///
/// # Errors
/// What the loader, the trainer, `validate` and the run say; those of [`TaskTrainer::check_files`], and the epoch is then not
/// recorded; [`Error::EmptySplit`] when there is
/// nothing to train on or `validate` counted no items; [`Error::NoStep`] when the items to train on are fewer than a step
/// takes; [`Error::BadSetting`] for 0 epochs, a patience of 0 or a number of steps of 0; [`Error::TooFewEpochs`] for fewer
/// epochs than the run has done; [`Error::OtherLoader`] for a loader that is not of this trainer's seed and share, and
/// [`Error::OtherTrainer`] for a trainer that is not where the run is.
pub fn fit<T, F>(
    trainer: &mut TaskTrainer<T>,
    train: &Loader<F>,
    config: FitConfig,
    mut validate: impl FnMut(&mut TaskTrainer<T>) -> Result<MetricSums>,
    run: &mut Run,
    callback: &mut impl TrainCallback,
) -> Result<FitReport>
where
    T: Task,
    F: Batcher<Batch = DeviceBatch<T::Input>>,
{
    check(&config, run.n_epochs())?;
    check_start(trainer, train, run)?;
    report_warnings(run, callback);
    let is_patient = |run: &Run| config.patience.is_none_or(|patience| run.n_since_best() < patience);
    while run.n_epochs() < config.n_epochs && is_patient(run) {
        let Some(trained) = train_epoch(trainer, train, config.checkpoint_every, run, callback)? else {
            let (n_epochs, peak_memory) = (run.n_epochs(), trainer.peak_memory());
            return Ok(FitReport { n_epochs, interrupted: true, peak_memory, ..FitReport::default() });
        };
        callback.epoch_trained(&trained);
        let val = non_empty("validation", validate(trainer)?)?;
        for path in trainer.check_files()? {
            callback.file_replaced(&path);
        }
        let is_best = run.record(trainer, &trained, &val)?;
        report_warnings(run, callback);
        trainer.peak.look();
        callback.epoch(run.n_epochs(), &trained, &val, is_best);
    }
    run.complete(trainer)?;
    let n_epochs = run.n_epochs();
    let stopped_early = n_epochs < config.n_epochs;
    Ok(FitReport { n_epochs, stopped_early, interrupted: false, peak_memory: trainer.peak_memory() })
}

fn report_warnings(run: &mut Run, callback: &mut impl TrainCallback) {
    for warning in run.take_warnings() {
        callback.warning(&warning);
    }
}

/// Checks the numbers of a run that has done so many epochs.
pub(crate) fn check(config: &FitConfig, n_done: usize) -> Result<()> {
    for (what, number, expected) in [
        ("the number of epochs", Some(config.n_epochs), "at least 1"),
        ("the patience", config.patience, "at least 1 epoch"),
        ("the steps from checkpoint to checkpoint", config.checkpoint_every, "at least 1 step"),
    ] {
        if number == Some(0) {
            return Err(Error::BadSetting { what, expected, got: 0.0 });
        }
    }
    match n_done <= config.n_epochs {
        true => Ok(()),
        false => Err(Error::TooFewEpochs { n_epochs: config.n_epochs, n_done }),
    }
}

/// Checks that the loader is for this trainer and has steps, and that the trainer is where the run is.
fn check_start<T: Task, F: Batcher>(trainer: &TaskTrainer<T>, train: &Loader<F>, run: &Run) -> Result<()> {
    check_items(trainer, train)?;
    let (expected, got) = (run.n_epochs(), trainer.n_epochs());
    match (run.n_steps(), trainer.epoch.n_steps) {
        (run_steps, steps) if expected == got && run_steps == steps => Ok(()),
        _ => Err(Error::OtherTrainer { expected, got }),
    }
}

/// Checks that the loader is for this trainer and has steps to train on.
pub(crate) fn check_items<T: Task, F: Batcher>(trainer: &TaskTrainer<T>, train: &Loader<F>) -> Result<()> {
    trainer.check_items(train.items())?;
    let items = train.items();
    if items.items().is_empty() {
        return Err(Error::EmptySplit { split: "training" });
    }
    if train.n_steps(trainer.next_phase()) == 0 {
        let per_step = items.config().batch_size.saturating_mul(items.config().shard.world_size);
        return Err(Error::NoStep { n_items: items.items().len(), per_step });
    }
    Ok(())
}

/// Trains what is left of the trainer's next epoch; `None` where it was asked to stop before its end.
fn train_epoch<T, F>(
    trainer: &mut TaskTrainer<T>,
    train: &Loader<F>,
    checkpoint_every: Option<usize>,
    run: &mut Run,
    callback: &mut impl TrainCallback,
) -> Result<Option<EpochReport>>
where
    T: Task,
    F: Batcher<Batch = DeviceBatch<T::Input>>,
{
    let mut batches = train.epoch_from(trainer.next_phase(), trainer.epoch.n_steps);
    while trainer.step(&mut batches, |report| callback.step(report))? {
        let is_due = checkpoint_every.is_some_and(|every| trainer.epoch.n_steps.is_multiple_of(every));
        if is_due || trainer.is_stopping() {
            trainer.read_back(|report| callback.step(report))?;
            run.advance(&trainer.epoch);
            trainer.check_files()?;
            match trainer.is_stopping() {
                true => run.complete(trainer)?,
                false => run.checkpoint(trainer)?,
            }
            report_warnings(run, callback);
        }
        if trainer.is_stopping() {
            return Ok(None);
        }
    }
    Ok(Some(trainer.end_epoch()?))
}

/// Puts the model of the run's best epoch into the trainer and has `test` judge it; brings what the ranks say
/// of their items to the first one, and nothing to the others. It takes the trainer, so that it is the last
/// thing a run does. A meeting.
///
/// # Errors
/// What `test` and the run say, those of [`TaskTrainer::check_files`], and [`Error::EmptySplit`] when `test` judged no items.
pub fn evaluate_best<T: Task>(
    mut trainer: TaskTrainer<T>,
    run: &Run,
    test: impl FnOnce(&mut TaskTrainer<T>) -> Result<Evaluation>,
) -> Result<Evaluation> {
    run.load_best(&mut trainer)?;
    evaluate(&mut trainer, test)
}

/// Has `test` judge the trainer's model, and brings what the ranks say of their items to the first one. A meeting.
pub(crate) fn evaluate<T: Task>(
    trainer: &mut TaskTrainer<T>,
    test: impl FnOnce(&mut TaskTrainer<T>) -> Result<Evaluation>,
) -> Result<Evaluation> {
    let said = test(trainer)?;
    trainer.check_files()?;
    let said = said.gather(trainer.comm())?;
    if trainer.is_rank_zero() {
        non_empty("test", said.counts()?)?;
    }
    Ok(said)
}

/// Counts of nothing compare with nothing: their accuracy is not a number.
fn non_empty(split: &'static str, counts: MetricSums) -> Result<MetricSums> {
    if counts.total == 0 { Err(Error::EmptySplit { split }) } else { Ok(counts) }
}
