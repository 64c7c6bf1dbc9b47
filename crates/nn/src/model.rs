use std::fmt::Debug;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, DeviceGraphs, ops};
use kiln_sample::RngKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::order::InputAggregation;
use crate::{EdgeDims, GraphMetadata, GraphRequirements, InputEncoder, Result, TypeOrder};

/// The mode of a forward pass: training or prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Training, with dropout.
    Train,
    /// Prediction, without random draws.
    Eval,
}

/// The context of a forward pass: everything that its result depends on besides the parameters, the blocks or graphs,
/// and the input rows.
#[derive(Debug, Clone, Copy)]
pub struct ForwardContext {
    /// The key of the step, the same on all ranks, from which dropout masks are drawn.
    pub key: RngKey,
    /// The mode of the pass.
    pub mode: Mode,
}

/// A model that takes one block per layer.
///
/// A model whose layers have more than one input (for example, jumping knowledge) overrides `forward`. A model whose
/// `forward` runs just its layers in order also implements [`BlockModel::layer_size`].
pub trait BlockModel: Module + ModuleDisplay {
    /// The number of layers, and of blocks that [`BlockModel::forward`] takes.
    fn n_layers(&self) -> usize;

    /// Runs layer `i`, including the activation and dropout after it.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_i]`, the result `[n_dst, d_{i+1}]`.
    ///
    /// # Panics
    /// Panics if `i` is not below [`BlockModel::n_layers`], or if `x` does not match the block or the layer.
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;

    /// Returns the form in which the layers read rows and edges. The default is that of [`InputFormat::default`].
    fn input_format(&self) -> InputFormat {
        InputFormat::default()
    }

    /// Returns true if a forward pass may draw from Burn's generator of random numbers, by `Dropout` or random tensors of
    /// Burn. The default is true; kiln's models return false. The trainer seeds the generator before each pass of a model that
    /// may draw.
    fn uses_burn_rng(&self) -> bool {
        true
    }

    /// Returns rows of the only type of nodes in an element type that the first layer takes: as they are, or as f32. With
    /// [`ops::MatmulPrecision::Bf16`] on CUDA they are first rounded to bf16, wherever they were gathered.
    fn input_rows(&self, x: Tensor<2>) -> Tensor<2> {
        let x = ops::narrow(x);
        if self.input_format().half_rows { x } else { ops::widen(x) }
    }

    /// Computes the input rows of the first layer from those of each type of nodes. The default takes the rows of one type
    /// ([`BlockModel::input_rows`]); a [`HeteroModel`](crate::HeteroModel) runs its encoder. So a task runs both without a
    /// wrapper around models of one type, which would rename their parameters.
    ///
    /// # Shapes
    /// `rows[t]` has the rows of the sources of type `t` of `blocks[0]`, `[n_t, width]`: features, or trainable rows of the
    /// width of [`BlockModel::input_encoder`]. `order` has the position of each source among them. The result is
    /// `[n_src of blocks[0], d_0]`.
    ///
    /// # Panics
    /// Panics if the rows do not match the model or `order`. The default panics if there is not one type.
    fn input(&self, rows: Vec<Tensor<2>>, order: &TypeOrder) -> Tensor<2> {
        let _ = order;
        let n_types = rows.len();
        match <[Tensor<2>; 1]>::try_from(rows) {
            Ok([only]) => self.input_rows(only),
            Err(_) => panic!("got rows of {n_types} types, expected 1"),
        }
    }

    /// Returns the encoder by which [`BlockModel::input`] computes rows of one width for nodes of all types. `None`, the
    /// default, if the model reads the features of one type of nodes as they are.
    fn input_encoder(&self) -> Option<&InputEncoder> {
        None
    }

