use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{EdgeColumnStores, EdgeFeatureStore, Labels, TargetValues, Targets};
use kiln_graph::{Block, GraphSchema, ItemId, Metagraph, NodeId, NodeTypes, RelationGroups, SharedArray};
use kiln_sample::{FrontierSampler, SampledBlocks, Scratch};

use crate::{Ages, BatchError, EdgeRows, FeatureStores, MiniBatch, SampledBatch, SeedBatch, StageTimes};

/// Makes a batch from its seeds: the task-specific part of a [`Loader`](crate::Loader).
///
/// A batcher must be a pure function of the seeds and their key: the loader calls it in any thread and, for different
/// steps, in any order. To avoid a deadlock it must not wait for the thread that takes the batches, nor for a thread
/// pool of which that thread is a part.
pub trait Batcher: Send + Sync + 'static {
    /// The type of the seeds: nodes, graphs or links.
    type Item: ItemId;

    /// The type of the batches.
    type Batch: Send + 'static;

    /// The buffers that a worker reuses from batch to batch, or `()`. A batch must not depend on earlier uses of its
    /// scratch. The loader discards a scratch after a panic.
    type Scratch: Send + Default + 'static;

    /// Makes the batch of one step. `times.seeds` is already set; the batcher sets the times of the other stages.
    ///
    /// # Errors
    /// Returns any error that occurs. The loader returns the error for this step and ends the epoch. A panic has the
    /// same effect.
    fn batch(
        &self,
        seeds: SeedBatch<Self::Item>,
        scratch: &mut Self::Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, BatchError>;

    /// Returns the size of a finished batch in bytes, which counts towards the limit of the loader's queue.
    fn n_bytes(batch: &Self::Batch) -> usize;
}

/// The targets of nodes.
#[derive(Debug, Clone)]
pub struct NodeTargets {
    items: TargetItems,
    /// The targets, by item.
    targets: Targets,
}

/// The items that have targets.
#[derive(Debug, Clone)]
enum TargetItems {
    /// The nodes of a graph of one type.
    All,
    /// The nodes of one type, whose ids are these. Their targets are numbered from 0 within the type.
    OfType(Range<u32>),
    /// Rows with these nodes, `[n_rows]`. The seeds of a batch are positions of rows. It is boxed, because few batchers have it.
    Rows(Box<SharedArray<NodeId>>),
}

impl NodeTargets {
    /// Creates the targets of the nodes of one type. `nodes` are the ids of these nodes, and `targets` are numbered from 0
    /// within the type.
    pub fn of_type(nodes: Range<u32>, targets: impl Into<Targets>) -> Self {
        Self { items: TargetItems::OfType(nodes), targets: targets.into() }
    }

    /// Creates the targets of rows, each of which has a node: those of a task table. A node may be in several rows. The seeds of a
    /// batch are positions of rows, and so are the items of its outputs. `nodes` are node ids of the graph, `[n_rows]`.
    pub fn rows(nodes: impl Into<SharedArray<NodeId>>, targets: impl Into<Targets>) -> Self {
        Self { items: TargetItems::Rows(Box::new(nodes.into())), targets: targets.into() }
    }

    /// Returns the id of the first node that has targets; 0 for those of rows.
    pub fn first_node(&self) -> u32 {
        match &self.items {
            TargetItems::OfType(nodes) => nodes.start,
            TargetItems::All | TargetItems::Rows(_) => 0,
        }
    }

    /// Returns the targets, which are numbered from 0 within the type, or by row.
    pub fn targets(&self) -> &Targets {
        &self.targets
    }
}

impl From<Targets> for NodeTargets {
    fn from(targets: Targets) -> Self {
        Self { items: TargetItems::All, targets }
    }
}

impl From<Labels> for NodeTargets {
    fn from(labels: Labels) -> Self {
        Targets::from(labels).into()
    }
}

impl From<Arc<Labels>> for NodeTargets {
    fn from(labels: Arc<Labels>) -> Self {
        Targets::from(labels).into()
    }
}

impl From<TargetValues> for NodeTargets {
    fn from(values: TargetValues) -> Self {
        Targets::from(values).into()
    }
}

