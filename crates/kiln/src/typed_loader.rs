mod sampling;

use std::fmt;
use std::sync::{Arc, OnceLock};

use kiln_data::{Split, TypedDataset, TypedTargets};
use kiln_feature::{Labels, TargetKind};
use kiln_graph::NodeId;
use kiln_kernels::GraphMode;
use kiln_loader::{Loader, NodeBatcher, NodeTargets, Phase};
use kiln_nn::{BlockModel, TypedModel};
use kiln_sample::{EdgeWeights, Fanout, Rule, TypedSampler};
use kiln_train::{
    BatchConfig, DataHash, EvaluationInfo, Evaluator, HostNodeBatcher, ModelInputs, NodeKeys, NodeTask,
    Objective, SplitTargets, TaskTrainer,
};

use crate::batches::{batch_settings, first_items, items_of, objective_of, objective_setting};
use crate::data_loader::evaluate_by_evaluator;
use crate::device_copy::GraphCopies;
use crate::typed_source::TypedSource;
use crate::{BatchRequirements, DataLoader, Error, EvalMode, RankHandle, Result};
#[cfg(feature = "grpc")]
use crate::{JoinedTypedGraph, PartitionedGraph};

/// A description of minibatches of the nodes of one type of a heterogeneous graph, with sampled neighbourhoods: the
/// counterpart of [`NeighborLoader`](crate::NeighborLoader) for a [`TypedDataset`].
///
/// It is cheap to clone. The trainer provides the seed, the epoch, the device and the rank.
///
/// ```
/// use kiln::graph::{NodeTypes, RelationEdges};
/// use kiln::prelude::*;
/// let users: Vec<u32> = (0..40).map(|edge| edge % 10).collect();
/// let items: Vec<u32> = (0..40).map(|edge| edge % 20).collect();
/// let buys = RelationEdges {
///     name: "buys",
///     src_type: "user",
///     dst_type: "item",
///     srcs: &users,
///     dsts: &items,
///     weights: None,
/// };
/// let bought_by =
///     RelationEdges { name: "bought by", src_type: "item", dst_type: "user", srcs: &items, dsts: &users, weights: None };
/// // Users have no features: their rows are trained.
/// let data = TypedDataset::builder(NodeTypes::new([("user", 10), ("item", 20)])?)
///     .relation(buys)
///     .relation(bought_by)
///     .features("item", vec![0.5; 40], 2)
///     .labels("item", (0..20).map(|item| item % 2).collect::<Vec<i32>>(), 2)
///     .split(&[0, 1, 2, 3, 4, 5, 6, 7], &[8, 9], &[10, 11])
///     .build()?;
/// let loader = TypedNeighborLoader::new(&data, [5, 5])?.relation_fanouts("buys", [10, 10])?.batch_size(4);
/// let config = TypedModelConfig::new(data.dims(), RgcnConfig::new(8, 2, 2).layers(2).hidden(8));
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("run");
/// let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
/// assert_eq!(best.evaluate(&loader, Phase::Test)?.total, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct TypedNeighborLoader {
    source: TypedSource,
    /// The targets of the data; empty if it has none.
    targets: Arc<TypedTargets>,
    /// The fanout of each relation in each layer, input layer first.
    fanouts: Vec<Vec<Fanout>>,
    rule: Rule,
    weights: EdgeWeights,
    batches: BatchConfig,
    workers: Option<usize>,
    queue_bytes: Option<usize>,
    evaluation: EvalMode,
    objective: Option<Objective>,
    graph_mode: GraphMode,
    /// The copies of the relations on devices.
    copies: GraphCopies,
    /// The keys of the nodes of each type without features, computed when they are first needed.
    keys: Arc<OnceLock<Arc<[Option<NodeKeys>]>>>,
}

