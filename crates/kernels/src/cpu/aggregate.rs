//! Aggregation on the CPU: sums, means and maxima over edges with weights and own rows, and their gradients.
//!
//! All sums are instances of [`Sum`], and the maxima have a file of their own; this file has the loop of the gradient of
//! edge weights. The additions of a row follow the order of the edges, so results are bit-identical for any number of
//! threads.
//!
//! Rows of half precision are widened as they are read ([`RowValue`]), so results are bit-identical to those of rows that
//! were widened before.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, FloatDType, TensorData};
use bytemuck::cast_slice;
use kiln_graph::TransposedBlock;

use crate::counts::{count_direct, count_reference};
use crate::cpu::columns::{Columns, OverBases, PerBasis, PerHead};
use crate::cpu::cost::edge_ns;
use crate::cpu::edges::{EdgeRow, fill_edges};
use crate::cpu::maxima::{argmax, max, max_adjoint};
use crate::cpu::row_value::RowValue;
use crate::cpu::rows::{Rows, Segments};
use crate::cpu::sum::{Own, Sum, one, weight_of_edge};
use crate::cpu::tensor::{contiguous, floats, ints, is_half, matrix, rows, rows_of, with_row_type};
use crate::cpu::term::Values;
use crate::device::block::Adjacency;
use crate::ops::aggregation::{
    self, Form, Input, OwnRow, Reduction, Saved, Sums, Traced, Weights, aggregate_grad, with_own,
    with_own_grad,
};
use crate::ops::reference::take_dst;

/// Runs the aggregation, `[n_src, d] -> [n_dst, d]`, or `[n_dst, n_bases * d]`. With [`OwnRow::Concatenated`], each
/// destination's own row comes first, followed by its aggregate.
pub(super) fn aggregate(
    block: &Adjacency<Flex>,
    x: FloatTensor<Flex>,
    weights: &Weights<Flex>,
    form: Form,
) -> FloatTensor<Flex> {
    if !has_loops(&x, weights, form) {
        count_reference();
        return aggregation::aggregate(block, x, weights, form);
    }
    count_direct();
    let x = contiguous(x);
    match form.reduce {
        Reduction::Sum | Reduction::Mean => {
            with_row_type!(E of x => sum(block, rows_of::<E>(&x), weights, form))
        }
        Reduction::Max => {
            let maxima = with_row_type!(E of x => max(by_dst(block), rows_of::<E>(&x)));
            let maxima = matrix(maxima, block.n_dst, &x);
            with_own(block, own_rows(block, x, form), maxima, form.own)
        }
    }
}

/// Same as [`aggregate`], but also returns the data that the adjoint needs.
pub(super) fn traced(
    block: &Adjacency<Flex>,
    x: FloatTensor<Flex>,
    weights: &Weights<Flex>,
    form: Form,
) -> Traced<Flex> {
    if form.reduce != Reduction::Max {
        return Traced { values: aggregate(block, x, weights, form), edges: None };
    }
    if !has_loops(&x, weights, form) {
        count_reference();
        return aggregation::traced(block, x, weights, form);
    }
    count_direct();
    let x = contiguous(x);
    let (maxima, edges) = with_row_type!(E of x => argmax(by_dst(block), rows_of::<E>(&x)));
    let shape = [block.n_dst, x.shape()[1]];
    let maxima = matrix(maxima, block.n_dst, &x);
    let edges = IntTensor::<Flex>::from_data(TensorData::new(edges, shape));
    Traced { values: with_own(block, own_rows(block, x, form), maxima, form.own), edges: Some(edges) }
}

/// Computes the gradient of one input from the gradient of the result.
pub(super) fn adjoint(saved: &Saved<Flex>, grad: FloatTensor<Flex>, input: Input) -> FloatTensor<Flex> {
    let Saved { block, form, weights, .. } = saved;
    let is_of_max_weights = form.reduce == Reduction::Max && input == Input::Weights;
    if is_of_max_weights || !has_loops(&grad, weights, *form) {
        count_reference();
        return aggregation::adjoint(saved, grad, input);
    }
    count_direct();
    match (input, form.reduce) {
        (Input::Weights, _) => {
            let x = contiguous(saved.rows());
            let grad = contiguous(aggregate_grad(block, grad, *form));
            let grads = rows(&grad);
            let dots = with_row_type!(E of x => edge_dots(by_dst(block), rows_of::<E>(&x), grads, form.sums));
            let shape = form.sums.weights_shape(block.n_edges);
            FloatTensor::<Flex>::from_data(TensorData::new(dots, shape))
        }
        (Input::Rows, Reduction::Sum | Reduction::Mean) => sum_adjoint(saved, &contiguous(grad)),
        (Input::Rows, Reduction::Max) => {
            let of_maxima = contiguous(aggregate_grad(block, grad.clone(), *form));
            let edges = transposed(block).edges();
            let of_sources = max_adjoint(by_src(block), edges, ints(&saved.max_edges()), rows(&of_maxima));
            with_own_grad(block, grad, matrix(of_sources, block.n_src, &of_maxima), *form)
        }
    }
}

