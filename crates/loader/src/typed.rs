use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use kiln_feature::{FeatureBuffer, FeatureStore, Targets};
use kiln_graph::{Block, Metagraph, NodeId, NodeTypes, RelationGroups};
use kiln_sample::{FrontierSampler, Scratch};

use crate::batcher::sample_step;
use crate::{BatchError, Batcher, SampledBatch, SeedBatch, StageTimes};

/// The features of the nodes of a heterogeneous graph, by type.
#[derive(Debug, Clone)]
pub struct TypedFeatures {
    types: Arc<NodeTypes>,
    stores: Vec<Option<Arc<dyn FeatureStore>>>,
}

impl TypedFeatures {
    /// Creates the features of nodes of these types. The rows of `stores[t]` are those of the nodes of type `t`, which are
    /// numbered from 0 within the type; `None` for a type without features.
    ///
    /// # Panics
    /// Panics if there is not one entry per type.
    pub fn new(types: Arc<NodeTypes>, stores: Vec<Option<Arc<dyn FeatureStore>>>) -> Self {
        let (n_stores, n_types) = (stores.len(), types.n_types());
        assert_eq!(n_stores, n_types, "got features of {n_stores} types, expected {n_types}");
        Self { types, stores }
    }

    /// Returns true if no layer or trainable row is in front of a model that reads these features: there is one type of nodes,
    /// and it has features.
    fn are_read_directly(&self) -> bool {
        matches!(self.stores[..], [Some(_)])
    }

    /// Returns the type of a node and its number within the type.
    fn locate(&self, node: NodeId) -> Result<(usize, NodeId), BatchError> {
        let unknown = || BatchError::NoSuchNode { node, n_nodes: self.types.n_nodes() };
        self.types.locate(node).ok_or_else(unknown)
    }

    /// Gathers the rows of nodes, and returns them by type with the type of each node.
    ///
    /// # Errors
    /// Returns [`BatchError::NoSuchNode`] for a node that does not exist, and the errors of [`FeatureStore::gather`].
    pub fn gather(&self, nodes: &[NodeId]) -> Result<TypedNodeRows, BatchError> {
        let n_types = self.types.n_types();
        if let [store] = &self.stores[..] {
            return self.gather_only(store.as_deref(), nodes);
        }
        let (mut node_types, mut by_type) = (Vec::with_capacity(nodes.len()), vec![Vec::new(); n_types]);
        for &node in nodes {
            let (node_type, node) = self.locate(node)?;
            node_types.push(node_type);
            by_type[node_type].push(node);
        }
        let rows = |(store, nodes): (&Option<Arc<dyn FeatureStore>>, Vec<NodeId>)| match store {
            Some(store) => RowsOfType::gather(&**store, &nodes),
            None => Ok(RowsOfType::Trainable { nodes }),
        };
        let rows = self.stores.iter().zip(by_type).map(rows).collect::<kiln_feature::Result<_>>()?;
        Ok(TypedNodeRows { node_types, rows })
    }

    /// Gathers the rows of nodes of the only type, which are numbered from 0.
    fn gather_only(
        &self,
        store: Option<&dyn FeatureStore>,
        nodes: &[NodeId],
    ) -> Result<TypedNodeRows, BatchError> {
        let n_nodes = self.types.n_nodes();
        if let Some(&node) = nodes.iter().find(|node| n_nodes <= node.index()) {
            return Err(BatchError::NoSuchNode { node, n_nodes });
        }
        let rows = match store {
            Some(store) => RowsOfType::gather(store, nodes)?,
            None => RowsOfType::Trainable { nodes: nodes.to_vec() },
        };
        Ok(TypedNodeRows { node_types: Vec::new(), rows: vec![rows] })
    }
}

/// The input rows of nodes of several types.
#[derive(Debug, Clone)]
pub struct TypedNodeRows {
    /// The type of each node; empty if there is one type.
    pub node_types: Vec<usize>,
    /// The rows of each type, `[n_types]`, in the order of its nodes.
    pub rows: Vec<RowsOfType>,
}

