use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops;

use crate::edge_features::edge_features_of;
use crate::gin_conv::check_device;
use crate::{
    Conv, Epsilon, ForwardContext, InputFormat, LayerMemory, LayerSize, Linear, Mlp, NodeModule, Result,
};

/// A graph isomorphism layer whose messages include the rows of edges (Hu, Liu, Gomes, Zitnik, Liang, Pande and Leskovec
/// 2020, section 5): `h_v = mlp((1 + eps) x_v + sum of relu(x_u + e_uv) over the edges u -> v)`.
///
/// `e_uv` are the features of an edge ([`GineConv::forward`]), or a learned row of its type
/// ([`GineConv::forward_edge_types`]). Any [`NodeModule`] can be used as the MLP.
#[derive(Module, Debug)]
pub struct GineConv<M: Module> {
    /// The MLP, which is applied to the aggregated rows.
    pub mlp: M,
    /// The linear layer from the features of edges to the width of the nodes' rows, `[d_edge, d_in]`; `None` if the
    /// features have that width.
    pub edge_linear: Option<Linear>,
    /// The learned epsilon, `[1]`. A fixed epsilon is a setting, not a weight: it is neither saved nor synchronised
    /// between ranks.
    pub epsilon: Option<Param<Tensor<1>>>,
    #[module(skip)]
    configured: Epsilon,
    #[module(skip)]
    edge_rows: EdgeRows,
}

/// The rows of edges that a layer reads as a [`Conv`].
#[derive(Debug, Clone, Copy)]
enum EdgeRows {
    Features,
    Types,
}

impl<M: NodeModule> GineConv<M> {
    /// Creates a layer from an MLP and a linear layer of edges whose parameters are on `device`.
    ///
    /// # Errors
    /// Returns [`Error::NotFinite`](crate::Error::NotFinite) if epsilon is not finite.
    ///
    /// # Panics
    /// Panics if the MLP has parameters on another device, or if only one of the two devices tracks gradients.
    pub fn new(mlp: M, edge_linear: Option<Linear>, epsilon: Epsilon, device: &Device) -> Result<Self> {
        check_device(&mlp, device);
        let parameter = epsilon.parameter(device)?;
        let edge_rows = EdgeRows::Features;
        Ok(Self { mlp, edge_linear, epsilon: parameter, configured: epsilon, edge_rows })
    }

    /// Makes the layer read the types of edges as a [`Conv`] ([`GineConv::forward_edge_types`]) instead of their features
    /// ([`GineConv::forward`]).
    #[must_use]
    pub fn of_edge_types(self) -> Self {
        Self { edge_rows: EdgeRows::Types, ..self }
    }

    /// Runs the layer with the features of the block's edges.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the edge features are `[n_edges, d_edge]`, or `[n_edges, d_in]` without a linear layer of
    /// edges, and the result is `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no edge features, or if the shapes do not match.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let features = edge_features_of(block);
        let rows = match &self.edge_linear {
            Some(linear) => linear.forward(features),
            None => features,
        };
        self.forward_rows(block, x, rows, ctx)
    }

    /// Runs the layer with a row per edge type: the rows of the linear layer of edges, plus its bias. This equals the
    /// features of an edge that are 1 in the column of its type and 0 elsewhere.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no edge types, the layer has no linear layer of edges, or the shapes do not match. On the
    /// CPU, also panics if a type is not below the number of rows of the linear layer.
    pub fn forward_edge_types(&self, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        let Some(linear) = &self.edge_linear else {
            panic!("the layer has no linear layer of edges, whose rows are those of the edge types");
        };
        let rows_of_types = ops::add_row(linear.weight.val(), linear.bias.val().unsqueeze());
        let rows = ops::edge_type_rows(block, rows_of_types);
        self.forward_rows(block, x, rows, ctx)
    }

    fn forward_rows(
        &self,
        block: &DeviceBlock,
        x: Tensor<2>,
        rows: Tensor<2>,
        ctx: &ForwardContext,
    ) -> Tensor<2> {
        let x = ops::widen(x);
        let own = ops::take_dst(block, x.clone());
        let own = match (&self.epsilon, self.configured) {
            (Some(epsilon), _) => ops::mul_row(own, (epsilon.val() + 1.0).unsqueeze()),
            (None, Epsilon::Fixed(epsilon) | Epsilon::Learnable(epsilon)) => own * (1.0 + epsilon),
        };
        self.mlp.forward(ops::edge_relu_sum(block, x, rows) + own, ctx)
    }

    /// Returns epsilon as the layer was configured.
    pub(crate) fn configured_epsilon(&self) -> Epsilon {
        self.configured
    }
}

impl Conv for GineConv<Mlp> {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, ctx: &ForwardContext) -> Tensor<2> {
        match self.edge_rows {
            EdgeRows::Features => self.forward(block, x, ctx),
            EdgeRows::Types => self.forward_edge_types(block, x, ctx),
        }
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, ..InputFormat::default() }
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }

    /// The memory is that of the rows between the dense layers for each destination, and of three rows for each edge: its own,
    /// that of its source, and their sum.
    fn size(&self) -> Option<LayerSize> {
        let linears = &self.mlp.linears;
        let [d_in, hidden] = linears[0].weight.dims();
        let [_, d_out] = linears[linears.len() - 1].weight.dims();
        let dst_bytes = 2 * 4 * hidden as u64;
        let edge_bytes = 3 * 4 * d_in as u64;
        let memory = LayerMemory { dst_bytes, src_bytes: 0, edge_bytes };
        Some(LayerSize { widths: [d_in, d_out], memory })
    }
}
