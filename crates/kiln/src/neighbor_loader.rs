mod ages;
mod batcher;
mod check;
mod custom_sampler;
mod custom_samplers;
mod describe;
mod messages;
mod phases;
mod sampling;
mod task_table;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use kiln_data::{DatasetTargets, TaskTable};
use kiln_feature::{Labels, RelationRows, TargetKind, TargetScaler};
use kiln_graph::{EdgeColumns, NodeId};
use kiln_kernels::{CacheStats, GraphMode};
use kiln_loader::{ItemSampler, Loader, Phase};
use kiln_nn::BlockModel;
use kiln_sample::{EdgeWeights, Fanout, SamplerConfig};
use kiln_train::{
    BatchConfig, DataHash, EvaluationInfo, Evaluator, HostOrDeviceBatcher, ItemColumns, ModelInputs,
    NodeKeys, NodeTask, Objective, SplitTargets, TargetScale, TaskObjective, TaskTrainer,
    notes_on_edge_columns,
};

use crate::batches::{
    batch_settings, check_target_scale, first_items, items_of, objective_of, objective_setting,
    shard_by_owner, target_scale_setting, texts_of_new_notes,
};
use crate::data_loader::evaluate_by_evaluator;
use crate::device_copy::{DeviceCopies, distinct};
use crate::source::Source;
use crate::{
    BatchRequirements, CachedNodes, DataLoader, DeviceCopy, EvalMode, GraphSource, RankHandle, Result,
};

use self::custom_samplers::CustomSamplers;
pub use self::messages::Messages;
use self::messages::PhaseGraphs;
pub(crate) use self::messages::cut_of;

/// A description of minibatches of a graph's nodes with sampled neighbourhoods: of a dataset or a partitioned graph, with one
/// type of nodes or several.
///
/// It is cheap to clone. The trainer provides the seed, the epoch, the device and the rank. One loader serves training,
/// validation and test.
///
/// ```
/// use kiln::prelude::*;
/// let data = kiln::data::synthetic::ring(100)?;
/// let loader = NeighborLoader::new(&data, [10, 10]).batch_size(16).workers(2);
/// # Ok::<(), Error>(())
/// ```
///
/// A heterogeneous graph has fanouts for each relation, and its batches are for a model with a
/// [`HeteroModelConfig`](kiln_nn::HeteroModelConfig):
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
///     columns: None,
/// };
/// let bought_by =
///     RelationEdges::new("bought by", "item", "user", &items, &users);
/// // Users have no features: their rows are trained.
/// let data = Dataset::builder_with_types(NodeTypes::new([("user", 10), ("item", 20)])?)
///     .relation(buys)
///     .relation(bought_by)
///     .nodes("item").features(vec![0.5; 40], 2)
///     .nodes("item").labels((0..20).map(|item| item % 2).collect::<Vec<i32>>(), 2)
///     .split(vec![0, 1, 2, 3, 4, 5, 6, 7], vec![8, 9], vec![10, 11])
///     .build()?;
/// let loader = NeighborLoader::new(&data, [5, 5]).relation_fanouts("buys", [10, 10])?.batch_size(4);
/// let config = HeteroModelConfig::new(data.dims(), RgcnConfig::new(8, 2, 2).layers(2).hidden(8));
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("run");
/// let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(2).out(out))?;
/// assert_eq!(best.evaluate(&loader, Phase::Test)?.total, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "pass it to Trainer::fit"]
pub struct NeighborLoader {
    source: Arc<dyn Source>,
    /// The data by which a run is identified: `source` before a step of a model and before the message graph of links.
    data: Arc<dyn Source>,
    /// The hash of the data, if the program knows it.
    known_hash: Option<String>,
    /// The targets of the data, or of the rows of a task table; empty if the data has none.
    targets: Arc<DatasetTargets>,
    /// The task table whose rows are the items; `None` if nodes are.
    table: Option<Arc<TaskTable>>,
    /// The fanout of each relation in each layer, `[n_layers][n_relations]`, input layer first.
    fanouts: Vec<Vec<Fanout>>,
    /// The rule, the edge weights and types, and the fanouts of the first relation.
    sampling: SamplerConfig,
    /// The names of the columns of edges that blocks carry.
    edge_columns: Vec<Arc<str>>,
    /// The form of the features of the edges, if blocks carry them.
    edge_feature_rows: RelationRows,
    /// The samplers of the program's own.
    samplers: CustomSamplers,
    /// True if [`NeighborLoader::rule`] was called.
    has_rule: bool,
    /// True if only the seeds of the batches are read: their blocks have no edges, and their features are zeros.
    reads_seeds_only: bool,
    batches: BatchConfig,
    workers: Option<usize>,
    queue_bytes: Option<usize>,
    graph_mode: GraphMode,
    feature_cache: Option<(u64, CachedNodes)>,
    evaluation: EvalMode,
    objective: Option<Objective>,
    target_scale: Option<TargetScale>,
    /// The device copies, which clones of this loader in other ranks of the process share.
    copies: DeviceCopies,
    /// The edges over which messages pass in data with a split by time, and the graphs of its phases.
    messages: Messages,
    phases: PhaseGraphs,
    /// True if batches carry the ages of nodes and edges.
    ages: bool,
    /// The unit of ages, computed when it is first needed.
    age_unit: Arc<OnceLock<u64>>,
    /// The keys of the nodes of each type without features, computed when they are first needed.
    keys: Arc<OnceLock<Arc<[Option<NodeKeys>]>>>,
}

