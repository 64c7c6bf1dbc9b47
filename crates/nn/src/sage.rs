use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, ops};
use kiln_sample::{Domain, RngKey};

use crate::error::check_size;
use crate::{Aggregate, BlockModel, Ctx, Error, LayerWise, Mode, Result, SageConv, SageConvConfig};

/// The shape of a [`Sage`] model.
#[derive(Debug, Clone)]
pub struct SageConfig {
    /// Width of the input features.
    pub d_in: usize,
    /// Width between layers.
    pub hidden: usize,
    /// Width of the output.
    pub n_classes: usize,
    /// Number of layers, at least 1.
    pub n_layers: usize,
    /// How neighbours are put together.
    pub aggregate: Aggregate,
    /// Probability that dropout zeroes a value between layers, in `[0, 1)`.
    pub dropout: f64,
}

impl SageConfig {
    /// A model with initial weights from the key; layer `i` takes `key.fold(Domain::Layer, i)`.
    ///
    /// # Errors
    /// When a width or the number of layers is 0 or absurdly large, or `dropout` is not in `[0, 1)`.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<Sage> {
        check_size("d_in", self.d_in)?;
        check_size("hidden", self.hidden)?;
        check_size("n_classes", self.n_classes)?;
        check_size("n_layers", self.n_layers)?;
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(Error::Dropout { dropout: self.dropout });
        }
        let layer = |i: usize| {
            let d_in = if i == 0 { self.d_in } else { self.hidden };
            let d_out = if i + 1 == self.n_layers { self.n_classes } else { self.hidden };
            let config = SageConvConfig { d_in, d_out, aggregate: self.aggregate };
            config.init(key.fold(Domain::Layer, i as u64), device)
        };
        let layers = (0..self.n_layers).map(layer).collect::<Result<_>>()?;
        Ok(Sage { layers, dropout: self.dropout })
    }
}

/// GraphSAGE (Hamilton, Ying and Leskovec 2017): [`SageConv`] layers, with ReLU and then dropout after
/// each but the last.
///
/// The dropout mask of a row belongs to its node's global id, the layer and the key of the step, so that
/// it does not depend on how the step's seeds are dealt out to ranks.
#[derive(Module, Debug)]
pub struct Sage {
    /// The layers, input layer first.
    pub layers: Vec<SageConv>,
    #[module(skip)]
    dropout: f64,
}

impl BlockModel for Sage {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &Ctx) -> Tensor<2> {
        let x = self.layers[i].forward(block, x);
        if i + 1 == self.layers.len() {
            return x;
        }
        let dropout = match ctx.mode {
            Mode::Train => self.dropout,
            Mode::Eval => 0.0,
        };
        ops::relu_dropout(x, block.dst_nodes(), ctx.key, i, dropout)
    }
}

impl LayerWise for Sage {
    fn widths(&self, i: usize) -> [usize; 2] {
        self.layers[i].weight_self.dims()
    }
}
