use burn::module::Module;
use kiln_feature::{TargetKind, TargetScaler};
use kiln_loader::{Batcher, Loader, Phase};
use kiln_nn::{EdgeDims, GraphRequirements, ModelConfig};
use kiln_predictions::EdgeEnds;
use kiln_train::{
    DataHash, DeviceBatch, Evaluation, EvaluationInfo, Evaluator, ItemColumns, Metric, MetricSums,
    ModelInputs, SplitTargets, Task, TaskTrainer, Validated, Validation,
};

use crate::{RankHandle, Result};

/// The requirements of a model on its batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchRequirements {
    /// The number of layers, each of which reads a block.
    pub n_layers: usize,
    /// The number of feature columns that the model reads; `None` if its config does not know it.
    pub d_in: Option<usize>,
    /// The requirements on the graph and the sampling of its neighbourhoods.
    pub graph: GraphRequirements,
    /// The sizes of the edges whose targets the model predicts; `None` for other models.
    pub edge_dims: Option<EdgeDims>,
}

impl BatchRequirements {
    /// Returns the requirements of the models of a configuration.
    pub fn of(config: &impl ModelConfig) -> Self {
        Self {
            n_layers: config.n_layers(),
            d_in: config.d_in(),
            graph: config.requirements(),
            edge_dims: config.edge_dims(),
        }
    }
}

/// A description of minibatches, from which a [`Trainer`](crate::Trainer) creates its rank's batches for each phase.
/// One description serves training, validation and test. [`NeighborLoader`](crate::NeighborLoader) is for node tasks,
/// [`LinkNeighborLoader`](crate::LinkNeighborLoader) for link prediction, [`GraphLoader`](crate::GraphLoader) for graph
/// tasks. Task and batcher are associated types, so a new task changes no trainer.
pub trait DataLoader<M: Module> {
    /// The learning task.
    type Task: Task<Model = M>;
    /// The type that prepares batches.
    type Batcher: Batcher<Batch = DeviceBatch<<Self::Task as Task>::Input>>;

    /// Returns the task. `scaler` is that of the data on which the model is or was trained
    /// ([`DataLoader::target_scaler`]); tasks without regression targets ignore it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>, config: SageConfig, rank: RankHandle) -> Result<()> {
    /// use kiln::train::{TaskTrainer, TrainerConfig};
    /// let settings = TrainerConfig::new(AdamConfig::new(1e-3).into());
    /// let comm = rank.communicator("training")?;
    /// let trainer = TaskTrainer::new(loader.task(loader.target_scaler()?.as_ref()), &settings, comm, |key, device| config.init(key, device))?;
    /// # Ok(())
    /// # }
    /// ```
    fn task(&self, scaler: Option<&TargetScaler>) -> Self::Task;

    /// Returns the kind of the data's targets, which determines the default metric.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// // The metric of a run without one of its own.
    /// let metric = Metric::default_of(loader.target_kind());
    /// # Ok(())
    /// # }
    /// ```
    fn target_kind(&self) -> TargetKind {
        TargetKind::Classes
    }

    /// Returns the scale on which a model learns the regression targets of the training split. The default implementation
    /// returns `None`: the targets are learned as they are, or are no numbers.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// let task = loader.task(loader.target_scaler()?.as_ref());
    /// # let _ = task;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a target of the training split is missing or invalid.
    fn target_scaler(&self) -> Result<Option<TargetScaler>> {
        Ok(None)
    }

    /// Returns the name of the dataset and the names of its classes.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// let (name, class_names) = loader.names();
    /// println!("{name}: {}", class_names.join(", "));
    /// # Ok(())
    /// # }
    /// ```
    fn names(&self) -> (&str, &[String]);

