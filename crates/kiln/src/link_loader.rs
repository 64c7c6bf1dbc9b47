mod typed;

use std::fmt;

use kiln_data::{HashedPart, LinkSplit, LinkTargets};
use kiln_feature::TargetKind;
use kiln_graph::{LinkId, NodeId};
use kiln_loader::{Batcher, ItemSampler, LinkBatcher, LinkExclusion, Loader, Phase};
use kiln_nn::{BlockModel, LinkLoss, LinkModel};
use kiln_sample::{NegativeSampler, Negatives, UniformNegatives};
use kiln_train::{
    BatchConfig, DataHash, DeviceBatcher, EvaluatedTask, EvaluationInfo, Evaluator, HostOrDeviceBatcher,
    LinkTask, ModelInputs, Objective, SplitTargets, TaskTrainer,
};

use crate::batches::{batch_settings, first_items, items_of, items_of_all_ranks, objective_setting};
use crate::data_loader::evaluate_by_evaluator;
use crate::neighbor_loader::nodes_of_links;
use crate::{BatchRequirements, DataLoader, Error, NeighborLoader, RankHandle, Result};

pub use typed::{RelationNodes, TypedLinkNeighborLoader};

/// A description of minibatches of links, with the sampled neighbourhoods of their sources, their destinations and
/// their negatives. It trains a [`LinkModel`].
///
/// The settings of batches and sampling are those of a [`NeighborLoader`]; its batch size counts links. A training step
/// excludes the edges of its links, in both directions, from its own messages. Evaluations pass messages over the
/// message graph of the split, which has no link of the validation and the test.
///
/// `N` is the loader of the nodes. For the links of one relation of a heterogeneous graph, use
/// [`TypedLinkNeighborLoader`].
///
/// ```
/// use kiln::prelude::*;
/// let data = kiln::data::synthetic::ring(100)?;
/// let split = LinkSplit::random(&data.graph, &LinkSplitConfig { val: 0.1, test: 0.1, ..Default::default() }, 0)?;
/// let nodes = NeighborLoader::new(&data, [10, 10]).batch_size(16);
/// let loader = LinkNeighborLoader::new(nodes, &split)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct LinkNeighborLoader<N = NeighborLoader> {
    /// The loader of the nodes, whose graph passes the messages.
    nodes: N,
    targets: LinkTargets,
    negatives: Negatives,
    /// The negatives of the validation and the test.
    eval_negatives: [Negatives; 2],
    exclusion: LinkExclusion,
    loss: LinkLoss,
}

impl LinkNeighborLoader {
    /// The default number of negatives of a link in evaluations, if the split has no fixed negatives.
    pub const EVAL_NEGATIVES: usize = 100;

    /// Returns a loader of the links of a split. `nodes` is a loader of the data that was split; its graph is replaced
    /// by the split's message graph, normalised or with self loops if that of `nodes` is. Training draws one negative destination per link, uniformly. Evaluations use the
    /// fixed negatives of the split, or draw 100 per link.
    ///
    /// # Errors
    /// Returns [`Error::OtherGraph`] if the graphs have different numbers of nodes, [`Error::NeedsWholeGraph`] for a
    /// loader of a partitioned graph, [`Error::ObjectiveOfNodes`] if [`NeighborLoader::objective`] was called on `nodes`,
    /// and [`Error::Graph`] if edge weights are not finite.
    pub fn new(nodes: NeighborLoader, split: &LinkSplit) -> Result<Self> {
        Self::of(nodes.on_message_graph(split)?, split.targets())
    }

    /// Returns a loader of links between the nodes of a partitioned graph, which is the message graph: it must not have
    /// the links of the validation and the test. Otherwise it is [`LinkNeighborLoader::new`].
    ///
    /// # Errors
    /// Returns [`Error::NeedsPartitionedGraph`] for a loader of a whole graph, [`Error::ObjectiveOfNodes`] if
    /// [`NeighborLoader::objective`] was called on `nodes`, and [`Error::Data`] if a node of a link or of a negative is
    /// not in the graph.
    #[cfg(feature = "grpc")]
    pub fn partitioned(nodes: NeighborLoader, targets: &LinkTargets) -> Result<Self> {
        if nodes.partition().is_none() {
            // The graph of a dataset may have the links of the validation and the test.
            let what = "LinkNeighborLoader::partitioned";
            return Err(Error::NeedsPartitionedGraph {
                what,
                instead: "use LinkNeighborLoader::new with a split",
            });
        }
        targets.check(nodes.source().n_nodes())?;
        Self::of(nodes, targets)
    }