impl NeighborLoader {
    /// Returns a loader of batches of 1,024 nodes of the type that has targets. In layer `i`, input layer first (DGL's
    /// order), each node has at most `fanouts[i]` in-neighbours of each relation, sampled uniformly without replacement.
    /// Integers convert to [`Fanout`]; [`Fanout::All`] takes all neighbours.
    ///
    /// `graph` is a [`Dataset`](kiln_data::Dataset) or a partitioned graph that
    /// this rank has joined ([`PartitionedGraph::join`](crate::PartitionedGraph::join)). In worker mode, each rank trains on
    /// the nodes of a partitioned graph that it owns. For links ([`LinkNeighborLoader`](crate::LinkNeighborLoader)), the
    /// graph needs no targets; training on its nodes is an error then.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Two layers: 15 neighbours of each node in the input layer, 10 of each seed.
    /// let loader = NeighborLoader::new(&data, [15, 10]);
    /// // All neighbours, for a small graph.
    /// let loader = NeighborLoader::new(&data, [Fanout::All; 2]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(graph: impl Into<GraphSource>, fanouts: impl IntoIterator<Item = impl Into<Fanout>>) -> Self {
        let GraphSource { source, known_hash } = graph.into();
        let n_relations = source.schema().relations().len();
        let sampling = SamplerConfig::new(fanouts);
        // The type of an edge of a heterogeneous graph is the position of its relation.
        let sampling = SamplerConfig { edge_types: source.is_heterogeneous(), ..sampling };
        Self {
            targets: Arc::new(source.targets().unwrap_or_else(|_| no_targets())),
            table: None,
            fanouts: sampling.fanouts.iter().map(|fanout| vec![*fanout; n_relations]).collect(),
            // A partitioned graph has the hash of its manifest.
            known_hash: known_hash.filter(|_| source.whole().is_some()),
            data: Arc::clone(&source),
            source,
            sampling,
            edge_columns: Vec::new(),
            edge_feature_rows: RelationRows::Equal,
            samplers: CustomSamplers::default(),
            has_rule: false,
            reads_seeds_only: false,
            batches: BatchConfig::default(),
            workers: None,
            queue_bytes: None,
            graph_mode: GraphMode::default(),
            feature_cache: None,
            evaluation: EvalMode::default(),
            objective: None,
            target_scale: None,
            copies: DeviceCopies::default(),
            messages: Messages::default(),
            phases: PhaseGraphs::default(),
            ages: false,
            age_unit: Arc::default(),
            keys: Arc::default(),
        }
    }

    /// Sets the number of nodes in a batch of one rank.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Each of 4 ranks trains on 256 nodes per step: 1,024 in total.
    /// let loader = NeighborLoader::new(&data, [10, 10]).batch_size(256);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batches.batch_size = batch_size;
        self
    }

    /// Enables or disables shuffling: a random order for each training epoch. Enabled by default.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Each epoch has the training nodes in the order of the split.
    /// let loader = NeighborLoader::new(&data, [10, 10]).shuffle(false);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.batches.shuffle = shuffle;
        self
    }

    /// Drops the last training step of an epoch if it is smaller than the others.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // 60 training nodes are 3 steps of 16. The other 12, which differ between epochs, are left out.
    /// let loader = NeighborLoader::new(&data, [10, 10]).batch_size(16).drop_last();
    /// # assert_eq!(data.split().train.len(), 60);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn drop_last(mut self) -> Self {
        self.batches.drop_last = true;
        self
    }

    /// Sets the batch settings: size, order, and the treatment of a short last step.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// use kiln::train::BatchConfig;
    /// let batches = BatchConfig { batch_size: 512, drop_last: true, ..BatchConfig::default() };
    /// let sampled = NeighborLoader::new(&data, [10, 10]).batches(batches);
    /// let all_neighbors = NeighborLoader::new(&data, [Fanout::All; 2]).batches(batches);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn batches(self, batches: BatchConfig) -> Self {
        Self { batches, ..self }
    }

    /// Sets the number of threads that prefetch batches. The default is 1 if the rank is alone or has more than one
    /// thread, else 0. With 0, each batch is prepared when it is needed. The batches do not depend on this number.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Four threads sample and gather the next batches while the device computes.
    /// let loader = NeighborLoader::new(&data, [10, 10]).workers(4);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn workers(self, workers: usize) -> Self {
        Self { workers: Some(workers), ..self }
    }

    /// Sets the limit in bytes for prefetched batches, finished or in preparation.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Batches of at most 512 MiB wait for the training, however many threads prepare them.
    /// let loader = NeighborLoader::new(&data, [10, 10]).workers(8).queue_bytes(512 << 20);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn queue_bytes(self, n_bytes: usize) -> Self {
        Self { queue_bytes: Some(n_bytes), ..self }
    }

    /// Returns a note for each column of the edges that the batches do not carry.
    pub(crate) fn notes_on_columns(&self) -> Vec<String> {
        let has_several_types = self.data.is_heterogeneous();
        let columns = self.data.edge_columns();
        notes_on_edge_columns(self.data.schema(), &columns, has_several_types, |column| match column {
            EdgeColumns::WEIGHTS => self.sampling.weights != EdgeWeights::None,
            EdgeColumns::TYPES => self.sampling.edge_types && !has_several_types,
            // Cuts of messages read them.
            EdgeColumns::TIMES => true,
            _ => self.edge_columns.iter().any(|other| **other == *column),
        })
    }

    /// Sets the place where neighbours are sampled and features are gathered. The batches do not depend on it. Of a
    /// heterogeneous graph, a device samples each relation, which takes 8 bytes per node of the graph and 4 per edge, 4 more
    /// with weights; the host joins the sampled edges and gathers the features. Of a partitioned graph, in worker mode, the
    /// device samples the local partition.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // The GPU samples, from a copy of the graph in its memory.
    /// let loader = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn graph_mode(self, graph_mode: GraphMode) -> Self {
        Self { graph_mode, ..self }.unshared()
    }

    /// Limits the features of nodes in the memory of each device to `n_bytes`. The nodes with the most out-edges are
    /// cached; the host sends the other rows with each batch. The limit does not apply to
    /// [`NeighborLoader::edge_features`]. Training on a heterogeneous graph with a cache is an error.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // The GPU samples, and has the features of the nodes with the most out-edges, up to 8 GiB.
    /// let loader = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device).feature_cache(8 << 30);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn feature_cache(self, n_bytes: u64) -> Self {
        self.feature_cache_of(n_bytes, CachedNodes::ByDegree)
    }

    /// Limits the features in device memory like [`NeighborLoader::feature_cache`], and selects the cached nodes.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// use kiln::CachedNodes;
    /// // Sampling the first epoch once more finds the nodes that batches read most often.
    /// let loader = NeighborLoader::new(&data, [10, 10])
    ///     .graph_mode(GraphMode::Device)
    ///     .feature_cache_of(8 << 30, CachedNodes::ByPresampling);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn feature_cache_of(self, n_bytes: u64, nodes: CachedNodes) -> Self {
        Self { feature_cache: Some((n_bytes, nodes)), ..self }.unshared()
    }

    /// Sets the neighbours that evaluation reads, and the ranks that evaluate. Exact evaluation is not possible on a
    /// heterogeneous graph; with [`Fanout::All`], sampled evaluation reads all neighbours.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// # let data = kiln::data::synthetic::ring(100)?;
    /// // Rank 0 evaluates on all neighbours, with at most 4 GiB of layer outputs in memory.
    /// let loader = NeighborLoader::new(&data, [10, 10]).evaluation(EvalMode::Exact { memory_bytes: Some(4 << 30) });
    /// # Ok::<(), Error>(())
    /// ```
    pub fn evaluation(self, evaluation: EvalMode) -> Self {
        Self { evaluation, ..self }
    }

    /// Sets the loss. The default suits the data's targets: the cross entropy for classes, the binary cross entropy for
    /// several labels per node, and the squared error for regression. A
    /// [`LinkNeighborLoader`](crate::LinkNeighborLoader) rejects a loader with an objective, because it has a loss of its
    /// own.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::nn::TargetLoss;
    /// use kiln::train::Objective;
    /// let graph = Dataset::builder(3).edges(&[0, 1], &[1, 2]).features(vec![0.0; 3], 1);
    /// let data = graph.regression(vec![0.5, 90.0, 1.5], 1).split(vec![0], vec![1], vec![2]).build()?;
    /// // A target that is far off counts less than with the squared error.
    /// let huber = Objective::Regression(TargetLoss::Huber { delta: 1.0 });
    /// let loader = NeighborLoader::new(&data, [10]).objective(huber);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn objective(self, objective: Objective) -> Self {
        Self { objective: Some(objective), ..self }
    }

    /// Sets the scale on which the model learns regression targets. By default, each column is standardised by its mean and
    /// standard deviation over the training split, so that the units of the targets do not matter
    /// ([`TargetScale::Standardize`]). Predictions and metrics are in the units of the targets; losses, and the delta of the
    /// Huber loss, are on this scale. Setting a scale for other targets is an error.
    ///
    /// ```
    /// use kiln::prelude::*;
    /// use kiln::train::TargetScale;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[1, 2])
    ///     .features(vec![0.0; 3], 1)
    ///     .regression(vec![1.2e5, 3.4e5, 2.0e5], 1)
    ///     .split(vec![0], vec![1], vec![2])
    ///     .build()?;
    /// // The squared error of the numbers as they are.
    /// let loader = NeighborLoader::new(&data, [10]).target_scale(TargetScale::None);
    /// # let _ = loader;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn target_scale(self, scale: TargetScale) -> Self {
        Self { target_scale: Some(scale), ..self }
    }

    /// Returns the loader without its device copies, which a changed configuration makes invalid. Those of the relations of a
    /// heterogeneous graph depend on the graph only.
    fn unshared(self) -> Self {
        let samplers = self.samplers.uncreated();
        Self { copies: self.copies.graphs_only(), phases: self.phases.without_copies(), samplers, ..self }
    }

    /// Returns the copies of graph and features in device memory that this loader shares with its clones.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(data: Dataset, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// let loader = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device).feature_cache(8 << 30);
    /// trainer.fit(&loader, FitConfig::epochs(10))?;
    /// for copy in loader.device_copies() {
    ///     println!("{} nodes have their features on the device", copy.features.n_cached());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn device_copies(&self) -> Vec<DeviceCopy> {
        let mut copies = self.copies.all();
        copies.extend(self.phases.copies());
        copies
    }

    /// Returns the statistics of the feature caches, summed over all devices.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(data: Dataset, mut trainer: Trainer<SageConfig>) -> Result<()> {
    /// let loader = NeighborLoader::new(&data, [10, 10]).graph_mode(GraphMode::Device).feature_cache(8 << 30);
    /// trainer.fit(&loader, FitConfig::epochs(10))?;
    /// println!("{:.1} % of the rows were on the device", 100.0 * loader.cache_stats().hit_rate());
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_stats(&self) -> CacheStats {
        // The graphs of the phases of a split by time share their features.
        let features = distinct(self.device_copies().into_iter().map(|copy| copy.features));
        features.iter().map(|features| features.cache_stats()).fold(CacheStats::default(), CacheStats::and)
    }

    /// Returns the range of the ids of the nodes that have targets.
    fn target_nodes(&self) -> Range<u32> {
        self.source.schema().types().range(self.targets.node_type)
    }

    /// Returns the first item of the targets; 0 for rows of a task table.
    fn first_item(&self) -> u32 {
        if self.table.is_some() { 0 } else { self.target_nodes().start }
    }

    /// Returns the rows of these items in the arrays of targets.
    fn target_rows<'a>(&self, nodes: &'a [NodeId]) -> Cow<'a, [NodeId]> {
        match self.first_item() {
            0 => Cow::Borrowed(nodes),
            first => nodes.iter().map(|node| NodeId(node.0.wrapping_sub(first))).collect(),
        }
    }
}

