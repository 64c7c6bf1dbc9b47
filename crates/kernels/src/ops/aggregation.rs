//! The aggregation op: its parameters, and its reference implementation in Burn's tensor operations for any backend.
//!
//! The reference creates `[n_edges, d]` tensors, so it is slow, and its determinism depends on the backend's scatter.
//! But it needs no kernel, and its automatic derivative is the oracle for the adjoint.

use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{IndexingUpdateOp, Shape, Slice, Tensor};

use crate::device::block::Adjacency;
use crate::ops::reference::{INDEX, bounds, degrees, edge_dsts, take_dst, take_dst_adjoint, zero_rows};

/// The parameters of [`aggregate`](crate::ops::aggregate), which combines the rows of a destination's sources, the
/// weights of its edges and its own row into one row.
///
/// A [`Reduction`] converts into an aggregation without weights and without the own row:
///
/// ```
/// use kiln_kernels::ops::{Aggregation, OwnRow, Reduction};
/// let graph_sage = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
/// let gin = Aggregation { own: OwnRow::Scaled(1.5), ..Reduction::Sum.into() };
/// ```
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// The reduction over a destination's edges.
    pub reduce: Reduction,
    /// The edge weights, `[n_edges]` in block order. Each edge's source row is multiplied by its weight before the
    /// reduction. Gradients flow to the weights.
    pub weights: Option<Tensor<1>>,
    /// The use of the destination's own row in the result.
    pub own: OwnRow,
}

/// A reduction of several rows to one, column by column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum divided by the number of rows.
    Mean,
    /// The largest value of each column. Among equal values, the first row in order receives the whole gradient. If a
    /// value is NaN, the result is NaN.
    Max,
}

/// The use of a destination's own row in the result for this destination.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OwnRow {
    /// The own row is not used. A self loop of the block still contributes it as the row of a source.
    Excluded,
    /// The own row is concatenated in front of the aggregate; the result is twice as wide.
    Concatenated,
    /// The own row, multiplied by this factor, is added to the aggregate.
    Scaled(f32),
}

impl From<Reduction> for Aggregation {
    fn from(reduce: Reduction) -> Self {
        Self { reduce, weights: None, own: OwnRow::Excluded }
    }
}

/// The parameters of an [`Aggregation`] that are not tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) reduce: Reduction,
    pub(crate) own: OwnRow,
}

/// The edge weights of an [`Aggregation`], as tensors of a backend.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Weights<B: Backend> {
    /// No weights: every edge counts with 1.
    Ones,
    /// One weight per edge in block order, `[n_edges]`.
    PerEdge(FloatTensor<B>),
}

/// The result of an aggregation, with the data that its adjoint needs.
#[derive(Debug, Clone)]
pub(crate) struct Traced<B: Backend> {
    /// The result of the aggregation.
    pub(crate) values: FloatTensor<B>,
    /// For each maximum, the position in the block of the edge that it came from, `[n_dst, d]`; -1 if the destination
    /// has no edges. `None` if the reduction is not a maximum.
    pub(crate) edges: Option<IntTensor<B>>,
}

/// The state that the adjoint of an aggregation reads.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) block: Adjacency<B>,
    pub(crate) form: Form,
    /// The edge weights if the source rows need a gradient, otherwise [`Weights::Ones`].
    pub(crate) weights: Weights<B>,
    /// The source rows if the edge weights need a gradient, otherwise `None`.
    pub(crate) x: Option<FloatTensor<B>>,
    /// Same as [`Traced::edges`].
    pub(crate) edges: Option<IntTensor<B>>,
}

/// The input that a gradient is computed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Rows,
    Weights,
}

impl<B: Backend> Saved<B> {
    /// Creates the state of a sum or mean without edge weights.
    pub(crate) fn new(block: Adjacency<B>, form: Form) -> Self {
        Self { block, form, weights: Weights::Ones, x: None, edges: None }
    }

    /// Creates the state of a sum without edge weights or own rows.
    pub(crate) fn of_sum(block: Adjacency<B>) -> Self {
        Self::new(block, Form { reduce: Reduction::Sum, own: OwnRow::Excluded })
    }

    /// Returns the saved source rows.
    ///
    /// # Panics
    /// Panics if the rows were not saved, because the edge weights need no gradient.
    pub(crate) fn rows(&self) -> FloatTensor<B> {
        self.x.clone().expect("the rows should be saved if the weights need a gradient")
    }

    /// Returns the edges that the maxima came from.
    ///
    /// # Panics
    /// Panics if the edges were not saved, because the reduction is not a maximum.
    pub(crate) fn max_edges(&self) -> IntTensor<B> {
        self.edges.clone().expect("the edges should be saved if maxima need a gradient")
    }
}

