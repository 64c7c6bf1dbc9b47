use burn::module::{Module, ModuleDisplay};
use burn::tensor::Tensor;
use kiln_kernels::{DeviceBlock, ops};

use crate::{ForwardContext, InputAggregation, InputFormat, LayerSize};

/// A layer of a [`Net`](crate::Net): it computes a row for each destination of a block from the rows of the sources.
pub trait Conv: Module + ModuleDisplay {
    /// Runs the layer, without an activation. `layer` is its number in the model, which keys its random draws.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if `x` does not match the block or the layer, or if the block lacks what the layer reads, such as edge types.
    fn forward(&self, layer: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2>;

    /// Same as [`Conv::forward`], but may leave a bias out, so that on a GPU the activation adds it in the same pass. The default
    /// leaves nothing out.
    fn biased_rows(
        &self,
        layer: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> BiasedRows {
        self.forward(layer, block, x, ctx).into()
    }

    /// Returns the form in which the layer reads rows and edges. The default is that of [`InputFormat::default`].
    fn input_format(&self) -> InputFormat {
        InputFormat::default()
    }

    /// Same as [`BlockModel::uses_burn_rng`](crate::BlockModel::uses_burn_rng).
    fn uses_burn_rng(&self) -> bool {
        true
    }

    /// Returns the aggregation by which the layer reads its input rows, if it reads them in no other way. The default is
    /// `None`.
    fn input_aggregation(&self) -> Option<InputAggregation> {
        None
    }

    /// Runs the layer from the result of [`Conv::input_aggregation`].
    ///
    /// # Shapes
    /// `rows` is `[n_dst, width]`, with the width of [`kiln_kernels::FeatureAggregation::width`]; the result is
    /// `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the layer has no input aggregation, or if `rows` does not match the layer.
    fn forward_aggregated(&self, rows: Tensor<2>) -> Tensor<2> {
        panic!("got aggregated input rows {:?}, but the layer has no input aggregation", rows.dims())
    }

    /// Returns the size of the layer if exact evaluation can run it over a whole graph; see
    /// [`BlockModel::layer_size`](crate::BlockModel::layer_size). The default is `None`.
    fn size(&self) -> Option<LayerSize> {
        None
    }
}

/// The rows of a layer, and a bias that is still to be added to each of them.
#[derive(Debug, Clone)]
pub struct BiasedRows {
    /// The rows, `[n, d]`.
    pub rows: Tensor<2>,
    /// The bias, `[d]`.
    pub bias: Option<Tensor<1>>,
}

impl BiasedRows {
    /// Returns the rows with the bias.
    pub(crate) fn sum(self) -> Tensor<2> {
        match self.bias {
            Some(bias) => ops::add_row(self.rows, bias.unsqueeze()),
            None => self.rows,
        }
    }
}

impl From<Tensor<2>> for BiasedRows {
    fn from(rows: Tensor<2>) -> Self {
        Self { rows, bias: None }
    }
}