    /// Returns the size of layer `i` if [`BlockModel::forward`] just runs the layers in order on the rows of
    /// [`BlockModel::input`]. The model can then be evaluated exactly, layer by layer over a whole graph: layer 0 for all nodes, in
    /// chunks of any size, then layer 1 on the output rows of layer 0. The default is `None`: such a model is evaluated on sampled neighbours only.
    ///
    /// # Panics
    /// Panics if `i` is not below [`BlockModel::n_layers`].
    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        let _ = i;
        None
    }

    /// Runs all layers, layer `i` on `blocks[i]`; layer 0 is the input layer.
    ///
    /// # Shapes
    /// `x` is `[n_src of blocks[0], d_0]`, the result `[n_dst of the last block, d_n]`.
    ///
    /// # Panics
    /// Panics if the number of blocks is not [`BlockModel::n_layers`], or when [`BlockModel::layer`] panics.
    fn forward(&self, blocks: &[DeviceBlock], x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        forward_layers(self, 0, blocks, x, ctx)
    }

    /// Returns the aggregation by which the first layer reads its input rows, if nothing else reads them: neither dropout
    /// nor another layer, nor [`BlockModel::input`] of the model's own. The default is `None`. Loaders may then compute it while they read the features of a batch
    /// ([`aggregate_features`](kiln_kernels::aggregate_features)), so that the rows are never gathered.
    fn input_aggregation(&self) -> Option<InputAggregation> {
        None
    }

    /// Runs all layers like [`BlockModel::forward`], but from the result of [`BlockModel::input_aggregation`] for
    /// `blocks[0]`. The outputs and gradients are bit-identical to those of `forward`. Callers make sure that
    /// [`InputAggregation::is_first`] is true for `blocks[0]`.
    ///
    /// # Shapes
    /// `rows` is `[n_dst of blocks[0], width]`, with the width of [`kiln_kernels::FeatureAggregation::width`]; the result is
    /// `[n_dst of the last block, d_n]`.
    ///
    /// # Panics
    /// Panics if the model has no input aggregation, if `rows` does not match the block or the model, or when
    /// [`BlockModel::forward`] panics.
    fn forward_aggregated(&self, blocks: &[DeviceBlock], rows: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let _ = (blocks, ctx);
        panic!("got aggregated input rows {:?}, but the model has no input aggregation", rows.dims())
    }
}

/// The form in which the layers of a model read rows and edges. The default is f32 rows and edges without groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputFormat {
    /// True if the first layer takes rows of half precision, besides f32 rows. If it is false, callers that have f16 or bf16
    /// features widen them first ([`BlockModel::input_rows`]).
    ///
    /// Such a layer reads the rows by [`ops::aggregate_f32`], [`ops::aggregate_for_linear`] and [`ops::linear`] only, or by
    /// [`ops::widen`]; on the CPU, the outputs are those of widened rows. Its weights stay f32.
    pub half_rows: bool,
    /// True if the layers read the relation groups of blocks ([`DeviceBlock::relation_groups`]) instead of their edges.
    pub relation_groups: bool,
    /// True if the layers also read the groups of nodes ([`RelationGroups::with_nodes`]).
    ///
    /// [`RelationGroups::with_nodes`]: kiln_graph::RelationGroups::with_nodes
    pub node_groups: bool,
    /// True if the layers read the ages of edges ([`AgeEncoder`](crate::AgeEncoder)).
    pub edge_ages: bool,
}

/// Returns the first block of a forward pass from aggregated rows, after checks of the numbers of blocks and rows.
pub(crate) fn aggregated_block<'a, M: BlockModel>(
    model: &M,
    blocks: &'a [DeviceBlock],
    rows: &Tensor<2>,
) -> &'a DeviceBlock {
    let Some(input) = model.input_aggregation() else {
        panic!("got aggregated input rows {:?}, but the model has no input aggregation", rows.dims())
    };
    let n_layers = model.n_layers();
    assert_eq!(blocks.len(), n_layers, "got {} blocks, expected one per layer: {n_layers}", blocks.len());
    let block = &blocks[0];
    let expected = [block.n_dst(), input.aggregation.width(input.d_in)];
    assert_eq!(rows.dims(), expected, "the aggregated rows do not match the block and the model");
    block
}

/// Runs the layers from `first` on, whose input is `x`.
pub(crate) fn forward_layers<M: BlockModel>(
    model: &M,
    first: usize,
    blocks: &[DeviceBlock],
    x: Tensor<2>,
    ctx: &ForwardContext,
) -> Tensor<2> {
    let n_layers = model.n_layers();
    assert_eq!(blocks.len(), n_layers, "got {} blocks, expected one per layer: {n_layers}", blocks.len());
    let layers = blocks.iter().enumerate().skip(first);
    layers.fold(x, |x, (i, block)| model.layer(i, block, x, ctx))
}

/// The widths and the memory of a layer, from which evaluation computes how many nodes fit in a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerSize {
    /// The widths of the input and output rows, `[d_in, d_out]`.
    pub widths: [usize; 2],
    /// The memory of the layer in addition to its rows.
    pub memory: LayerMemory,
}

impl LayerSize {
    /// Creates the size of a layer whose only intermediate rows have the widths of the input or the output.
    pub fn new(widths: [usize; 2]) -> Self {
        Self { widths, memory: LayerMemory::default() }
    }
}

