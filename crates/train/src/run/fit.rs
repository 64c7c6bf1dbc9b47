use std::time::Instant;

use kiln_loader::{Batcher, Loader, Phase};
use kiln_store::counted;

use crate::error::{Error, InputError, Result, RunError, TrainerError};
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::validation::Validation;
use crate::metric::selection_error::SelectionError;
use crate::run::callback::TrainCallback;
use crate::run::state::Run;
use crate::run::summary::FitReport;
use crate::run::validation_end::{Validated, ValidationEnd};
use crate::step::batch::DeviceBatch;
use crate::step::reports::EpochReport;
use crate::step::task::Task;
use crate::step::task::metric_sums::MetricSums;
use crate::step::trainer::TaskTrainer;

/// The phase of validation loaders. It is the same after every epoch, so every validation uses the same samples.
pub const VALIDATION: Phase = Phase::Validation;

/// The phase of test loaders.
pub const TEST: Phase = Phase::Test;

/// The length of a run, and the interval of its checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FitConfig {
    /// The maximum number of training epochs.
    pub n_epochs: usize,
    /// The number of consecutive epochs without a better value of the validation's metric after which training stops; `None`
    /// disables early stopping.
    pub patience: Option<usize>,
    /// The number of steps between checkpoints within an epoch; `None` writes checkpoints only at the end of each
    /// epoch.
    pub checkpoint_every: Option<usize>,
}

/// Trains from the run's current position, validates after each epoch, and records both in the run, which keeps the
/// best model. Collective: every rank calls it with its share of the batches. A transient failure to write a checkpoint
/// causes a warning (see [`Run`]), but the last checkpoint must be written before this function returns.
///
/// `validate` evaluates the trainer's model on the validation split, by sampled neighbourhoods
/// (`|trainer| trainer.evaluate(val.epoch(VALIDATION), |_, _| ())`) or another method. It must return the metric sums
/// of all ranks, as [`TaskTrainer::evaluate`] and [`TaskTrainer::sum`] do, or a [`Validation`] by another metric than
/// the accuracy, so that all ranks keep the same epoch and stop after the same one. It may return the outputs, too
/// ([`Validated`]), for callbacks. If it counts no items ([`Validation::without_items`]), the last epoch is kept.
///
/// A callback may stop the run after an epoch ([`ValidationEnd::stop`]): it is then complete, as at the end of the patience.
///
/// # Errors
/// Returns the errors of the loader, the trainer, `validate` and the run, and those of [`TaskTrainer::check_files`],
/// after which the epoch is not recorded. Invalid calls return [`InputError::EmptySplit`] if the training split is empty,
/// [`SelectionError`] if `validate` counted no items and there is a patience, or if the metric is undefined for the first
/// epoch, [`InputError::NoStep`] if the training items do not fill a step, [`TrainerError::BadSetting`] for 0
/// epochs, a patience of 0 or 0 steps between checkpoints, [`Error::TooFewEpochs`] for fewer epochs than the run has
/// completed, [`TrainerError::OtherLoader`] for a loader of another seed or share than the trainer's, and
/// [`RunError::OtherTrainer`] for a trainer at another epoch or step than the run.
pub fn fit<T, F, V>(
    trainer: &mut TaskTrainer<T>,
    train: &Loader<F>,
    config: FitConfig,
    mut validate: impl FnMut(&mut TaskTrainer<T>) -> Result<V>,
    run: &mut Run,
    callback: &mut impl TrainCallback,
) -> Result<FitReport>
where
    T: Task,
    F: Batcher<Batch = DeviceBatch<T::Input>>,
    V: Into<Validated>,
{
    check(&config, run.n_epochs())?;
    check_start(trainer, train, run)?;
    report_warnings(run, callback);
    let mut n_warned = 0;
    let is_patient = |run: &Run| config.patience.is_none_or(|patience| run.n_since_best() < patience);
    while run.n_epochs() < config.n_epochs && is_patient(run) && run.stop_reason().is_none() {
        let Some(trained) = train_epoch(trainer, train, config.checkpoint_every, run, callback)? else {
            let n_epochs = run.n_epochs();
            let peak_memory = trainer.peak_memory();
            let negatives = run.position.negatives;
            return Ok(FitReport {
                n_epochs,
                stopped_early: false,
                interrupted: true,
                peak_memory,
                negatives,
            });
        };
        callback.epoch_trained(&trained);
        let started = Instant::now();
        let mut validated: Validated = validate(trainer)?.into();
        let val = &mut validated.validation;
        val.wall = (!val.is_empty()).then(|| started.elapsed());
        let val = validated.validation;
        check_validation(&val, config.patience, run)?;
        if n_warned < val.sums.n_not_finite {
            n_warned = val.sums.n_not_finite;
            warn_of_items(trainer, n_warned, callback);
        }
        for path in trainer.check_files()? {
            callback.file_replaced(&path);
        }
        warn_of_wait(trainer, !run.awaits_hash() || trainer.has_awaited, callback);
        callback.validated(&val);
        let mut end = ValidationEnd::new(run.n_epochs() + 1, &trained, &validated);
        callback.validation_end(&mut end);
        let (logged, reason) = end.into_parts();
        run.stop_reason = trainer.first_text(reason)?;
        if !logged.is_empty() {
            callback.logged(&logged.clone().into_iter().collect::<Vec<_>>());
        }
        callback.saving();
        let is_best = run.record_with(trainer, &trained, val, &logged)?;
        report_warnings(run, callback);
        trainer.peak.look();
        callback.epoch(run.n_epochs(), &trained, &val.sums, is_best);
    }
    run.complete(trainer)?;
    let n_epochs = run.n_epochs();
    let stopped_early = n_epochs < config.n_epochs;
    let peak_memory = trainer.peak_memory();
    let negatives = run.position.negatives;
    Ok(FitReport { n_epochs, stopped_early, interrupted: false, peak_memory, negatives })
}