    fn of(nodes: NeighborLoader, targets: &LinkTargets) -> Result<Self> {
        if nodes.has_objective() {
            return Err(Error::ObjectiveOfNodes);
        }
        let n_nodes = nodes.source().n_nodes() as u32;
        Ok(Self::with_nodes(nodes, targets, UniformNegatives { n_nodes }))
    }
}

impl<N> LinkNeighborLoader<N> {
    fn with_nodes(nodes: N, targets: &LinkTargets, uniform: impl NegativeSampler + Clone + 'static) -> Self {
        let drawn = |n_per_link| Negatives::new(uniform.clone(), n_per_link);
        let fixed = [targets.val_negatives(), targets.test_negatives()];
        let n_per_link = LinkNeighborLoader::EVAL_NEGATIVES;
        let eval_negatives =
            fixed.map(|fixed| fixed.cloned().map_or_else(|| drawn(n_per_link), Negatives::fixed));
        Self {
            negatives: drawn(1),
            eval_negatives,
            nodes,
            targets: targets.clone(),
            exclusion: LinkExclusion::default(),
            loss: LinkLoss::default(),
        }
    }

    /// Sets the negatives of training. The run reports how many of them are still rejected after the last draw
    /// ([`FitReport::negatives`](kiln_train::FitReport::negatives)). [`InBatchNegatives`](kiln_sample::InBatchNegatives)
    /// of a step with a single link are the link itself, and count as rejected.
    pub fn negatives(self, negatives: Negatives) -> Self {
        Self { negatives, ..self }
    }

    /// Sets the negatives of the validation and the test. In-batch negatives are for training: in evaluations they
    /// depend on the batch size and on the number of ranks.
    pub fn eval_negatives(self, negatives: Negatives) -> Self {
        self.val_negatives(negatives.clone()).test_negatives(negatives)
    }

    /// Sets the negatives of the validation.
    pub fn val_negatives(mut self, negatives: Negatives) -> Self {
        self.eval_negatives[0] = negatives;
        self
    }

    /// Sets the negatives of the test.
    pub fn test_negatives(mut self, negatives: Negatives) -> Self {
        self.eval_negatives[1] = negatives;
        self
    }

    /// Sets the edges that a training step leaves out of its messages. [`LinkExclusion::None`] suits training links
    /// that are no edges of the message graph, and steps that contain all links.
    pub fn exclusion(self, exclusion: LinkExclusion) -> Self {
        Self { exclusion, ..self }
    }

    /// Sets the loss.
    pub fn loss(self, loss: LinkLoss) -> Self {
        Self { loss, ..self }
    }

    /// Returns the loader of the links' nodes.
    pub fn nodes(&self) -> &N {
        &self.nodes
    }

    /// Returns the negatives of a phase.
    fn negatives_of(&self, phase: Phase) -> &Negatives {
        match phase {
            Phase::Train { .. } => &self.negatives,
            Phase::Validation => &self.eval_negatives[0],
            Phase::Test => &self.eval_negatives[1],
        }
    }

    /// Checks that the loss can be computed from the negatives of each phase.
    fn check_negatives(&self) -> Result<()> {
        for phase in [Phase::Train { epoch: 0 }, Phase::Validation, Phase::Test] {
            self.loss.check(self.negatives_of(phase).n_per_link()).map_err(kiln_train::Error::from)?;
        }
        Ok(())
    }

    /// Returns the settings of links by name, with those of batches.
    fn link_settings(
        &self,
        batches: BatchConfig,
        n_ranks: usize,
    ) -> impl Iterator<Item = (&'static str, String)> + use<N> {
        let [val, test] = &self.eval_negatives;
        let negatives = [
            ("negatives", format!("{:?}", self.negatives)),
            ("validation negatives", format!("{val:?}")),
            ("test negatives", format!("{test:?}")),
            ("exclusion", format!("{:?}", self.exclusion)),
        ];
        let batches = batch_settings(batches, self.targets.split(), n_ranks).into_iter();
        batches.chain(negatives).chain(objective_setting(&Objective::Links(self.loss)))
    }