/// Returns true if this file has loops for the aggregation; otherwise the reference runs.
fn has_loops(x: &FloatTensor<Flex>, weights: &Weights<Flex>, form: Form) -> bool {
    let is_weighted_max = form.reduce == Reduction::Max && matches!(weights, Weights::Tensor(_));
    (x.dtype() == DType::F32 || form.to_f32 && is_half(x)) && !is_weighted_max
}

/// Returns the rows of sources, of which those of the destinations are f32 if the aggregation uses them.
fn own_rows(block: &Adjacency<Flex>, x: FloatTensor<Flex>, form: Form) -> FloatTensor<Flex> {
    match form.own {
        OwnRow::Concatenated | OwnRow::Scaled(_) if is_half(&x) => {
            Flex::float_cast(take_dst(block, x), FloatDType::F32)
        }
        _ => x,
    }
}

fn sum<E: RowValue>(
    block: &Adjacency<Flex>,
    rows: Rows<'_, E>,
    weights: &Weights<Flex>,
    form: Form,
) -> FloatTensor<Flex> {
    let own = match form.own {
        OwnRow::Excluded => Own::Alone,
        OwnRow::Concatenated => Own::Beside(rows),
        OwnRow::Scaled(weight) => Own::Plus { rows, n_rows: block.n_dst, weight },
    };
    let mean = form.reduce == Reduction::Mean;
    let Weights::Tensor(weights) = weights else {
        return summed(block.n_dst, Sum { mean, own, ..Sum::new(by_dst(block), rows, one) });
    };
    let weights = contiguous(weights.clone());
    let weights = floats(&weights);
    let n = form.sums.n_weights();
    let sum = Sum { mean, own, ..Sum::new(by_dst(block), rows, |edge, _, k| weights[edge * n + k]) };
    match form.sums {
        Sums::One => {
            let factor = weight_of_edge(weights);
            summed(block.n_dst, Sum { mean, own, ..Sum::new(by_dst(block), rows, factor) })
        }
        Sums::PerHead(n_heads) => summed(block.n_dst, sum.with_columns(PerHead(n_heads))),
        Sums::PerBasis(n_bases) => summed(block.n_dst, sum.with_columns(PerBasis(n_bases))),
    }
}

/// The adjoint of a sum or mean, `[n_dst, d] -> [n_src, d]`. The input is `[n_dst, n_bases * d]` with several bases; with
/// concatenated own rows, their `d` columns come first.
fn sum_adjoint(saved: &Saved<Flex>, grad: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    let Saved { block, form, weights, .. } = saved;
    let plus = |rows, weight| Own::Plus { rows, n_rows: block.n_dst, weight };
    let (of_sums, own) = match form.own {
        OwnRow::Excluded => (rows(grad), Own::Alone),
        OwnRow::Concatenated => {
            let (left, right) = columns_at(grad, form.row_width(grad.shape()[1]));
            (right, plus(left, 1.0))
        }
        OwnRow::Scaled(weight) => (rows(grad), plus(rows(grad), weight)),
    };
    let edges = by_src(block);
    let share = share(block);
    let is_mean = form.reduce == Reduction::Mean;
    let Weights::Tensor(weights) = weights else {
        return if is_mean {
            summed(block.n_src, Sum { own, ..Sum::new(edges, of_sums, |_, dst, _| share(dst)) })
        } else {
            summed(block.n_src, Sum { own, ..Sum::new(edges, of_sums, one) })
        };
    };
    let weights = contiguous(weights.clone());
    let weights = floats(&weights);
    let n = form.sums.n_weights();
    let positions = transposed(block).edges();
    // One factor for both, whose loops are compiled once. The product with 1 is exact.
    let factor = |position: usize, dst, k| {
        let weight = weights[positions[position] as usize * n + k];
        weight * if is_mean { share(dst) } else { 1.0 }
    };
    summed_over(block.n_src, Sum { own, ..Sum::new(edges, of_sums, factor) }, form.sums)
}