/// Warns on rank 0 if the first checkpoint waits for the hash of the data, which takes minutes for data of hundreds of
/// gigabytes. `is_hashed` is true if it does not.
fn warn_of_wait<T: Task>(trainer: &TaskTrainer<T>, is_hashed: bool, callback: &mut impl TrainCallback) {
    if !is_hashed && trainer.is_rank_zero() {
        callback.warning(
            "the first checkpoint waits for the hash of the data: to end the run without a checkpoint, interrupt it \
             again (Ctrl-C)",
        );
    }
}

/// Warns on rank 0 of items of the validation split whose outputs are not finite.
fn warn_of_items<T: Task>(trainer: &TaskTrainer<T>, n_items: u64, callback: &mut impl TrainCallback) {
    if trainer.is_rank_zero() {
        let of_items = counted(n_items, "item");
        callback.warning(&format!(
            "the outputs of {of_items} of the validation split are not finite: they count in no metric (check the features \
             for values that are not finite)"
        ));
    }
}

fn report_warnings(run: &mut Run, callback: &mut impl TrainCallback) {
    for warning in run.take_warnings() {
        callback.warning(&warning);
    }
}

/// Checks the settings for a run that has completed `n_done` epochs.
pub(crate) fn check(config: &FitConfig, n_done: usize) -> Result<()> {
    for (what, number, expected) in [
        ("the number of epochs", Some(config.n_epochs), "at least 1"),
        ("the patience", config.patience, "at least 1 epoch"),
        ("the number of steps between checkpoints", config.checkpoint_every, "at least 1 step"),
    ] {
        if number == Some(0) {
            return Err(Error::Trainer(TrainerError::BadSetting { what, expected, got: 0.0 }));
        }
    }
    match n_done <= config.n_epochs {
        true => Ok(()),
        false => Err(Error::TooFewEpochs { n_epochs: config.n_epochs, n_done }),
    }
}

/// Checks that the validation of an epoch can select the best one.
fn check_validation(val: &Validation, patience: Option<usize>, run: &Run) -> Result<()> {
    let had_value = run.best().is_ok_and(|best| best.value.is_some());
    match (val.is_empty(), val.value) {
        (true, _) if patience.is_some() => Err(SelectionError::PatienceWithoutValidation.into()),
        // A later epoch without a value ranks below the others.
        (false, None) if !had_value => Err(SelectionError::Undefined { metric: val.metric.name() }.into()),
        _ => Ok(()),
    }
}

