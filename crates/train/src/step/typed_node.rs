use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_graph::NodeId;
use kiln_kernels::{DeviceBlock, upload_features};
use kiln_loader::{RowsOfType, SampledBatch, TypedBatch, TypedNodeRows};
use kiln_nn::{BlockModel, ForwardContext, TypeOrder, TypedModel};
use kiln_sample::{KeyDomain, RngKey};

use crate::error::Result;
use crate::step::batch::{DeviceBatch, ToDevice, tracked};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding_error::EmbeddingError;
use crate::step::link::LinkNodes;
use crate::step::metric_sums::MetricSums;
use crate::step::node::{blocks_to_device, nominal_size, rows_of_seeds};
use crate::step::node_keys::NodeKeys;
use crate::step::objective::{BatchTargets, Objective};
use crate::step::task::{StepOutput, Task};

/// A task on the nodes of one type of a heterogeneous graph: classification, several labels per node, or regression.
///
/// Types without features have an embedding each, in the order of the types: a trainable row per node.
#[derive(Debug, Clone)]
pub struct TypedNodeTask<M> {
    objective: Objective,
    types: Arc<[InputType]>,
    /// The keys of the nodes of each type, `[n_types]`, or empty.
    keys: Arc<[Option<NodeKeys>]>,
    model: PhantomData<fn() -> M>,
}

/// A type of nodes of the data of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputType {
    /// The number of nodes.
    pub n_nodes: usize,
    /// The number of feature columns; `None` for a type without features, whose rows are trainable.
    pub width: Option<usize>,
}

impl<M> TypedNodeTask<M> {
    /// Creates a task with this objective for data with these types of nodes.
    pub fn new(objective: Objective, types: impl Into<Arc<[InputType]>>) -> Self {
        Self { objective, types: types.into(), keys: Arc::default(), model: PhantomData }
    }

    /// Sets the keys of the nodes of each type, `[n_types]`, by which their trainable rows are found in other data
    /// ([`NodeEmbedding::with_keys`]); `None` for a type with features, or whose nodes have no names.
    #[must_use]
    pub fn with_keys(self, keys: impl Into<Arc<[Option<NodeKeys>]>>) -> Self {
        Self { keys: keys.into(), ..self }
    }

    /// Returns the objective.
    pub fn objective(&self) -> &Objective {
        &self.objective
    }
}

/// The input of a model of a task on nodes of a heterogeneous graph.
#[derive(Debug, Clone)]
pub struct TypedNodeInput {
    /// One block per layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// The features of the input nodes of each type, `[n_t, width]`; `None` for a type whose rows are trainable.
    pub features: Vec<Option<Tensor<2>>>,
    /// The input nodes whose rows are trainable, a list for each of these types. Nodes are numbered within their type.
    pub embedded: Vec<Vec<NodeId>>,
    /// The order of the input nodes among the rows of all types.
    pub order: TypeOrder,
    /// The seeds in the given order, numbered from 0 within their types; they may repeat.
    pub seeds: Vec<NodeId>,
    /// For each seed, the index of its row in the model's output.
    pub seed_index: Vec<usize>,
    /// The class of each seed. Empty for target values.
    pub labels: Vec<i32>,
    /// The target values of each seed, `[n_seeds, n_columns]`, NaN if missing. Empty for class labels.
    pub target_values: Vec<f32>,
}

impl TypedNodeInput {
    /// Returns the rows of each type for a model, with `embedded` for the types whose rows are trainable. In training, all
    /// of them track gradients.
    pub(crate) fn rows(&self, embedded: &[Tensor<2>], ctx: &ForwardContext) -> Vec<Tensor<2>> {
        let mut embedded = embedded.iter();
        let of_type = |features: &Option<Tensor<2>>| match features {
            Some(features) => tracked(features, ctx),
            None => embedded.next().expect("the batch should have rows of each embedding").clone(),
        };
        self.features.iter().map(of_type).collect()
    }

    /// Runs a model on the batch, with `embedded` for the types whose rows are trainable.
    pub(crate) fn forward<M: BlockModel>(
        &self,
        model: &M,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let x = model.input(self.rows(embedded, ctx), &self.order);
        model.forward(&self.blocks, x, ctx)
    }
}

impl LinkNodes for TypedNodeInput {
    fn blocks(&self) -> &[DeviceBlock] {
        &self.blocks
    }

    fn seeds(&self) -> &[NodeId] {
        &self.seeds
    }

    fn seed_index(&self) -> &[usize] {
        &self.seed_index
    }
}

impl ToDevice for TypedBatch {
    type Input = TypedNodeInput;

