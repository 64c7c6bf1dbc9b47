use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kiln_data::{GraphDataset, HashedPart, NodeFeatures, Split};
use kiln_feature::{FeatureColumn, FeatureStore, Preparation, TargetKind, TargetScaler};
use kiln_graph::GraphId;
use kiln_loader::{GraphBatcher, Loader, LoaderConfig, Phase};
use kiln_nn::GraphModel;
use kiln_train::{
    BatchConfig, DataHash, DeviceBatcher, Evaluation, EvaluationInfo, Evaluator, GraphTask, MetricSums,
    ModelInputs, ModelTask, Objective, SplitTargets, TargetScale, TaskObjective, TaskTrainer,
};

use crate::batches::{
    batch_settings, check_target_scale, first_items, items_of, n_workers, objective_of, objective_setting,
    target_scale_setting, texts_of_new_notes,
};
use crate::{BatchRequirements, DataLoader, EvalMode, RankHandle, Result, hash_in_background};

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
    objective: Option<Objective>,
    target_scale: Option<TargetScale>,
    node_features: Option<NodeFeatures>,
}

impl GraphLoader {
    /// Returns a loader of batches of 32 graphs with these node features ([`GraphDataset::node_features`]), for the
    /// graphs in `split`.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// let graphs = GraphDataset::open("mutag")?;
    /// let features = graphs.node_features(NodeFeatures::Auto)?;
    /// // 80 % of the graphs for training, 10 % each for validation and test.
    /// let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// let loader = GraphLoader::new(&graphs, features, &split);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(graphs: &GraphDataset, features: Arc<dyn FeatureStore>, split: &Split<GraphId>) -> Self {
        let batches = BatchConfig { batch_size: 32, ..BatchConfig::default() };
        Self {
            graphs: graphs.clone(),
            features,
            split: split.clone(),
            batches,
            workers: None,
            objective: None,
            target_scale: None,
            node_features: None,
        }
    }

    /// Records the kind of the node features, which does not change them. A saved model contains it, and
    /// [`PredictOn::node_features`](crate::PredictOn::node_features) returns features of this kind.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let graphs = GraphDataset::open("mutag")?;
    /// # let features = graphs.node_features(NodeFeatures::Auto)?;
    /// # let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// // Predictions with the saved model have features of this kind.
    /// let kind = NodeFeatures::Degrees;
    /// let loader = GraphLoader::new(&graphs, graphs.node_features(kind)?, &split).node_features(kind);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn node_features(self, kind: NodeFeatures) -> Self {
        Self { node_features: Some(self.graphs.node_features_kind(kind)), ..self }
    }

    /// Returns what the feature columns mean, if the kind of features is known.
    fn feature_columns(&self) -> BTreeMap<String, Vec<FeatureColumn>> {
        let columns = self.node_features.map_or_else(Vec::new, |kind| self.graphs.feature_columns(kind));
        // Features of another width are the caller's own, whose columns have no names.
        let columns =
            Some(columns).filter(|of_kind| !of_kind.is_empty() && of_kind.len() == self.features.dim());
        columns.map(|columns| ("node".to_owned(), columns)).into_iter().collect()
    }

    /// Sets the number of graphs in a batch of one rank.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let graphs = GraphDataset::open("mutag")?;
    /// # let features = graphs.node_features(NodeFeatures::Auto)?;
    /// # let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// // A step has the disjoint union of 128 graphs.
    /// let loader = GraphLoader::new(&graphs, features, &split).batch_size(128);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Sets the number of threads that prefetch batches; see
    /// [`NeighborLoader::workers`](crate::NeighborLoader::workers).
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let graphs = GraphDataset::open("mutag")?;
    /// # let features = graphs.node_features(NodeFeatures::Auto)?;
    /// # let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// // Without a thread: each batch is prepared when it is needed.
    /// let loader = GraphLoader::new(&graphs, features, &split).workers(0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the loss. The default suits the data's targets; see
    /// [`NeighborLoader::objective`](crate::NeighborLoader::objective).
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let graphs = GraphDataset::open("mutag")?;
    /// # let features = graphs.node_features(NodeFeatures::Auto)?;
    /// # let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// use kiln::nn::ClassLoss;
    /// use kiln::train::Objective;
    /// // A graph of class 1 counts three times as much as one of class 0.
    /// let loss = ClassLoss { class_weights: Some(vec![1.0, 3.0]), ..ClassLoss::default() };
    /// let loader = GraphLoader::new(&graphs, features, &split).objective(Objective::Classes(loss));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn objective(self, objective: Objective) -> Self {
        Self { objective: Some(objective), ..self }
    }

    /// Sets the scale on which the model learns regression targets; see
    /// [`NeighborLoader::target_scale`](crate::NeighborLoader::target_scale).
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: GraphLoader) {
    /// use kiln::train::TargetScale;
    /// let loader = loader.target_scale(TargetScale::None);
    /// # let _ = loader;
    /// # }
    /// ```
    pub fn target_scale(self, scale: TargetScale) -> Self {
        Self { target_scale: Some(scale), ..self }
    }

    /// Sets the batch settings: size, order, and the treatment of a short last step.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let graphs = GraphDataset::open("mutag")?;
    /// # let features = graphs.node_features(NodeFeatures::Auto)?;
    /// # let split = Split::random(graphs.n_graphs(), [0.8, 0.1], 0)?;
    /// use kiln::train::BatchConfig;
    /// // Batch normalisation cannot use a last batch of one graph.
    /// let batches = BatchConfig { batch_size: 64, drop_last: true, ..BatchConfig::default() };
    /// let loader = GraphLoader::new(&graphs, features, &split).batches(batches);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }
}