impl<M: BlockModel + Sync> DataLoader<M> for NeighborLoader {
    type Task = NodeTask<M>;
    type Batcher = HostOrDeviceBatcher;

    fn task(&self, scaler: Option<&TargetScaler>) -> Self::Task {
        let objective = objective_of(self.objective.as_ref(), &self.targets.values);
        let task =
            NodeTask::with_objective(TaskObjective::from(objective).with_target_scaler(scaler.cloned()));
        match self.has_input_encoder() {
            true => task.on_types(self.input_types()).with_keys(self.node_keys()),
            false => task,
        }
    }

    fn target_kind(&self) -> TargetKind {
        self.targets.values.kind()
    }

    fn target_scaler(&self) -> Result<Option<TargetScaler>> {
        let scale = self.target_scale.unwrap_or_default();
        let train = self.target_rows(&self.targets.split.train);
        Ok(scale.scaler(&self.targets.values, &train)?)
    }

    fn names(&self) -> (&str, &[String]) {
        (self.source.name(), &self.targets.class_names)
    }

    fn item_columns(&self) -> Option<ItemColumns> {
        self.columns_of_rows()
    }

    fn data_hash(&self) -> Result<DataHash> {
        Ok(self.hash_data(None))
    }

    fn data_sample(&self) -> Result<String> {
        self.sample_data()
    }

