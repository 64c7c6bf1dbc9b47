use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureBuffer, FeatureDType, FeatureStore};
use kiln_graph::{ItemId, NodeId};
use kiln_loader::{Batcher, FeatureStores, ItemSampler, Loader, NodeTargets, Phase, Shard};
use kiln_nn::BlockModel;
use kiln_store::progress::ProgressScope;
use rayon::ThreadPool;

use crate::error::{Error, Result};
use crate::evaluate::evaluated_task::EvaluatedTask;
use crate::evaluate::evaluation::{BatchTimes, Evaluation};
use crate::evaluate::layer_wise::LayerWiseInference;
use crate::evaluate::validation::Validation;
use crate::metric::kind::Metric;
use crate::run::validation_end::Validated;
use crate::step::batch::DeviceBatch;
use crate::step::batch::loaders::BatchConfig;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// An evaluation method for tasks on nodes or links on several ranks: which rank evaluates which items, and with which
/// neighbours.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a program has one")]
pub enum Evaluator {
    /// Each rank evaluates its share of the items, with the neighbours that its loader samples.
    Sampled,
    /// Rank 0 evaluates all items, with the neighbours that its loader samples, while the other ranks wait.
    FirstRank {
        /// The maximum number of batches in [`Evaluator::count`] and [`Evaluator::validate`]; [`Evaluator::evaluate`]
        /// takes all batches.
        n_batches: usize,
    },
    /// Rank 0 evaluates all items with all neighbours, layer by layer, while the other ranks wait. Each node's hidden
    /// row is computed once.
    Exact(ExactEvaluator),
}

/// Exact evaluation: computes each layer for the whole graph.
#[derive(Debug)]
pub struct ExactEvaluator {
    /// The inference that computes the outputs.
    pub inference: LayerWiseInference,
    /// The inference of the test, if its messages pass over another graph than those of the validation.
    pub test_inference: Option<LayerWiseInference>,
    /// The features of all nodes, by type.
    pub features: FeatureStores,
    /// The targets of all nodes, or of those of one type; link prediction does not read them.
    pub targets: NodeTargets,
    /// The ids of the first source and of the first destination that links may have: those of their types, or 0 for a graph of
    /// one type. Tasks on nodes do not read them.
    pub first_ends: [u32; 2],
    /// The pool that computes the outputs, with the threads of all ranks of the machine
    /// ([`ThreadRanks::machine_pool`](kiln_comm::ThreadRanks::machine_pool)). The other ranks wait meanwhile and do not
    /// use their threads.
    pub threads: Arc<ThreadPool>,
}

impl Evaluator {
    /// Returns the items for this rank's evaluation loader: the rank's share if all ranks evaluate, otherwise all
    /// items.
    ///
    /// # Errors
    /// Returns [`Error::Loader`](crate::Error::Loader) for a batch size of 0, and for exact evaluation
    /// [`Error::NotLayerWise`](crate::Error::NotLayerWise) for a model that returns no [`BlockModel::layer_size`].
    pub fn items<T: EvaluatedTask, I: ItemId>(
        &self,
        trainer: &TaskTrainer<T>,
        items: impl Into<Arc<[I]>>,
        config: BatchConfig,
    ) -> Result<ItemSampler<I>> {
        self.check_model(trainer)?;
        Ok(ItemSampler::new(
            items,
            config.with_seed(trainer.seed(), trainer.accumulate, self.shard(trainer)),
        )?)
    }