/// Computes the sums of a source's edges as a matrix tensor: over all weights of an edge that multiplied the same columns.
fn summed_over<F: Fn(usize, usize, usize) -> f32 + Copy + Sync>(
    n_rows: usize,
    sum: Sum<'_, F>,
    sums: Sums,
) -> FloatTensor<Flex> {
    match sums {
        Sums::One => summed(n_rows, sum),
        Sums::PerHead(n_heads) => summed(n_rows, sum.with_columns(PerHead(n_heads))),
        Sums::PerBasis(n_bases) => summed(n_rows, sum.with_columns(OverBases(n_bases))),
    }
}

/// Computes the sums as a matrix tensor.
fn summed<F: Fn(usize, usize, usize) -> f32 + Copy + Sync, C: Columns, E: RowValue>(
    n_rows: usize,
    sum: Sum<'_, F, C, Values, E>,
) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(sum.run(), [n_rows, sum.width()]))
}

/// Returns a function that computes the factor of a destination's row in the gradient of its mean: 1 divided by its
/// degree.
fn share(block: &Adjacency<Flex>) -> impl Fn(usize) -> f32 + Copy + Sync {
    let starts = ints(&block.indptr);
    |dst| 1.0 / (starts[dst + 1] - starts[dst]) as f32
}

/// Returns the columns before and from column `at` on.
fn columns_at(x: &FloatTensor<Flex>, at: usize) -> (Rows<'_>, Rows<'_>) {
    let stride = x.shape()[1];
    (Rows::new(floats(x), 0, at, stride), Rows::new(floats(x), at, stride - at, stride))
}

pub(super) fn by_dst(block: &Adjacency<Flex>) -> Segments<'_> {
    Segments { indptr: ints(&block.indptr), items: ints(&block.indices) }
}

pub(super) fn by_src(block: &Adjacency<Flex>) -> Segments<'_> {
    let transposed = transposed(block);
    Segments { indptr: cast_slice(transposed.indptr()), items: cast_slice(transposed.dsts()) }
}

pub(super) fn transposed(block: &Adjacency<Flex>) -> &TransposedBlock {
    block.by_source.host_or(|| {
        TransposedBlock::of_edges(
            cast_slice(ints(&block.indptr)),
            cast_slice(ints(&block.indices)),
            block.n_src,
        )
    })
}

/// Returns for each weight of an edge the dot product of the columns of its item's row of `x` and of its segment's row of
/// `y` that the weight belongs to.
fn edge_dots<E: RowValue>(segments: Segments<'_>, x: Rows<'_, E>, y: Rows<'_>, sums: Sums) -> Vec<f32> {
    let n_weights = sums.n_weights();
    let dots = Dots { segments, x, y, width: y.width / n_weights, sums };
    fill_edges(segments, n_weights, edge_ns(x.width.max(y.width)), &dots)
}

struct Dots<'a, E> {
    segments: Segments<'a>,
    x: Rows<'a, E>,
    y: Rows<'a>,
    /// The number of columns of `y` that a weight belongs to.
    width: usize,
    sums: Sums,
}

impl<E: RowValue> EdgeRow for Dots<'_, E> {
    #[inline(always)]
    fn write(&self, row: usize, position: usize, out: &mut [f32]) {
        let Self { segments, x, y, width, sums } = *self;
        let of_x = 0..x.width;
        let of_y = 0..y.width;
        x.ask_ahead(segments.items, position, &of_x);
        let x = x.row(segments.items[position] as usize, &of_x);
        let y = y.row(row, &of_y);
        for (k, out) in out.iter_mut().enumerate() {
            let range = k * width..(k + 1) * width;
            let x = if let Sums::PerHead(_) = sums { &x[range.clone()] } else { x };
            *out = dot(x, &y[range]);
        }
    }
}

/// Returns the dot product of two rows, computed as sixteen partial sums that are added in a fixed order.
#[inline(always)]
fn dot<E: RowValue>(one: &[E], other: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    let ones = one.chunks_exact(16);
    let others = other.chunks_exact(16);
    let rest: f32 = ones.remainder().iter().zip(others.remainder()).map(|(a, b)| a.widened() * b).sum();
    for (a, b) in ones.zip(others) {
        for lane in 0..16 {
            sums[lane] += a[lane].widened() * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
