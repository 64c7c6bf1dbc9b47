use std::fmt;
use std::sync::Arc;

use kiln_data::{GraphDataset, Split};
use kiln_feature::{FeatureStore, Preparation};
use kiln_graph::GraphId;
use kiln_loader::{GraphBatcher, Loader, LoaderConfig, Phase};
use kiln_nn::GraphModel;
use kiln_train::{
    BatchConfig, DeviceBatcher, Evaluation, EvaluationInfo, Evaluator, GraphClassification, MetricSums,
    ModelInputs, ModelTask, TaskTrainer,
};

use crate::batches::{batch_settings, n_workers};
use crate::{DataLoader, EvalMode, RankHandle, Result};

/// A description of minibatches of whole graphs; each batch is their disjoint union. It is cheap to clone, like a
/// [`NeighborLoader`](crate::NeighborLoader).
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct GraphLoader {
    graphs: GraphDataset,
    features: Arc<dyn FeatureStore>,
    split: Split<GraphId>,
    batches: BatchConfig,
    workers: Option<usize>,
}

impl GraphLoader {
    /// Returns a loader of batches of 32 graphs with these node features ([`GraphDataset::node_features`]), for the
    /// graphs in `split`.
    pub fn new(graphs: &GraphDataset, features: Arc<dyn FeatureStore>, split: &Split<GraphId>) -> Self {
        let batches = BatchConfig { batch_size: 32, ..BatchConfig::default() };
        Self { graphs: graphs.clone(), features, split: split.clone(), batches, workers: None }
    }

    /// Sets the number of graphs in a batch of one rank.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Sets the number of threads that prefetch batches; see
    /// [`NeighborLoader::workers`](crate::NeighborLoader::workers).
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the batch settings: size, order, and the treatment of a short last step.
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }
}

impl<M: GraphModel + Sync> DataLoader<M> for GraphLoader {
    type Task = GraphClassification<M>;
    type Batcher = DeviceBatcher<GraphBatcher<dyn FeatureStore>>;

    fn task(&self) -> Self::Task {
        GraphClassification::new()
    }

    fn names(&self) -> (&str, &[String]) {
        (&self.graphs.name, &self.graphs.class_names)
    }

    fn data_hash(&self) -> Result<String> {
        Ok(self.graphs.hash_with(&*self.features, &self.split)?)
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        batch_settings(self.batches, &self.split, n_ranks)
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let inputs = ModelInputs {
            task: ModelTask::GraphClassification,
            data_name: self.graphs.name.clone(),
            n_features: self.features.dim(),
            n_classes: self.graphs.labels().n_classes(),
            class_names: self.graphs.class_names.clone(),
            preparation: Preparation::default(),
            sampling: None,
        };
        Some((inputs, EvalMode::Sampled.info(seed, self.batches.batch_size, n_ranks)))
    }

    fn check(&self, _: usize, _: bool) -> Result<()> {
        Ok(())
    }

    fn evaluator(&self, _: &RankHandle) -> Result<Evaluator> {
        Ok(Evaluator::Sampled)
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        _: &Evaluator,
    ) -> Result<Loader<Self::Batcher>> {
        let graphs = match phase {
            Phase::Train { .. } => &self.split.train,
            Phase::Validation => &self.split.val,
            Phase::Test => &self.split.test,
        };
        let items = trainer.items(&graphs[..], self.batches)?;
        let batcher = GraphBatcher::new(
            self.graphs.graph().clone(),
            self.graphs.node_offsets().clone(),
            self.features.clone(),
            self.graphs.labels().clone(),
        );
        let config = LoaderConfig { workers: n_workers(self.workers, &items), ..LoaderConfig::default() };
        Ok(trainer.loader(items, batcher, config)?)
    }

    fn count(
        _: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<MetricSums> {
        trainer.evaluate(loader.epoch(phase), |_, _| ())
    }

    fn evaluate(
        _: &Evaluator,
        trainer: &mut TaskTrainer<Self::Task>,
        loader: &Loader<Self::Batcher>,
        phase: Phase,
    ) -> kiln_train::Result<Evaluation> {
        let mut evaluation = Evaluation::default();
        trainer.evaluate(loader.epoch(phase), |input, forward| {
            evaluation.add(&input.items, &input.labels, forward);
        })?;
        Ok(evaluation)
    }
}

impl fmt::Debug for GraphLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graphs, batches, .. } = self;
        f.debug_struct("GraphLoader")
            .field("graphs", &graphs.name)
            .field("batches", batches)
            .finish_non_exhaustive()
    }
}
