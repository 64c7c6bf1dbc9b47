//! What the programs do once their parts are put together.

use anyhow::anyhow;
use kiln_loader::{Batcher, Loader, Phase};
use kiln_train::{
    DeviceBatch, Error, Evaluation, MetricSums, Outcome, Result, RunConfig, Task, TrainCallback, Trainer,
};

use crate::args::{FitArgs, Settings};
use crate::keep::{self, KeepArgs};
use crate::run::RunArgs;
use crate::{Ending, Progress, say, stop_flag};

/// What a program was asked for, and what it trains on.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The command line.
    pub settings: &'a Settings,
    /// Where and how it runs.
    pub run: &'a RunArgs,
    /// How the model learns.
    pub fit: &'a FitArgs,
    /// When it stops, and what is kept.
    pub keep: &'a KeepArgs,
    /// What the data set is called.
    pub data_name: &'a str,
    /// The hash of the data.
    pub data_hash: &'a str,
    /// The classes' names.
    pub class_names: &'a [String],
    /// Prints the loss after so many steps.
    pub loss_every: Option<usize>,
}

impl Program<'_> {
    /// Runs the training ([`RunConfig::fit`]) and tests its best model, and prints how it goes on the first rank. A meeting
    /// of the ranks; what `callback` does it does on each.
    ///
    /// # Errors
    /// The errors of the run, and of `validate` and `test`.
    pub fn run<T: Task, F: Batcher<Batch = DeviceBatch<T::Input>>>(
        &self,
        trainer: Trainer<T>,
        [train, val, test]: &[Loader<F>; 3],
        validate: impl FnMut(&mut Trainer<T>, &Loader<F>, Phase) -> Result<MetricSums>,
        evaluate: impl FnOnce(&mut Trainer<T>, &Loader<F>, Phase) -> Result<Evaluation>,
        callback: impl TrainCallback,
    ) -> anyhow::Result<Ending> {
        let n_steps = train.n_steps(trainer.next_phase());
        let trainer = trainer.with_stop(stop_flag()?);
        #[cfg(feature = "nccl")]
        let trainer = crate::launch::sum_on_device(trainer, self.run)?;
        self.run.check_steps(train.items().items().len(), n_steps)?;
        let progress = || Progress::new(self.fit.epochs, n_steps, self.run.n_ranks(), self.loss_every);
        let mut callbacks = (trainer.is_rank_zero().then(progress), callback);
        let config = self.config();
        let outcome = config.fit(trainer, train, val, validate, &mut callbacks).map_err(with_flag)?;
        let (progress, _) = callbacks;
        match outcome {
            Outcome::Interrupted(run) => {
                if let (Some(folder), Some(progress)) = (run.folder(), progress) {
                    progress.finish();
                    let (path, n_epochs, n_steps) = (folder.path().display(), run.n_epochs(), run.n_steps());
                    say(format_args!(
                        "stopped after {n_epochs} epochs and {n_steps} steps: --resume {path} goes on"
                    ));
                }
                Ok(Ending::Interrupted)
            }
            Outcome::Trained(best) => {
                let tested = best.test(test, evaluate)?;
                let folder = tested.run.folder();
                if let (Some(summary), Some(folder), Some(progress)) = (&tested.summary, folder, progress) {
                    progress.finish();
                    say(format_args!("{summary}\nfiles           {}", folder.path().display()));
                }
                Ok(Ending::Done)
            }
        }
    }

    fn config(&self) -> RunConfig {
        let Self { settings, data_name, .. } = self;
        RunConfig {
            dir: self.keep.dir(settings),
            fit: self.keep.config(self.fit.epochs),
            identity: keep::identity(settings, self.run, self.data_hash),
            settings: settings.flags.clone(),
            title: format!("{} on {data_name}", settings.program),
            class_names: self.class_names.to_vec(),
            started: settings.started,
        }
    }
}

/// Names the flag, where a run has done more epochs than it is to do.
fn with_flag(error: Error) -> anyhow::Error {
    match error {
        Error::TooFewEpochs { n_epochs, n_done } => {
            anyhow!("--epochs {n_epochs}: the run has done {n_done}, give at least as many")
        }
        error => error.into(),
    }
}