/// The memory of the intermediate tensors of a layer, in bytes, in addition to one row of the input and several of the
/// output for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayerMemory {
    /// The bytes for each destination.
    pub dst_bytes: u64,
    /// The bytes for each source.
    pub src_bytes: u64,
    /// The bytes for each edge.
    pub edge_bytes: u64,
}

/// The configuration from which a model is created. A run stores it with the weights, so that the model can be created
/// again for predictions.
pub trait ModelConfig: Debug + Clone + Send + Sync + Serialize + DeserializeOwned {
    /// The name by which a saved model identifies this type, such as `sage`. It must differ from those of other
    /// configurations.
    const KIND: &'static str;

    /// The type of the model.
    type Model: Module + ModuleDisplay + Sync;

    /// Returns the default configuration for features of `d_in` columns and `n_classes` classes.
    fn for_dims(d_in: usize, n_classes: usize) -> Self;

    /// The number of layers. A node classifier takes one block per layer.
    fn n_layers(&self) -> usize;

    /// The number of feature columns that the model reads, by which a saved model is checked before it is created.
    /// `None`, the default, if the config does not know it.
    fn d_in(&self) -> Option<usize> {
        None
    }

    /// The width of the model's output rows. `None`, the default, if the config does not know it. Some decoders of a
    /// [`LinkModelConfig`](crate::LinkModelConfig) need it.
    fn d_out(&self) -> Option<usize> {
        None
    }

    /// A lower bound of the number of parameters, by which the size of a saved model's weights is checked before memory
    /// is allocated for the model. The default is 0, which checks nothing.
    fn min_parameters(&self) -> u64 {
        0
    }

    /// Returns what the model requires of a graph. The default is nothing but the rows of nodes.
    fn requirements(&self) -> GraphRequirements {
        GraphRequirements::default()
    }

    /// Returns the sizes of the edges whose classes, labels or numbers the model predicts. The default is `None`, for models of
    /// anything else.
    fn edge_dims(&self) -> Option<EdgeDims> {
        None
    }

    /// Returns the configuration for a graph with these properties. Those that are unknown, or that the model does not read,
    /// change nothing. The default returns the configuration unchanged.
    #[must_use]
    fn for_graph(self, graph: &GraphMetadata) -> Self {
        let _ = graph;
        self
    }

    /// Returns the configuration of a model that reads the edge features of a graph with these properties. `None`, the default,
    /// if the model does not read edge features, or if the graph has none.
    ///
    /// ```
    /// use kiln_nn::{GcnConfig, GraphMetadata, ModelConfig, TransformerConfig};
    /// // The edges have 5 feature columns.
    /// let graph = GraphMetadata { d_edge: Some(5), ..GraphMetadata::default() };
    /// let config = TransformerConfig::new(100, 47).with_edge_features(&graph);
    /// assert_eq!(config.and_then(|config| config.edge_features), Some(5));
    /// assert!(GcnConfig::new(100, 47).with_edge_features(&graph).is_none());
    /// ```
    #[must_use]
    fn with_edge_features(self, graph: &GraphMetadata) -> Option<Self> {
        let _ = graph;
        None
    }

    /// Creates a model with initial weights drawn from the key.
    ///
    /// # Errors
    /// Returns an error if a width, a number of layers or a dropout is out of range.
    fn init(&self, key: RngKey, device: &Device) -> Result<Self::Model>;
}

/// Implements the methods of [`ModelConfig`] that are alike for the configurations of this crate.
macro_rules! dims_and_init {
    () => {
        fn d_in(&self) -> Option<usize> {
            Some(self.d_in)
        }

        fn d_out(&self) -> Option<usize> {
            Some(self.n_classes)
        }

        fn n_layers(&self) -> usize {
            self.n_layers
        }

        fn init(&self, key: RngKey, device: &Device) -> Result<Self::Model> {
            self.init(key, device)
        }
    };
}
pub(crate) use dims_and_init;

/// A model that returns one row for each graph of a batch.
pub trait GraphModel: Module {
    /// Runs the model.
    ///
    /// # Shapes
    /// `x` is `[n_nodes, d]`, the rows of all graphs' nodes, graph after graph; the result is
    /// `[n_graphs, n_classes]`.
    ///
    /// # Panics
    /// Panics if `x` does not match the graphs or the model.
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;

    /// Same as [`BlockModel::uses_burn_rng`].
    fn uses_burn_rng(&self) -> bool {
        true
    }
}
