use std::sync::Arc;

use burn::tensor::Tensor;
use kiln_graph::NodeId;
use kiln_nn::{BlockModel, ForwardContext, LinkLoss, LinkModel, TypedModel};
use kiln_sample::RngKey;

use crate::error::Result;
use crate::step::embedding::NodeEmbedding;
use crate::step::link::LinkInput;
use crate::step::metric_sums::MetricSums;
use crate::step::negatives::NegativeCounts;
use crate::step::node_keys::NodeKeys;
use crate::step::objective::{BatchTargets, Objective};
use crate::step::task::{StepOutput, Task};
use crate::step::typed_node::{InputType, TypedNodeInput, TypedNodeTask};

/// Link prediction on one relation of a heterogeneous graph. `M` is the type of the model of nodes in the encoder. The
/// outputs are those of a [`LinkTask`](crate::LinkTask), the embeddings those of a [`TypedNodeTask`].
#[derive(Debug, Clone)]
pub struct TypedLinkTask<M> {
    /// The task of the encoder, with the objective of links.
    nodes: TypedNodeTask<M>,
}

impl<M> TypedLinkTask<M> {
    /// Creates a task with this loss for data with these types of nodes.
    pub fn new(loss: LinkLoss, types: impl Into<Arc<[InputType]>>) -> Self {
        Self { nodes: TypedNodeTask::new(Objective::Links(loss), types) }
    }

    /// Sets the keys of the nodes of each type, by which their trainable rows are found in other data
    /// ([`TypedNodeTask::with_keys`]).
    #[must_use]
    pub fn with_keys(self, keys: impl Into<Arc<[Option<NodeKeys>]>>) -> Self {
        Self { nodes: self.nodes.with_keys(keys) }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &Objective {
        self.nodes.objective()
    }
}

impl<M: BlockModel> Task for TypedLinkTask<M> {
    type Input = LinkInput<TypedNodeInput>;
    type Model = LinkModel<TypedModel<M>>;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &Self::Model) -> bool {
        model.encoder.uses_burn_rng()
    }

    /// Returns those of the encoder's task ([`TypedNodeTask`]).
    fn embeddings(&self, model: &Self::Model, key: RngKey) -> Result<Vec<NodeEmbedding>> {
        self.nodes.embeddings(&model.encoder, key)
    }

    fn embedded_nodes(input: &Self::Input) -> &[Vec<NodeId>] {
        &input.nodes.embedded
    }

    fn forward(
        &self,
        model: &Self::Model,
        input: &Self::Input,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let rows = input.nodes.forward(&model.encoder, embedded, ctx);
        input.forward(self.objective(), &model.decoder, rows, ctx)
    }

    fn targets(&self, input: &Self::Input) -> BatchTargets {
        self.objective().targets(&[], &[], input.links.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn count_finite(&self, _: &Self::Input, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective().count_finite(outputs, &[], &[])
    }

    fn negatives(input: &Self::Input) -> NegativeCounts {
        input.negatives()
    }
}