/// The input rows of the nodes of one type.
#[derive(Debug, Clone)]
pub enum RowsOfType {
    /// The features of the nodes.
    Features {
        /// The rows in their stored type, `[n, dim]`.
        x: FeatureBuffer,
        /// The number of columns.
        dim: usize,
    },
    /// The nodes of a type without features, whose rows are trainable.
    Trainable {
        /// The nodes, numbered from 0 within the type.
        nodes: Vec<NodeId>,
    },
}

impl RowsOfType {
    /// Gathers the features of nodes, which are numbered from 0 within the type.
    fn gather(store: &dyn FeatureStore, nodes: &[NodeId]) -> kiln_feature::Result<Self> {
        let mut x = FeatureBuffer::empty(store.dtype());
        store.gather(nodes, &mut x)?;
        Ok(Self::Features { x, dim: store.dim() })
    }
}

/// The targets of the nodes of one type.
#[derive(Debug, Clone)]
pub struct TargetsOfType {
    /// The ids of the nodes of the type.
    pub nodes: Range<u32>,
    /// The targets, which are numbered from 0 within the type.
    pub targets: Targets,
}

impl TargetsOfType {
    /// Returns the position of each node within the type.
    fn rows(&self, nodes: &[NodeId]) -> Result<Vec<NodeId>, BatchError> {
        let row = |&node: &NodeId| match self.nodes.contains(&node.0) {
            true => Ok(NodeId(node.0 - self.nodes.start)),
            false => Err(BatchError::NoTarget { node, nodes: self.nodes.clone() }),
        };
        nodes.iter().map(row).collect()
    }
}

/// A batcher for tasks on nodes of a heterogeneous graph: samples blocks, and gathers the input rows of each type of nodes
/// and the seeds' targets.
///
/// In training, the loader's worker also transposes the blocks for the backward pass, which reaches the layers and
/// trainable rows in front of the first block. For one type of nodes with features there are none, and the first block is
/// not transposed, as by [`NodeBatcher`](crate::NodeBatcher).
pub struct TypedNodeBatcher<S: ?Sized> {
    sampler: Arc<S>,
    features: TypedFeatures,
    /// The targets of the seeds; `None` for link prediction and predictions.
    targets: Option<TargetsOfType>,
    /// The types and relations by which the edges of blocks are grouped; `None` for models that read no groups.
    grouped_by: Option<Metagraph>,
    /// True if the groups have those of nodes.
    groups_nodes: bool,
}

impl<S: FrontierSampler + ?Sized> TypedNodeBatcher<S> {
    /// Creates a batcher.
    pub fn new(sampler: Arc<S>, features: TypedFeatures, targets: TargetsOfType) -> Self {
        Self { targets: Some(targets), ..Self::without_targets(sampler, features) }
    }

    /// Creates a batcher whose batches have no targets and whose seeds may be nodes of any type, for link prediction and
    /// predictions.
    pub fn without_targets(sampler: Arc<S>, features: TypedFeatures) -> Self {
        Self { sampler, features, targets: None, grouped_by: None, groups_nodes: false }
    }

    /// Groups the edges of each block by relation, too ([`RelationGroups`]). The metagraph is that of the sampled graph, and
    /// the sampler returns edge types. In training, the groups are transposed for the backward pass, and the blocks are not.
    #[must_use]
    pub fn relation_groups(self, metagraph: Metagraph) -> Self {
        Self { grouped_by: Some(metagraph), ..self }
    }

    /// Adds the groups of the sources and of the destinations of each block ([`RelationGroups::with_nodes`]), if edges are
    /// grouped.
    #[must_use]
    pub fn node_groups(self) -> Self {
        Self { groups_nodes: true, ..self }
    }

    /// Adds the groups that a model reads: those of relations, by the metagraph of the sampled graph
    /// ([`TypedNodeBatcher::relation_groups`]), and those of nodes ([`TypedNodeBatcher::node_groups`]).
    #[must_use]
    pub fn groups_of_model(self, reads_relations: bool, reads_nodes: bool, metagraph: Metagraph) -> Self {
        let batcher = if reads_relations { self.relation_groups(metagraph) } else { self };
        if reads_nodes { batcher.node_groups() } else { batcher }
    }