impl<M: GraphModel + Sync> DataLoader<M> for GraphLoader {
    type Task = GraphTask<M>;
    type Batcher = DeviceBatcher<GraphBatcher<dyn FeatureStore>>;

    fn task(&self, scaler: Option<&TargetScaler>) -> Self::Task {
        let objective = objective_of(self.objective.as_ref(), &self.graphs.targets());
        GraphTask::with_objective(TaskObjective::from(objective).with_target_scaler(scaler.cloned()))
    }

    fn target_kind(&self) -> TargetKind {
        self.graphs.targets().kind()
    }

    fn target_scaler(&self) -> Result<Option<TargetScaler>> {
        let scale = self.target_scale.unwrap_or_default();
        Ok(scale.scaler(&self.graphs.targets(), &self.split.train)?)
    }

    fn names(&self) -> (&str, &[String]) {
        (&self.graphs.name, &self.graphs.class_names)
    }

    fn data_hash(&self) -> Result<DataHash> {
        let (graphs, features, split) = (self.graphs.clone(), self.features.clone(), self.split.clone());
        Ok(hash_in_background(move |check| {
            graphs.hash_of(Some((&*features, &split)), HashedPart::All(check))
        }))
    }

    fn data_sample(&self) -> Result<String> {
        Ok(self.graphs.hash_of(Some((&*self.features, &self.split)), HashedPart::Sample)?)
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let objective = objective_of(self.objective.as_ref(), &self.graphs.targets());
        let settings = batch_settings(self.batches, &self.split, n_ranks).into_iter();
        let scale = target_scale_setting(self.target_scale, objective.kind());
        settings.chain(objective_setting(&objective)).chain(scale).collect()
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let inputs = ModelInputs {
            task: ModelTask::Graphs,
            data_name: self.graphs.name.clone(),
            n_features: self.features.dim(),
            feature_columns: self.feature_columns(),
            targets: self.graphs.targets().kind(),
            n_outputs: self.graphs.targets().n_outputs(),
            class_names: self.graphs.class_names.clone(),
            target_scaler: None,
            preparation: Some(Preparation::default()),
            node_features: self.node_features.map(|kind| kind.name().to_owned()),
            sampling: None,
            graph: None,
        };
        Some((inputs, EvalMode::Sampled.info(seed, self.batches.batch_size, n_ranks)))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let graphs = first_items(&self.split, phase, n_batches, self.batches.batch_size);
        Ok(Some(SplitTargets::of(&self.graphs.targets(), graphs)?))
    }

    fn notes(&self) -> Vec<String> {
        let of_split = self.split.notes(&self.graphs.targets(), 0);
        let mut notes = texts_of_new_notes(of_split, &self.graphs.notes);
        notes.extend(self.graphs.notes_on_unread(self.node_features));
        notes
    }

    fn check(&self, _: &BatchRequirements) -> Result<()> {
        let targets = self.graphs.targets();
        check_target_scale(self.target_scale, targets.kind())?;
        let objective = objective_of(self.objective.as_ref(), &targets);
        Ok(objective.check(targets.kind(), targets.n_outputs())?)
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
        let graphs = items_of(&self.split, phase);
        let items = trainer.items(&graphs[..], self.batches)?;
        let batcher = GraphBatcher::new(
            self.graphs.graph().clone(),
            self.graphs.node_offsets().clone(),
            self.features.clone(),
            self.graphs.targets(),
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
        let mut evaluation = Evaluation::new(trainer.task().objective().clone());
        trainer.evaluate(loader.epoch(phase), |input, forward| {
            evaluation.add_batch(&input.items, &input.labels, &input.target_values, forward);
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