impl TypedNeighborLoader {
    /// Returns a loader of batches of 1,024 nodes of the type that has targets. In layer `i`, input layer first (DGL's
    /// order), each node has at most `fanouts[i]` in-neighbours of each relation, sampled uniformly without replacement.
    ///
    /// # Errors
    /// Returns [`Error::NoTargets`] if the data has no targets.
    pub fn new(data: &TypedDataset, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Result<Self> {
        let source = TypedSource::Whole(Arc::new(data.clone()));
        let targets = source.targets()?;
        Ok(Self::of(source, targets, fanouts))
    }

    /// Returns a loader of batches whose seeds are links instead of nodes, for a
    /// [`TypedLinkNeighborLoader`](crate::TypedLinkNeighborLoader): the data needs no targets. Otherwise it is
    /// [`TypedNeighborLoader::new`].
    pub fn without_targets(
        data: &TypedDataset,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Self {
        let targets = data.targets.clone().unwrap_or_else(no_targets);
        Self::of(TypedSource::Whole(Arc::new(data.clone())), targets, fanouts)
    }

    /// Joins a partitioned heterogeneous graph, and returns a loader on it with the defaults of
    /// [`TypedNeighborLoader::new`]. In worker mode, each rank trains on the nodes that it owns. For links
    /// ([`TypedLinkNeighborLoader::of_partitioned_relation`](crate::TypedLinkNeighborLoader::of_partitioned_relation)), the graph
    /// needs no labels; training on its nodes is [`Error::NoLabelsInPartitions`] then. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns the errors of [`PartitionedGraph::join_typed`].
    #[cfg(feature = "grpc")]
    pub fn partitioned(
        graph: &PartitionedGraph,
        rank: &RankHandle,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Result<Self> {
        let source = TypedSource::Partitioned(graph.join_typed(rank)?);
        // Links need no targets. Training on nodes checks for them.
        let targets = source.targets().unwrap_or_else(|_| no_targets());
        Ok(Self::of(source, targets, fanouts))
    }

    fn of(
        source: TypedSource,
        targets: TypedTargets,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Self {
        let n_relations = source.schema().relations().len();
        let of_layer = |fanout: Fanout| vec![fanout; n_relations];
        Self {
            source,
            targets: Arc::new(targets),
            fanouts: fanouts.into_iter().map(|fanout| of_layer(fanout.into())).collect(),
            rule: Rule::default(),
            weights: EdgeWeights::None,
            batches: BatchConfig::default(),
            workers: None,
            queue_bytes: None,
            evaluation: EvalMode::default(),
            objective: None,
            graph_mode: GraphMode::default(),
            copies: GraphCopies::default(),
            keys: Arc::default(),
        }
    }

    /// Sets the fanouts of one relation, input layer first; 0 does not sample the relation.
    ///
    /// # Errors
    /// Returns [`kiln_graph::Error::NoSuchRelation`] for a name that the data does not have, and [`Error::FanoutsOfRelation`] unless
    /// there is one fanout per layer.
    pub fn relation_fanouts(
        mut self,
        relation: &str,
        fanouts: impl IntoIterator<Item = impl Into<Fanout>>,
    ) -> Result<Self> {
        let fanouts: Vec<Fanout> = fanouts.into_iter().map(Into::into).collect();
        let position = self.source.schema().require(relation)?;
        let (expected, got) = (self.fanouts.len(), fanouts.len());
        if expected != got {
            return Err(Error::FanoutsOfRelation { name: relation.to_owned(), expected, got });
        }
        for (of_layer, fanout) in self.fanouts.iter_mut().zip(fanouts) {
            of_layer[position] = fanout;
        }
        Ok(self)
    }

    /// Sets the number of nodes in a batch of one rank.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Enables or disables shuffling: a random order for each training epoch. Enabled by default.
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.batches.shuffle = shuffle;
        self
    }

    /// Drops the last training step of an epoch if it is smaller than the others.
    pub fn drop_last(mut self) -> Self {
        self.batches.drop_last = true;
        self
    }

    /// Sets the batch settings: size, order, and the treatment of a short last step.
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }

    /// Sets the number of threads that prefetch batches, as [`NeighborLoader::workers`](crate::NeighborLoader::workers)
    /// does.
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the limit in bytes for prefetched batches, finished or in preparation.
    pub fn queue_bytes(self, n_bytes: usize) -> Self {
        Self { queue_bytes: Some(n_bytes), ..self }
    }

    /// Sets the sampling rule of all relations.
    pub fn rule(self, rule: impl Into<Rule>) -> Self {
        Self { rule: rule.into(), ..self }
    }

    /// Sets the kind of edge weights that blocks carry. By default, blocks carry no edge weights. All relations must have
    /// weights otherwise.
    pub fn edge_weights(self, weights: EdgeWeights) -> Self {
        Self { weights, ..self }
    }

    /// Sets the place where neighbours are sampled. Batches are the same in all modes. On a device, each relation takes 8 bytes
    /// per node of the graph and 4 per edge, 4 more with weights. The host joins the sampled edges of the relations and
    /// gathers the features. Of a partitioned graph, in worker mode, the device samples the local partition.
    pub fn graph_mode(self, mode: GraphMode) -> Self {
        Self { graph_mode: mode, ..self }
    }

    /// Sets the ranks that evaluate. Exact evaluation is not possible on a heterogeneous graph; with [`Fanout::All`],
    /// sampled evaluation reads all neighbours.
    pub fn evaluation(self, evaluation: EvalMode) -> Self {
        Self { evaluation, ..self }
    }

    /// Sets the loss. The default suits the data's targets: the cross entropy for classes, the binary cross entropy for
    /// several labels per node, and the squared error for regression.
    pub fn objective(self, objective: Objective) -> Self {
        Self { objective: Some(objective), ..self }
    }

    /// Returns the partitioned graph, which reports network traffic and memory use, or `None` if the loader reads a whole
    /// dataset.
    #[cfg(feature = "grpc")]
    pub fn partition(&self) -> Option<&JoinedTypedGraph> {
        match &self.source {
            TypedSource::Whole(_) => None,
            TypedSource::Partitioned(joined) => Some(joined),
        }
    }

    fn split(&self) -> &Split {
        &self.targets.split
    }
}

impl<M: BlockModel + Sync> DataLoader<TypedModel<M>> for TypedNeighborLoader {
    type Task = NodeTask<TypedModel<M>>;
    type Batcher = HostNodeBatcher<TypedSampler>;

    fn task(&self) -> Self::Task {
        let objective = objective_of(self.objective.as_ref(), &self.targets.values);
        NodeTask::with_objective(objective).on_types(self.input_types()).with_keys(self.row_keys())
    }

    fn target_kind(&self) -> TargetKind {
        self.targets.values.kind()
    }

    fn names(&self) -> (&str, &[String]) {
        (self.source.name(), &self.targets.class_names)
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.source.data_hash(None))
    }

    fn data_sample(&self) -> Result<String> {
        self.source.data_sample()
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let objective = objective_of(self.objective.as_ref(), &self.targets.values);
        self.sampling_settings()
            .chain(batch_settings(self.batches, self.split(), n_ranks))
            .chain(objective_setting(&objective))
            .collect()
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        Some(self.describe(seed, n_ranks))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let nodes = first_items(self.split(), phase, n_batches, self.batches.batch_size);
        let first = self.source.schema().types().range(self.targets.node_type).start;
        let rows: Vec<NodeId> = nodes.iter().map(|node| NodeId(node.0.wrapping_sub(first))).collect();
        Ok(Some(SplitTargets::of(&self.targets.values, &rows)?))
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        self.source.targets()?;
        self.check_sampling(model)?;
        let targets = &self.targets.values;
        let objective = objective_of(self.objective.as_ref(), targets);
        Ok(objective.check(targets.kind(), targets.n_outputs())?)
    }

    fn evaluator(&self, _: &RankHandle) -> Result<Evaluator> {
        self.evaluator_of()
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<Self::Batcher>> {
        let nodes = items_of(self.split(), phase);
        let items = match phase {
            Phase::Train { .. } => trainer.items(&nodes[..], self.batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &nodes[..], self.batches)?,
        };
        let nodes = self.source.schema().types().range(self.targets.node_type);
        let targets = NodeTargets::of_type(nodes, self.targets.values.clone());
        let sampler = Arc::new(self.sampler(trainer.device())?);
        let batcher = NodeBatcher::new(sampler, self.features(), targets);
        let batcher = self.host_batcher(batcher, &items, trainer.model(), trainer.device());
        let config = self.loader_config(&items);
        let items = self.source.shard_by_owner(items, |node| node)?;
        Ok(Loader::new(items, batcher, config).map_err(kiln_train::Error::from)?)
    }

    evaluate_by_evaluator!();
}

fn no_targets() -> TypedTargets {
    let values = Arc::new(Labels::new(Vec::new(), 0)).into();
    TypedTargets { node_type: 0, values, split: Split::default(), class_names: Vec::new() }
}

impl fmt::Debug for TypedNeighborLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, fanouts, batches, .. } = self;
        f.debug_struct("TypedNeighborLoader")
            .field("data", &source.name())
            .field("fanouts", fanouts)
            .field("batches", batches)
            .finish_non_exhaustive()
    }
}
