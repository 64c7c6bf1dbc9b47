use burn::module::Module;
use burn::tensor::{Device, Tensor};
use kiln_kernels::{DeviceBlock, is_cpu};
use kiln_sample::{KeyDomain, RngKey};

use crate::frame::FrameConfig;
use crate::model::{aggregated_block, forward_layers};
use crate::{BlockModel, Conv, ForwardContext, Frame, InputAggregation, InputFormat, LayerSize, Result};

/// A model of nodes: layers of one type, with an activation, dropout, and optional normalisation, residual connections and
/// jumping knowledge around them.
///
/// The models of nodes of this crate are aliases of it, such as [`Sage`](crate::Sage), whose layers are
/// [`SageConv`](crate::SageConv)s.
///
/// The dropout mask of a row is a function of its node's global id, the layer and the key of the step. It does not
/// depend on the distribution of a step's seeds over ranks.
#[derive(Module, Debug)]
pub struct Net<C: Conv> {
    /// The layers, input layer first.
    pub layers: Vec<C>,
    /// Normalisations and the linear layer of jumping knowledge; without parameters if the options are not used.
    pub frame: Frame,
}

impl<C: Conv> Net<C> {
    /// Creates a model. `conv` returns layer `i` from `i`, its widths `[d_in, d_out]`, and its key,
    /// `key.fold_in(KeyDomain::Layer, i)`.
    ///
    /// # Errors
    /// Returns the errors of the frame and of `conv`.
    pub(crate) fn init(
        frame: &FrameConfig,
        key: RngKey,
        device: &Device,
        conv: impl Fn(usize, [usize; 2], RngKey) -> Result<C>,
    ) -> Result<Self> {
        let mut layers = Vec::new();
        for (i, widths) in frame.of_convs()?.into_iter().enumerate() {
            layers.push(conv(i, widths, key.fold_in(KeyDomain::Layer, i as u64))?);
        }
        Ok(Self { layers, frame: frame.init(key, device)? })
    }
}

impl<C: Conv> BlockModel for Net<C> {
    fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Runs layer `i`, followed by the activation and dropout unless it is the last; see [`BlockModel::layer`].
    fn layer(&self, i: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let conv = &self.layers[i];
        self.frame.layer(i, block, x, ctx, |x| match is_cpu(&x.device()) {
            // There, the product begins with the bias instead of zeros.
            true => conv.forward(i, block, x, ctx).into(),
            false => conv.biased_rows(i, block, x, ctx),
        })
    }

    /// Returns the form of the rows that the first layer reads, with the groups that any layer reads.
    fn input_format(&self) -> InputFormat {
        let of_layers = self.layers.iter().map(C::input_format);
        let joined = of_layers.reduce(|first, other| InputFormat {
            half_rows: first.half_rows,
            relation_groups: first.relation_groups || other.relation_groups,
            node_groups: first.node_groups || other.node_groups,
            edge_ages: first.edge_ages || other.edge_ages,
        });
        joined.unwrap_or_default()
    }

    fn uses_burn_rng(&self) -> bool {
        self.layers.iter().any(C::uses_burn_rng)
    }

    fn input_aggregation(&self) -> Option<InputAggregation> {
        self.layers.first().and_then(C::input_aggregation).filter(|_| self.frame.reads_input_once())
    }

    fn forward_aggregated(&self, blocks: &[DeviceBlock], rows: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let block = aggregated_block(self, blocks, &rows);
        let x = self.frame.layer(0, block, rows, ctx, |rows| self.layers[0].forward_aggregated(rows).into());
        forward_layers(self, 1, blocks, x, ctx)
    }

    /// Returns `None` for a model whose layers return no size.
    fn layer_size(&self, i: usize) -> Option<LayerSize> {
        let size = self.layers[i].size()?;
        Some(LayerSize { widths: self.frame.widths(i, size.widths), ..size })
    }
}
