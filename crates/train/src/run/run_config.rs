use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use kiln_loader::{Batcher, Loader, Phase};

use crate::error::{Error, InputError, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::metric::kind::Metric;
use crate::metric::selection_error::SelectionError;
use crate::run::callback::TrainCallback;
use crate::run::few_steps::note_on_steps;
use crate::run::fit::{self, FitConfig, TEST, VALIDATION};
use crate::run::identity::{RunIdentity, compare_names};
use crate::run::log_callback::LogCallback;
use crate::run::run_dir::RunDir;
use crate::run::state::Run;
use crate::run::summary::{FitReport, ReportInfo, Summary};
use crate::run::validation_end::Validated;
use crate::saved::info::ModelInfo;
use crate::step::batch::DeviceBatch;
use crate::step::embedding::NodeEmbedding;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// The configuration of a training run: its folder, its length, and the texts of its report.
///
/// [`RunConfig::fit`] starts or resumes the run, trains, and keeps the best model. [`Trained::test`] evaluates that
/// model and writes the results. The run stops early, with a checkpoint, when the flag of [`TaskTrainer::with_stop`] is
/// set.
///
/// ```no_run
/// # use kiln_graph::NodeId;
/// # use kiln_loader::{Batcher, Loader};
/// # use kiln_nn::BlockModel;
/// # use kiln_train::{
/// #     DeviceBatch, Evaluator, FitConfig, NodeClassification, NodeInput, Outcome, Result, RunConfig, RunDir, TaskTrainer,
/// # };
/// # fn example<M: BlockModel + Sync, F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
/// #     trainer: TaskTrainer<NodeClassification<M>>,
/// #     [train, val, test]: [Loader<F>; 3],
/// # ) -> Result<()> {
/// let fit = FitConfig { n_epochs: 20, patience: Some(5), checkpoint_every: None };
/// let run = RunConfig::new(RunDir::StartOrResume("runs/mine".into()), fit);
/// let evaluator = Evaluator::Sampled;
/// let validate = |trainer: &mut TaskTrainer<_>, val: &Loader<F>, phase| evaluator.count(trainer, val, phase);
/// if let Outcome::Trained(best) = run.fit(trainer, &train, &val, validate, &mut ())? {
///     let tested = best.test(&test, |trainer, test, phase| evaluator.evaluate(trainer, test, phase))?;
///     println!("test accuracy {:.4}", tested.evaluation.metrics().accuracy);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// The folder of the run, and whether the run starts or resumes there.
    pub dir: RunDir,
    /// The length of the run, and the interval of its checkpoints.
    pub fit: FitConfig,
    /// The settings and the data that the results depend on. A resumed run must have the same.
    pub identity: RunIdentity,
    /// The metric of the validation, by which a resumed run knows a metric of one's own; `None` if the metric is a built-in one.
    pub metric: Option<Metric>,
    /// The content of `config.json`: names and values of settings.
    pub settings: BTreeMap<String, String>,
    /// The content of `run.toml`, from which the program repeats the run; `None` writes no such file.
    pub description: Option<String>,
    /// The content of `model.json`, from which the best model is opened for predictions; `None` writes no such file.
    pub model: Option<ModelInfo>,
    /// The title of the report, such as the model and the dataset.
    pub title: String,
    /// The classes' names, by class; a class without a name is shown by its number.
    pub class_names: Vec<String>,
    /// Notes on the data, of which a new run passes each to [`TrainCallback::note`].
    pub notes: Vec<String>,
    /// The start of the process, from which the summary's time is measured.
    pub started: Instant,
}

/// The outcome of training.
#[derive(Debug)]
pub enum Outcome<T: Task> {
    /// The run has completed its epochs, or stopped early because its patience ended.
    Trained(Box<Trained<T>>),
    /// The run was asked to stop; its last checkpoint has the current state, and its summary and report the epochs so far.
    Interrupted(Box<Run>),
}

