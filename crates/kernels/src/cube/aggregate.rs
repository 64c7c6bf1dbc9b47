//! Aggregation with the kernels of `segment_sum`, `segment_max` and `edge_dots`: over the edges by destination in the
//! forward pass, and over the edges by source in the backward pass.

use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use crate::counts::{count_direct, count_reference};
use crate::cube::by_source::Transposed;
use crate::cube::edge_dots::edge_dots;
use crate::cube::launch::Rows;
use crate::cube::segment_max::segment_max;
use crate::cube::segment_sum::{Own, SegmentSum};
use crate::cube::segments::Segments;
use crate::cube::sum_factor::{Factor, SumColumns};
use crate::cube::sum_term::Term;
use crate::cube::table_sums::table_sums;
use crate::device::block::Adjacency;
use crate::ops::aggregation::{
    self, Form, Input, OwnRow, Reduction, Saved, Sums, Traced, Weights, aggregate_grad, with_own,
    with_own_grad,
};

/// Runs the aggregation, `[n_src, d] -> [n_dst, d]`, or `[n_dst, n_bases * d]`. With [`OwnRow::Concatenated`], each
/// destination's own row comes first, followed by its aggregate.
pub(super) fn aggregate(
    block: &Adjacency<CubeBackend>,
    x: CubeTensor,
    weights: &Weights<CubeBackend>,
    form: Form,
) -> CubeTensor {
    if !has_kernels(&x) {
        count_reference();
        return aggregation::aggregate(block, x, weights, form);
    }
    count_direct();
    match form.reduce {
        Reduction::Sum | Reduction::Mean => sum(block, x, weights, form),
        Reduction::Max => {
            let (maxima, _) = segment_max(&by_dst(block), x.clone(), tensor_of(weights), false);
            with_own(block, x, maxima, form.own)
        }
    }
}

/// Same as [`aggregate`], but also returns the data that the adjoint needs.
pub(super) fn traced(
    block: &Adjacency<CubeBackend>,
    x: CubeTensor,
    weights: &Weights<CubeBackend>,
    form: Form,
) -> Traced<CubeBackend> {
    if form.reduce != Reduction::Max {
        return Traced { values: aggregate(block, x, weights, form), edges: None };
    }
    if !has_kernels(&x) {
        count_reference();
        return aggregation::traced(block, x, weights, form);
    }
    count_direct();
    let (maxima, edges) = segment_max(&by_dst(block), x.clone(), tensor_of(weights), true);
    Traced { values: with_own(block, x, maxima, form.own), edges: Some(edges) }
}

/// Computes the gradient of one input from the gradient of the result.
pub(super) fn adjoint(saved: &Saved<CubeBackend>, grad: CubeTensor, input: Input) -> CubeTensor {
    let Saved { block, form, weights, .. } = saved;
    if !has_kernels(&grad) {
        count_reference();
        return aggregation::adjoint(saved, grad, input);
    }
    count_direct();
    match (input, form.reduce) {
        (Input::Weights, reduce) => {
            let max_edges = (reduce == Reduction::Max).then(|| saved.max_edges());
            if reduce == Reduction::Sum && form.own == OwnRow::Concatenated {
                // A copy of the columns behind the own rows would be as large as the gradient.
                let first = form.row_width(grad.meta.shape()[1]);
                return edge_dots(&by_dst(block), saved.rows(), grad, first, form.sums, max_edges);
            }
            let grad = aggregate_grad(block, grad, *form);
            edge_dots(&by_dst(block), saved.rows(), grad, 0, form.sums, max_edges)
        }
        (Input::Rows, Reduction::Sum | Reduction::Mean) => sum_adjoint(saved, grad),
        (Input::Rows, Reduction::Max) => {
            let of_maxima = aggregate_grad(block, grad.clone(), *form);
            let max_edges = Rows::of(into_contiguous(saved.max_edges()));
            let factor = tensor_of(weights).map_or(Factor::One, Factor::OfEdge);
            let sum = by_src(block).sum_of(of_maxima);
            let of_sources = SegmentSum { term: Term::WhereMax { max_edges }, factor, ..sum }.launch();
            with_own_grad(block, grad, of_sources, *form)
        }
    }
}