    fn settings(&self, n_ranks: usize) -> Vec<(&'static str, String)> {
        let objective = objective_of(self.objective.as_ref(), &self.targets.values);
        let mut settings = self.sampling_settings();
        settings.extend(batch_settings(self.batches, &self.targets.split, n_ranks));
        settings.extend(objective_setting(&objective));
        settings.extend(target_scale_setting(self.target_scale, objective.kind()));
        settings
    }

    fn model_inputs(&self, seed: u64, n_ranks: usize) -> Option<(ModelInputs, EvaluationInfo)> {
        Some(self.describe(seed, n_ranks))
    }

    fn split_targets(&self, phase: Phase, n_batches: usize) -> Result<Option<SplitTargets>> {
        let nodes = first_items(&self.targets.split, phase, n_batches, self.batches.batch_size);
        Ok(Some(SplitTargets::of(&self.targets.values, &self.target_rows(nodes))?))
    }

    fn notes(&self) -> Vec<String> {
        let targets = &self.targets;
        let of_split = match &self.table {
            Some(table) => table.notes(),
            None => targets.split.notes(&targets.values, self.first_item()),
        };
        let mut notes = texts_of_new_notes(of_split, self.source.notes());
        notes.extend(self.notes_on_columns());
        notes.extend(self.note_on_messages());
        notes
    }