    /// Groups the edges of blocks.
    fn group(&self, blocks: &[Block], is_training: bool) -> Result<Option<Vec<RelationGroups>>, BatchError> {
        let Some(metagraph) = &self.grouped_by else { return Ok(None) };
        let of_block = |block: &Block| {
            let mut groups = RelationGroups::new(block, &self.features.types, metagraph)?;
            if self.groups_nodes {
                groups = groups.with_nodes(block, &self.features.types)?;
            }
            if is_training {
                groups.transpose();
            }
            Ok(groups)
        };
        let groups: kiln_graph::Result<_> = blocks.iter().map(of_block).collect();
        groups.map(Some).map_err(BatchError::other)
    }
}

impl<S: ?Sized> fmt::Debug for TypedNodeBatcher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedNodeBatcher").field("features", &self.features).finish_non_exhaustive()
    }
}

/// The inputs of a model and its loss for one step of a task on nodes of a heterogeneous graph.
#[derive(Debug, Clone)]
pub struct TypedBatch {
    /// The blocks and the targets.
    pub sampled: SampledBatch,
    /// The seeds, numbered from 0 within their types.
    pub items: Vec<NodeId>,
    /// The edges of each block by relation; `None` unless the batcher groups them.
    pub groups: Option<Vec<RelationGroups>>,
    /// The rows of the input nodes ([`SampledBatch::input_nodes`]).
    pub input: TypedNodeRows,
    /// The durations of the stages that made this batch.
    pub times: StageTimes,
}

impl TypedBatch {
    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        let of_type = |rows: &RowsOfType| match rows {
            RowsOfType::Features { x, .. } => x.n_bytes(),
            RowsOfType::Trainable { nodes } => size_of_val(nodes.as_slice()),
        };
        let Self { items, input: TypedNodeRows { node_types, rows }, .. } = self;
        let groups = self.groups.iter().flatten().map(RelationGroups::n_bytes).sum::<usize>();
        self.sampled.n_bytes()
            + groups
            + size_of_val(node_types.as_slice())
            + size_of_val(items.as_slice())
            + rows.iter().map(of_type).sum::<usize>()
    }
}

impl<S: FrontierSampler + ?Sized + 'static> Batcher for TypedNodeBatcher<S> {
    type Item = NodeId;
    type Batch = TypedBatch;
    type Scratch = Scratch;

    fn batch(
        &self,
        seeds: SeedBatch,
        scratch: &mut Scratch,
        times: &mut StageTimes,
    ) -> Result<TypedBatch, BatchError> {
        let start = Instant::now();
        let is_training = seeds.phase.is_training();
        // A model that reads groups reads no edges of blocks. Features that it reads directly need no gradient.
        let first_transposed = match &self.grouped_by {
            Some(_) => usize::MAX,
            None => usize::from(self.features.are_read_directly()),
        };
        let mut sampled = sample_step(&*self.sampler, seeds, first_transposed, scratch)?;
        let groups = self.group(&sampled.blocks, is_training)?;
        let sampled_at = Instant::now();
        let items = match &self.targets {
            Some(targets) => {
                let items = targets.rows(sampled.seeds.as_nodes())?;
                targets.targets.gather(&items, &mut sampled.labels, &mut sampled.target_values)?;
                items
            }
            None => {
                let within = |&node: &NodeId| Ok(self.features.locate(node)?.1);
                sampled.seeds.as_nodes().iter().map(within).collect::<Result<_, BatchError>>()?
            }
        };
        let input = self.features.gather(&sampled.input_nodes())?;
        times.sample += sampled_at - start;
        times.gather += sampled_at.elapsed();
        Ok(TypedBatch { sampled, items, groups, input, times: *times })
    }

    fn n_bytes(batch: &TypedBatch) -> usize {
        batch.n_bytes()
    }
}
