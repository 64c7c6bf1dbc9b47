use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::Metagraph;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops;
use kiln_sample::RngKey;

use crate::error::check_weight;
use crate::hgt_conv::{groups_of, most_relations};
use crate::init::{RELU_GAIN, WeightInit, draw, xavier_bound};
use crate::sage_conv::{self, SageWeights};
use crate::{Aggregate, Conv, EdgeWeighting, ForwardContext, InputFormat, LayerMemory, LayerSize, Result};

/// The widths, the relations and the aggregation of a [`RsageConv`] layer.
#[derive(Debug, Clone)]
pub struct RsageConvConfig {
    /// Width of the input rows of all node types.
    pub d_in: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// The node types and relations of the graph.
    pub metagraph: Metagraph,
    /// The aggregation of the neighbours by each relation.
    pub aggregate: Aggregate,
    /// The use of edge weights in it.
    pub edge_weighting: EdgeWeighting,
}

impl RsageConvConfig {
    /// Creates a layer with initial weights drawn from the key, as in DGL's `SAGEConv`; see
    /// [`SageConvConfig::init`](crate::SageConvConfig::init).
    ///
    /// # Errors
    /// Returns an error if a width is 0 or too large, if the weight matrices would be too large, or if the weighting does not
    /// apply to the aggregation.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<RsageConv> {
        self.init_with(WeightInit::Dgl, key, device)
    }

    /// Creates a layer with initial weights of this distribution, drawn from the key. The parameters `3 t` and `3 t + 2` of
    /// the key are the matrix and the bias of type `t`, the parameter `3 r + 1` is the matrix of relation `r`. So the weights
    /// for one type and one relation are those of a [`SageConv`](crate::SageConv) with the same key.
    ///
    /// # Errors
    /// Returns the errors of [`RsageConvConfig::init`].
    pub fn init_with(&self, init: WeightInit, key: RngKey, device: &Device) -> Result<RsageConv> {
        let &Self { d_in, d_out, ref metagraph, aggregate, edge_weighting } = self;
        edge_weighting.check(aggregate)?;
        let n_types = metagraph.n_types();
        check_weight(d_in, d_out)?;
        check_weight(n_types, d_out)?;
        let n_rows = d_in.saturating_mul(n_types.saturating_add(metagraph.n_relations()));
        check_weight(n_rows, d_out)?;
        let of_pyg = 1.0 / (d_in as f64).sqrt();
        let bound = match init {
            WeightInit::Dgl => xavier_bound([d_in, d_out], RELU_GAIN),
            WeightInit::Pyg => of_pyg,
        };
        let mut weight = Vec::with_capacity(n_rows * d_out);
        let mut bias = Vec::new();
        for node_type in 0..n_types {
            weight.extend(draw(key, 3 * node_type as u64, d_in * d_out, bound));
            for relation in metagraph.relations_into(node_type) {
                weight.extend(draw(key, 3 * relation as u64 + 1, d_in * d_out, bound));
            }
            match init {
                WeightInit::Dgl => bias.resize(bias.len() + d_out, 0.0),
                WeightInit::Pyg => bias.extend(draw(key, 3 * node_type as u64 + 2, d_out, of_pyg)),
            }
        }
        let parameter = |values, n_rows| {
            Param::from_tensor(Tensor::from_data(TensorData::new(values, [n_rows, d_out]), device))
        };
        let weight = parameter(weight, n_rows);
        let bias = parameter(bias, n_types);
        Ok(RsageConv { weight, bias, metagraph: metagraph.clone(), aggregate, edge_weighting })
    }
}

/// A GraphSAGE layer of heterogeneous graphs (R-SAGE): for a node `v` of type `t`,
/// `h_v = x_v W_t + sum over the relations r into t of aggregate({x_u : u -> v by r}) W_r + b_t`.
///
/// It is the layer of PyG's `to_hetero` with `SAGEConv`, and of DGL's `HeteroGraphConv` with `SAGEConv` and the aggregate
/// `sum`; these have a matrix of the own row for each relation, whose sum is `W_t`. The layer is computed as one aggregation
/// of all relations and one product per type.
///
/// Blocks need relation groups (see [`DeviceBlock::with_relation_groups`]), except for one type and one relation, where the
/// layer is a [`SageConv`](crate::SageConv), with bit-identical outputs and gradients. The matrices of a relation without
/// edges and of a type without destinations in a batch get a gradient of 0, so all ranks have the same gradients.
#[derive(Module, Debug)]
pub struct RsageConv {
    /// The weight matrices, one below the other, `[(n_types + n_relations) * d_in, d_out]`: for each type, that of the own
    /// row, followed by those of the relations into the type, ascending.
    pub weight: Param<Tensor<2>>,
    /// The bias of each type, `[n_types, d_out]`.
    pub bias: Param<Tensor<2>>,
    #[module(skip)]
    metagraph: Metagraph,
    #[module(skip)]
    aggregate: Aggregate,
    #[module(skip)]
    edge_weighting: EdgeWeighting,
}

impl RsageConv {
    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no relation groups, or those of another metagraph, if it lacks edge weights that the layer reads,
    /// or if `x` does not have this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let weight = self.weight.val();
        let bias = self.bias.val();
        if self.metagraph.is_homogeneous() {
            let weights = SageWeights::Stacked(weight);
            return sage_conv::forward(block, x, (self.aggregate, self.edge_weighting), weights, Some(bias));
        }
        let groups = groups_of(block, &self.metagraph);
        let aggregation = self.edge_weighting.group_aggregation(groups, self.aggregate);
        let rows = ops::aggregate_groups(groups, x, aggregation);
        ops::grouped_linear(groups, bias, rows, weight)
    }
}

impl Conv for RsageConv {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.forward(block, x)
    }

    /// Returns a form with relation groups, unless there is one type of nodes and one relation, for which the layer reads the
    /// edges of the block.
    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, relation_groups: !self.metagraph.is_homogeneous(), node_groups: false }
    }

    fn size(&self) -> Option<LayerSize> {
        let [n_rows, d_out] = self.weight.dims();
        let metagraph = &self.metagraph;
        let d_in = n_rows / (metagraph.n_types() + metagraph.n_relations());
        if metagraph.is_homogeneous() {
            return Some(LayerSize::new([d_in, d_out]));
        }
        // A destination has an aggregate for each relation into its type, and its own row, in the order by type.
        let dst_bytes = 4 * (d_in * (1 + most_relations(metagraph))) as u64;
        let memory = LayerMemory { dst_bytes, ..LayerMemory::default() };
        Some(LayerSize { widths: [d_in, d_out], memory })
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }
}