/// A batcher for tasks on nodes: samples blocks, and gathers the input rows of each type of nodes and the seeds' targets.
///
/// In training, the loader's worker also transposes each block for the backward pass, so that the backward pass need not do
/// it; not the first one if the only type of nodes has features, because the model reads them as they are, and they need no
/// gradient. If parameters precede its aggregation (a layer that projects wide features first), the backward pass transposes
/// the first block. If the edges of blocks are grouped by relation, the groups are transposed instead.
pub struct NodeBatcher<S: ?Sized> {
    sampler: Arc<S>,
    features: FeatureStores,
    /// The columns of edges that the model reads, by name.
    edge_columns: EdgeColumnStores,
    /// The targets of the seeds; `None` for tasks without targets of nodes.
    targets: Option<NodeTargets>,
    /// The time of each node that may be a seed, `[n_nodes]`, counted from the first node that has targets, or of each row,
    /// `[n_rows]`; `None` if seeds have no times, or if those of a batch come with it. It is boxed, because few batchers have it.
    seed_times: Option<Box<SharedArray<i64>>>,
    /// The times from which batches compute ages; `None` for batches without ages.
    ages: Option<Box<Ages>>,
    /// The types and relations by which the edges of blocks are grouped; `None` for models that read no groups.
    grouped_by: Option<(Arc<NodeTypes>, Metagraph)>,
    /// True if the groups have those of nodes.
    groups_nodes: bool,
}

impl<S: FrontierSampler + ?Sized> NodeBatcher<S> {
    /// Creates a batcher from a sampler, the features of nodes, and targets: a feature store with labels or [`Targets`] for a
    /// graph of one type, [`FeatureStores`] and [`NodeTargets::of_type`] for several.
    ///
    /// # Panics
    /// Panics if the features are those of several types, and the targets do not say of which type they are.
    pub fn new(sampler: Arc<S>, features: impl Into<FeatureStores>, targets: impl Into<NodeTargets>) -> Self {
        let batcher = Self::without_targets(sampler, features);
        let targets = targets.into();
        assert!(
            !matches!(targets.items, TargetItems::All) || batcher.features.n_types() == 1,
            "the features are those of {} types of nodes: pass NodeTargets::of_type as the targets",
            batcher.features.n_types(),
        );
        Self { targets: Some(targets), ..batcher }
    }

    /// Creates a batcher whose batches have no targets and whose seeds may be nodes of any type, for link prediction and
    /// predictions.
    pub fn without_targets(sampler: Arc<S>, features: impl Into<FeatureStores>) -> Self {
        let features = features.into();
        Self {
            sampler,
            features,
            edge_columns: EdgeColumnStores::default(),
            targets: None,
            seed_times: None,
            ages: None,
            grouped_by: None,
            groups_nodes: false,
        }
    }

    /// Samples each seed at a time of its own, so that its tree has only edges that were known then
    /// ([`kiln_sample::Seeds::with_times`]). `times` has a time for each node of the type that has targets, `[n_nodes_of_type]`, or
    /// for each row of [`NodeTargets::rows`].
    #[must_use]
    pub fn seed_times(self, times: impl Into<SharedArray<i64>>) -> Self {
        Self { seed_times: Some(Box::new(times.into())), ..self }
    }

    /// Computes the ages of nodes and edges at the times of the seeds, too ([`SampledBatch::node_ages`], and the column
    /// [`EdgeColumns::AGES`](kiln_graph::EdgeColumns::AGES) of the edges). They must be those of the sampled graph.
    #[must_use]
    pub fn ages(self, ages: Ages) -> Self {
        Self { ages: Some(Box::new(ages)), ..self }
    }

    /// Gathers the rows of the edges of each block in a column, too, such as their features. They must be those of the
    /// sampled graph's edges.
    #[must_use]
    pub fn edge_column(
        mut self,
        name: impl Into<Arc<str>>,
        rows: impl Into<Arc<dyn EdgeFeatureStore>>,
    ) -> Self {
        self.edge_columns.set(name, rows);
        self
    }

