use burn::tensor::Tensor;
use kiln_kernels::DeviceBlock;
use kiln_nn::{BlockModel, ForwardContext, InputAggregation};

use crate::step::batch::tracked;

/// The rows from which the first layer of a model computes.
#[derive(Debug, Clone)]
pub enum InputRows {
    /// The features of the input nodes, `[n_src, dim]`: f32, or on the CPU in the element type of the store.
    Gathered(Tensor<2>),
    /// The result of an aggregation by the first block.
    Aggregated {
        /// The result, `[n_dst, width]`, in f32.
        rows: Tensor<2>,
        /// The aggregation, which is that of the model ([`BlockModel::input_aggregation`]).
        input: InputAggregation,
    },
}

impl InputRows {
    /// Returns the tensor.
    pub fn tensor(&self) -> &Tensor<2> {
        match self {
            Self::Gathered(rows) | Self::Aggregated { rows, .. } => rows,
        }
    }

    /// Returns the size in bytes.
    pub fn n_bytes(&self) -> usize {
        let rows = self.tensor();
        rows.dtype().size() * rows.shape().num_elements()
    }

    /// Runs all layers of a model on the blocks of the batch, and returns `[n_dst of the last block, d_n]`. In training, the
    /// rows track gradients.
    ///
    /// # Panics
    /// Panics if the rows do not match the blocks or the model, or are of another aggregation than the model's.
    pub fn forward<M: BlockModel>(
        &self,
        model: &M,
        blocks: &[DeviceBlock],
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match self {
            Self::Gathered(x) => model.forward(blocks, model.input_rows(tracked(x, ctx)), ctx),
            Self::Aggregated { rows, input } => {
                let expected = model.input_aggregation();
                assert_eq!(Some(*input), expected, "the rows are of another aggregation than the model's");
                model.forward_aggregated(blocks, tracked(rows, ctx), ctx)
            }
        }
    }
}
