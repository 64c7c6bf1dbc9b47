//! The batches of tasks on nodes.

use std::borrow::Cow;
use std::sync::Arc;

use kiln_feature::{EdgeFeatureStore, FeatureBuffer};
use kiln_graph::{Block, LocalId, NodeId, RelationGroups};
use kiln_sample::{RngKey, Seeds};

use crate::{NodeRows, Phase, StageTimes};

/// The inputs of a model and its loss for one step of a task on nodes.
#[derive(Debug, Clone)]
pub struct MiniBatch {
    /// The seeds, their blocks and their targets.
    pub sampled: SampledBatch,
    /// The rows of the input nodes ([`SampledBatch::input_nodes`]).
    pub input: NodeRows,
    /// The durations of the stages that made this batch.
    pub times: StageTimes,
}

impl MiniBatch {
    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        self.sampled.n_bytes() + self.input.n_bytes()
    }
}

/// A [`MiniBatch`] without the rows of its nodes.
#[derive(Debug, Clone)]
pub struct SampledBatch {
    /// The phase of the step.
    pub phase: Phase,
    /// The step within the phase, from 0.
    pub step: usize,
    /// The key of this step. The blocks were sampled with it, and all other random draws of the step must use it.
    pub key: RngKey,
    /// The seeds in the given order, including duplicates.
    pub seeds: Seeds,
    /// The seeds, numbered from 0 within their types: the seeds themselves if there is one type. The rows of a task table, if the seeds are
    /// their nodes.
    pub items: Vec<NodeId>,
    /// The blocks, one per layer, input layer first.
    pub blocks: Vec<Block>,
    /// The edges of each block by relation; `None` unless the batcher groups them.
    pub groups: Option<Vec<RelationGroups>>,
    /// For each seed, its destination in the last block, which is also its row in the model's output. A node that
    /// occurs twice in `seeds` has one destination and two entries here.
    pub seed_index: Vec<LocalId>,
    /// The rows of the edges in each column that the batcher gathers, and the ages of the edges ([`Ages`](crate::Ages)).
    pub edge_columns: Vec<EdgeRows>,
    /// The ages of the input nodes of each type, `[n_types]`, in their order in the batch; `None` for a type without ages. Empty
    /// unless the batcher computes ages.
    pub node_ages: Vec<Option<Vec<f32>>>,
    /// The class of each seed, aligned with `seeds` and `seed_index`; never negative. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl SampledBatch {
    /// Returns the nodes whose rows the model reads: the sources of the first block, or, for a model without layers, the
    /// distinct seeds in the order of their first appearance.
    pub fn input_nodes(&self) -> Cow<'_, [NodeId]> {
        match self.blocks.first() {
            Some(block) => Cow::Borrowed(block.srcs()),
            None => Cow::Owned(self.seeds.distinct(&self.seed_index)),
        }
    }

    /// Returns the size of the batch's arrays in bytes.
    pub fn n_bytes(&self) -> usize {
        let Self {
            blocks,
            groups,
            seeds,
            items,
            seed_index,
            edge_columns,
            node_ages,
            labels,
            target_values,
            ..
        } = self;
        let of_groups = groups.iter().flatten().map(RelationGroups::n_bytes).sum::<usize>();
        blocks.iter().map(Block::n_bytes).sum::<usize>()
            + of_groups
            + size_of_val(seeds.as_nodes())
            + size_of_val(items.as_slice())
            + size_of_val(seed_index.as_slice())
            + edge_columns.iter().map(EdgeRows::n_bytes).sum::<usize>()
            + node_ages.iter().flatten().map(|ages| size_of_val(ages.as_slice())).sum::<usize>()
            + size_of_val(labels.as_slice())
            + size_of_val(target_values.as_slice())
    }
}

/// The rows of the edges of a batch's blocks in one column, in their stored type.
#[derive(Debug, Clone)]
pub struct EdgeRows {
    /// The name of the column.
    pub name: Arc<str>,
    /// The rows of each block's edges, `[n_edges, dim]`, in block order; input layer first.
    pub blocks: Vec<FeatureBuffer>,
    /// The number of columns.
    pub dim: usize,
}

impl EdgeRows {
    /// Gathers the rows of the edges of each block.
    ///
    /// # Errors
    /// Returns the errors of [`EdgeFeatureStore::gather_block`].
    pub fn gather(
        name: &Arc<str>,
        features: &dyn EdgeFeatureStore,
        blocks: &[Block],
    ) -> kiln_feature::Result<Self> {
        Ok(Self {
            name: Arc::clone(name),
            blocks: blocks
                .iter()
                .map(|block: &Block| {
                    let mut rows = FeatureBuffer::empty(features.dtype());
                    features.gather_block(block, &mut rows).map(|()| rows)
                })
                .collect::<Result<_, _>>()?,
            dim: features.dim(),
        })
    }

    /// Returns the size of the rows in bytes.
    pub fn n_bytes(&self) -> usize {
        self.blocks.iter().map(FeatureBuffer::n_bytes).sum()
    }
}
