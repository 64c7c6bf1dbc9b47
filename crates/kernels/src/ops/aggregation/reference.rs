//! The reference of sums and means, in Burn's tensor operations for any backend.
//!
//! The reference creates `[n_edges, d]` tensors, so it is slow, and its determinism depends on the backend's scatter.
//! But it needs no kernel, and its automatic derivative is the oracle for the adjoint.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{IndexingUpdateOp, Shape, Slice};

use super::maxima::{largest_edges, max, max_adjoint, max_weights_adjoint};
use super::messages::{edge_rows, repeated, weighted};
use super::{Form, Input, OwnRow, Reduction, Saved, Sums, Traced, Weights};
use crate::device::block::Adjacency;
use crate::ops::edges::{INDEX, degrees, edge_dsts, zero_rows};
use crate::ops::reference::{take_dst, take_dst_adjoint};

/// The reference implementation of [`crate::ops::aggregate`]: `[n_src, d] -> [n_dst, d]`, or `[n_dst, n_bases * d]`; with
/// concatenated own rows, their `d` columns come first.
pub(crate) fn aggregate<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
    form: Form,
) -> FloatTensor<B> {
    let aggregate = match form.reduce {
        Reduction::Sum => sum(block, x.clone(), weights, form.sums),
        Reduction::Mean => {
            let degrees = degrees(block, &x);
            B::float_div(sum(block, x.clone(), weights, form.sums), degrees)
        }
        Reduction::Max => max(block, x.clone(), weights),
    };
    with_own(block, x, aggregate, form.own)
}

/// Same as [`aggregate`], but also returns the data that the adjoint needs.
pub(crate) fn traced<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
    form: Form,
) -> Traced<B> {
    let edges = (form.reduce == Reduction::Max).then(|| match block.n_edges {
        0 => B::int_full(Shape::new([block.n_dst, x.shape()[1]]), (-1).into(), &x.device(), INDEX),
        _ => largest_edges(block, edge_rows(block, x.clone(), weights, form.sums)),
    });
    Traced { values: aggregate(block, x, weights, form), edges }
}

/// Computes the gradient of one input from the gradient of the result.
pub(crate) fn adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>, input: Input) -> FloatTensor<B> {
    let Saved { block, form, weights, .. } = saved;
    let of_aggregate = aggregate_grad(block, grad.clone(), *form);
    let of_sources = match (input, form.reduce) {
        (Input::Rows, Reduction::Sum | Reduction::Mean) => {
            sum_adjoint(block, of_aggregate, weights, form.sums)
        }
        (Input::Rows, Reduction::Max) => max_adjoint(saved, of_aggregate),
        (Input::Weights, Reduction::Sum | Reduction::Mean) => {
            return edge_dots(block, saved.rows(), of_aggregate, form.sums);
        }
        (Input::Weights, Reduction::Max) => return max_weights_adjoint(saved, of_aggregate),
    };
    with_own_grad(block, grad, of_sources, *form)
}

/// Combines the aggregate with the own rows as `own` specifies.
pub(crate) fn with_own<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    aggregate: FloatTensor<B>,
    own: OwnRow,
) -> FloatTensor<B> {
    match own {
        OwnRow::Excluded => aggregate,
        OwnRow::Concatenated => B::float_cat(vec![take_dst(block, x), aggregate], 1),
        OwnRow::Scaled(factor) => {
            B::float_add(B::float_mul_scalar(take_dst(block, x), factor.into()), aggregate)
        }
    }
}

/// `[n_src, d]`: adds the gradient that flows through the own rows to the gradient of the source rows.
pub(crate) fn with_own_grad<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    of_sources: FloatTensor<B>,
    form: Form,
) -> FloatTensor<B> {
    let of_own = match form.own {
        OwnRow::Excluded => return of_sources,
        OwnRow::Concatenated => {
            let width = form.row_width(grad.shape()[1]);
            columns::<B>(grad, 0, width)
        }
        OwnRow::Scaled(factor) => B::float_mul_scalar(grad, factor.into()),
    };
    B::float_add(take_dst_adjoint(block, of_own), of_sources)
}

