use burn::module::{Module, Param};
use burn::tensor::activation::{gelu, sigmoid};
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::Metagraph;
use kiln_kernels::ops::{self, Aggregation, MessageWeights, Reduction};
use kiln_kernels::{DeviceBlock, DeviceRelationGroups};
use kiln_sample::RngKey;

use crate::error::{check_size, check_weight};
use crate::init::{NO_GAIN, uniform, xavier_bound};
use crate::{Conv, Error, ForwardContext, InputFormat, LayerMemory, LayerSize, Result};

/// The widths, heads and relations of a [`HgtConv`] layer.
#[derive(Debug, Clone)]
pub struct HgtConvConfig {
    /// Width of the input rows of all node types.
    pub d_in: usize,
    /// Width of the keys, queries and values of all heads together.
    pub d_attention: usize,
    /// Width of the output rows.
    pub d_out: usize,
    /// Number of attention heads, which divides `d_attention`.
    pub n_heads: usize,
    /// The node types and relations of the graph; at least one relation.
    pub metagraph: Metagraph,
    /// True for a skip connection through a dense layer of the node's type if `d_in` and `d_out` differ. PyG's `HGTConv` has
    /// none, so that its output does not contain the node's own row.
    pub project_skip: bool,
}

impl HgtConvConfig {
    /// Creates a layer with initial weights drawn from the key: uniform within `1 / sqrt(d)` for the layers of the types,
    /// Xavier uniform for each matrix of a relation and head, and ones for priors and skip gates, as in PyG's `HGTConv`.
    ///
    /// # Errors
    /// Returns an error if a width or number is 0 or too large, or if the heads do not divide the width.
    pub fn init(&self, key: RngKey, device: &Device) -> Result<HgtConv> {
        let &Self { d_in, d_attention, d_out, n_heads, ref metagraph, project_skip } = self;
        let n_types = metagraph.n_types();
        let n_relations = metagraph.n_relations();
        for (name, size) in [("d_in", d_in), ("n_heads", n_heads), ("n_relations", n_relations)] {
            check_size(name, size)?;
        }
        check_weight(d_attention.saturating_mul(n_types.saturating_add(n_relations)), d_attention)?;
        if !d_attention.is_multiple_of(n_heads) {
            return Err(Error::HeadWidth { hidden: d_attention, n_heads });
        }
        let d_head = d_attention / n_heads;
        let linear = |i, d_in, d_out| TypedLinear::init(key, i, n_types, [d_in, d_out], device);
        let bound = xavier_bound([d_head, d_head], NO_GAIN);
        let of_heads =
            |parameter| uniform(key, parameter, [n_relations * d_attention, d_head], bound, device);
        let ones = |shape: [usize; 2]| Param::from_tensor(Tensor::ones(shape, device));
        let is_projected = project_skip && d_in != d_out;
        // The parameters 8 and 9 are the matrices of the heads.
        let projection = is_projected.then(|| linear(5, d_in, d_out)).transpose()?;
        Ok(HgtConv {
            key: linear(0, d_in, d_attention)?,
            query: linear(1, d_in, d_attention)?,
            value: linear(2, d_in, d_attention)?,
            output: linear(3, d_attention, d_out)?,
            attention: of_heads(8),
            message: of_heads(9),
            prior: ones([n_relations, n_heads]),
            skip: (is_projected || d_in == d_out).then(|| ones([n_types, 1])),
            projection,
            metagraph: metagraph.clone(),
        })
    }
}

/// A dense layer per node type (DGL's `TypedLinear`).
#[derive(Module, Debug)]
pub struct TypedLinear {
    /// The weight matrices of all types, one below the other, `[n_types * d_in, d_out]`.
    pub weight: Param<Tensor<2>>,
    /// The bias of each type, `[n_types, d_out]`.
    pub bias: Param<Tensor<2>>,
}

impl TypedLinear {
    fn init(key: RngKey, i: u64, n_types: usize, [d_in, d_out]: [usize; 2], device: &Device) -> Result<Self> {
        check_weight(n_types.saturating_mul(d_in), d_out)?;
        let bound = 1.0 / (d_in as f64).sqrt();
        let weight = uniform(key, 2 * i, [n_types * d_in, d_out], bound, device);
        Ok(Self { weight, bias: uniform(key, 2 * i + 1, [n_types, d_out], bound, device) })
    }

    /// Runs the layer on rows in the order by type. Returns rows in the order of the nodes.
    fn forward(&self, nodes: &DeviceRelationGroups, by_type: Tensor<2>) -> Tensor<2> {
        ops::grouped_linear(nodes, self.bias.val(), by_type, self.weight.val())
    }
}

