//! What models that stack one kind of layer share: the layers' widths, and dropout around them.

use burn::tensor::Tensor;
use kiln_kernels::{DeviceBlock, ops};

use crate::error::{check_dropout, check_size};
use crate::{ForwardContext, Mode, Result};

/// The widths of a stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Widths {
    pub(crate) d_in: usize,
    pub(crate) hidden: usize,
    pub(crate) n_classes: usize,
    pub(crate) n_layers: usize,
}

impl Widths {
    /// The `[d_in, d_out]` of each layer.
    pub(crate) fn of_layers(&self) -> Result<Vec<[usize; 2]>> {
        check_size("d_in", self.d_in)?;
        check_size("hidden", self.hidden)?;
        check_size("n_classes", self.n_classes)?;
        check_size("n_layers", self.n_layers)?;
        let widths = |i: usize| {
            let d_in = if i == 0 { self.d_in } else { self.hidden };
            [d_in, if i + 1 == self.n_layers { self.n_classes } else { self.hidden }]
        };
        Ok((0..self.n_layers).map(widths).collect())
    }
}

/// The number that stands for the input features where masks are keyed by the layer whose output they
/// mask: larger than any model's number of layers.
const INPUT: usize = u32::MAX as usize;

/// Dropout before the first layer and, with ReLU, between layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropout {
    input: f64,
    hidden: f64,
}

impl Dropout {
    pub(crate) fn new(input: f64, hidden: f64) -> Result<Self> {
        check_dropout("input_dropout", input)?;
        check_dropout("dropout", hidden)?;
        Ok(Self { input, hidden })
    }

    /// What layer `i` sees of `x`.
    pub(crate) fn before(
        &self,
        i: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match ctx.mode {
            Mode::Train if i == 0 => ops::dropout(x, block.src_nodes(), ctx.key, INPUT, self.input),
            _ => x,
        }
    }

    /// What follows layer `i` before the next one.
    pub(crate) fn after(
        &self,
        i: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let dropout = match ctx.mode {
            Mode::Train => self.hidden,
            Mode::Eval => 0.0,
        };
        ops::relu_dropout(x, block.dst_nodes(), ctx.key, i, dropout)
    }
}

/// Whether a layer whose aggregate commutes with its product should multiply first: whether rows get
/// narrow enough by the product to pay for multiplying all sources' rows instead of the destinations'.
/// (DGL goes by the widths alone, which in a sampled block, with many sources a destination, often costs
/// more than it saves.)
pub(crate) fn projects_first(block: &DeviceBlock, [d_in, d_out]: [usize; 2]) -> bool {
    if d_in <= d_out {
        return false;
    }
    let more_products = (block.n_src() - block.n_dst()) as f64 * (d_in * d_out) as f64;
    let fewer_gathered = block.n_edges() as f64 * (d_in - d_out) as f64;
    more_products < PRODUCTS_PER_GATHERED * fewer_gathered
}

/// `x weight` by [`ops::linear`], on a row of zeros that is in the cache when the product is added to it; the tensor
/// library's own product on the CPU copies its result to memory of another alignment.
pub(crate) fn product(x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let [_, d_out] = weight.dims();
    let zeros = Tensor::zeros([1, d_out], &x.device());
    ops::linear(zeros, x, weight)
}

/// Multiplications in a matrix product that take the time of gathering one value: at 100 GFLOP/s and
/// 10 GB/s on one core, 0.4 ns against 0.02 ns.
const PRODUCTS_PER_GATHERED: f64 = 20.0;