    /// Returns the targets of the links of a phase in the first `n_batches` batches of one rank.
    fn targets_of(&self, phase: Phase, n_batches: usize, batch_size: usize) -> SplitTargets {
        let links = first_items(self.targets.split(), phase, n_batches, batch_size);
        SplitTargets::of_links(links.len(), self.negatives_of(phase).n_per_link())
    }

    /// Returns a batcher of the links of a phase with a batcher of their nodes.
    fn batcher<B: Batcher<Item = NodeId>>(&self, nodes: B, phase: Phase) -> LinkBatcher<B> {
        LinkBatcher::new(nodes, self.targets.links().clone(), self.negatives_of(phase).clone())
            .exclusion(self.exclusion)
    }

    /// Returns the links of a phase for the trainer's rank.
    fn items<T: EvaluatedTask>(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<T>,
        evaluator: &Evaluator,
        batches: BatchConfig,
    ) -> Result<ItemSampler<LinkId>> {
        let links = items_of(self.targets.split(), phase);
        Ok(match phase {
            Phase::Train { .. } => trainer.items(&links[..], batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &links[..], batches)?,
        })
    }
}

impl<M: BlockModel + Sync> DataLoader<LinkModel<M>> for LinkNeighborLoader {
    type Task = LinkTask<M>;
    type Batcher = DeviceBatcher<LinkBatcher<HostOrDeviceBatcher>>;

    fn task(&self) -> Self::Task {
        LinkTask::with_loss(self.loss)
    }

    fn target_kind(&self) -> TargetKind {
        TargetKind::Links
    }

    fn names(&self) -> (&str, &[String]) {
        (self.nodes.source().names().0, &[])
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.nodes.source().data_hash(Some(self.targets.clone())))
    }

    fn data_sample(&self) -> Result<String> {
        let links = self.targets.hash_of(HashedPart::Sample)?;
        Ok(format!("{}, links {links}", self.nodes.source().data_sample()?))
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let nodes = self.nodes.sampling_settings().chain([self.nodes.evaluation_setting()]);
        nodes.chain(self.link_settings(self.nodes.batch_config(), n_ranks)).collect()
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        let (inputs, evaluation) = self.nodes.describe(seed, n_ranks);
        Some((inputs.of_links(), evaluation))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        Ok(Some(self.targets_of(phase, n_batches, self.nodes.batch_config().batch_size)))
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        self.check_negatives()?;
        self.nodes.check_sampling(model)
    }

    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator> {
        self.nodes.evaluator_of(rank)
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>> {
        let items = self.items(phase, trainer, evaluator, self.nodes.batch_config())?;
        // An exact evaluation computes the rows of all nodes, and reads only the pairs of the batches.
        let nodes = match (phase, evaluator) {
            (Phase::Validation | Phase::Test, Evaluator::Exact(_)) => self.nodes.for_pairs_only(),
            _ => self.nodes.clone(),
        };
        let batcher = nodes.batcher(trainer.device(), None, || {
            let train = nodes_of_links(self.targets.links(), &self.targets.split().train);
            Ok(ItemSampler::new(train, items_of_all_ranks(items.config()))
                .map_err(kiln_train::Error::from)?)
        })?;
        let batcher = batcher.input_aggregation(nodes.input_aggregation(&items, &trainer.model().encoder));
        let batcher = self.batcher(batcher, phase);
        let links = self.targets.links().clone();
        let items = self.nodes.source().shard_by_owner(items, move |link: LinkId| links.pair(link).1)?;
        self.nodes.start(items, DeviceBatcher::new(batcher, trainer.device()))
    }

    evaluate_by_evaluator!();
}

impl<N: fmt::Debug> fmt::Debug for LinkNeighborLoader<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, negatives, exclusion, loss, .. } = self;
        f.debug_struct("LinkNeighborLoader")
            .field("nodes", nodes)
            .field("negatives", negatives)
            .field("exclusion", exclusion)
            .field("loss", loss)
            .finish_non_exhaustive()
    }
}