    fn check(&self, model: &BatchRequirements) -> Result<()> {
        // The targets of the loader are empty if the data has none.
        if self.table.is_none() {
            self.source.targets()?;
        }
        let targets = &self.targets.values;
        check_target_scale(self.target_scale, targets.kind())?;
        objective_of(self.objective.as_ref(), targets).check(targets.kind(), targets.n_outputs())?;
        self.check_task_table()?;
        self.check_item_times()?;
        self.check_sampling(model)
    }

    fn evaluator(&self, rank: &RankHandle) -> Result<Evaluator> {
        let item_times = self.times_of_exact_evaluation(|phase| self.times_of_nodes(phase))?;
        self.evaluator_of(rank, item_times)
    }

    fn loader(
        &self,
        phase: Phase,
        trainer: &TaskTrainer<Self::Task>,
        evaluator: &Evaluator,
    ) -> Result<Loader<HostOrDeviceBatcher>> {
        let split = &self.targets.split;
        let nodes = items_of(split, phase);
        let items = match phase {
            Phase::Train { .. } => trainer.items(&nodes[..], self.batches)?,
            Phase::Validation | Phase::Test => evaluator.items(trainer, &nodes[..], self.batches)?,
        };
        let targets = Some(self.targets.values.clone());
        let of_phase = self.phase_loader(phase)?;
        let sampling = self.sampling_from(None);
        let batcher = of_phase.batcher(sampling, trainer.device(), trainer.model(), targets, || {
            let config = items.config().all_ranks();
            Ok(ItemSampler::new(&split.train[..], config).map_err(kiln_train::Error::from)?)
        })?;
        let batcher = batcher.input_aggregation(self.input_aggregation(&items, trainer.model()));
        let items = shard_by_owner(items, self.source.owner(), |node| node)?;
        self.start(items, batcher)
    }

    evaluate_by_evaluator!();
}

/// Returns targets of no nodes, for loaders of links.
fn no_targets() -> DatasetTargets {
    let values = Arc::new(Labels::new(Vec::new(), 0)).into();
    DatasetTargets { node_type: 0, values, split: Default::default(), class_names: Vec::new() }
}

impl fmt::Debug for NeighborLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, sampling, batches, graph_mode, .. } = self;
        f.debug_struct("NeighborLoader")
            .field("data", &source.name())
            .field("sampling", sampling)
            .field("batches", batches)
            .field("graph_mode", graph_mode)
            .finish_non_exhaustive()
    }
}