    fn to_device(self, device: &Device) -> DeviceBatch<TypedNodeInput> {
        let Self { sampled, items, groups, input: TypedNodeRows { node_types, rows }, times } = self;
        let order = match rows.len() {
            1 => TypeOrder::of_one_type(sampled.input_nodes().len()),
            n_types => TypeOrder::new(&node_types, n_types, device),
        };
        let (mut features, mut embedded) = (Vec::with_capacity(rows.len()), Vec::new());
        for of_type in rows {
            features.push(match of_type {
                RowsOfType::Features { x, dim } => Some(upload_features(x, dim, device)),
                RowsOfType::Trainable { nodes } => {
                    embedded.push(nodes);
                    None
                }
            });
        }
        let SampledBatch { phase, key, blocks, seed_index, edge_x, labels, target_values, .. } = sampled;
        let mut blocks = blocks_to_device(blocks, edge_x, nominal_size(phase), device);
        if let Some(groups) = groups {
            let grouped = |(block, groups): (DeviceBlock, _)| block.with_relation_groups(groups, device);
            blocks = blocks.into_iter().zip(groups).map(grouped).collect();
        }
        let input = TypedNodeInput {
            blocks,
            features,
            embedded,
            order,
            seeds: items,
            seed_index: seed_index.iter().map(|row| row.index()).collect(),
            labels,
            target_values,
        };
        let of_rows = |rows: &Tensor<2>| rows.dtype().size() * rows.shape().num_elements();
        let n_bytes = input.blocks.iter().map(DeviceBlock::n_bytes).sum::<usize>()
            + input.features.iter().flatten().map(of_rows).sum::<usize>()
            + input.order.n_bytes();
        DeviceBatch { key, n_items: input.seeds.len(), n_bytes, times, device: device.clone().inner(), input }
    }
}

impl<M: BlockModel> Task for TypedNodeTask<M> {
    type Input = TypedNodeInput;
    type Model = TypedModel<M>;
    type Targets = BatchTargets;

    fn uses_burn_rng(&self, model: &Self::Model) -> bool {
        model.uses_burn_rng()
    }

    /// Returns an embedding for each type without features, whose rows have the width of the model's encoder. The rows of
    /// type `t` are drawn with `key.fold_in(KeyDomain::NodeType, t)`.
    ///
    /// # Errors
    /// Returns [`EmbeddingError::OtherTypes`] or [`EmbeddingError::NoEncoder`] if the encoder of the model was created for other
    /// types than those of the data, and [`EmbeddingError::TooLarge`].
    fn embeddings(&self, model: &TypedModel<M>, key: RngKey) -> Result<Vec<NodeEmbedding>> {
        let Some(encoder) = model.input_encoder() else {
            // A model without encoder reads the features of the only type.
            return match &self.types[..] {
                [InputType { width: Some(_), .. }] => Ok(Vec::new()),
                types => Err(EmbeddingError::NoEncoder { got: widths_of(types) }.into()),
            };
        };
        let widths: Vec<_> = encoder.widths();
        if !self.types.iter().map(|of_type| of_type.width).eq(widths.iter().copied()) {
            return Err(EmbeddingError::OtherTypes { expected: widths, got: widths_of(&self.types) }.into());
        }
        let without_features = self.types.iter().enumerate().filter(|(_, of_type)| of_type.width.is_none());
        let embedding = |(node_type, of_type): (usize, &InputType)| {
            let of_rows = key.fold_in(KeyDomain::NodeType, node_type as u64);
            let table = NodeEmbedding::new(of_type.n_nodes, encoder.d_out(), of_rows)?;
            match self.keys.get(node_type) {
                Some(Some(keys)) => table.with_keys(keys.clone()),
                _ => Ok(table),
            }
        };
        without_features.map(embedding).collect()
    }

    fn embedded_nodes(input: &TypedNodeInput) -> &[Vec<NodeId>] {
        &input.embedded
    }

    fn forward(
        &self,
        model: &TypedModel<M>,
        input: &TypedNodeInput,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> StepOutput {
        let outputs = rows_of_seeds(input.forward(model, embedded, ctx), &input.seed_index);
        self.objective.forward(outputs, &input.labels, &input.target_values)
    }

    fn targets(&self, input: &TypedNodeInput) -> BatchTargets {
        self.objective.targets(&input.labels, &input.target_values, input.seeds.len())
    }

    fn count(targets: &BatchTargets, outputs: &Tensor<2>, counts: &mut MetricSums) {
        targets.count(outputs, counts);
    }

    fn count_finite(&self, input: &TypedNodeInput, outputs: &Tensor<2>) -> Option<MetricSums> {
        self.objective.count_finite(outputs, &input.labels, &input.target_values)
    }
}

fn widths_of(types: &[InputType]) -> Vec<Option<usize>> {
    types.iter().map(|of_type| of_type.width).collect()
}