    /// Groups the edges of each block by relation, too ([`RelationGroups`]). The schema is that of the sampled graph, and the
    /// sampler returns edge types. In training, the groups are transposed for the backward pass, and the blocks are not.
    ///
    /// # Panics
    /// Panics if the schema has another number of types than the features.
    #[must_use]
    pub fn relation_groups(self, schema: &GraphSchema) -> Self {
        let types = Arc::clone(schema.types());
        assert_eq!(types.n_types(), self.features.n_types(), "the schema has other types than the features");
        Self { grouped_by: Some((types, schema.metagraph())), ..self }
    }

    /// Adds the groups of the sources and of the destinations of each block ([`RelationGroups::with_nodes`]), if edges are
    /// grouped.
    #[must_use]
    pub fn node_groups(self) -> Self {
        Self { groups_nodes: true, ..self }
    }

    /// Adds the groups that a model reads: those of relations ([`NodeBatcher::relation_groups`]), and those of nodes
    /// ([`NodeBatcher::node_groups`]).
    #[must_use]
    pub fn groups_of_model(self, reads_relations: bool, reads_nodes: bool, schema: &GraphSchema) -> Self {
        let batcher = if reads_relations { self.relation_groups(schema) } else { self };
        if reads_nodes { batcher.node_groups() } else { batcher }
    }

    /// Returns the features of nodes.
    pub fn features(&self) -> &FeatureStores {
        &self.features
    }

