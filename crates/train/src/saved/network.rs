//! The models of a saved model without their types.

use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceGraphs;
use kiln_nn::{BlockModel, ForwardContext, GraphModel, InputFormat, LinkDecoder, Mode};
use kiln_sample::RngKey;

use crate::error::Result;
use crate::evaluate::layer_wise::{InferenceInput, LayerWiseInference, LayerWiseRows, WantedRows};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::embeddings::learned_rows;
use crate::step::task::node::NodeInput;

/// A model without its type.
#[derive(Clone)]
pub(crate) enum Network {
    /// A model of nodes; with a decoder, a model of links, which reads the rows of its encoder.
    Nodes { encoder: NodeEncoder, decoder: Option<LinkDecoder> },
    /// A model of whole graphs.
    Graphs(Arc<dyn GraphNetwork>),
}

/// A model of nodes, with its trained rows.
#[derive(Clone)]
pub(crate) struct NodeEncoder {
    pub(crate) network: Arc<dyn NodeNetwork>,
    /// The rows of each type of nodes without features, in the order of the types; empty if all types have features.
    pub(crate) tables: Vec<Arc<NodeEmbedding>>,
}

/// The rows that a model computes from a batch.
pub(crate) struct NetworkRows {
    /// The inputs of the last layer, a row per source of the last block; `None` if they are not wanted.
    pub(crate) embeddings: Option<Tensor<2>>,
    /// The outputs for the destinations of the last block; `None` if they are not wanted.
    pub(crate) outputs: Option<Tensor<2>>,
}

/// A model of nodes without its type.
pub(crate) trait NodeNetwork: Send + Sync {
    fn n_layers(&self) -> usize;

    /// Returns the form in which the layers read rows and edges.
    fn input_format(&self) -> InputFormat;

    /// Returns the widths of the first layer's input and of the last layer's output; `None` if the layers return no sizes.
    fn outer_widths(&self) -> Option<[usize; 2]>;

    /// Returns the width of the last layer's input; `None` if the layers return no sizes.
    fn embedding_width(&self) -> Option<usize>;

    /// Computes the wanted rows for all nodes.
    fn exact(
        &self,
        inference: &LayerWiseInference,
        input: InferenceInput<'_>,
        wanted: WantedRows,
        device: &Device,
    ) -> Result<LayerWiseRows>;

    /// Computes the wanted rows of a batch. `embedded` has the rows of the nodes whose rows are trained, a tensor for each
    /// type without features.
    fn run(&self, input: &NodeInput, embedded: &[Tensor<2>], wanted: WantedRows) -> NetworkRows;
}

/// A graph model without its type.
pub(crate) trait GraphNetwork: Send + Sync {
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>) -> Tensor<2>;
}

impl NodeEncoder {
    /// Wraps a model with its trained rows.
    pub(crate) fn new<M: BlockModel + Sync + 'static>(model: M, tables: Vec<Arc<NodeEmbedding>>) -> Self {
        Self { network: Arc::new(model), tables }
    }

    /// Computes the wanted rows of a batch, whose embedded nodes are positions in the tables.
    pub(crate) fn run(&self, input: &NodeInput, wanted: WantedRows, device: &Device) -> Result<NetworkRows> {
        let embedded = learned_rows(&self.tables, input.x.embedded(), device)?;
        Ok(self.network.run(input, &embedded, wanted))
    }
}

/// Returns the context of predictions, which have no dropout, so any key works.
fn context() -> ForwardContext {
    ForwardContext { key: RngKey::new(0), mode: Mode::Eval }
}

impl<M: BlockModel + Sync> NodeNetwork for M {
    fn n_layers(&self) -> usize {
        BlockModel::n_layers(self)
    }

    fn input_format(&self) -> InputFormat {
        BlockModel::input_format(self)
    }

    fn outer_widths(&self) -> Option<[usize; 2]> {
        let [d_in, _] = self.layer_size(0)?.widths;
        let [_, d_out] = self.layer_size(BlockModel::n_layers(self) - 1)?.widths;
        Some([d_in, d_out])
    }

    fn embedding_width(&self) -> Option<usize> {
        Some(self.layer_size(BlockModel::n_layers(self) - 1)?.widths[0])
    }

    fn exact(
        &self,
        inference: &LayerWiseInference,
        input: InferenceInput<'_>,
        wanted: WantedRows,
        device: &Device,
    ) -> Result<LayerWiseRows> {
        inference.compute(self, input, wanted, device)
    }

    fn run(&self, input: &NodeInput, embedded: &[Tensor<2>], wanted: WantedRows) -> NetworkRows {
        let x = input.x.of_model(self, embedded, &context());
        let before_last = input.blocks[..input.blocks.len() - 1].iter().enumerate();
        let embeddings = wanted
            .has_embeddings()
            .then(|| before_last.fold(x.clone(), |x, (i, block)| self.layer(i, block, x, &context())));
        // Models may override [`BlockModel::forward`], so it is called instead of each layer.
        let outputs = wanted.has_outputs().then(|| self.forward(&input.blocks, x, &context()));
        NetworkRows { embeddings, outputs }
    }
}

/// Wraps a graph model, because a blanket implementation may not overlap with another trait's.
pub(crate) struct OfGraphs<M>(pub(crate) M);

impl<M: GraphModel + Sync> GraphNetwork for OfGraphs<M> {
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>) -> Tensor<2> {
        self.0.forward(graphs, x, &context())
    }
}