/// `[n_dst, d]`: the gradient of the sums or maxima, computed from the gradient of the result. For a mean, each row is
/// divided by its destination's degree.
pub(crate) fn aggregate_grad<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    form: Form,
) -> FloatTensor<B> {
    let grad = match form.own {
        OwnRow::Excluded | OwnRow::Scaled(_) => grad,
        OwnRow::Concatenated => {
            let width = grad.shape()[1];
            columns::<B>(grad, form.row_width(width), width)
        }
    };
    match form.reduce {
        Reduction::Sum | Reduction::Max => grad,
        Reduction::Mean => {
            let degrees = degrees(block, &grad);
            B::float_div(grad, degrees)
        }
    }
}

fn columns<B: Backend>(x: FloatTensor<B>, from: usize, to: usize) -> FloatTensor<B> {
    let n_rows = x.shape()[0];
    B::float_slice(x, &[Slice::from(0..n_rows), Slice::from(from..to)])
}

fn sum<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
    sums: Sums,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        let shape = Shape::new([block.n_dst, sums.n_widths() * x.shape()[1]]);
        return B::float_zeros(shape, &x.device(), x.dtype().into());
    }
    scatter_rows::<B>(edge_rows(block, x, weights, sums), edge_dsts(block), block.n_dst)
}

/// `[n_dst, d] -> [n_src, d]`: for each source, the sum over its edges of the destination's row times the edge weight.
/// The sums of several bases, `[n_dst, n_bases * d]`, are added.
pub(crate) fn sum_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    weights: &Weights<B>,
    sums: Sums,
) -> FloatTensor<B> {
    let width = grad.shape()[1] / sums.n_widths();
    if block.n_edges == 0 {
        return B::float_zeros(Shape::new([block.n_src, width]), &grad.device(), grad.dtype().into());
    }
    let rows = weighted(block, B::float_select(grad, 0, edge_dsts(block)), weights, sums.n_weights());
    let rows = match sums {
        Sums::One | Sums::PerHead(_) => rows,
        Sums::PerBasis(n_bases) => {
            let rows = B::float_reshape(rows, Shape::new([block.n_edges, n_bases, width]));
            B::float_reshape(B::float_sum_dim(rows, 1), Shape::new([block.n_edges, width]))
        }
    };
    scatter_rows::<B>(rows, block.indices.clone(), block.n_src)
}

/// `[n_src, d], [n_dst, d] -> [n_edges]` or `[n_edges, n_heads]`, or `[n_src, d], [n_dst, n_bases * d] ->
/// [n_edges, n_bases]`: for each weight, the dot product of the columns of the source's and of the destination's row that
/// it belongs to.
fn edge_dots<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    grad: FloatTensor<B>,
    sums: Sums,
) -> FloatTensor<B> {
    let n_edges = block.n_edges;
    let shape = sums.weights_shape(block.n_edges);
    if n_edges == 0 {
        return B::float_zeros(shape, &x.device(), x.dtype().into());
    }
    let srcs = repeated::<B>(B::float_select(x, 0, block.indices.clone()), sums);
    let dsts = B::float_select(grad, 0, edge_dsts(block));
    let products = B::float_mul(srcs, dsts);
    let width = products.shape()[1] / sums.n_weights();
    let products = B::float_reshape(products, Shape::new([n_edges, sums.n_weights(), width]));
    B::float_reshape(B::float_sum_dim(products, 2), shape)
}

fn scatter_rows<B: Backend>(rows: FloatTensor<B>, to: IntTensor<B>, n_rows: usize) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(n_rows, &rows);
    B::float_select_assign(zeros, 0, to, rows, IndexingUpdateOp::Add)
}
