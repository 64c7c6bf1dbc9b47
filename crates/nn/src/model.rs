use std::fmt::Debug;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, DeviceGraphs};
use kiln_sample::RngKey;

use crate::Result;

/// Whether a model runs to learn or to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Training: dropout is on.
    Train,
    /// Prediction: nothing is random.
    Eval,
}

/// The context of a forward pass: all that it depends on besides parameters and input.
#[derive(Debug, Clone, Copy)]
pub struct ForwardContext {
    /// The key of the step, the same on all ranks; dropout masks are made from it.
    pub key: RngKey,
    /// Whether the pass is for training.
    pub mode: Mode,
}

/// A model that consumes one block a layer.
///
/// A model whose layers see more than one input (jumping knowledge, say) overrides `forward`; one whose
/// `forward` is nothing but its layers in order says so by [`LayerWiseModel`].
pub trait BlockModel: Module {
    /// Number of layers, and of blocks that [`BlockModel::forward`] takes.
    fn n_layers(&self) -> usize;

    /// Runs layer `i`, with what follows it before the next (activation, dropout).
    ///
    /// # Shapes
    /// `x` is `[n_src, d_i]`, the result `[n_dst, d_{i+1}]`.
    ///
    /// # Panics
    /// When `i` is not below [`BlockModel::n_layers`], or `x` does not fit the block or the layer.
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;

    /// Runs all layers, each on the block of its own: `blocks[0]` belongs to the input layer.
    ///
    /// # Shapes
    /// `x` is `[n_src of blocks[0], d_0]`, the result `[n_dst of the last block, d_n]`.
    ///
    /// # Panics
    /// When the number of blocks is not [`BlockModel::n_layers`], or as [`BlockModel::layer`] does.
    fn forward(&self, blocks: &[DeviceBlock], x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let n_layers = self.n_layers();
        assert_eq!(blocks.len(), n_layers, "{} blocks for a model of {n_layers} layers", blocks.len());
        let layers = blocks.iter().enumerate();
        layers.fold(x, |x, (i, block)| self.layer(i, block, x, ctx))
    }
}

/// A model whose [`BlockModel::forward`] is its layers in order and nothing else, so that it can be run
/// layer by layer over a whole graph: layer 0 for all nodes, in parts of any size, then layer 1 on the rows
/// that came out.
pub trait LayerWiseModel: BlockModel {
    /// The widths of the rows that layer `i` takes and gives, `[d_in, d_out]`.
    ///
    /// # Panics
    /// When `i` is not below [`BlockModel::n_layers`].
    fn widths(&self, i: usize) -> [usize; 2];
}

/// The shape of a node classifier, from which a model is initialized.
pub trait ModelConfig: Debug + Clone + Send + Sync {
    /// The model.
    type Model: LayerWiseModel + Sync;

    /// The default shape for features of `d_in` columns and for `n_classes` classes.
    fn for_dims(d_in: usize, n_classes: usize) -> Self;

    /// The number of layers, one block each.
    fn n_layers(&self) -> usize;

    /// Whether the model reads edge weights, without which [`BlockModel::layer`] panics.
    fn needs_edge_weights(&self) -> bool {
        false
    }

    /// Initializes a model with weights drawn from the key.
    ///
    /// # Errors
    /// When a width, the number of layers or a dropout is out of its range.
    fn init(&self, key: RngKey, device: &Device) -> Result<Self::Model>;
}

/// A model that gives one row for each graph of a batch.
pub trait GraphModel: Module {
    /// Runs the model.
    ///
    /// # Shapes
    /// `x` is `[n_nodes, d]`, the rows of all graphs' nodes, graph after graph; the result is
    /// `[n_graphs, n_classes]`.
    ///
    /// # Panics
    /// When `x` does not fit the graphs or the model.
    fn forward(&self, graphs: &DeviceGraphs, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;
}