/// The reference implementation of [`crate::ops::aggregate`]: `[n_src, d] -> [n_dst, d]`, or `[n_dst, 2 d]` with the
/// own rows in front.
pub(crate) fn aggregate<B: Backend>(
    block: &Adjacency<B>,
    x: FloatTensor<B>,
    weights: &Weights<B>,
    form: Form,
) -> FloatTensor<B> {
    let aggregate = match form.reduce {
        Reduction::Sum => sum(block, x.clone(), weights),
        Reduction::Mean => {
            let degrees = degrees(block, &x);
            B::float_div(sum(block, x.clone(), weights), degrees)
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
        _ => largest_edges(block, edge_rows(block, x.clone(), weights)),
    });
    Traced { values: aggregate(block, x, weights, form), edges }
}

/// Computes the gradient of one input from the gradient of the result.
pub(crate) fn adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>, input: Input) -> FloatTensor<B> {
    let Saved { block, form, weights, .. } = saved;
    let of_aggregate = aggregate_grad(block, grad.clone(), *form);
    let of_sources = match (input, form.reduce) {
        (Input::Rows, Reduction::Sum | Reduction::Mean) => sum_adjoint(block, of_aggregate, weights),
        (Input::Rows, Reduction::Max) => max_adjoint(saved, of_aggregate),
        (Input::Weights, Reduction::Sum | Reduction::Mean) => {
            return edge_dots(block, saved.rows(), of_aggregate);
        }
        (Input::Weights, Reduction::Max) => return max_weights_adjoint(saved, of_aggregate),
    };
    with_own_grad(block, grad, of_sources, form.own)
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
    own: OwnRow,
) -> FloatTensor<B> {
    let of_own = match own {
        OwnRow::Excluded => return of_sources,
        OwnRow::Concatenated => {
            let width = grad.shape()[1] / 2;
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
            let width = grad.shape()[1] / 2;
            columns::<B>(grad, width, 2 * width)
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

fn sum<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>, weights: &Weights<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    scatter_rows::<B>(edge_rows(block, x, weights), edge_dsts(block), block.n_dst)
}

/// `[n_dst, d] -> [n_src, d]`: for each source, the sum over its edges of the destination's row times the edge weight.
pub(crate) fn sum_adjoint<B: Backend>(
    block: &Adjacency<B>,
    grad: FloatTensor<B>,
    weights: &Weights<B>,
) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_src, &grad);
    }
    let rows = weighted(block, B::float_select(grad, 0, edge_dsts(block)), weights);
    scatter_rows::<B>(rows, block.indices.clone(), block.n_src)
}

fn max<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>, weights: &Weights<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return zero_rows::<B>(block.n_dst, &x);
    }
    let rows = edge_rows(block, x, weights);
    let edges = largest_edges(block, B::float_detach(rows.clone()));
    let none = lower::<B>(edges.clone(), 0);
    B::float_mask_fill(B::float_gather(0, rows, B::int_clamp_min(edges, 0.into())), none, 0.into())
}

fn max_adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let block = &saved.block;
    let zeros = zero_rows::<B>(block.n_src, &grad);
    if block.n_edges == 0 {
        return zeros;
    }
    let shape = grad.shape();
    let edges = saved.max_edges();
    let grad = B::float_mask_fill(grad, lower::<B>(edges.clone(), 0), 0.into());
    let grad = match &saved.weights {
        Weights::Ones => grad,
        Weights::PerEdge(weights) => {
            let weights = B::float_select(weights.clone(), 0, flat_edges::<B>(edges.clone()));
            B::float_mul(grad, B::float_reshape(weights, shape.clone()))
        }
    };
    B::float_scatter(0, zeros, edge_srcs(block, edges, shape), grad, IndexingUpdateOp::Add)
}

/// `[n_dst, d] -> [n_edges]`: for each edge, the sum over the maxima that came from it. A term is the gradient of the
/// maximum times the value of the edge's source.
fn max_weights_adjoint<B: Backend>(saved: &Saved<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let (block, x) = (&saved.block, saved.rows());
    let zeros = B::float_zeros(Shape::new([block.n_edges]), &x.device(), x.dtype().into());
    if block.n_edges == 0 {
        return zeros;
    }
    let shape = grad.shape();
    let edges = saved.max_edges();
    let values = B::float_gather(0, x, edge_srcs(block, edges.clone(), shape.clone()));
    let products = B::float_mask_fill(B::float_mul(grad, values), lower::<B>(edges.clone(), 0), 0.into());
    let products = B::float_reshape(products, Shape::new([shape.num_elements()]));
    B::float_select_assign(zeros, 0, flat_edges::<B>(edges), products, IndexingUpdateOp::Add)
}