/// A layer of a heterogeneous graph transformer (Hu, Dong, Wang and Sun 2020, equations 2 to 5). For each head, an edge from
/// `u` to `v` by relation `r` has the attention weight `softmax(k_u A_r q_v mu_r / sqrt(d_head))` over all edges into `v` and
/// the message `v_u M_r`, where keys, queries and values are dense layers of the nodes' types. The output of `v` is
/// `s a(gelu(messages)) + (1 - s) x_v` with the dense layer `a` and the gate `s = sigmoid(skip)` of its type. If the widths
/// differ, a dense layer of its type is applied to `x_v`; without that layer ([`HgtConvConfig::project_skip`]), there is no
/// second term and no gate, as in PyG. As in PyG, temporal encoding is left out.
///
/// The matrices of relations are applied at the destinations, which are fewer than the sources: `A_r` to the queries, once
/// for each relation into a destination, and `M_r` to the sums of values. This is the paper's layer, because both are linear
/// in the sources. The matrices of the heads are one block-diagonal matrix there, which takes `n_heads` times the
/// multiplications in exchange for one product per type. Blocks need relation groups with those of nodes
/// (`RelationGroups::with_nodes`).
#[derive(Module, Debug)]
pub struct HgtConv {
    /// The keys, of `d_attention` columns.
    pub key: TypedLinear,
    /// The queries.
    pub query: TypedLinear,
    /// The values.
    pub value: TypedLinear,
    /// The layer after the activation.
    pub output: TypedLinear,
    /// The attention matrices of each relation and head, one below the other, `[n_relations * d_attention, d_head]`.
    pub attention: Param<Tensor<2>>,
    /// The message matrices, of the same shape.
    pub message: Param<Tensor<2>>,
    /// The factors of the scores, `[n_relations, n_heads]`.
    pub prior: Param<Tensor<2>>,
    /// The gate of each type before the sigmoid, `[n_types, 1]`; `None` without a skip connection.
    pub skip: Option<Param<Tensor<2>>>,
    /// The layer of the skip connection; `None` if the widths of input and output are equal, or without a skip connection.
    pub projection: Option<TypedLinear>,
    #[module(skip)]
    metagraph: Metagraph,
}

impl HgtConv {
    /// Runs the layer.
    ///
    /// # Shapes
    /// `x` is `[n_src, d_in]`, the result `[n_dst, d_out]`.
    ///
    /// # Panics
    /// Panics if the block has no relation groups with those of nodes, or those of another metagraph, or if `x` does not have
    /// this shape.
    pub fn forward(&self, block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
        let groups = groups_of(block, &self.metagraph);
        let (Some(srcs), Some(dsts)) = (groups.srcs(), groups.dsts()) else {
            panic!("the relation groups lack those of nodes: add them with RelationGroups::with_nodes");
        };
        let by_type = |nodes, rows| ops::aggregate_groups(nodes, rows, Reduction::Sum);
        let own = ops::widen(ops::take_dst(block, x.clone()));
        let own_by_type = by_type(dsts, own.clone());
        let of_srcs = by_type(srcs, x);
        let queries = self.query.forward(dsts, own_by_type.clone());
        let [n_relations, n_heads] = self.prior.dims();
        let d_head = self.attention.dims()[1];
        let priors = self.prior.val().reshape([n_relations * n_heads, 1]) / (d_head as f64).sqrt();
        let attention = self.attention.val().reshape([n_relations * n_heads, d_head * d_head]);
        let attention = ops::mul_column(attention, priors);
        let queries = ops::grouped_transposed(groups, by_type(dsts, queries), self.by_segment(attention));
        let keys = self.key.forward(srcs, of_srcs.clone());
        let weights = ops::group_softmax(groups, ops::group_dots(groups, keys, queries, n_heads));
        let weights = Some(MessageWeights::PerHead(weights));
        let values = self.value.forward(srcs, of_srcs);
        let sums = ops::aggregate_groups(groups, values, Aggregation { weights, ..Reduction::Sum.into() });
        let message = self.by_segment(self.message.val());
        let no_bias = Tensor::zeros([self.metagraph.n_types(), message.dims()[1]], &message.device());
        let messages = gelu(ops::grouped_linear(groups, no_bias, sums, message));
        let rows = self.output.forward(dsts, by_type(dsts, messages));
        let Some(skip) = &self.skip else { return rows };
        let own = match &self.projection {
            Some(projection) => projection.forward(dsts, own_by_type),
            None => own,
        };
        // A dense layer whose only parameter is the bias gives each destination the gate of its type.
        let zeros = |n_rows| Tensor::zeros([n_rows, 1], &rows.device());
        let gates = (sigmoid(skip.val()), zeros(block.n_dst()), zeros(self.metagraph.n_types()));
        let gates = ops::grouped_linear(dsts, gates.0, gates.1, gates.2);
        own.clone() + ops::mul_column(rows - own, gates)
    }

