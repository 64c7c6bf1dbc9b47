use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::NodeId;
use kiln_kernels::{DeviceBlock, ops};
use kiln_loader::{NodeRows, RowsOfType};
use kiln_nn::{BlockModel, ForwardContext, InputAggregation, TypeOrder};

use crate::step::batch::tracked;

/// The rows from which the first layer of a model computes.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a batch has one")]
pub enum InputRows {
    /// The rows of the input nodes.
    Gathered(GatheredRows),
    /// The result of an aggregation by the first block.
    Aggregated {
        /// The result, `[n_dst, width]`, in f32.
        rows: Tensor<2>,
        /// The aggregation, which is that of the model ([`BlockModel::input_aggregation`]).
        input: InputAggregation,
    },
}

/// The rows of the input nodes of a batch, by type of nodes.
#[derive(Debug, Clone)]
pub struct GatheredRows {
    /// The features of the input nodes of each type, `[n_t, width]`: f32, on the CPU the element type of the store, or
    /// bf16 on CUDA in that precision. `None` for a type whose rows are trainable.
    pub features: Vec<Option<Tensor<2>>>,
    /// The input nodes whose rows are trainable, a list for each of these types. Nodes are numbered within their type.
    pub embedded: Vec<Vec<NodeId>>,
    /// The order of the input nodes among the rows of all types.
    pub order: TypeOrder,
    /// The ages of the input nodes of each type, `[n_t, 1]`, which are the last column of the rows that a model reads; `None` for a
    /// type without ages. Empty in batches without ages.
    pub ages: Vec<Option<Tensor<2>>>,
}

impl GatheredRows {
    /// Takes the rows of `n_nodes` input nodes, whose features are on `device`.
    pub(crate) fn new(input: NodeRows<Tensor<2>>, n_nodes: usize, device: &Device) -> Self {
        let NodeRows { node_types, rows } = input;
        let order = match rows.len() {
            1 => TypeOrder::of_one_type(n_nodes),
            n_types => TypeOrder::new(&node_types, n_types, device),
        };
        let mut features = Vec::with_capacity(rows.len());
        let mut embedded = Vec::new();
        for of_type in rows {
            match of_type {
                RowsOfType::Features(rows) => features.push(Some(rows)),
                RowsOfType::Trainable { nodes } => {
                    features.push(None);
                    embedded.push(nodes);
                }
            }
        }
        Self { features, embedded, order, ages: Vec::new() }
    }

    /// Adds the ages of the input nodes of each type, or none for batches without ages.
    pub(crate) fn with_ages(self, ages: Vec<Option<Vec<f32>>>, device: &Device) -> Self {
        let mut on_device = Vec::with_capacity(ages.len());
        for of_type in ages {
            on_device.push(of_type.map(|ages| {
                let n_nodes = ages.len();
                Tensor::from_data(TensorData::new(ages, [n_nodes, 1]), device)
            }));
        }
        Self { ages: on_device, ..self }
    }

    /// Returns the rows of each type for a model, with `embedded` for the types whose rows are trainable. In training, all of
    /// them track gradients.
    ///
    /// # Panics
    /// Panics if `embedded` does not have a tensor for each type whose rows are trainable.
    fn by_type(&self, embedded: &[Tensor<2>], ctx: &ForwardContext) -> Vec<Tensor<2>> {
        let mut embedded = embedded.iter();
        let mut by_type = Vec::with_capacity(self.features.len());
        for (node_type, features) in self.features.iter().enumerate() {
            let rows = match features {
                Some(features) => tracked(features, ctx),
                None => embedded.next().expect("the batch should have rows of each embedding").clone(),
            };
            by_type.push(match self.ages.get(node_type) {
                // Burn's concatenation rejects tensors without rows on some devices.
                Some(Some(ages)) if ages.dims()[0] != 0 => {
                    // Rows of half precision have no room for ages.
                    Tensor::cat(vec![ops::widen(rows), tracked(ages, ctx)], 1)
                }
                _ => rows,
            });
        }
        by_type
    }

    fn n_bytes(&self) -> usize {
        let arrays = self.features.iter().chain(&self.ages).flatten();
        arrays.map(n_bytes).sum::<usize>() + self.order.n_bytes()
    }
}

/// The features of the input nodes of a graph of one type.
impl From<Tensor<2>> for GatheredRows {
    fn from(features: Tensor<2>) -> Self {
        let [n_nodes, _] = features.dims();
        let order = TypeOrder::of_one_type(n_nodes);
        Self { features: vec![Some(features)], embedded: Vec::new(), order, ages: Vec::new() }
    }
}

impl InputRows {
    /// Returns the nodes whose rows are trainable, a list for each type without features.
    pub fn embedded(&self) -> &[Vec<NodeId>] {
        match self {
            Self::Gathered(rows) => &rows.embedded,
            Self::Aggregated { .. } => &[],
        }
    }

    /// Returns the nodes of [`InputRows::embedded`], to replace them by the positions of their rows.
    pub(crate) fn embedded_mut(&mut self) -> &mut [Vec<NodeId>] {
        match self {
            Self::Gathered(rows) => &mut rows.embedded,
            Self::Aggregated { .. } => &mut [],
        }
    }

    /// Returns the features of the only type of nodes, or their aggregates; `None` if there are several types, or if the type
    /// has no features.
    pub fn only(&self) -> Option<&Tensor<2>> {
        match self {
            Self::Gathered(rows) => match &rows.features[..] {
                [features] => features.as_ref(),
                _ => None,
            },
            Self::Aggregated { rows, .. } => Some(rows),
        }
    }

    /// Returns the size in bytes.
    pub fn n_bytes(&self) -> usize {
        match self {
            Self::Gathered(rows) => rows.n_bytes(),
            Self::Aggregated { rows, .. } => n_bytes(rows),
        }
    }

    /// Computes the input rows of a model from those of each type, if they were gathered. `embedded` has the rows of
    /// [`InputRows::embedded`]. In training, the rows track gradients.
    ///
    /// # Panics
    /// Panics as [`BlockModel::input`] does, and for aggregated rows.
    pub(crate) fn of_model<M: BlockModel>(
        &self,
        model: &M,
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match self {
            Self::Gathered(rows) => model.input(rows.by_type(embedded, ctx), &rows.order),
            Self::Aggregated { rows, .. } => panic!("got aggregated rows {:?}", rows.dims()),
        }
    }

    /// Runs all layers of a model on the blocks of the batch, and returns `[n_dst of the last block, d_n]`. `embedded` has the
    /// rows of [`InputRows::embedded`]. In training, the rows track gradients.
    ///
    /// # Panics
    /// Panics if the rows do not match the blocks or the model, or are of another aggregation than the model's.
    pub fn forward<M: BlockModel>(
        &self,
        model: &M,
        blocks: &[DeviceBlock],
        embedded: &[Tensor<2>],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match self {
            Self::Gathered(_) => model.forward(blocks, self.of_model(model, embedded, ctx), ctx),
            Self::Aggregated { rows, input } => {
                let expected = model.input_aggregation();
                assert_eq!(Some(*input), expected, "the rows are of another aggregation than the model's");
                model.forward_aggregated(blocks, tracked(rows, ctx), ctx)
            }
        }
    }
}

fn n_bytes(rows: &Tensor<2>) -> usize {
    rows.dtype().size() * rows.shape().num_elements()
}
