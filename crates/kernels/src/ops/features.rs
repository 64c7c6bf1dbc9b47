//! The ops that read features: rows that may be of half precision in a model of f32 weights. The other such op is
//! [`linear`](crate::ops::linear). [`aggregate`](crate::ops::aggregate), whose result has the element type of the rows, is
//! for tensors that are of half precision throughout.

use burn::backend::Dispatch;
use burn::tensor::{DType, Tensor};

use crate::device::block::{Adjacency, DeviceBlock};
use crate::device::devices::is_cpu;
use crate::ops::aggregation::{Aggregation, Form, MessageWeights, Reduction};
use crate::ops::backend::BlockOps;
use crate::ops::half::{narrow, reads_bf16, widen};
use crate::ops::run::check_rows;

/// Same as [`aggregate`](crate::ops::aggregate), but the result is f32, and so are the weights, for rows of f32, f16 or bf16: the
/// aggregation of a layer that reads features of half precision. The result is bit-identical to that of `x.cast(F32)`,
/// because widening is exact, except for that of [`aggregate_for_linear`] in bf16, which this function widens.
///
/// On Flex, f16 and bf16 rows are widened as they are read: no f32 copy of `x` is created, except if `x` requires a
/// gradient, and for maxima with weights. Other devices create the copy.
///
/// ```
/// use burn::tensor::{DType, Device, Tensor};
/// use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
/// use kiln_kernels::ops::{self, Reduction};
/// use kiln_kernels::{DeviceBlock, to_vec_f32};
/// // The edge 7 -> 2.
/// let block = Block::new(BlockParts {
///     srcs: vec![NodeId(2), NodeId(7)],
///     indptr: vec![0, 1],
///     indices: vec![LocalId(1)],
///     edge_ids: vec![EdgeId(0)],
///     ..BlockParts::default()
/// });
/// let device = Device::flex();
/// let x = Tensor::<2>::from_data([[1.0], [2.0]], (&device, DType::BF16));
/// let sum = ops::aggregate_f32(&DeviceBlock::upload(&block, &device), x, Reduction::Sum);
/// assert_eq!((sum.dtype(), to_vec_f32(sum)), (DType::F32, vec![2.0]));
/// ```
///
/// # Shapes
/// Same as [`aggregate`](crate::ops::aggregate).
///
/// # Panics
/// Same as [`aggregate`](crate::ops::aggregate), but the weights must be f32, and panics if `x` has another element type
/// than f32, f16 and bf16.
pub fn aggregate_f32(block: &DeviceBlock, x: Tensor<2>, aggregation: impl Into<Aggregation>) -> Tensor<2> {
    widen(aggregate_for_linear(block, x, aggregation))
}

/// Aggregates rows for [`linear`](crate::ops::linear): [`aggregate_f32`], but with
/// [`MatmulPrecision::Bf16`](crate::ops::MatmulPrecision::Bf16) on a CUDA device, where products read bf16, the result is bf16. There, rows of another element type and the weights are first
/// rounded to bf16; sums are added in f32 and rounded once. Sums with weights per head, those of attention layers, stay f32.
///
/// # Shapes
/// Same as [`aggregate`](crate::ops::aggregate).
///
/// # Panics
/// Same as [`aggregate_f32`].
pub fn aggregate_for_linear(
    block: &DeviceBlock,
    x: Tensor<2>,
    aggregation: impl Into<Aggregation>,
) -> Tensor<2> {
    check_rows(block, &x);
    run_for_linear(block.adjacency(), x, aggregation.into())
}

/// Runs an aggregation for a product over an adjacency, after checks of the element types and the weights.
pub(super) fn run_for_linear(
    edges: Adjacency<Dispatch>,
    x: Tensor<2>,
    aggregation: Aggregation,
) -> Tensor<2> {
    let dtype = x.dtype();
    let is_supported = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    assert!(is_supported, "the rows are {dtype:?}, expected F32, F16 or BF16: cast them");
    aggregation.check(edges.n_edges, &x, DType::F32);
    // Weights per head are attention weights.
    let is_attention = matches!(aggregation.weights, Some(MessageWeights::PerHead(_)));
    if reads_bf16(&x.device()) && !is_attention {
        let (weights, form) = aggregation.cast(DType::BF16).into_parts();
        let x = narrow(x).into_dispatch();
        return Tensor::from_dispatch(<Dispatch as BlockOps>::aggregate(edges, x, weights, form));
    }
    let is_weighted_max = aggregation.reduce == Reduction::Max && aggregation.weights.is_some();
    let x = if is_cpu(&x.device()) && !is_weighted_max { x } else { widen(x) };
    let (weights, form) = aggregation.into_parts();
    let form = Form { to_f32: true, ..form };
    Tensor::from_dispatch(<Dispatch as BlockOps>::aggregate(edges, x.into_dispatch(), weights, form))
}
