use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::NodeId;
use kiln_loader::{Batcher, ItemSampler, Loader, Phase, Shard};
use kiln_nn::LayerWiseModel;
use rayon::ThreadPool;

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::evaluate::layer_wise::LayerWiseInference;
use crate::step::batch::DeviceBatch;
use crate::step::loaders::BatchConfig;
use crate::step::metric_sums::MetricSums;
use crate::step::node::{NodeClassification, NodeInput};
use crate::step::task::{StepOutput, Task};
use crate::step::trainer::TaskTrainer;

/// How the ranks evaluate a node classifier: who takes which nodes, and with which neighbours.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a program has one")]
pub enum Evaluator {
    /// Each rank takes its share of the nodes, with neighbours as its loader samples them.
    Sampled,
    /// The first rank takes all nodes, with neighbours as its loader samples them, while the others wait.
    FirstRank {
        /// The number of batches that an epoch is validated by, at most; the test takes all.
        n_batches: usize,
    },
    /// The first rank takes all nodes with all neighbours, layer by layer, while the others wait: nothing is computed
    /// twice.
    Exact(ExactEvaluator),
}

/// Exact evaluation: each layer over the whole graph.
#[derive(Debug)]
pub struct ExactEvaluator {
    /// Computes the outputs.
    pub inference: LayerWiseInference,
    /// The features of all nodes.
    pub features: Arc<dyn FeatureStore>,
    /// The classes of all nodes.
    pub labels: Arc<Labels>,
    /// The threads that compute: those of all ranks of the machine, which wait meanwhile
    /// ([`ThreadRanks::machine_pool`](kiln_comm::ThreadRanks::machine_pool)).
    pub threads: Arc<ThreadPool>,
}

impl Evaluator {
    /// The items that a rank's loader for evaluation takes: its share where all ranks evaluate, and otherwise all.
    ///
    /// # Errors
    /// [`Error::Loader`](crate::Error::Loader) for batches of no items.
    pub fn items<T: Task>(
        &self,
        trainer: &TaskTrainer<T>,
        items: impl Into<Arc<[NodeId]>>,
        config: BatchConfig,
    ) -> Result<ItemSampler> {
        Ok(ItemSampler::new(items, config.with_seed(trainer.seed(), self.shard(trainer)))?)
    }

    /// The counts of all ranks on the loader's nodes in that pass; of the first batches alone, where they are enough. A
    /// meeting.
    ///
    /// # Errors
    /// [`Error::OtherLoader`](crate::Error::OtherLoader) for a loader whose items are not those of [`Evaluator::items`],
    /// the errors of [`TaskTrainer::evaluate`], of [`LayerWiseInference::outputs`] and of [`Evaluation::count`].
    pub fn count<M, F>(
        &self,
        trainer: &mut TaskTrainer<NodeClassification<M>>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<MetricSums>
    where
        M: LayerWiseModel + Sync,
        F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>,
    {
        self.check(trainer, loader)?;
        let counts = match self {
            Self::Sampled => return trainer.evaluate(loader.epoch(phase), |_, _| ()),
            Self::FirstRank { n_batches } => trainer.on_rank_zero(|trainer| {
                trainer.evaluate_own(loader.epoch(phase).take(*n_batches), |_, _| ())
            })?,
            Self::Exact(exact) => trainer.on_rank_zero(|trainer| {
                let outputs = exact.outputs(trainer)?;
                Evaluation::count(&outputs, loader.items().items(), &exact.labels)
            })?,
        };
        trainer.sum(counts)
    }

    /// What the model says of this rank's part of the loader's nodes in that pass. A meeting.
    ///
    /// # Errors
    /// As [`Evaluator::count`].
    pub fn evaluate<M, F>(
        &self,
        trainer: &mut TaskTrainer<NodeClassification<M>>,
        loader: &Loader<F>,
        phase: Phase,
    ) -> Result<Evaluation>
    where
        M: LayerWiseModel + Sync,
        F: Batcher<Item = NodeId, Batch = DeviceBatch<NodeInput>>,
    {
        self.check(trainer, loader)?;
        let mut evaluation = Evaluation::default();
        let add =
            |input: &NodeInput, forward: &StepOutput| evaluation.add(&input.seeds, &input.labels, forward);
        match self {
            Self::Sampled => {
                trainer.evaluate(loader.epoch(phase), add)?;
            }
            Self::FirstRank { .. } => {
                trainer.on_rank_zero(|trainer| trainer.evaluate_own(loader.epoch(phase), add))?;
            }
            Self::Exact(exact) => {
                evaluation = trainer.on_rank_zero(|trainer| {
                    let outputs = exact.outputs(trainer)?;
                    Evaluation::of(&outputs, loader.items().items(), &exact.labels)
                })?;
            }
        }
        Ok(evaluation)
    }

    /// The share of the items that a rank evaluates.
    fn shard<T: Task>(&self, trainer: &TaskTrainer<T>) -> Shard {
        match self {
            Self::Sampled => trainer.shard(),
            Self::FirstRank { .. } | Self::Exact(_) => Shard::default(),
        }
    }

    fn check<T: Task, F: Batcher>(&self, trainer: &TaskTrainer<T>, loader: &Loader<F>) -> Result<()> {
        trainer.check_seed(loader.items())?;
        trainer.check_shard(loader.items(), self.shard(trainer))
    }
}

impl ExactEvaluator {
    /// The model's outputs for every node of the graph.
    fn outputs<M: LayerWiseModel + Sync>(
        &self,
        trainer: &mut TaskTrainer<NodeClassification<M>>,
    ) -> Result<DenseFeatures> {
        let (model, device) = (trainer.model(), trainer.device());
        let outputs = self.threads.install(|| self.inference.outputs(model, &*self.features, device));
        trainer.peak.merge(self.inference.peak_memory());
        outputs
    }
}
