//! Ops on one row per edge of a block. They are composed of other ops, which provide their gradients.

use burn::tensor::Tensor;

use crate::device::block::DeviceBlock;
use crate::device::graphs::DeviceRows;
use crate::ops::aggregation::Reduction;
use crate::ops::{check_rows, relu, run};

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

/// Sums messages with one row per edge (Hu et al. 2020, equation 4.1 of GINE): `out[v] = sum of relu(x[u] + rows[e])` over
/// the edges `e` from `u` to `v`.
///
/// The messages are an `[n_edges, d]` tensor, as the rows of the edges are.
///
/// # Shapes
/// `x` is `[n_src, d]`, `rows` `[n_edges, d]` in block order, the result `[n_dst, d]`.
///
/// # Panics
/// Panics if the shapes do not match, or the element types differ.
pub fn edge_relu_sum(block: &DeviceBlock, x: Tensor<2>, rows: Tensor<2>) -> Tensor<2> {
    check_rows(block, &x);
    let ([n_src, width], n_edges) = (x.dims(), block.n_edges());
    assert_eq!(
        rows.dims(),
        [n_edges, width],
        "the rows of the edges should be [n_edges, {width}], as wide as x"
    );
    assert_eq!(rows.dtype(), x.dtype(), "the element types of x and the rows differ: cast one of them");
    let of_sources = DeviceRows::of_indices(block.sources().clone(), n_src);
    let gathered = run(of_sources.adjacency(), x, Reduction::Sum.into());
    run(block.rows_of_dsts().adjacency(), relu(gathered + rows), Reduction::Sum.into())
}