    /// Returns the ends of the edges or links, which `test_predictions.csv` of a run has as columns, with the keys of the nodes. The
    /// default implementation returns `None`: the items are no edges.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// if let Some(ends) = loader.ends() {
    ///     println!("edges from {} nodes", ends.nodes.ids[0].len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn ends(&self) -> Option<EdgeEnds> {
        None
    }

    /// Returns the columns that follow the item in `test_predictions.csv` of a run: the ends of edges by default, and the node and
    /// the time of each row of a task table. `None` for other items.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// let mut line = "item".to_owned();
    /// if let Some(columns) = loader.item_columns() {
    ///     columns.push_header(&mut line);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn item_columns(&self) -> Option<ItemColumns> {
        self.ends().map(EdgeEnds::item_columns)
    }

    /// Returns the hash of the data, by which a resumed run recognizes its data. A hash that needs time is computed
    /// later, in the background ([`hash_in_background`](crate::hash_in_background)).
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// // The values of the data are read in the background.
    /// let hash = loader.data_hash()?;
    /// hash.start();
    /// println!("{}", hash.wait()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the hash cannot be determined.
    fn data_hash(&self) -> Result<DataHash>;

    /// Returns a hash of the sizes of the data and of a sample of its values, which ranks that are processes compare
    /// before they train. It takes milliseconds. The default implementation returns an empty text, which compares
    /// nothing.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// // Processes with different data do not start.
    /// let config = RankConfig::from_env_or_threads(1).agree_on("data", loader.data_sample()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the data cannot be read.
    fn data_sample(&self) -> Result<String> {
        Ok(String::new())
    }

    /// Returns the settings that a run's result depends on, by name. They include the number of ranks only if
    /// the policy for uneven steps is not [`UnevenShards::Join`](kiln_loader::UnevenShards::Join); otherwise only the
    /// global batch size counts.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// for (name, value) in loader.settings(1) {
    ///     println!("{name}: {value}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)>;

    /// Returns what a saved model contains about its data (task, widths, preparation and sampling) and about the
    /// evaluation of the run's test split with this seed and number of ranks. The default implementation returns
    /// `None`; a run then writes no `model.json`, and its model cannot be opened with
    /// [`SavedModel`](kiln_train::SavedModel).
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// let (inputs, evaluation) = loader.model_inputs(0, 1).expect("kiln's loaders describe their data");
    /// println!("{} features, batches of {}", inputs.n_features, evaluation.batch_size);
    /// # Ok(())
    /// # }
    /// ```
    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let _ = (seed, n_ranks);
        None
    }

    /// Returns the targets of a phase's items in the first `n_batches` batches of one rank, from which the metric is checked
    /// before the training. The default implementation returns `None`, which checks nothing.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>) -> Result<()> {
    /// // The area under the ROC curve needs items of both classes in the validation split.
    /// if let Some(targets) = loader.split_targets(Phase::Validation, usize::MAX)? {
    ///     targets.check(Metric::RocAuc)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a target is missing or invalid.
    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let _ = (phase, n_batches);
        Ok(None)
    }

    /// Returns a line for each simple ranking or guess with its metric on the test split, which a model should exceed. The
    /// negatives are those of a training with this seed. The default implementation returns none.
    ///
    /// ```
    /// use kiln::nn::{LinkModel, Sage};
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// let split = LinkSplit::random(&data.graph, &LinkSplitConfig { val: 0.1, test: 0.1, ..Default::default() }, 0)?;
    /// let loader = LinkNeighborLoader::new(NeighborLoader::new(&data, [10, 10]), &split)?;
    /// let lines = DataLoader::<LinkModel<Sage>>::baselines(&loader, 0)?;
    /// assert!(lines[0].starts_with("ranking the test links by the popularity of their destinations"));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if negatives cannot be drawn.
    fn baselines(&self, seed: u64) -> Result<Vec<String>> {
        let _ = seed;
        Ok(Vec::new())
    }

    /// Returns notes on the populations of the split ([`Split::notes`](kiln_data::Split::notes)) and on parts of the data that no
    /// batch carries to the model, of which a new run prints a line each. The default implementation returns none.
    ///
    /// ```
    /// use kiln::nn::Sage;
    /// use kiln::prelude::*;
    /// let data = kiln::data::debian_packages()?;
    /// let loader = NeighborLoader::new(&data, [10, 10]);
    /// let notes = DataLoader::<Sage>::notes(&loader);
    /// assert_eq!(notes, ["the model does not read the edge column `types`: rgcn, gine can"]);
    /// # Ok::<(), Error>(())
    /// ```
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks that the batches suit a model with these requirements. Training calls it before anything is written.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>, config: SageConfig) -> Result<()> {
    /// use kiln::BatchRequirements;
    /// // A model with three layers and a loader with two fanouts are an error before the data is read.
    /// loader.check(&BatchRequirements::of(&config))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if they do not, such as [`Error::FanoutsMismatch`](crate::Error::FanoutsMismatch),
    /// [`Error::NoEdgeWeights`](crate::Error::NoEdgeWeights), [`Error::NoEdgeTypes`](crate::Error::NoEdgeTypes) or
    /// [`Error::NoSelfLoops`](crate::Error::NoSelfLoops).
    fn check(&self, model: &BatchRequirements) -> Result<()>;

    /// Returns the evaluator, which determines the ranks that evaluate and the neighbours that they read.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example(loader: impl DataLoader<Sage>, rank: RankHandle) -> Result<()> {
    /// if let kiln::train::Evaluator::Exact(_) = loader.evaluator(&rank)? {
    ///     println!("evaluations read all neighbours");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the settings are inconsistent.
    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator>;

    /// Returns the loader of a phase's batches, for the trainer's rank, seed and device.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example<L: DataLoader<Sage>>(loader: L, trainer: Trainer<SageConfig>, rank: RankHandle) -> Result<()> {
    /// let mut trainer = trainer.start(&loader)?;
    /// let batches = loader.loader(trainer.next_phase(), &trainer, &loader.evaluator(&rank)?)?;
    /// for _ in 0..10 {
    ///     println!("loss {:.4}", trainer.epoch(&batches, |_| ())?.counts.loss());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the settings are inconsistent or data cannot be copied to the device.
    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>>;

    /// Computes loss and accuracy on the batches of a phase, summed over all ranks. Collective: every rank must call
    /// it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example<L: DataLoader<Sage>>(loader: L, trainer: Trainer<SageConfig>, rank: RankHandle) -> Result<()> {
    /// let mut trainer = trainer.start(&loader)?;
    /// let evaluator = loader.evaluator(&rank)?;
    /// let batches = loader.loader(Phase::Validation, &trainer, &evaluator)?;
    /// let counts = L::count(&evaluator, &mut trainer, &batches, Phase::Validation)?;
    /// println!("validation accuracy {:.4}", counts.accuracy());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a batch cannot be prepared or another rank fails.
    fn count(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<MetricSums>;

    /// Computes loss and a metric on the batches of a phase, over all ranks. Every metric except the accuracy is
    /// computed from all outputs of the phase ([`DataLoader::evaluate`]). Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example<L: DataLoader<Sage>>(loader: L, trainer: Trainer<SageConfig>, rank: RankHandle) -> Result<()> {
    /// let mut trainer = trainer.start(&loader)?;
    /// let evaluator = loader.evaluator(&rank)?;
    /// let batches = loader.loader(Phase::Validation, &trainer, &evaluator)?;
    /// let validation = L::validate(&evaluator, &mut trainer, &batches, Phase::Validation, Metric::F1Macro)?;
    /// println!("macro F1 {:?}", validation.value);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the metric is not defined for the targets, a batch cannot be prepared or another rank fails.
    fn validate(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
        metric: Metric,
    ) -> kiln_train::Result<Validation> {
        if metric == Metric::Accuracy {
            return Ok(Self::count(evaluator, trainer, loader, phase)?.into());
        }
        let outputs = Self::evaluate(evaluator, trainer, loader, phase)?;
        Validation::of(&outputs, metric, trainer.comm())
    }

    /// Computes loss and a metric like [`DataLoader::validate`], and gathers the outputs on rank 0, for callbacks that want them.
    /// Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example<L: DataLoader<Sage>>(loader: L, trainer: Trainer<SageConfig>, rank: RankHandle) -> Result<()> {
    /// let mut trainer = trainer.start(&loader)?;
    /// let evaluator = loader.evaluator(&rank)?;
    /// let batches = loader.loader(Phase::Validation, &trainer, &evaluator)?;
    /// let validated = L::validate_with_outputs(&evaluator, &mut trainer, &batches, Phase::Validation, Metric::Accuracy)?;
    /// // Only rank 0 has the outputs.
    /// if let Some(outputs) = validated.outputs {
    ///     println!("{:?}", outputs.metrics());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`DataLoader::validate`].
    fn validate_with_outputs(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
        metric: Metric,
    ) -> kiln_train::Result<Validated> {
        let outputs = Self::evaluate(evaluator, trainer, loader, phase)?;
        Validated::of(outputs, metric, trainer.comm())
    }

    /// Computes the outputs for this rank's share of a phase. Collective: every rank must call it.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # use kiln::nn::Sage;
    /// # fn example<L: DataLoader<Sage>>(loader: L, trainer: Trainer<SageConfig>, rank: RankHandle) -> Result<()> {
    /// let mut trainer = trainer.start(&loader)?;
    /// let evaluator = loader.evaluator(&rank)?;
    /// let batches = loader.loader(Phase::Test, &trainer, &evaluator)?;
    /// let outputs = L::evaluate(&evaluator, &mut trainer, &batches, Phase::Test)?;
    /// println!("{} items of this rank", outputs.counts()?.total);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if a batch cannot be prepared or another rank fails.
    fn evaluate(
        evaluator: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<Evaluation>;
}

/// The evaluations of a [`DataLoader`] whose task the [`Evaluator`] evaluates: sampled, on rank 0, or exactly.
macro_rules! evaluate_by_evaluator {
    () => {
        fn count(
            evaluator: &kiln_train::Evaluator,
            trainer: &mut kiln_train::TaskTrainer<Self::Task>,
            loader: &kiln_loader::Loader<Self::Batcher>,
            phase: kiln_loader::Phase,
        ) -> kiln_train::Result<kiln_train::MetricSums> {
            evaluator.count(trainer, loader, phase)
        }

        fn validate(
            evaluator: &kiln_train::Evaluator,
            trainer: &mut kiln_train::TaskTrainer<Self::Task>,
            loader: &kiln_loader::Loader<Self::Batcher>,
            phase: kiln_loader::Phase,
            metric: kiln_train::Metric,
        ) -> kiln_train::Result<kiln_train::Validation> {
            evaluator.validate(trainer, loader, phase, metric)
        }

        fn validate_with_outputs(
            evaluator: &kiln_train::Evaluator,
            trainer: &mut kiln_train::TaskTrainer<Self::Task>,
            loader: &kiln_loader::Loader<Self::Batcher>,
            phase: kiln_loader::Phase,
            metric: kiln_train::Metric,
        ) -> kiln_train::Result<kiln_train::Validated> {
            evaluator.validate_with_outputs(trainer, loader, phase, metric)
        }

        fn evaluate(
            evaluator: &kiln_train::Evaluator,
            trainer: &mut kiln_train::TaskTrainer<Self::Task>,
            loader: &kiln_loader::Loader<Self::Batcher>,
            phase: kiln_loader::Phase,
        ) -> kiln_train::Result<kiln_train::Evaluation> {
            evaluator.evaluate(trainer, loader, phase)
        }
    };
}

pub(crate) use evaluate_by_evaluator;
