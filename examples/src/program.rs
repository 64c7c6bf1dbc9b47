//! What the programs do once their parts are put together.

use kiln_loader::{Fetch, Loader, Pass};
use kiln_train::{About, Counts, Evaluation, MemoryUse, Observer, Result, Task, Trainer, fit, test_best};

use crate::args::{FitArgs, Settings};
use crate::keep::KeepArgs;
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
    /// Trains, judging the model by `validate` after each epoch, has `test` judge the best one, and leaves the
    /// files. Ends early, with a checkpoint, when a signal says so. A meeting of the ranks, of which
    /// the first one prints; what `observer` does it does on each.
    ///
    /// # Errors
    /// What any of it says.
    pub fn see_through<T: Task, F: Fetch<Batch = T::Batch>>(
        &self,
        trainer: Trainer<T>,
        train: &Loader<F>,
        validate: impl FnMut(&mut Trainer<T>) -> Result<Counts>,
        test: impl FnOnce(&mut Trainer<T>) -> Result<Evaluation>,
        memory: impl FnOnce() -> MemoryUse,
        observer: impl Observer,
    ) -> anyhow::Result<Ending> {
        let Self { settings, data_name, class_names, .. } = self;
        let n_steps = train.n_steps(Pass::Train { epoch: 0 });
        let trainer = trainer.with_stop(stop_flag()?);
        #[cfg(feature = "nccl")]
        let trainer = crate::launch::sum_on_device(trainer, self.run)?;
        let mut trainer = trainer;
        self.run.check_steps(train.items().items().len(), n_steps)?;
        let mut run = self.keep.start(settings, self.run, self.fit.epochs, self.data_hash, &mut trainer)?;
        let n_done = run.resumed().map_or(0, |then| then.epoch * n_steps + then.step);
        let progress = || Progress::new(self.fit.epochs, n_steps, n_done, self.loss_every);
        let mut observers = (trainer.is_first().then(progress), observer);
        let config = self.keep.config(self.fit.epochs);
        let mut report = fit(&mut trainer, train, config, validate, &mut run, &mut observers)?;
        let (progress, _) = observers;
        if report.interrupted {
            if let (Some(folder), Some(progress)) = (run.folder(), progress) {
                progress.finish();
                let (path, n_epochs, n_steps) = (folder.path().display(), run.n_epochs(), run.n_steps());
                say(format_args!(
                    "stopped after {n_epochs} epochs and {n_steps} steps: --resume {path} goes on"
                ));
            }
            return Ok(Ending::Interrupted);
        }
        let said = test_best(trainer, &run, test)?;
        report.peak_memory = report.peak_memory.max(memory());
        let title = format!("{} on {data_name}", settings.program);
        let about = About { title: &title, class_names, elapsed: settings.started.elapsed() };
        let summary = run.finish(&said, &report, &about)?;
        if let (Some(summary), Some(folder), Some(progress)) = (summary, run.folder(), progress) {
            progress.finish();
            say(format_args!("{summary}\nfiles           {}", folder.path().display()));
        }
        Ok(Ending::Done)
    }
}
