use std::collections::BTreeMap;
use std::time::Instant;

use kiln_loader::{Batcher, Loader, Phase};

use crate::error::{Error, Result};
use crate::evaluate::evaluation::Evaluation;
use crate::run::callback::TrainCallback;
use crate::run::fit::{self, FitConfig, TEST, VALIDATION};
use crate::run::identity::RunIdentity;
use crate::run::run_dir::RunDir;
use crate::run::state::{ReportInfo, Run};
use crate::run::summary::{FitReport, Summary};
use crate::step::batch::DeviceBatch;
use crate::step::metric_sums::MetricSums;
use crate::step::task::Task;
use crate::step::trainer::TaskTrainer;

/// A training run: where its files go, how long it trains, and what its report says.
///
/// [`RunConfig::fit`] starts or resumes the run, trains and keeps the best model; [`Trained::test`] judges that model and
/// writes the results. A run ends early, with a checkpoint, when the flag of [`TaskTrainer::with_stop`] is up.
///
/// ```no_run
/// # use kiln_graph::NodeId;
/// # use kiln_loader::{Batcher, Loader};
/// # use kiln_nn::LayerWiseModel;
/// # use kiln_train::{
/// #     DeviceBatch, Evaluator, FitConfig, NodeClassification, NodeInput, Outcome, Result, RunConfig, RunDir, TaskTrainer,
/// # };
/// # fn example<M: LayerWiseModel + Sync, F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>>(
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
    /// How long it trains.
    pub fit: FitConfig,
    /// What the results depend on, by which a resumed run is recognized.
    pub identity: RunIdentity,
    /// What `config.json` holds: names and values of settings.
    pub settings: BTreeMap<String, String>,
    /// The title of the report: what is trained on what.
    pub title: String,
    /// The classes' names, by class; a class without one goes by its number.
    pub class_names: Vec<String>,
    /// When the process started, for the time in the summary.
    pub started: Instant,
}

/// How training ended.
#[derive(Debug)]
pub enum Outcome<T: Task> {
    /// It has done its epochs, or its patience has ended.
    Trained(Box<Trained<T>>),
    /// It was asked to stop; the last checkpoint is of this moment.
    Interrupted(Box<Run>),
}

/// A run whose training is done, with the best epoch's parameters in its trainer.
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
    /// What the best model says of the test split: on the first rank, and of nothing on the others.
    pub evaluation: Evaluation,
    /// What `summary.json` holds, on the first rank.
    pub summary: Option<Summary>,
    /// The run, with its folder on the first rank.
    pub run: Run,
}

impl RunConfig {
    /// A run in this folder that records no settings: a resumed run is not compared with the one that was stopped.
    pub fn new(dir: RunDir, fit: FitConfig) -> Self {
        Self {
            dir,
            fit,
            identity: RunIdentity::default(),
            settings: BTreeMap::new(),
            title: "training run".to_owned(),
            class_names: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Starts or resumes the run ([`Run::start`]), trains and validates after each epoch ([`fit`](crate::fit())), and puts
    /// the best epoch's parameters into the trainer. A meeting.
    ///
    /// `validate` returns the counts of all ranks on the batches of `val` in that pass, as
    /// [`Evaluator::count`](crate::Evaluator::count) and [`TaskTrainer::evaluate`] do.
    ///
    /// # Errors
    /// As [`Run::start`] and [`fit`](crate::fit()). A call that cannot train is refused before anything is written:
    /// [`Error::BadSetting`] for 0 epochs and the like, [`Error::EmptySplit`] without items to train on or to validate,
    /// [`Error::NoStep`], and [`Error::OtherLoader`].
    pub fn fit<T, F, V>(
        &self,
        mut trainer: TaskTrainer<T>,
        train: &Loader<F>,
        val: &Loader<V>,
        mut validate: impl FnMut(&mut TaskTrainer<T>, &Loader<V>, Phase) -> Result<MetricSums>,
        callback: &mut impl TrainCallback,
    ) -> Result<Outcome<T>>
    where
        T: Task,
        F: Batcher<Batch = DeviceBatch<T::Input>>,
        V: Batcher,
    {
        fit::check(&self.fit, 0)?;
        fit::check_items(&trainer, train)?;
        check_split("validation", &trainer, val)?;
        let mut run = Run::start(&mut trainer, || self.dir.open(), self.identity.clone())?;
        fit::check(&self.fit, run.n_epochs())?;
        run.write_config(&self.settings)?;
        callback.started(&run, train.n_steps(trainer.next_phase()));
        let validate = |trainer: &mut TaskTrainer<T>| validate(trainer, val, VALIDATION);
        let report = fit::fit(&mut trainer, train, self.fit, validate, &mut run, callback)?;
        if report.interrupted {
            return Ok(Outcome::Interrupted(Box::new(run)));
        }
        run.load_best(&mut trainer)?;
        let (title, class_names, started) = (self.title.clone(), self.class_names.clone(), self.started);
        let trained = Trained { trainer, run, report, title, class_names, started };
        Ok(Outcome::Trained(Box::new(trained)))
    }
}

impl<T: Task> Trained<T> {
    /// The best epoch's model.
    pub fn model(&self) -> &T::Model {
        self.trainer.model()
    }

    /// The trainer, with the best epoch's parameters: for evaluation before the test.
    pub fn trainer(&mut self) -> &mut TaskTrainer<T> {
        &mut self.trainer
    }

    /// The run.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Gives up the trainer, and with it the communicator, and keeps the run: for programs that evaluate the model later.
    pub fn into_run(self) -> Run {
        self.run
    }

    /// How training went.
    pub fn report(&self) -> &FitReport {
        &self.report
    }

    /// Has `test` judge the best model on the batches of a loader in that pass, and ends the run: the first rank writes the
    /// predictions, the summary and, with the feature `report`, the page. A meeting.
    ///
    /// # Errors
    /// [`Error::EmptySplit`] without items to test, [`Error::OtherLoader`], the errors of `test`, of
    /// [`TaskTrainer::check_files`] and of [`Run::finish`].
    pub fn test<V: Batcher>(
        self,
        loader: &Loader<V>,
        test: impl FnOnce(&mut TaskTrainer<T>, &Loader<V>, Phase) -> Result<Evaluation>,
    ) -> Result<Tested> {
        let Self { mut trainer, run, mut report, title, class_names, started } = self;
        check_split("test", &trainer, loader)?;
        let evaluation = fit::evaluate(&mut trainer, |trainer| test(trainer, loader, TEST))?;
        report.peak_memory = report.peak_memory.max(trainer.peak_memory());
        let info = ReportInfo { title: &title, class_names: &class_names, elapsed: started.elapsed() };
        let summary = run.finish(&evaluation, &report, &info)?;
        Ok(Tested { evaluation, summary, run })
    }
}

/// Checks that a split has items, in the order that the trainer's seed gives.
fn check_split<T: Task, V: Batcher>(
    split: &'static str,
    trainer: &TaskTrainer<T>,
    loader: &Loader<V>,
) -> Result<()> {
    trainer.check_seed(loader.items())?;
    match loader.items().items().is_empty() {
        true => Err(Error::EmptySplit { split }),
        false => Ok(()),
    }
}