/// Returns true if there are kernels for the element type; otherwise the reference runs.
fn has_kernels(x: &CubeTensor) -> bool {
    matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn tensor_of(weights: &Weights<CubeBackend>) -> Option<CubeTensor> {
    match weights {
        Weights::Ones => None,
        Weights::Tensor(weights) => Some(into_contiguous(weights.clone())),
    }
}

fn sum(
    block: &Adjacency<CubeBackend>,
    x: CubeTensor,
    weights: &Weights<CubeBackend>,
    form: Form,
) -> CubeTensor {
    let factor = tensor_of(weights).map_or(Factor::One, Factor::OfEdge);
    let own = match form.own {
        OwnRow::Excluded => Own::Nothing,
        OwnRow::Concatenated => Own::Beside,
        OwnRow::Scaled(weight) => Own::Plus { weight, n_segments: block.n_dst },
    };
    let is_mean = form.reduce == Reduction::Mean;
    let factor_columns = match form.sums {
        Sums::One => SumColumns::All,
        Sums::PerHead(n_heads) => SumColumns::PerHead(n_heads),
        Sums::PerBasis(n_bases) => SumColumns::PerBasis(n_bases),
    };
    SegmentSum { factor, factor_columns, own, is_mean, ..by_dst(block).sum_of(x) }.launch()
}

/// The adjoint of a sum or mean, `[n_dst, d] -> [n_src, d]`. The input is `[n_dst, n_bases * d]` with several bases; with
/// concatenated own rows, their `d` columns come first.
fn sum_adjoint(saved: &Saved<CubeBackend>, grad: CubeTensor) -> CubeTensor {
    let Saved { block, form, weights, .. } = saved;
    let is_sum_of_rows =
        form.reduce == Reduction::Sum && form.own == OwnRow::Excluded && form.sums == Sums::One;
    if block.is_gather && is_sum_of_rows {
        let grad = Rows::of(grad.clone());
        if let Some(sums) = table_sums(&block.indices, block.n_src, &grad, tensor_of(weights).as_ref()) {
            return sums;
        }
    }
    let indptr = block.indptr.clone();
    let factor = match (tensor_of(weights), form.reduce) {
        (None, Reduction::Mean) => Factor::Share { indptr },
        (None, _) => Factor::One,
        (Some(weights), Reduction::Mean) => Factor::ShareOfEdge { weights, indptr },
        (Some(weights), _) => Factor::OfEdge(weights),
    };
    let sum = by_src(block).sum_of(grad);
    let (_, width) = sum.columns;
    let plus = |weight| Own::Plus { weight, n_segments: block.n_dst };
    let (columns, own) = match form.own {
        OwnRow::Excluded => (sum.columns, Own::Nothing),
        OwnRow::Concatenated => {
            let own_width = form.row_width(width);
            ((own_width, width - own_width), plus(1.0))
        }
        OwnRow::Scaled(weight) => (sum.columns, plus(weight)),
    };
    let factor_columns = match form.sums {
        Sums::One => SumColumns::All,
        Sums::PerHead(n_heads) => SumColumns::PerHead(n_heads),
        Sums::PerBasis(n_bases) => SumColumns::OverBases(n_bases),
    };
    SegmentSum { columns, factor, factor_columns, own, ..sum }.launch()
}

pub(super) fn by_dst(block: &Adjacency<CubeBackend>) -> Segments {
    Segments {
        indptr: block.indptr.clone(),
        items: block.indices.clone(),
        n_segments: block.n_dst,
        n_positions: block.n_edges,
        edges: None,
        longest: block.most_in_edges,
    }
}

pub(super) fn by_src(block: &Adjacency<CubeBackend>) -> Segments {
    let transposed = transposed(block);
    Segments {
        indptr: transposed.indptr.clone(),
        items: transposed.dsts.clone(),
        n_segments: block.n_src,
        n_positions: block.n_edges,
        edges: Some(transposed.edges.clone()),
        longest: transposed.longest,
    }
}

impl Segments {
    /// Returns the parameters of the unweighted sum of all columns of `x`.
    pub(super) fn sum_of(self, x: CubeTensor) -> SegmentSum {
        let rows = Rows::of(x);
        let columns = (0, rows.width());
        SegmentSum {
            segments: self,
            rows,
            columns,
            term: Term::Row,
            factor: Factor::One,
            factor_columns: SumColumns::All,
            is_mean: false,
            own: Own::Nothing,
        }
    }
}

pub(super) fn transposed(block: &Adjacency<CubeBackend>) -> &Transposed {
    block.by_source.device(&block.indptr, &block.indices, block.n_src)
}