/// Checks that the loader belongs to this trainer and has steps, and that the trainer is at the run's epoch and step.
fn check_start<T: Task, F: Batcher>(trainer: &TaskTrainer<T>, train: &Loader<F>, run: &Run) -> Result<()> {
    check_items(trainer, train)?;
    let expected = run.n_epochs();
    let got = trainer.n_epochs();
    match (run.n_steps(), trainer.epoch.n_steps) {
        (run_steps, steps) if expected == got && run_steps == steps => Ok(()),
        _ => Err(Error::Run(RunError::OtherTrainer { expected, got })),
    }
}

/// Checks that the loader belongs to this trainer and has steps to train on.
pub(crate) fn check_items<T: Task, F: Batcher>(trainer: &TaskTrainer<T>, train: &Loader<F>) -> Result<()> {
    trainer.check_items(train.items())?;
    let items = train.items();
    if items.items().is_empty() {
        return Err(Error::Input(InputError::EmptySplit { split: "training" }));
    }
    if train.n_steps(trainer.next_phase()) == 0 {
        let per_step = items.config().items_per_step(trainer.next_phase());
        return Err(Error::Input(InputError::NoStep { n_items: items.items().len(), per_step }));
    }
    Ok(())
}

/// Trains the remaining steps of the trainer's current epoch; returns `None` if a stop was requested before the end.
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
    trainer.epoch_steps = Some(train.n_steps(trainer.next_phase()));
    let mut batches = train.epoch_from(trainer.next_phase(), trainer.epoch.n_steps);
    while trainer.step(&mut batches, |report| callback.step(report))? {
        // The first checkpoint is written as soon as all ranks have hashed their data: not earlier, because no step waits
        // for the hash, and not only when a checkpoint is due.
        let is_due = match run.awaits_hash() {
            true => trainer.has_awaited,
            false => checkpoint_every.is_some_and(|every| trainer.epoch.n_steps.is_multiple_of(every)),
        };
        if is_due || trainer.is_stopping() {
            trainer.read_back(|report| callback.step(report))?;
            callback.saving();
            run.advance(trainer);
            trainer.check_files()?;
            match trainer.is_stopping() {
                true => {
                    warn_of_wait(trainer, !run.awaits_hash() || trainer.has_awaited, callback);
                    run.complete(trainer)?;
                }
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

/// Loads the run's best epoch into the trainer, evaluates it with `test`, and gathers the results of all ranks on rank
/// 0; the other ranks get an empty evaluation. It consumes the trainer, which no longer has the weights of the last
/// epoch. Collective: every rank must call it.
///
/// # Errors
/// Returns the errors of `test`, of the run and of [`TaskTrainer::check_files`], and [`InputError::EmptySplit`] if `test`
/// evaluated no items.
pub fn evaluate_best<T: Task>(
    mut trainer: TaskTrainer<T>,
    run: &Run,
    test: impl FnOnce(&mut TaskTrainer<T>) -> Result<Evaluation>,
) -> Result<Evaluation> {
    run.load_best(&mut trainer)?;
    evaluate(&mut trainer, test)
}

/// Evaluates the trainer's model with `test` and gathers the results on rank 0. Collective: every rank must call it.
pub(crate) fn evaluate<T: Task>(
    trainer: &mut TaskTrainer<T>,
    test: impl FnOnce(&mut TaskTrainer<T>) -> Result<Evaluation>,
) -> Result<Evaluation> {
    let said = test(trainer)?;
    trainer.check_files()?;
    let said = said.gather(trainer.comm())?;
    if trainer.is_rank_zero() {
        non_empty("test", said.counts()?.checked()?)?;
    }
    Ok(said)
}

/// Rejects metric sums of no items: their accuracy is NaN and cannot be compared.
fn non_empty(split: &'static str, counts: MetricSums) -> Result<MetricSums> {
    if counts.is_empty() { Err(Error::Input(InputError::EmptySplit { split })) } else { Ok(counts) }
}
