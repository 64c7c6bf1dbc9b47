//! Ops on one row per edge of a block.

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Dispatch, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{DType, IndexingUpdateOp, Shape, Tensor};

use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::devices::is_cpu;
use crate::device::graphs::DeviceRows;
use crate::ops::aggregation::Reduction;
use crate::ops::backend::BlockOps;
use crate::ops::reference::edge_dsts;
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
/// On the CPU, f32 messages are never stored. On other devices and for other element types, the op is composed of others,
/// and the messages are an `[n_edges, d]` tensor, as the rows of the edges are.
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
    if is_cpu(&x.device()) && x.dtype() == DType::F32 {
        let (x, rows) = (x.into_dispatch(), rows.into_dispatch());
        return Tensor::from_dispatch(<Dispatch as BlockOps>::edge_relu_sum(block.adjacency(), x, rows));
    }
    let of_sources = DeviceRows::of_indices(block.sources().clone(), n_src);
    let gathered = run(of_sources.adjacency(), x, Reduction::Sum.into());
    run(block.rows_of_dsts().adjacency(), relu(gathered + rows), Reduction::Sum.into())
}

/// The inputs of [`edge_relu_sum`], as tensors of a backend.
#[derive(Debug, Clone)]
pub(crate) struct Messages<B: Backend> {
    pub(crate) block: Adjacency<B>,
    /// The rows of the sources, `[n_src, d]`.
    pub(crate) x: FloatTensor<B>,
    /// The rows of the edges, `[n_edges, d]`.
    pub(crate) edge_rows: FloatTensor<B>,
}

/// The input of [`edge_relu_sum`] that a gradient is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EdgeRowsInput {
    Nodes,
    Edges,
}

/// The reference of [`BlockOps::edge_relu_sum`].
pub(crate) fn relu_sum<B: Backend>(messages: &Messages<B>) -> FloatTensor<B> {
    let zeros = zeros_like::<B>(&messages.x, messages.block.n_dst);
    if messages.block.n_edges == 0 {
        return zeros;
    }
    let sums = before_relu(messages);
    let is_below = is_below::<B>(&sums);
    let values = B::float_mask_fill(sums, is_below, 0.into());
    B::float_select_assign(zeros, 0, edge_dsts(&messages.block), values, IndexingUpdateOp::Add)
}

/// The reference of the gradient of one input of [`BlockOps::edge_relu_sum`].
pub(crate) fn relu_sum_adjoint<B: Backend>(
    messages: &Messages<B>,
    grad: FloatTensor<B>,
    input: EdgeRowsInput,
) -> FloatTensor<B> {
    let Messages { block, x, .. } = messages;
    if block.n_edges == 0 {
        let n_rows = if input == EdgeRowsInput::Nodes { block.n_src } else { 0 };
        return zeros_like::<B>(x, n_rows);
    }
    let is_below = is_below::<B>(&before_relu(messages));
    let of_edges = B::float_mask_fill(B::float_select(grad, 0, edge_dsts(block)), is_below, 0.into());
    match input {
        EdgeRowsInput::Edges => of_edges,
        EdgeRowsInput::Nodes => {
            let zeros = zeros_like::<B>(x, block.n_src);
            B::float_select_assign(zeros, 0, block.indices.clone(), of_edges, IndexingUpdateOp::Add)
        }
    }
}

fn before_relu<B: Backend>(messages: &Messages<B>) -> FloatTensor<B> {
    let srcs = B::float_select(messages.x.clone(), 0, messages.block.indices.clone());
    B::float_add(srcs, messages.edge_rows.clone())
}

fn is_below<B: Backend>(sums: &FloatTensor<B>) -> BoolTensor<B> {
    let bools = get_or_init_device_settings::<B>(&sums.device()).bool_dtype;
    B::float_lower_equal_elem(sums.clone(), 0.into(), bools)
}

fn zeros_like<B: Backend>(x: &FloatTensor<B>, n_rows: usize) -> FloatTensor<B> {
    B::float_zeros(Shape::new([n_rows, x.shape()[1]]), &x.device(), x.dtype().into())
}
