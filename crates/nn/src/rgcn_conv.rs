use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, OwnRow, Reduction};
use kiln_sample::RngKey;

use crate::edge_features::EdgeDraws;
use crate::error::{check_size, check_weight};
use crate::init::{NO_GAIN, uniform, xavier_bound, xavier_uniform, zeros};
use crate::linear::product_with;
use crate::{
    BiasedRows, Conv, EdgeWeighting, ForwardContext, InputFormat, LayerMemory, LayerSize, RelationEdgeLinear,
    Result,
};

/// The widths and numbers of relations and bases of a [`RgcnConv`] layer.
#[derive(Debug, Clone)]
pub struct RgcnConvConfig {
    /// Width of the input rows.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// Number of relations: one more than the largest edge type.
    pub n_relations: usize,
    /// Number of bases, at least 1. With as many bases as relations, the layer can represent any matrices of relations.
    pub n_bases: usize,
    /// The use of edge weights in the mean over the edges of a relation.
    pub edge_weighting: EdgeWeighting,
    /// Number of columns of the edge features of each relation, `None` for a relation without features; empty if the layer reads
    /// no edge features.
    pub edge_features: Vec<Option<usize>>,
}

impl RgcnConvConfig {
    /// Creates a layer with initial weights drawn from the key: Xavier uniform for each matrix, and a bias of zeros, as
    /// in PyG's `RGCNConv`. Parameter 0 is the matrix of a node's own row, 1 the matrices of the bases, 2 the coefficients,
    /// and `3 + r` that of the edge features of relation `r`.
    ///
    /// # Errors
    /// Returns an error if a width or number is 0 or too large, if the matrices would be too large, or if the edge features are
    /// not those of all relations.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<RgcnConv> {
        let &Self { d_in, d_out, n_relations, n_bases, edge_weighting, ref edge_features } = self;
        check_size("n_relations", n_relations)?;
        check_size("n_bases", n_bases)?;
        check_weight(d_in.saturating_mul(n_bases), d_out)?;
        check_weight(n_relations, n_bases)?;
        let bound = (6.0 / (d_in + d_out) as f64).sqrt();
        let draws = EdgeDraws { key, first: 3, step: 1, bound: |shape| xavier_bound(shape, NO_GAIN) };
        let edge_linear = RelationEdgeLinear::init(edge_features, n_relations, d_out, draws, device)?;
        Ok(RgcnConv {
            weight_self: xavier_uniform(key, 0, [d_in, d_out], NO_GAIN, device),
            bases: uniform(key, 1, [n_bases * d_in, d_out], bound, device),
            coefficients: xavier_uniform(key, 2, [n_relations, n_bases], NO_GAIN, device),
            bias: zeros(d_out, device),
            edge_linear,
            edge_weighting,
        })
    }
}

/// A relational graph convolution with basis decomposition (Schlichtkrull, Kipf, Bloem, van den Berg, Titov and Welling
/// 2018, equations 2 and 3): `h_v = x_v W_self + sum over r of mean({x_u : u -> v with type r}) W_r + b` with
/// `W_r = sum over b of a[r, b] V_b`.
///
/// It is computed as one aggregation and one product,
/// `[x_v, sum over e of (a[r_e, b] / c_{v, r_e}) x_u for each b] [W_self; V_1; ...; V_B]`, where `c_{v, r}` is the number of
/// edges of type `r` into `v`. In sampled blocks, these are the sampled edges: the mean over the sampled neighbours of a
/// relation is an unbiased estimate of the mean over all of them where at least one is sampled, but a relation without a
/// sampled edge contributes 0, so rare relations are weighted less. With whole neighbourhoods the layer is exact.
///
/// With an [`EdgeWeighting`], the mean over the edges of a relation is a weighted one: the factor `1 / c_{v, r_e}` is
/// `w_e / c_{v, r_e}`, or `w_e` divided by the sum of the absolute weights of these edges.
///
/// With edge features, the messages are `[x_u, e_uv]`: the mean of the features of the edges of a relation is multiplied by a
/// matrix of the relation, without bases, and added ([`RelationEdgeLinear`]).
///
/// A relation without edges in a batch gets a gradient of 0.
#[derive(Module, Debug)]
pub struct RgcnConv {
    /// The weight matrix of a node's own row, `[d_in, d_out]`.
    pub weight_self: Param<Tensor<2>>,
    /// The matrices of the bases, one below the other, `[n_bases * d_in, d_out]`.
    pub bases: Param<Tensor<2>>,
    /// The coefficients of the bases for each relation, `[n_relations, n_bases]`.
    pub coefficients: Param<Tensor<2>>,
    /// The bias, `[d_out]`.
    pub bias: Param<Tensor<1>>,
    /// The matrices of the edge features by relation; `None` if the layer reads none.
    pub edge_linear: Option<RelationEdgeLinear>,
    /// The use of edge weights.
    #[module(skip)]
    pub edge_weighting: EdgeWeighting,
}

impl RgcnConv {
    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no edge types, or lacks edge weights or features that the layer reads, or if `x` does not have
    /// this shape. On the CPU, also panics if a type is not below the number of relations.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        self.rows(block, x, Some(self.bias.val().unsqueeze()))
    }

    /// Returns the rows with this bias, `[1, d_out]`, or without one.
    fn rows(&self, block: &DeviceBlock, x: Tensor<2>, bias: Option<Tensor<2>>) -> Tensor<2> {
        let coefficients = self.coefficients.val();
        let shares = self.edge_weighting.relation_shares(block, coefficients.dims()[0]);
        let weights = ops::relation_weights(block, coefficients, shares.clone());
        let weights = Some(MessageWeights::PerBasis(weights));
        let own = OwnRow::Concatenated;
        let rows = ops::aggregate_for_linear(block, x, Aggregation { reduce: Reduction::Sum, weights, own });
        let weight = ops::stack_rows(self.weight_self.val(), self.bases.val());
        let rows = product_with(bias, rows, weight);
        match &self.edge_linear {
            Some(edge_linear) => edge_linear.add_to(rows, block, Some(shares)),
            None => rows,
        }
    }
}

impl Conv for RgcnConv {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.forward(block, x)
    }

    fn biased_rows(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> BiasedRows {
        BiasedRows { rows: self.rows(block, x, None), bias: Some(self.bias.val()) }
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, ..InputFormat::default() }
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }

    /// The memory is that of the sums of all bases for each destination. Each edge has a weight for each basis, and its share of
    /// its relation with the counts from which it is computed.
    fn size(&self) -> Option<LayerSize> {
        let widths = self.weight_self.dims();
        let [_, n_bases] = self.coefficients.dims();
        let dst_bytes = 4 * (n_bases * widths[0]) as u64;
        let edge_bytes = 4 * n_bases as u64 + 24;
        let of_edges = self.edge_linear.as_ref().map_or([0; 2], RelationEdgeLinear::memory_bytes);
        let memory = LayerMemory {
            dst_bytes: dst_bytes + of_edges[0],
            src_bytes: 0,
            edge_bytes: edge_bytes + of_edges[1],
        };
        Some(LayerSize { widths, memory })
    }
}