/// `[n_src, d], [n_dst, d] -> [n_edges]`: for each edge, the dot product of its source row and its destination row.
fn edge_dots<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return B::float_zeros(Shape::new([0]), &x.device(), x.dtype().into());
    }
    let srcs = B::float_select(x, 0, block.indices.clone());
    let dsts = B::float_select(grad, 0, edge_dsts(block));
    B::float_reshape(B::float_sum_dim(B::float_mul(srcs, dsts), 1), Shape::new([block.n_edges]))
}

/// `[n_edges, d]`: for each edge, its source row times its weight.
fn edge_rows<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>, weights: &Weights<B>) -> FloatTensor<B> {
    weighted(block, B::float_select(x, 0, block.indices.clone()), weights)
}

fn weighted<B: Backend>(block: &Adjacency<B>, rows: FloatTensor<B>, weights: &Weights<B>) -> FloatTensor<B> {
    match weights {
        Weights::Ones => rows,
        Weights::PerEdge(weights) => {
            B::float_mul(rows, B::float_reshape(weights.clone(), Shape::new([block.n_edges, 1])))
        }
    }
}

/// The sources of the edges at the given positions in the block. A position of -1 stands for the block's first edge.
fn edge_srcs<B: Backend>(block: &Adjacency<B>, edges: IntTensor<B>, shape: Shape) -> IntTensor<B> {
    B::int_reshape(B::int_select(block.indices.clone(), 0, flat_edges::<B>(edges)), shape)
}

/// The edge positions as a flat list, with -1 replaced by 0, the position of the block's first edge.
fn flat_edges<B: Backend>(edges: IntTensor<B>) -> IntTensor<B> {
    let n_values = edges.shape().num_elements();
    B::int_reshape(B::int_clamp_min(edges, 0.into()), Shape::new([n_values]))
}

fn scatter_rows<B: Backend>(rows: FloatTensor<B>, to: IntTensor<B>, n_rows: usize) -> FloatTensor<B> {
    let zeros = zero_rows::<B>(n_rows, &rows);
    B::float_select_assign(zeros, 0, to, rows, IndexingUpdateOp::Add)
}

fn lower<B: Backend>(numbers: IntTensor<B>, limit: i32) -> BoolTensor<B> {
    let dtype = get_or_init_device_settings::<B>(&numbers.device()).bool_dtype;
    B::int_lower_elem(numbers, limit.into(), dtype)
}

/// `[n_dst, d]`: for each destination and column, the position of the first of the destination's edges whose row has
/// the largest value in this column, or -1 if the destination has no edges. `rows` has one row per edge. Uses doubling
/// (Hillis and Steele 1986): after the round with distance `s`, each edge has the best edge among itself and the next
/// `2 s - 1` edges of its destination.
fn largest_edges<B: Backend>(block: &Adjacency<B>, rows: FloatTensor<B>) -> IntTensor<B> {
    let device = rows.device();
    let bools = get_or_init_device_settings::<B>(&device).bool_dtype;
    let (n_edges, width) = (block.n_edges, rows.shape()[1]);
    let dsts = edge_dsts(block);
    let positions = B::int_arange(0..n_edges as i64, &device, INDEX);
    let column = B::int_reshape(positions.clone(), Shape::new([n_edges, 1]));
    let mut best = B::int_expand(column, Shape::new([n_edges, width]));
    let mut distance = 1;
    while distance < n_edges {
        let shifted = B::int_add_scalar(positions.clone(), (distance as i64).into());
        let other = B::int_clamp_max(shifted, (n_edges as i64 - 1).into());
        let same = B::int_equal(B::int_select(dsts.clone(), 0, other.clone()), dsts.clone(), bools);
        let same =
            B::bool_expand(B::bool_reshape(same, Shape::new([n_edges, 1])), Shape::new([n_edges, width]));
        let candidate = B::int_select(best.clone(), 0, other);
        let old = B::float_gather(0, rows.clone(), best.clone());
        let new = B::float_gather(0, rows.clone(), candidate.clone());
        let better = B::bool_or(B::float_greater(new.clone(), old, bools), B::float_is_nan(new, bools));
        best = B::int_mask_where(best, B::bool_and(better, same), candidate);
        distance *= 2;
    }
    let [starts, ends] = bounds(block);
    let none = B::int_equal(starts.clone(), ends, bools);
    let none =
        B::bool_expand(B::bool_reshape(none, Shape::new([block.n_dst, 1])), Shape::new([block.n_dst, width]));
    let firsts = B::int_select(best, 0, B::int_clamp_max(starts, (n_edges as i64 - 1).into()));
    B::int_mask_fill(firsts, none, (-1).into())
}
