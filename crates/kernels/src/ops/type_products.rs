//! The products of [`grouped_linear`](crate::ops::grouped_linear) for the rows of each type, and their gradients. They are
//! one op, because Burn's gradient of a slice would create a matrix of zeros of all rows for each type.
//!
//! The functions take the ops of dense layers, so that the file does not import the traits of the backends.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, Slice};
use kiln_graph::TypeGroup;

use crate::ops::edges::zero_rows;

/// A function of two matrices, which is one of the adjoints of a dense layer.
type Product<B> = fn(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>;

/// The rows of one type in the operands.
#[derive(Debug, Clone)]
struct TypeRows {
    /// The type, which is the row of its bias.
    node_type: usize,
    /// The number of destinations.
    n_dst: usize,
    /// The rows of the result.
    dsts: Range<usize>,
    /// The rows of `x`.
    segments: Range<usize>,
    /// The rows of the weight.
    weight: Range<usize>,
}

fn rows_of_types(types: &[TypeGroup], d_in: usize) -> impl Iterator<Item = TypeRows> {
    let mut dst = 0;
    let mut segment = 0;
    let mut row = 0;
    types.iter().enumerate().map(move |(node_type, group)| {
        let n_dst = group.n_dst;
        let n_segments = group.n_dst * group.n_segments;
        let rows = TypeRows {
            node_type,
            n_dst,
            dsts: dst..dst + n_dst,
            segments: segment..segment + n_segments,
            weight: row..row + group.n_segments * d_in,
        };
        (dst, segment, row) = (rows.dsts.end, rows.segments.end, rows.weight.end);
        rows
    })
}

/// The products by type, in the order by type.
pub(crate) fn products<B: Backend>(
    types: &[TypeGroup],
    bias: FloatTensor<B>,
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    add_linear: fn(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    let d_in = x.shape()[1];
    let parts = rows_of_types(types, d_in)
        .filter(|of| 0 < of.n_dst)
        .map(|of: TypeRows| {
            let rows = side_by_side::<B>(slice::<B>(&x, of.segments), of.n_dst);
            let bias = slice::<B>(&bias, of.node_type..of.node_type + 1);
            add_linear(bias, rows, slice::<B>(&weight, of.weight))
        })
        .collect();
    joined::<B>(parts, &weight)
}

/// The gradient of `x`, `[n_segments, d_in]`.
pub(crate) fn x_adjoint<B: Backend>(
    types: &[TypeGroup],
    grad: &FloatTensor<B>,
    weight: &FloatTensor<B>,
    d_in: usize,
    product: Product<B>,
) -> FloatTensor<B> {
    let parts: Vec<_> = rows_of_types(types, d_in)
        .filter(|of| 0 < of.n_dst)
        .map(|of: TypeRows| {
            let n_segments = of.segments.len();
            let rows = product(slice::<B>(grad, of.dsts), slice::<B>(weight, of.weight));
            B::float_reshape(rows, Shape::new([n_segments, d_in]))
        })
        .collect();
    match parts.is_empty() {
        true => B::float_zeros(Shape::new([0, d_in]), &grad.device(), grad.dtype().into()),
        false => joined::<B>(parts, grad),
    }
}

/// The gradient of the weight.
pub(crate) fn weight_adjoint<B: Backend>(
    types: &[TypeGroup],
    grad: &FloatTensor<B>,
    x: &FloatTensor<B>,
    product: Product<B>,
) -> FloatTensor<B> {
    joined::<B>(
        rows_of_types(types, x.shape()[1])
            .map(|of: TypeRows| match of.n_dst {
                0 => zero_rows::<B>(of.weight.len(), grad),
                _ => {
                    let rows = side_by_side::<B>(slice::<B>(x, of.segments), of.n_dst);
                    product(rows, slice::<B>(grad, of.dsts))
                }
            })
            .collect(),
        grad,
    )
}

/// The gradient of the bias, `[n_types, d_out]`.
pub(crate) fn bias_adjoint<B: Backend>(
    types: &[TypeGroup],
    grad: &FloatTensor<B>,
    column_sums: fn(FloatTensor<B>) -> FloatTensor<B>,
) -> FloatTensor<B> {
    joined::<B>(
        rows_of_types(types, 0)
            .map(|of: TypeRows| match of.n_dst {
                0 => zero_rows::<B>(1, grad),
                _ => column_sums(slice::<B>(grad, of.dsts)),
            })
            .collect(),
        grad,
    )
}

/// Returns some of the rows. All rows are returned as they are, because some backends copy slices.
fn slice<B: Backend>(x: &FloatTensor<B>, rows: Range<usize>) -> FloatTensor<B> {
    if rows == (0..x.shape()[0]) { x.clone() } else { B::float_slice(x.clone(), &[Slice::from(rows)]) }
}

/// Returns the rows of each destination's segments as one row.
fn side_by_side<B: Backend>(rows: FloatTensor<B>, n_dst: usize) -> FloatTensor<B> {
    let width = rows.shape().num_elements() / n_dst;
    B::float_reshape(rows, Shape::new([n_dst, width]))
}

/// Concatenates rows; without any, returns a matrix of no rows and the width of `like`. Some backends reject the
/// concatenation of tensors without rows.
fn joined<B: Backend>(mut parts: Vec<FloatTensor<B>>, like: &FloatTensor<B>) -> FloatTensor<B> {
    match parts.len() {
        0 => zero_rows::<B>(0, like),
        1 => parts.remove(0),
        _ => B::float_cat(parts, 0),
    }
}
