//! Parts that models with a stack of equal layers share: widths, dropout and products.

use burn::tensor::Tensor;
use kiln_kernels::{DeviceBlock, ops};

use crate::error::{check_dropout, check_size};
use crate::{BiasedRows, ForwardContext, Mode, Result};

/// The widths of a stack of layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Widths {
    pub(crate) d_in: usize,
    pub(crate) hidden: usize,
    pub(crate) n_classes: usize,
    pub(crate) n_layers: usize,
}

impl Widths {
    /// Returns the `[d_in, d_out]` of each layer, or an error if a width or the number of layers is out of range.
    pub(crate) fn of_layers(&self) -> Result<Vec<[usize; 2]>> {
        check_size("d_in", self.d_in)?;
        check_size("hidden", self.hidden)?;
        check_size("n_classes", self.n_classes)?;
        check_size("n_layers", self.n_layers)?;
        Ok((0..self.n_layers)
            .map(|i: usize| {
                let d_in = if i == 0 { self.d_in } else { self.hidden };
                [d_in, if i + 1 == self.n_layers { self.n_classes } else { self.hidden }]
            })
            .collect())
    }
}

/// Returns the number of weights of `n_layers` matrices, `[d_in, hidden]`, `[hidden, hidden]` and so on, and
/// `[hidden, d_out]`. Valid for any values, because those of a damaged file are counted before they are checked.
pub(crate) fn n_weights(n_layers: usize, d_in: usize, hidden: usize, d_out: usize) -> u64 {
    let matrix = |rows: usize, columns: usize| (rows as u64).saturating_mul(columns as u64);
    match n_layers {
        0 => 0,
        1 => matrix(d_in, d_out),
        _ => matrix(hidden, hidden)
            .saturating_mul(n_layers as u64 - 2)
            .saturating_add(matrix(d_in, hidden))
            .saturating_add(matrix(hidden, d_out)),
    }
}

/// The layer number that keys the dropout masks of the input features. It is larger than any model's number of layers,
/// so it differs from the layer numbers that key the masks of the layers' outputs.
const INPUT: usize = u32::MAX as usize;

/// The activation after each layer but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Relu,
    /// The exponential linear unit (Clevert, Unterthiner and Hochreiter 2016) with `alpha = 1`.
    Elu,
    /// No activation, for layers that have their own.
    Identity,
}

/// The dropout before the first layer and, after the activation, between layers.
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

    /// Returns true if training changes the input rows.
    pub(crate) fn drops_input(&self) -> bool {
        self.input != 0.0
    }

    /// Applies the input dropout to `x` if layer `i` is the first and the mode is training.
    pub(crate) fn before(
        &self,
        i: usize,
        block: &DeviceBlock,
        x: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        match ctx.mode {
            // The values that dropout scales would be rounded to the element type of the features.
            Mode::Train if i == 0 && self.input != 0.0 => {
                ops::dropout(ops::widen(x), block.src_nodes(), ctx.key, INPUT, self.input)
            }
            _ => x,
        }
    }

    /// Applies the activation and, in training, dropout to the rows of layer `i`.
    pub(crate) fn after(
        &self,
        i: usize,
        block: &DeviceBlock,
        rows: BiasedRows,
        activation: Activation,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let dropout = match ctx.mode {
            Mode::Train => self.hidden,
            Mode::Eval => 0.0,
        };
        let nodes = block.dst_nodes();
        match (activation, rows) {
            (Activation::Relu, BiasedRows { rows, bias: Some(bias) }) => {
                ops::bias_dropout(rows, bias, true, nodes, ctx.key, i, dropout)
            }
            (Activation::Relu, rows) => ops::relu_dropout(rows.sum(), nodes, ctx.key, i, dropout),
            (Activation::Identity, BiasedRows { rows, bias: Some(bias) }) => {
                ops::bias_dropout(rows, bias, false, nodes, ctx.key, i, dropout)
            }
            (Activation::Identity, rows) => ops::dropout(rows.sum(), nodes, ctx.key, i, dropout),
            (Activation::Elu, rows) if dropout == 0.0 => ops::elu(rows.sum()),
            (Activation::Elu, rows) => ops::dropout(ops::elu(rows.sum()), nodes, ctx.key, i, dropout),
        }
    }
}
