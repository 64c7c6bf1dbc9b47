//! Rows and weights of edges by their types, for relational layers.

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::device::block::DeviceBlock;
use crate::device::graphs::DeviceRows;
use crate::ops::aggregation::{Aggregation, MessageWeights, Reduction};
use crate::ops::backend::BlockOps;
use crate::ops::run::run;

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
