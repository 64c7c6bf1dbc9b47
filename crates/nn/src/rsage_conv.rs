use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::Metagraph;
use kiln_kernels::DeviceBlock;
use kiln_kernels::ops;
use kiln_sample::RngKey;

use crate::edge_features::EdgeDraws;
use crate::error::check_weight;
use crate::hgt_conv::{groups_of, most_relations};
use crate::init::{RELU_GAIN, WeightInit, draw, xavier_bound};
use crate::sage_conv::{self, SageWeights};
use crate::{
    Aggregate, Conv, EdgeWeighting, Error, ForwardContext, InputFormat, LayerMemory, LayerSize,
    RelationEdgeLinear, Result,
};

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
    /// Number of columns of the edge features of each relation, `None` for a relation without features; empty if the layer reads
    /// no edge features.
    pub edge_features: Vec<Option<usize>>,
}

impl RsageConvConfig {
    /// Creates a layer with initial weights drawn from the key, as in DGL's `SAGEConv`; see
    /// [`SageConvConfig::init`](crate::SageConvConfig::init).
    ///
    /// # Errors
    /// Returns an error if a width is 0 or too large, if the weight matrices would be too large, if the weighting does not
    /// apply to the aggregation, if the edge features are not those of all relations, or if maxima would read edge features of
    /// several relations.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<RsageConv> {
        self.init_with(WeightInit::Dgl, key, device)
    }

    /// Creates a layer with initial weights of this distribution, drawn from the key. The parameters `3 t` and `3 t + 2` of
    /// the key are the matrix and the bias of type `t`, the parameter `3 r + 1` is the matrix of relation `r`, and
    /// `3 (n_types + r)` that of its edge features. So the weights for one type and one relation are those of a [`SageConv`](crate::SageConv) with the same key.
    ///
    /// # Errors
    /// Returns the errors of [`RsageConvConfig::init`].
    pub fn init_with(&self, init: WeightInit, key: RngKey, device: &Device) -> Result<RsageConv> {
        let &Self { d_in, d_out, ref metagraph, aggregate, edge_weighting, ref edge_features } = self;
        edge_weighting.check(aggregate)?;
        if aggregate == Aggregate::Max && !edge_features.is_empty() && !metagraph.is_homogeneous() {
            let expected = "mean or sum with edge features, whose maxima by relation are not computed,";
            return Err(Error::OtherModel { name: "aggregate", got: "max", expected });
        }
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
        let draws = EdgeDraws {
            key,
            first: 3 * n_types as u64,
            step: 3,
            bound: match init {
                WeightInit::Dgl => |shape| xavier_bound(shape, RELU_GAIN),
                WeightInit::Pyg => |[width, _]: [usize; 2]| 1.0 / (width as f64).sqrt(),
            },
        };
        let n_relations = metagraph.n_relations();
        let edge_linear = RelationEdgeLinear::init(edge_features, n_relations, d_out, draws, device)?;
        Ok(RsageConv { weight, bias, edge_linear, metagraph: metagraph.clone(), aggregate, edge_weighting })
    }
}

/// A GraphSAGE layer of heterogeneous graphs (R-SAGE): for a node `v` of type `t`,
/// `h_v = x_v W_t + sum over the relations r into t of aggregate({x_u : u -> v by r}) W_r + b_t`.
///
/// It is the layer of PyG's `to_hetero` with `SAGEConv`, and of DGL's `HeteroGraphConv` with `SAGEConv` and the aggregate
/// `sum`; these have a matrix of the own row for each relation, whose sum is `W_t`. The layer is computed as one aggregation
/// of all relations and one product per type.
///
/// With edge features, the messages are `[x_u, e_uv]`: the aggregate of the features of the edges of a relation is multiplied by
/// a matrix of the relation and added ([`RelationEdgeLinear`]).
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
    /// The matrices of the edge features by relation; `None` if the layer reads none.
    pub edge_linear: Option<RelationEdgeLinear>,
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
    /// Panics if the block has no relation groups, or those of another metagraph, if it lacks edge weights or features that
    /// the layer reads, or if `x` does not have this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let weight = self.weight.val();
        let bias = self.bias.val();
        if self.metagraph.is_homogeneous() {
            let weights = SageWeights::Stacked(weight);
            let rows =
                sage_conv::forward(block, x, (self.aggregate, self.edge_weighting), weights, Some(bias));
            return match &self.edge_linear {
                Some(edge_linear) => {
                    let aggregation = self.edge_weighting.aggregation(block, self.aggregate);
                    edge_linear.add_aggregate(rows, block, aggregation)
                }
                None => rows,
            };
        }
        let groups = groups_of(block, &self.metagraph);
        let aggregation = self.edge_weighting.group_aggregation(groups, self.aggregate);
        let rows = ops::aggregate_groups(groups, x, aggregation);
        let rows = ops::grouped_linear(groups, bias, rows, weight);
        match &self.edge_linear {
            Some(edge_linear) => {
                let n_relations = self.metagraph.n_relations();
                let factors = self.edge_weighting.edge_factors(block, self.aggregate, n_relations);
                edge_linear.add_to(rows, block, factors)
            }
            None => rows,
        }
    }
}

impl Conv for RsageConv {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.forward(block, x)
    }

    /// Returns a form with relation groups, unless there is one type of nodes and one relation, for which the layer reads the
    /// edges of the block.
    fn input_format(&self) -> InputFormat {
        let relation_groups = !self.metagraph.is_homogeneous();
        InputFormat { half_rows: true, relation_groups, ..InputFormat::default() }
    }

    fn size(&self) -> Option<LayerSize> {
        let [n_rows, d_out] = self.weight.dims();
        let metagraph = &self.metagraph;
        let d_in = n_rows / (metagraph.n_types() + metagraph.n_relations());
        let of_edges = self.edge_linear.as_ref().map_or([0; 2], RelationEdgeLinear::memory_bytes);
        if metagraph.is_homogeneous() {
            let memory = LayerMemory { dst_bytes: of_edges[0], src_bytes: 0, edge_bytes: of_edges[1] };
            return Some(LayerSize { widths: [d_in, d_out], memory });
        }
        // A destination has an aggregate for each relation into its type, and its own row, in the order by type.
        let dst_bytes = 4 * (d_in * (1 + most_relations(metagraph))) as u64;
        let memory =
            LayerMemory { dst_bytes: dst_bytes + of_edges[0], src_bytes: 0, edge_bytes: of_edges[1] };
        Some(LayerSize { widths: [d_in, d_out], memory })
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }
}