    /// Evaluates the loader's items in this phase and returns the metric sums of all ranks. [`Evaluator::FirstRank`]
    /// stops after `n_batches`. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`crate::TrainerError::OtherLoader`] for a loader whose items are not those of
    /// [`Evaluator::items`], and the errors of [`TaskTrainer::evaluate`], [`LayerWiseInference::outputs`] and
    /// [`Evaluation::count`].
    pub fn count<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<MetricSums>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        self.check(trainer, loader)?;
        let counts = match self {
            Self::Sampled => return trainer.evaluate(loader.epoch(phase), |_, _| ()),
            Self::FirstRank { n_batches } => trainer.on_rank_zero(|trainer| {
                trainer.evaluate_own(loader.epoch(phase).take(*n_batches), |_, _| ())
            })?,
            Self::Exact(exact) => {
                trainer.on_rank_zero(|trainer| T::count_exactly(exact, trainer, loader, phase))?
            }
        };
        trainer.sum(counts)
    }

    /// Returns the model's outputs for the items that this rank evaluates: the loader's items, or none if rank 0
    /// evaluates for all ranks and this is another rank. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluator::count`].
    pub fn evaluate<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        self.evaluate_batches(trainer, loader, phase, usize::MAX)
    }

    /// Evaluates the loader's items in this phase, and computes a metric over all ranks. [`Evaluator::FirstRank`] stops
    /// after `n_batches`. Every metric except the accuracy is computed from the outputs of all items, which are held in
    /// memory. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluator::count`] and [`Validation::of`].
    pub fn validate<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
        metric: Metric,
    ) -> Result<Validation>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        if metric == Metric::Accuracy {
            return Ok(self.count(trainer, loader, phase)?.into());
        }
        let outputs = self.validation_outputs(trainer, loader, phase)?;
        Validation::of(&outputs, metric, trainer.comm())
    }

    /// Validates like [`Evaluator::validate`], from the outputs of all items by any metric, and gathers the outputs on rank 0.
    /// Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`Evaluator::validate`].
    pub fn validate_with_outputs<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
        metric: Metric,
    ) -> Result<Validated>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        let outputs = self.validation_outputs(trainer, loader, phase)?;
        Validated::of(outputs, metric, trainer.comm())
    }

    /// Returns the outputs of [`Evaluator::evaluate`] for a validation; [`Evaluator::FirstRank`] stops after `n_batches`.
    fn validation_outputs<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        let n_batches = match self {
            Self::FirstRank { n_batches } => *n_batches,
            Self::Sampled | Self::Exact(_) => usize::MAX,
        };
        self.evaluate_batches(trainer, loader, phase, n_batches)
    }

    /// Returns the outputs of [`Evaluator::evaluate`]; [`Evaluator::FirstRank`] stops after `n_batches`.
    fn evaluate_batches<T, F>(
        &self,
        trainer: &mut TaskTrainer<T>,
        loader: &Loader<F>,
        phase: Phase,
        n_batches: usize,
    ) -> Result<Evaluation>
    where
        T: EvaluatedTask,
        F: Batcher<Item = T::Item, Batch = DeviceBatch<T::Input>>,
    {
        self.check(trainer, loader)?;
        let mut evaluation = Evaluation::new(trainer.task.objective().clone());
        let add = |input: &T::Input, forward: &StepOutput| T::collect(&mut evaluation, input, forward);
        match self {
            Self::Sampled => {
                trainer.evaluate(loader.epoch(phase), add)?;
            }
            Self::FirstRank { .. } => {
                trainer
                    .on_rank_zero(|trainer| trainer.evaluate_own(loader.epoch(phase).take(n_batches), add))?;
            }
            Self::Exact(exact) => {
                let of_rank_zero = trainer
                    .on_rank_zero(|trainer| T::evaluate_exactly(exact, trainer, loader, phase).map(Some))?;
                // The other ranks keep their evaluation without items, which has the task's objective.
                return Ok(of_rank_zero.unwrap_or(evaluation));
            }
        }
        evaluation.batch_times = BatchTimes(std::mem::take(&mut trainer.eval_batch_times));
        Ok(evaluation)
    }

    /// Checks that exact evaluation can run the model layer by layer.
    fn check_model<T: EvaluatedTask>(&self, trainer: &TaskTrainer<T>) -> Result<()> {
        let Self::Exact(_) = self else { return Ok(()) };
        let model = T::encoder(trainer.model());
        match (0..model.n_layers()).all(|layer| model.layer_size(layer).is_some()) {
            true => Ok(()),
            false => Err(Error::NotLayerWise),
        }
    }

    /// Returns the share of the items that this rank evaluates.
    fn shard<T: Task>(&self, trainer: &TaskTrainer<T>) -> Shard {
        match self {
            Self::Sampled => trainer.shard(),
            Self::FirstRank { .. } | Self::Exact(_) => Shard::default(),
        }
    }

    fn check<T: EvaluatedTask, F: Batcher>(
        &self,
        trainer: &TaskTrainer<T>,
        loader: &Loader<F>,
    ) -> Result<()> {
        self.check_model(trainer)?;
        trainer.check_seed(loader.items())?;
        trainer.check_shard(loader.items(), self.shard(trainer))
    }
}

impl ExactEvaluator {
    /// Computes the outputs of the model of nodes for every node of the graph.
    pub(crate) fn outputs<T: EvaluatedTask>(
        &self,
        trainer: &mut TaskTrainer<T>,
        phase: Phase,
    ) -> Result<DenseFeatures> {
        let inference = match (phase, &self.test_inference) {
            (Phase::Test, Some(of_test)) => of_test,
            _ => &self.inference,
        };
        let model = T::encoder(trainer.model());
        let device = trainer.device();
        let tables = &trainer.embeddings;
        let scope = ProgressScope::current();
        let outputs = self.threads.install(|| {
            scope.run(|| match self.features.only_store() {
                Some(features) => inference.outputs(model, &**features, device),
                None => inference.outputs_by_type(model, &self.features, tables, device),
            })
        });
        trainer.peak.merge(inference.peak_memory());
        outputs
    }

    /// Computes the outputs of the nodes that have targets, which are numbered from 0 within their type, and returns them with
    /// the numbers of these nodes.
    pub(crate) fn outputs_of_targets<T: EvaluatedTask>(
        &self,
        trainer: &mut TaskTrainer<T>,
        nodes: &[NodeId],
        phase: Phase,
    ) -> Result<(RowsFrom, Vec<NodeId>)> {
        let first = self.targets.first_node();
        let rows = RowsFrom { rows: self.outputs(trainer, phase)?, first };
        Ok((rows, nodes.iter().map(|node| NodeId(node.0 - first)).collect()))
    }
}

/// The rows of the nodes of one type, of which the first has the row `first`.
#[derive(Debug)]
pub(crate) struct RowsFrom {
    rows: DenseFeatures,
    first: u32,
}

impl FeatureStore for RowsFrom {
    fn dim(&self) -> usize {
        self.rows.dim()
    }

    fn n_rows(&self) -> usize {
        self.rows.n_rows() - self.first as usize
    }

    fn dtype(&self) -> FeatureDType {
        self.rows.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> kiln_feature::Result<()> {
        let rows: Vec<NodeId> = ids.iter().map(|id| NodeId(id.0 + self.first)).collect();
        self.rows.gather(&rows, out)
    }
}
