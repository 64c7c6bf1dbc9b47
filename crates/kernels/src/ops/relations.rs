//! Rows and weights of edges by their types, for relational layers.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata};
use burn::tensor::{FloatDType, IndexingUpdateOp, Shape, Tensor};

use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::graphs::DeviceRows;
use crate::ops::aggregation::{Aggregation, MessageWeights, Reduction};
use crate::ops::backend::BlockOps;
use crate::ops::edges::{INDEX, edge_dsts};
use crate::ops::run;

/// Returns the weights of relational layers (Schlichtkrull et al. 2018, equation 2): for each edge, the row of `table` of the
/// edge's type, divided by the number of edges of this type into the edge's destination.
///
/// The gradient of a row of the table is a sum over the edges of its type in block order, 0 without such edges.
///
/// # Shapes
/// `table` is `[n_relations, k]`, the result `[n_edges, k]`, in block order.
///
/// # Panics
/// Panics if the block has no edge types. On the CPU, also panics if a type is not below `n_relations`; on other devices the
/// result is undefined, so callers check the types of the graph.
pub fn relation_weights(block: &DeviceBlock, table: Tensor<2>) -> Tensor<2> {
    let Some(types) = block.edge_types() else {
        panic!("the block has no edge types: sample with SamplerConfig::with_edge_types");
    };
    let [n_relations, _] = table.dims();
    let of_types = types.clone().into_dispatch();
    let shares = <Dispatch as BlockOps>::relation_shares(block.adjacency(), of_types, n_relations);
    let shares = Tensor::<1>::from_dispatch(shares).cast(table.dtype());
    let rows = DeviceRows::of_indices(types.clone(), n_relations);
    let weights = Some(MessageWeights::PerEdge(shares));
    run(rows.adjacency(), table, Aggregation { weights, ..Reduction::Sum.into() })
}

/// Returns the row of `table` of each edge's type. The gradient of a row of the table is a sum over the edges of its type in
/// block order, 0 without such edges.
///
/// # Shapes
/// `table` is `[n_types, d]`, the result `[n_edges, d]`, in block order.
///
/// # Panics
/// Panics if the block has no edge types. On the CPU, also panics if a type is not below `n_types`; on other devices the
/// result is undefined, so callers check the types of the graph.
pub fn edge_type_rows(block: &DeviceBlock, table: Tensor<2>) -> Tensor<2> {
    let Some(types) = block.edge_types() else {
        panic!("the block has no edge types: sample with SamplerConfig::with_edge_types");
    };
    let [n_types, _] = table.dims();
    run(DeviceRows::of_indices(types.clone(), n_types).adjacency(), table, Reduction::Sum.into())
}

/// The reference of [`BlockOps::relation_shares`].
pub(crate) fn relation_shares<B: Backend>(
    block: &Adjacency<B>,
    types: IntTensor<B>,
    n_types: usize,
) -> FloatTensor<B> {
    let device = types.device();
    let n_edges = block.n_edges;
    let shape = Shape::new([n_edges]);
    if n_edges == 0 {
        return B::float_zeros(shape, &device, FloatDType::F32);
    }
    let pairs = B::int_add(B::int_mul_scalar(edge_dsts(block), (n_types as i64).into()), types);
    let zeros = B::int_zeros(Shape::new([block.n_dst * n_types]), &device, INDEX);
    let ones = B::int_ones(Shape::new([n_edges]), &device, INDEX);
    let counts = B::int_select_assign(zeros, 0, pairs.clone(), ones, IndexingUpdateOp::Add);
    let counts = B::int_into_float(B::int_select(counts, 0, pairs), FloatDType::F32);
    B::float_recip(counts)
}
