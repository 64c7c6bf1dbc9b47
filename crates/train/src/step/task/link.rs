use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_feature::TargetKind;
use kiln_graph::{LinkId, NodeId};
use kiln_kernels::ops::widen;
use kiln_kernels::upload_features;
use kiln_loader::{FeatureRows, LinkBatch};
use kiln_nn::{BlockModel, ForwardContext, LinkDecoder, LinkLoss, LinkModel, LinkPairs};
use kiln_sample::RngKey;

use crate::error::Result;
use crate::step::batch::{DeviceBatch, ToDevice, tracked};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::task::custom_loss::LossTargets;
use crate::step::task::metric_sums::MetricSums;
use crate::step::task::negatives::NegativeCounts;
use crate::step::task::node::{InputType, NodeInput, NodeTask};
use crate::step::task::objective::{BatchTargets, Objective};
use crate::step::task::task_objective::TaskObjective;
use crate::step::task::{StepOutput, Task};

/// Link prediction: a model learns to score links above their negatives, which are those of one relation if the graph is
/// heterogeneous. `M` is the type of the encoder. The outputs of a batch are scores, `[n_links, 1 + n_negatives]`, with the
/// score of the link in column 0. The embeddings are those of a [`NodeTask`].
///
/// With the objective of other targets ([`LinkTask::with_objective`]), it is the task of edges: the links have classes, labels or
/// numbers and no negatives, and the outputs are those of a decoder of edges, `[n_links, n_outputs]`.
#[derive(Debug, Clone)]
pub struct LinkTask<M> {
    /// The task of the encoder, with the objective of links.
    nodes: NodeTask<M>,
}

impl<M> LinkTask<M> {
    /// Creates the task with the binary cross entropy.
    pub fn new() -> Self {
        Self::with_loss(LinkLoss::default())
    }

    /// Creates a task with this loss.
    pub fn with_loss(loss: LinkLoss) -> Self {
        Self::with_objective(Objective::Links(loss))
    }

    /// Creates a task with this objective: that of links, or of the targets of edges.
    pub fn with_objective(objective: impl Into<TaskObjective>) -> Self {
        Self { nodes: NodeTask::with_objective(objective) }
    }

    /// Sets the types of nodes of the data, as [`NodeTask::on_types`] does.
    #[must_use]
    pub fn on_types(self, types: impl Into<Arc<[InputType]>>) -> Self {
        Self { nodes: self.nodes.on_types(types) }
    }

    /// Sets the keys of the nodes of each type, by which their trainable rows are found in other data
    /// ([`NodeTask::with_keys`]).
    #[must_use]
    pub fn with_keys(self, keys: impl Into<Arc<[Option<NodeKeys>]>>) -> Self {
        Self { nodes: self.nodes.with_keys(keys) }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &TaskObjective {
        self.nodes.objective()
    }
}

impl<M> Default for LinkTask<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// The input of a model of link prediction. A link has `1 + n_negatives` pairs: the link itself, then its negatives.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `links` | [`LinkId`] | `n_links` | position in the batch |
/// | `srcs` | `u32`, a position in the seeds of `nodes` | `n_links * (1 + n_negatives)` | pair, row-major; its source |
/// | `dsts` | `u32`, a position in the seeds of `nodes` | the same | pair, row-major; its destination |
#[derive(Debug, Clone)]
pub struct LinkInput {
    /// The sampled neighbourhoods of the pairs' nodes, and their features.
    pub nodes: NodeInput,
    /// The pairs, as rows of the encoder's output.
    pub pairs: LinkPairs,
    /// The links.
    pub links: Vec<LinkId>,
    /// The source of each pair.
    pub srcs: Vec<u32>,
    /// The destination of each pair.
    pub dsts: Vec<u32>,
    /// The class of each link of an edge task; empty for other targets.
    pub labels: Vec<i32>,
    /// The target values of each link of an edge task, `[n_links, n_columns]`, NaN if missing; empty for other targets.
    pub target_values: Vec<f32>,
    /// The feature rows of the links, `[n_links, dim]`; `None` if they have none.
    pub features: Option<Tensor<2>>,
    /// The number of negatives of each link.
    pub n_negatives: usize,
    /// The number of negatives, of all links, that are still rejected after the last draw.
    pub n_rejected: u64,
}

impl LinkInput {
    /// Returns the targets of the batch with these outputs, for a loss of one's own ([`TaskTrainer::gradients`](crate::TaskTrainer::gradients)).
    pub fn loss_targets(&self, outputs: &Tensor<2>) -> LossTargets<'_> {
        LossTargets::new(outputs, &self.labels, &self.target_values)
    }

    /// Returns the sources and the destinations of the links.
    pub fn link_nodes(&self) -> [Vec<NodeId>; 2] {
        [&self.srcs, &self.dsts].map(|positions| {
            let of_links = positions.iter().step_by(1 + self.n_negatives);
            of_links.map(|position| self.nodes.seeds[*position as usize]).collect()
        })
    }