    /// Makes the batch of one step without the rows of its nodes. It is for batchers that gather the rows elsewhere, for
    /// example into memory from which a device copies. Adds to the times of the sample and gather stages.
    ///
    /// # Errors
    /// Returns the errors of the sampler, of [`EdgeFeatureStore::gather_block`] and of [`Targets::gather`], and
    /// [`BatchError::NoTarget`] for a seed without a target.
    pub fn sample(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<SampledBatch, BatchError> {
        let start = Instant::now();
        let mut sampled = self.sample_blocks(seeds, scratch)?;
        let sampled_at = Instant::now();
        self.gather_targets(&mut sampled)?;
        for (name, rows) in self.edge_columns.iter() {
            sampled.edge_columns.push(EdgeRows::gather(name, &**rows, &sampled.blocks)?);
        }
        if let (Some(ages), Some(first)) = (&self.ages, sampled.blocks.first()) {
            sampled.node_ages = ages.node_ages(first)?;
            sampled.edge_columns.extend(ages.edge_ages(&sampled.blocks)?);
        }
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        Ok(sampled)
    }

    /// Samples the blocks of one step and groups their edges. In training, transposes what the backward pass reads.
    fn sample_blocks(&self, seeds: SeedBatch, scratch: &mut Scratch) -> Result<SampledBatch, BatchError> {
        let SeedBatch { phase, step, key, .. } = seeds;
        let seeds = match seeds.times {
            None => SeedBatch { times: self.times_of(&seeds.seeds)?, ..seeds },
            Some(_) => seeds,
        };
        let (items, nodes) = self.nodes_of(seeds.seeds)?;
        let seeds = SeedBatch { seeds: nodes, ..seeds }.into_seeds(None)?;
        let SampledBlocks { mut blocks, seed_index } = self.sampler.sample_blocks(&seeds, key, scratch)?;
        let is_training = phase.is_training();
        let groups = self.group(&blocks, is_training)?;
        // A model that reads groups reads no edges of blocks.
        if is_training && groups.is_none() {
            let first_transposed = usize::from(self.features.only_store().is_some());
            blocks.iter_mut().skip(first_transposed).for_each(Block::transpose);
        }
        Ok(SampledBatch {
            phase,
            step,
            key,
            seeds,
            items,
            blocks,
            groups,
            seed_index,
            edge_columns: Vec::new(),
            node_ages: Vec::new(),
            labels: Vec::new(),
            target_values: Vec::new(),
        })
    }

    /// Returns the times of seeds; `None` if nodes have no times.
    fn times_of(&self, seeds: &[NodeId]) -> Result<Option<Vec<i64>>, BatchError> {
        let Some(times) = &self.seed_times else { return Ok(None) };
        let first = self.targets.as_ref().map_or(0, NodeTargets::first_node);
        let nodes = first..first + times.len() as u32;
        let rows = match &self.targets {
            Some(NodeTargets { items: TargetItems::Rows(of_rows), .. }) => {
                check_rows(seeds, of_rows.len().min(times.len()))?;
                Cow::Borrowed(seeds)
            }
            _ => Cow::Owned(numbers_in(&nodes, seeds)?),
        };
        Ok(Some(rows.iter().map(|row| times[row.index()]).collect()))
    }

    /// Returns the rows of the seeds of a batch and their nodes; no rows for seeds that are nodes.
    fn nodes_of(&self, seeds: Vec<NodeId>) -> Result<(Vec<NodeId>, Vec<NodeId>), BatchError> {
        let Some(NodeTargets { items: TargetItems::Rows(nodes), .. }) = &self.targets else {
            return Ok((Vec::new(), seeds));
        };
        check_rows(&seeds, nodes.len())?;
        let of_rows = seeds.iter().map(|row| nodes[row.index()]).collect();
        Ok((seeds, of_rows))
    }

    /// Groups the edges of blocks by relation if a model reads groups, and transposes the groups in training.
    fn group(&self, blocks: &[Block], is_training: bool) -> Result<Option<Vec<RelationGroups>>, BatchError> {
        let Some((types, metagraph)) = &self.grouped_by else { return Ok(None) };
        let mut all = Vec::with_capacity(blocks.len());
        for block in blocks {
            let mut groups = RelationGroups::new(block, types, metagraph).map_err(BatchError::other)?;
            if self.groups_nodes {
                groups = groups.with_nodes(block, types).map_err(BatchError::other)?;
            }
            if is_training {
                groups.transpose();
            }
            all.push(groups);
        }
        Ok(Some(all))
    }

    /// Sets the numbers of the seeds within their types, and their targets.
    fn gather_targets(&self, sampled: &mut SampledBatch) -> Result<(), BatchError> {
        let seeds = sampled.seeds.as_nodes();
        match self.targets.as_ref().map(|targets| &targets.items) {
            Some(TargetItems::OfType(nodes)) => sampled.items = numbers_in(nodes, seeds)?,
            Some(TargetItems::All) | None => sampled.items = self.features.numbers_within_types(seeds)?,
            // The rows are known since the seeds were sampled.
            Some(TargetItems::Rows(_)) => {}
        }
        if let Some(NodeTargets { targets, .. }) = &self.targets {
            targets.gather(&sampled.items, &mut sampled.labels, &mut sampled.target_values)?;
        }
        Ok(())
    }
}

/// Returns the position of each seed among the nodes that have targets.
fn numbers_in(nodes: &Range<u32>, seeds: &[NodeId]) -> Result<Vec<NodeId>, BatchError> {
    let mut numbers = Vec::with_capacity(seeds.len());
    for &node in seeds {
        if !nodes.contains(&node.0) {
            return Err(BatchError::NoTarget { node, nodes: nodes.clone() });
        }
        numbers.push(NodeId(node.0 - nodes.start));
    }
    Ok(numbers)
}

/// Checks that the seeds are positions of rows.
fn check_rows(seeds: &[NodeId], n_rows: usize) -> Result<(), BatchError> {
    match seeds.iter().find(|row| n_rows <= row.index()) {
        Some(row) => Err(BatchError::NoSuchRow { row: row.0, n_rows }),
        None => Ok(()),
    }
}

impl<S: ?Sized> fmt::Debug for NodeBatcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeBatcher")
            .field("features", &self.features)
            .field("has_targets", &self.targets.is_some())
            .field("edge_columns", &self.edge_columns.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl<S: FrontierSampler + ?Sized + 'static> Batcher for NodeBatcher<S> {
    type Item = NodeId;
    type Batch = MiniBatch;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<MiniBatch, BatchError> {
        let sampled = self.sample(seeds, scratch, times)?;
        let start = Instant::now();
        let input = self.features.gather(&sampled.input_nodes())?;
        times.gather += start.elapsed();
        Ok(MiniBatch { sampled, input, times: *times })
    }

    fn n_bytes(batch: &MiniBatch) -> usize {
        batch.n_bytes()
    }
}