    /// Returns the block-diagonal matrices of the segments of each type, of `d_attention` rows each: zeros for own rows,
    /// followed by the matrices of the relations. `heads` has the matrices of each relation and head in row-major order.
    fn by_segment(&self, heads: Tensor<2>) -> Tensor<2> {
        let [n_relations, n_heads] = self.prior.dims();
        let d_head = self.attention.dims()[1];
        let width = n_heads * d_head;
        let device = heads.device();
        // Burn's `eye` adds with atomics on a GPU.
        let diagonal = (0..n_heads * n_heads).map(|at| if at % (n_heads + 1) == 0 { 1.0 } else { 0.0 });
        let diagonal = TensorData::new(diagonal.collect::<Vec<f32>>(), [1, n_heads, 1, n_heads, 1]);
        let diagonal = Tensor::<5>::from_data(diagonal, &device);
        let repeated = ops::repeat_columns(heads.reshape([n_relations * width, d_head]), n_heads);
        let matrices = repeated.reshape([n_relations, n_heads, d_head, n_heads, d_head]) * diagonal;
        let matrices: Tensor<2> = matrices.reshape([n_relations * width, width]);
        let mut parts = Vec::new();
        for node_type in 0..self.metagraph.n_types() {
            parts.push(Tensor::zeros([width, width], &device));
            let relations = self.metagraph.relations_into(node_type);
            parts.extend(relations.map(|relation| matrices.clone().narrow(0, relation * width, width)));
        }
        Tensor::cat(parts, 0)
    }
}

impl Conv for HgtConv {
    fn forward(&self, _: usize, block: &DeviceBlock, x: Tensor<2>, _: &ForwardContext) -> Tensor<2> {
        self.forward(block, x)
    }

    fn input_format(&self) -> InputFormat {
        InputFormat { half_rows: true, relation_groups: true, node_groups: true, ..InputFormat::default() }
    }

    fn size(&self) -> Option<LayerSize> {
        let n_types = self.metagraph.n_types();
        let [n_rows, d_attention] = self.key.weight.dims();
        let d_in = n_rows / n_types;
        let [_, d_out] = self.output.weight.dims();
        let [_, n_heads] = self.prior.dims();
        let n_segments = 1 + most_relations(&self.metagraph);
        let memory = LayerMemory {
            // The own row twice, and the queries, their products with the attention matrices and the sums of values of each
            // relation into a type.
            dst_bytes: 4 * (2 * d_in + 3 * d_attention + 2 * n_segments * d_attention) as u64,
            // The row in f32 in the order by type, and the key and the value.
            src_bytes: 4 * (d_in + 2 * d_attention) as u64,
            // The score, its exponential and the weight of each head.
            edge_bytes: 3 * 4 * n_heads as u64,
        };
        Some(LayerSize { widths: [d_in, d_out], memory })
    }

    fn uses_burn_rng(&self) -> bool {
        false
    }
}

/// Returns the relation groups of a block, after a check that they are those of the metagraph.
///
/// # Panics
/// Panics if the block has none, or those of another metagraph.
pub(crate) fn groups_of<'a>(block: &'a DeviceBlock, metagraph: &Metagraph) -> &'a DeviceRelationGroups {
    let Some(groups) = block.relation_groups() else {
        panic!("the block has no relation groups: add them with DeviceBlock::with_relation_groups");
    };
    let got: Vec<usize> = groups.types().iter().map(|group| group.n_segments - 1).collect();
    let expected: Vec<usize> =
        (0..metagraph.n_types()).map(|node_type| metagraph.relations_into(node_type).count()).collect();
    assert_eq!(got, expected, "the numbers of relations into each type differ between groups and layer");
    groups
}

/// Returns the largest number of relations into a type of nodes.
pub(crate) fn most_relations(metagraph: &Metagraph) -> usize {
    let into_types = (0..metagraph.n_types()).map(|node_type| metagraph.relations_into(node_type).count());
    into_types.max().unwrap_or(0)
}