/// A run that has completed training. Its trainer has the best epoch's parameters.
#[derive(Debug)]
pub struct Trained<T: Task> {
    trainer: TaskTrainer<T>,
    run: Run,
    report: FitReport,
    title: String,
    class_names: Vec<String>,
    started: Instant,
}

/// The result of a run.
#[derive(Debug)]
pub struct Tested {
    /// The best model's outputs for the test split; empty on ranks other than rank 0.
    pub evaluation: Evaluation,
    /// The content of `summary.json`; `None` on ranks other than rank 0.
    pub summary: Option<Summary>,
    /// The run that was tested. Its [`Run::folder`] is `None` on ranks other than rank 0.
    pub run: Run,
}

impl RunConfig {
    /// Configures a run in this folder without an identity: resuming does not check that the settings and the data are
    /// the same.
    pub fn new(dir: RunDir, fit: FitConfig) -> Self {
        Self {
            dir,
            fit,
            identity: RunIdentity::default(),
            metric: None,
            settings: BTreeMap::new(),
            description: None,
            model: None,
            title: "training run".to_owned(),
            class_names: Vec::new(),
            notes: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Starts or resumes the run ([`Run::start`]), trains and validates after each epoch ([`fit`](crate::fit())), and
    /// loads the best epoch's parameters into the trainer. Collective: every rank must call it.
    ///
    /// `validate` returns the metric sums of all ranks for the batches of `val` in the given phase, as
    /// [`Evaluator::count`](crate::Evaluator::count) and [`TaskTrainer::evaluate`] do, or a [`Validation`](crate::Validation), with outputs for callbacks in a [`Validated`]. If `val` has no
    /// items, no metric selects an epoch: the last one is kept.
    ///
    /// # Errors
    /// Returns the errors of [`Run::start`] and [`fit`](crate::fit()). Invalid calls are rejected before anything is
    /// written: [`crate::TrainerError::BadSetting`] for 0 epochs, a patience of 0 or 0 steps between checkpoints,
    /// [`InputError::EmptySplit`] for an empty training split, [`SelectionError::PatienceWithoutValidation`] for a
    /// patience with an empty validation split, [`InputError::NoStep`] if the training items do not fill a step, and
    /// [`crate::TrainerError::OtherLoader`] for a loader of another seed or share than the trainer's.
    pub fn fit<T, F, V, R>(
        &self,
        mut trainer: TaskTrainer<T>,
        train: &Loader<F>,
        val: &Loader<V>,
        mut validate: impl FnMut(&mut TaskTrainer<T>, &Loader<V>, Phase) -> Result<R>,
        callback: &mut impl TrainCallback,
    ) -> Result<Outcome<T>>
    where
        T: Task,
        F: Batcher<Batch = DeviceBatch<T::Input>>,
        V: Batcher,
        R: Into<Validated>,
    {
        let callback = &mut (trainer.is_rank_zero().then_some(LogCallback), callback);
        fit::check(&self.fit, 0)?;
        fit::check_items(&trainer, train)?;
        trainer.check_seed(val.items())?;
        let has_validation = !val.items().items().is_empty();
        if !has_validation && self.fit.patience.is_some() {
            return Err(SelectionError::PatienceWithoutValidation.into());
        }
        let mut run = Run::start(&mut trainer, || self.dir.open(), self.identity.clone())?;
        fit::check(&self.fit, run.n_epochs())?;
        if let Some(metric) = self.metric {
            run.set_metric(metric)?;
        }
        let mut model = self.model.clone();
        if let (Some(_), Some(folder), Some(model)) = (run.resumed(), run.folder(), &mut model)
            && !compare_names(folder.path(), model)?
        {
            callback.warning(
                "the names of classes, feature columns and edge types could not be compared with those of the earlier part of \
                 the run: its model.json is missing or damaged",
            );
        }
        run.write_config(&self.settings)?;
        if let Some(description) = &self.description {
            run.write_description(description)?;
        }
        if let Some(model) = &model {
            run.write_model(model)?;
        }
        let phase = trainer.next_phase();
        let items = train.items();
        callback.started(&run, train.n_steps(phase));
        let note = note_on_steps(items.config(), phase, items.items().len(), train.n_steps(phase));
        if run.resumed().is_none() {
            self.notes.iter().chain(&note).for_each(|text| callback.note(text));
        }
        if !has_validation && trainer.is_rank_zero() {
            callback.warning(
                "the validation split has no items: no metric selects an epoch, the last one is kept",
            );
        }
        let report = fit::fit(
            &mut trainer,
            train,
            self.fit,
            |trainer: &mut TaskTrainer<T>| validate(trainer, val, VALIDATION),
            &mut run,
            callback,
        )?;
        if report.interrupted {
            let elapsed = self.started.elapsed();
            let info = ReportInfo {
                title: &self.title,
                class_names: &self.class_names,
                item_columns: None,
                elapsed,
            };
            run.finish_interrupted(&report, &info)?;
            return Ok(Outcome::Interrupted(Box::new(run)));
        }
        run.load_best(&mut trainer)?;
        let title = self.title.clone();
        let class_names = self.class_names.clone();
        let started = self.started;
        let trained = Trained { trainer, run, report, title, class_names, started };
        Ok(Outcome::Trained(Box::new(trained)))
    }
}

impl<T: Task> Trained<T> {
    /// Returns the model with the best epoch's parameters.
    pub fn model(&self) -> &T::Model {
        self.trainer.model()
    }

    /// Returns the task's embeddings with the best epoch's rows.
    pub fn embeddings(&self) -> &[Arc<NodeEmbedding>] {
        self.trainer.embeddings()
    }

    /// Returns the trainer, with the best epoch's parameters, for further evaluation before the test.
    pub fn trainer(&mut self) -> &mut TaskTrainer<T> {
        &mut self.trainer
    }

    /// Returns the run that was trained.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Drops the trainer and its communicator, and returns the run, for programs that evaluate the model later.
    pub fn into_run(self) -> Run {
        self.run
    }

    /// Returns the report of the training: its epochs, early stopping and peak memory.
    pub fn report(&self) -> &FitReport {
        &self.report
    }

    /// Evaluates the best model on the loader's items with `test`, and ends the run: rank 0 writes the predictions, the
    /// summary and, with the feature `report`, the page. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`InputError::EmptySplit`] if the test split is empty ([`Trained::finish_without_test`] ends such a run),
    /// [`crate::TrainerError::OtherLoader`] for a loader of another seed than the trainer's, and the errors of `test`,
    /// [`TaskTrainer::check_files`] and [`Run::finish`].
    pub fn test<V: Batcher>(
        self,
        loader: &Loader<V>,
        test: impl FnOnce(&mut TaskTrainer<T>, &Loader<V>, Phase) -> Result<Evaluation>,
    ) -> Result<Tested> {
        self.trainer.check_seed(loader.items())?;
        if loader.items().items().is_empty() {
            return Err(Error::Input(InputError::EmptySplit { split: "test" }));
        }
        self.finish(|trainer| fit::evaluate(trainer, |trainer| test(trainer, loader, TEST)))
    }

    /// Ends a run without a test split: rank 0 writes the summary without metrics of a test and, with the feature
    /// `report`, the page. There is no file of predictions.
    ///
    /// # Errors
    /// Returns the errors of [`Run::finish`].
    pub fn finish_without_test(self) -> Result<Tested> {
        self.finish(|_| Ok(Evaluation::default()))
    }

    fn finish(self, test: impl FnOnce(&mut TaskTrainer<T>) -> Result<Evaluation>) -> Result<Tested> {
        let Self { mut trainer, run, mut report, title, class_names, started } = self;
        let evaluation = test(&mut trainer)?;
        report.peak_memory = report.peak_memory.max(trainer.peak_memory());
        if !evaluation.is_empty() {
            report.negatives.test = trainer.eval_negatives();
        }
        let info = ReportInfo {
            title: &title,
            class_names: &class_names,
            item_columns: None,
            elapsed: started.elapsed(),
        };
        let summary = run.finish(&evaluation, &report, &info)?;
        Ok(Tested { evaluation, summary, run })
    }
}