    /// Arranges the scores of all pairs by link.
    ///
    /// # Shapes
    /// `scores` is `[n_links * (1 + n_negatives)]`, the result `[n_links, 1 + n_negatives]`.
    pub(crate) fn by_link(&self, scores: Tensor<1>) -> Tensor<2> {
        scores.reshape([self.links.len(), 1 + self.n_negatives])
    }

    /// Computes the outputs of the pairs from the rows of the encoder, and the loss: the scores of links, or the outputs of edges.
    pub(crate) fn forward(
        &self,
        objective: &TaskObjective,
        decoder: &LinkDecoder,
        rows: Tensor<2>,
        ctx: &ForwardContext,
    ) -> StepOutput {
        let outputs = match objective.kind() {
            TargetKind::Links => self.by_link(decoder.score_pairs(rows, &self.pairs, ctx)),
            TargetKind::Classes | TargetKind::MultiLabel | TargetKind::Regression => {
                let features = self.features.as_ref().map(|features| tracked(features, ctx));
                decoder.outputs_of_pairs(rows, &self.pairs, features.as_ref(), ctx)
            }
        };
        objective.forward(outputs, &self.labels, &self.target_values, ctx.mode)
    }

    pub(crate) fn negatives(&self) -> NegativeCounts {
        let n_negatives = (self.links.len() * self.n_negatives) as u64;
        NegativeCounts { n_negatives, n_rejected: self.n_rejected }
    }
}

/// Returns an id of each pair that depends on its link and its number only, for dropout masks.
fn pair_ids(links: &[LinkId], n_negatives: usize) -> Vec<u32> {
    let n_pairs = 1 + n_negatives as u32;
    // Pairs of more than 2^32 share masks, which does no harm.
    let of_link = |link: &LinkId| {
        let first = link.0.wrapping_mul(n_pairs);
        (0..n_pairs).map(move |number| first.wrapping_add(number))
    };
    links.iter().flat_map(of_link).collect()
}

impl<B: ToDevice<Input = NodeInput>> ToDevice for LinkBatch<B> {
    type Input = LinkInput;

    /// Copies the nodes, unless they are on the device already, and the pairs.
    ///
    /// # Panics
    /// Panics if the batch has no blocks.
    fn to_device(self, device: &Device) -> DeviceBatch<LinkInput> {
        let Self { nodes, links, srcs, dsts, labels, target_values, features, n_negatives, n_rejected } =
            self;
        let DeviceBatch { key, n_bytes, times, device: of_nodes, input: nodes, .. } = nodes.to_device(device);
        let n_rows = nodes.blocks.last().expect("a batch should have a block per layer").n_dst();
        let [src_rows, dst_rows] = [&srcs, &dsts].map(|positions| {
            let rows = positions.iter().map(|position| nodes.seed_index[*position as usize] as u32);
            rows.collect::<Vec<u32>>()
        });
        let pairs = LinkPairs::upload(&src_rows, &dst_rows, pair_ids(&links, n_negatives), n_rows, device);
        let n_items = links.len();
        let features = features.map(|FeatureRows { x, dim }| widen(upload_features(x, dim, device)));
        let feature_bytes =
            features.as_ref().map_or(0, |rows| rows.shape().num_elements() * size_of::<f32>());
        let n_bytes = n_bytes + pairs.n_bytes() + feature_bytes;
        let input = LinkInput {
            nodes,
            pairs,
            links,
            srcs,
            dsts,
            labels,
            target_values,
            features,
            n_negatives,
            n_rejected,
        };
        DeviceBatch { key, n_items, n_bytes, times, device: of_nodes, input }
    }
}

impl<M: BlockModel> Task for LinkTask<M> {
    type Input = LinkInput;
    type Model = LinkModel<M>;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &LinkModel<M>) -> bool {
        model.encoder.uses_burn_rng()
    }

    /// Returns those of the encoder's task ([`NodeTask`]).
    fn embeddings(&self, model: &LinkModel<M>, key: RngKey) -> Result<Vec<NodeEmbedding>> {
        self.nodes.embeddings(&model.encoder, key)
    }

    fn embedded_nodes(input: &LinkInput) -> &[Vec<NodeId>] {
        input.nodes.x.embedded()
    }

    fn forward(
        &self,
        model: &LinkModel<M>,
        input: &LinkInput,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let rows = input.nodes.forward(&model.encoder, embedded, ctx);
        input.forward(self.objective(), &model.decoder, rows, ctx)
    }

    fn targets(&self, input: &LinkInput) -> BatchTargets {
        self.objective().targets(&input.labels, &input.target_values, input.links.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn loss_name(&self) -> Option<&str> {
        self.objective().loss_name()
    }

    fn count_finite(&self, input: &LinkInput, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective().count_finite(outputs, &input.labels, &input.target_values)
    }

    fn negatives(input: &LinkInput) -> NegativeCounts {
        input.negatives()
    }
}
