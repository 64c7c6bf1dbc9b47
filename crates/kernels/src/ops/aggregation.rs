//! The one aggregation: its parameters, and its meaning in stock tensor operations of any backend.
//!
//! The reference makes `[n_edges, d]` tensors: slow, and only as good as the backend's scatter, but it needs no kernel,
//! and automatic differentiation of it is the oracle for the adjoint.

use burn::backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn::backend::{Backend, ExtensionType, TensorMetadata, get_or_init_device_settings};
use burn::tensor::{IndexingUpdateOp, Shape, Slice, Tensor};

use crate::device::block::Adjacency;
use crate::ops::reference::{INDEX, bounds, degrees, edge_dsts, take_dst, take_dst_adjoint, zero_rows};

/// How the rows of a destination's sources, its own row and the weights of its edges become one row.
///
/// A [`Reduction`] converts into the aggregation without weights and without the own row:
///
/// ```
/// use kiln_kernels::ops::{Aggregation, OwnRow, Reduction};
/// let graph_sage = Aggregation { own: OwnRow::Concatenated, ..Reduction::Mean.into() };
/// let gin = Aggregation { own: OwnRow::Scaled(1.5), ..Reduction::Sum.into() };
/// ```
#[derive(Debug, Clone)]
pub struct Aggregation {
    /// How rows are combined.
    pub reduce: Reduction,
    /// The factor of each edge's row before it is combined with others, `[n_edges]` in block order; no factors for
    /// `None`. Gradients flow to it.
    pub weights: Option<Tensor<1>>,
    /// How the destination's own row enters the result.
    pub own: OwnRow,
}

/// How rows are combined into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum divided by the number of rows.
    Mean,
    /// The largest value of each column. Of equal values the first row in order counts, and it alone receives the
    /// gradient. If a value is NaN, so is the result.
    Max,
}

/// How a destination's own row enters its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OwnRow {
    /// The own row is left out, unless the block has a self loop.
    Excluded,
    /// The result is twice as wide: the own row, then the aggregate.
    Concatenated,
    /// The own row times this factor is added to the aggregate.
    Scaled(f32),
}

impl From<Reduction> for Aggregation {
    fn from(reduce: Reduction) -> Self {
        Self { reduce, weights: None, own: OwnRow::Excluded }
    }
}

/// The parameters of an [`Aggregation`] that are no tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) reduce: Reduction,
    pub(crate) own: OwnRow,
}

/// The edge weights of an [`Aggregation`] as a backend sees them.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Weights<B: Backend> {
    /// No weights: all are 1.
    Ones,
    /// A weight for each edge in block order, `[n_edges]`.
    PerEdge(FloatTensor<B>),
}

/// The values of an aggregation with what its adjoint needs of them.
#[derive(Debug, Clone)]
pub(crate) struct Traced<B: Backend> {
    /// The result.
    pub(crate) values: FloatTensor<B>,
    /// Of maxima, the edge that each value came from, by its position in the block, -1 where there is none, `[n_dst, d]`.
    pub(crate) edges: Option<IntTensor<B>>,
}

/// The state that the adjoint of an aggregation reads.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) block: Adjacency<B>,
    pub(crate) form: Form,
    /// The weights where the rows have a gradient; ones elsewhere.
    pub(crate) weights: Weights<B>,
    /// The rows where the weights have a gradient.
    pub(crate) x: Option<FloatTensor<B>>,
    /// As [`Traced::edges`].
    pub(crate) edges: Option<IntTensor<B>>,
}

/// The input that a gradient belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Rows,
    Weights,
}

impl<B: Backend> Saved<B> {
    /// The state of an aggregation without weights and maxima.
    pub(crate) fn new(block: Adjacency<B>, form: Form) -> Self {
        Self { block, form, weights: Weights::Ones, x: None, edges: None }
    }

    /// The state of a plain sum.
    pub(crate) fn of_sum(block: Adjacency<B>) -> Self {
        Self::new(block, Form { reduce: Reduction::Sum, own: OwnRow::Excluded })
    }

    /// The rows.
    ///
    /// # Panics
    /// Where they were not saved, since the weights have no gradient.
    pub(crate) fn rows(&self) -> FloatTensor<B> {
        self.x.clone().expect("the rows should be saved where the weights have a gradient")
    }

    /// The edges of the maxima.
    ///
    /// # Panics
    /// Where they were not saved, since the aggregation is no maximum.
    pub(crate) fn max_edges(&self) -> IntTensor<B> {
        self.edges.clone().expect("the edges should be saved where maxima have a gradient")
    }
}

/// `[n_src, d] -> [n_dst, d]`, or `[n_dst, 2 d]` with the own rows in front.
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

/// The same with what the adjoint needs.
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

/// The gradient of one of the inputs from that of the result.
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

/// The aggregate with the own rows in it, in the form that is asked for.
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

/// `[n_src, d]`: adds the share of the own rows in a gradient of the result to that of the sources' rows.
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

/// `[n_dst, d]`: the gradient of the sums or maxima from that of the result. For a mean, each row is divided by its
/// destination's degree.
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

/// `[n_dst, d] -> [n_src, d]`: each source's sum over its edges of the destination's row times the weight.
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

/// `[n_dst, d] -> [n_edges]`: each edge's sum over the maxima that came over it.
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

/// `[n_src, d], [n_dst, d] -> [n_edges]`: the dot product of each edge's two rows.
fn edge_dots<B: Backend>(block: &Adjacency<B>, x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if block.n_edges == 0 {
        return B::float_zeros(Shape::new([0]), &x.device(), x.dtype().into());
    }
    let srcs = B::float_select(x, 0, block.indices.clone());
    let dsts = B::float_select(grad, 0, edge_dsts(block));
    B::float_reshape(B::float_sum_dim(B::float_mul(srcs, dsts), 1), Shape::new([block.n_edges]))
}

/// `[n_edges, d]`: each edge's source row times its weight.
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

/// The sources of edges by their positions, of the first edge where there is none.
fn edge_srcs<B: Backend>(block: &Adjacency<B>, edges: IntTensor<B>, shape: Shape) -> IntTensor<B> {
    B::int_reshape(B::int_select(block.indices.clone(), 0, flat_edges::<B>(edges)), shape)
}

/// The edges one after the other, the first edge where there is none.
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

/// For each destination and column the first edge with the largest value of the edges' rows, -1 where there is no edge,
/// `[n_dst, d]`. By doubling (Hillis and Steele 1986): after the round with distance `s` each edge knows
/// the best of itself and the next `2 s - 1` edges of its destination.
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
