use std::fmt::Debug;

use burn::module::{Module, ModuleDisplay};
use burn::tensor::{Device, Tensor};
use kiln_graph::Metagraph;
use kiln_kernels::{DeviceBlock, DeviceGraphs, ops};
use kiln_sample::RngKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::order::InputAggregation;

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
/// `forward` runs just its layers in order also implements [`LayerWiseModel`].
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

    /// Returns true if the first layer takes rows of half precision on the CPU, besides f32 rows. The default is false:
    /// callers that have f16 or bf16 features then widen them first ([`BlockModel::input_rows`]).
    ///
    /// A layer that returns true reads the rows by [`ops::aggregate_f32`] and [`ops::linear`] only, or by
    /// [`ops::widen`]; the outputs are those of widened rows, and its weights stay f32.
    fn reads_half_rows(&self) -> bool {
        false
    }

    /// Returns true if the layers read the relation groups of blocks ([`DeviceBlock::relation_groups`]) instead of their edges.
    /// The default is false.
    fn reads_relation_groups(&self) -> bool {
        false
    }

    /// Returns true if the layers also read the groups of nodes ([`RelationGroups::with_nodes`]). The default is false.
    ///
    /// [`RelationGroups::with_nodes`]: kiln_graph::RelationGroups::with_nodes
    fn reads_node_groups(&self) -> bool {
        false
    }

    /// Returns true if a forward pass may draw from Burn's generator of random numbers, by `Dropout` or random tensors of
    /// Burn. The default is true; kiln's models return false. The trainer seeds the generator before each pass of a model that
    /// may draw.
    fn uses_burn_rng(&self) -> bool {
        true
    }

    /// Returns the input rows in an element type that the first layer takes: as they are, or as f32.
    fn input_rows(&self, x: Tensor<2>) -> Tensor<2> {
        if self.reads_half_rows() { x } else { ops::widen(x) }
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
    /// nor another layer. The default is `None`. Loaders may then compute it while they read the features of a batch
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

/// Returns the first block of a forward pass from aggregated rows, after checks of the numbers of blocks and rows.
pub(crate) fn aggregated_block<'a, M: BlockModel>(
    model: &M,
    blocks: &'a [DeviceBlock],
    rows: &Tensor<2>,
) -> &'a DeviceBlock {
    let n_layers = model.n_layers();
    assert_eq!(blocks.len(), n_layers, "got {} blocks, expected one per layer: {n_layers}", blocks.len());
    let (Some(block), Some(input)) = (blocks.first(), model.input_aggregation()) else {
        panic!("got aggregated input rows {:?}, but the model has no input aggregation", rows.dims())
    };
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

/// A model whose [`BlockModel::forward`] just runs its layers in order. It can therefore be evaluated layer by layer
/// over a whole graph: layer 0 for all nodes, in chunks of any size, then layer 1 on the output rows of layer 0.
pub trait LayerWiseModel: BlockModel {
    /// The widths of the input and output rows of layer `i`, `[d_in, d_out]`.
    ///
    /// # Panics
    /// Panics if `i` is not below [`BlockModel::n_layers`].
    fn widths(&self, i: usize) -> [usize; 2];

    /// The memory of layer `i` in addition to its rows, from which evaluation computes how many nodes fit in a memory
    /// limit. The default is 0, for layers whose only intermediate rows have the widths of the input or the output.
    fn layer_memory(&self, i: usize) -> LayerMemory {
        let _ = i;
        LayerMemory::default()
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

    /// Returns true if the model reads edge weights. [`BlockModel::layer`] then panics on blocks without them.
    fn needs_edge_weights(&self) -> bool {
        false
    }

    /// Returns the number of relations of a model that reads edge types, all of which must be below it, or `None`, the
    /// default. [`BlockModel::layer`] of such a model panics on blocks without types.
    fn n_relations(&self) -> Option<usize> {
        None
    }

    /// Returns the configuration with another number of relations. The default returns it unchanged, for models that read no
    /// edge types.
    #[must_use]
    fn with_n_relations(self, n_relations: usize) -> Self {
        let _ = n_relations;
        self
    }

    /// Returns the metagraph of a model that reads the relation groups of blocks, or `None`, the default.
    /// [`BlockModel::layer`] panics on blocks without groups of this metagraph if [`BlockModel::reads_relation_groups`] is true,
    /// which [`Rsage`](crate::Rsage) is not for one type of nodes and one relation.
    fn relation_groups(&self) -> Option<Metagraph> {
        None
    }

    /// Returns the configuration for the node types and relations of a graph. The default returns it unchanged, for models
    /// that read no relation groups.
    #[must_use]
    fn with_metagraph(self, metagraph: &Metagraph) -> Self {
        let _ = metagraph;
        self
    }

    /// Returns the number of columns of the edge features that the model reads, or `None`, the default, if it reads none.
    /// [`BlockModel::layer`] of a model that reads them panics on blocks without edge features.
    fn d_edge(&self) -> Option<usize> {
        None
    }

    /// Returns the configuration for edge features with this number of columns. The default returns it unchanged, for
    /// models that cannot read edge features.
    #[must_use]
    fn with_d_edge(self, d_edge: usize) -> Self {
        let _ = d_edge;
        self
    }

    /// Returns true if the model is meant for graphs in which each node has a self loop, and for samplers that keep it. The
    /// default is false.
    fn needs_self_loops(&self) -> bool {
        false
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
