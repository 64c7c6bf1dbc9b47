//! The aggregation op: its parameters and the state of its adjoint. The reference implementation is in `reference` and
//! `maxima`.

mod maxima;
mod messages;
mod reference;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, Dispatch, ExtensionType};
use burn::tensor::{DType, Shape, Tensor};

use crate::device::block::Adjacency;

pub(crate) use reference::{
    adjoint, aggregate, aggregate_grad, sum_adjoint, traced, with_own, with_own_grad,
};

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
    /// The edge weights, by which the source rows are multiplied before the reduction. Gradients flow to the weights.
    pub weights: Option<MessageWeights>,
    /// The use of the destination's own row in the result.
    pub own: OwnRow,
}

/// The weights by which the source rows of edges are multiplied: `[n_edges]` or `[n_edges, k]`, in block order.
///
/// A tensor `[n_edges]` converts into one weight per edge.
#[derive(Debug, Clone)]
pub enum MessageWeights {
    /// One weight per edge, `[n_edges]`.
    PerEdge(Tensor<1>),
    /// One weight per edge and head, `[n_edges, n_heads]`, as in attention layers: the columns of the rows are divided
    /// into `n_heads` ranges of equal width, and each range is multiplied by the weight of its head.
    PerHead(Tensor<2>),
    /// One weight per edge and basis, `[n_edges, n_bases]`, as in relational layers with basis decomposition
    /// (Schlichtkrull et al. 2018): the whole rows are summed once for each basis, with its weights. The result has the
    /// sums one after the other, `[n_dst, n_bases * d]`.
    PerBasis(Tensor<2>),
}

impl MessageWeights {
    pub(crate) fn dims(&self) -> [usize; 2] {
        match self {
            Self::PerEdge(weights) => [weights.dims()[0], 1],
            Self::PerHead(weights) | Self::PerBasis(weights) => weights.dims(),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::PerEdge(weights) => weights.dtype(),
            Self::PerHead(weights) | Self::PerBasis(weights) => weights.dtype(),
        }
    }
}

impl From<Tensor<1>> for MessageWeights {
    fn from(weights: Tensor<1>) -> Self {
        Self::PerEdge(weights)
    }
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
    /// The own row is concatenated in front of the aggregate; without bases, the result is twice as wide.
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
    pub(crate) sums: Sums,
    /// True if the result is f32 for rows of any element type, and the weights are, too. Otherwise, weights and result
    /// have the element type of the rows.
    pub(crate) to_f32: bool,
}

/// The sums that the result of a destination consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Sums {
    /// One sum of whole rows.
    One,
    /// A sum for each of this many heads, of its columns of the rows.
    PerHead(usize),
    /// A sum of whole rows for each of this many bases.
    PerBasis(usize),
}

impl Sums {
    /// Returns the number of weights of an edge.
    pub(crate) fn n_weights(self) -> usize {
        match self {
            Self::One => 1,
            Self::PerHead(n) | Self::PerBasis(n) => n,
        }
    }

    /// Returns the number of times that the width of the rows fits into the width of their aggregate.
    pub(crate) fn n_widths(self) -> usize {
        match self {
            Self::One | Self::PerHead(_) => 1,
            Self::PerBasis(n) => n,
        }
    }

    /// Returns the shape of the weights of `n_edges` edges.
    pub(crate) fn weights_shape(self, n_edges: usize) -> Shape {
        match self {
            Self::One => Shape::new([n_edges]),
            Self::PerHead(n) | Self::PerBasis(n) => Shape::new([n_edges, n]),
        }
    }
}

impl Form {
    /// Returns the form of a sum with a weight per head.
    pub(crate) fn of_heads(n_heads: usize) -> Self {
        let reduce = Reduction::Sum;
        let own = OwnRow::Excluded;
        let sums = Sums::PerHead(n_heads);
        Self { reduce, own, sums, to_f32: false }
    }

    /// Returns the width of the rows, given the width of the result.
    pub(crate) fn row_width(self, width: usize) -> usize {
        match self.own {
            OwnRow::Excluded | OwnRow::Scaled(_) => width / self.sums.n_widths(),
            OwnRow::Concatenated => width / (1 + self.sums.n_widths()),
        }
    }
}

impl Aggregation {
    /// Panics unless there is one row of weights per edge, of the element type `dtype`, and the weights, the width of `x`,
    /// the reduction and the own rows fit together.
    pub(crate) fn check(&self, n_edges: usize, x: &Tensor<2>, dtype: DType) {
        let Some(weights) = &self.weights else { return };
        let [n_rows, n_columns] = weights.dims();
        assert_eq!(n_rows, n_edges, "got {n_rows} weights for {n_edges} edges, expected one per edge");
        let of_weights = weights.dtype();
        assert_eq!(of_weights, dtype, "the weights are {of_weights:?}, expected {dtype:?}: cast them");
        if matches!(weights, MessageWeights::PerEdge(_)) {
            return;
        }
        assert_ne!(n_columns, 0, "the weights have no columns, expected one per head or basis");
        assert!(self.reduce != Reduction::Max, "a maximum takes one weight per edge: use a sum or a mean");
        let width = x.dims()[1];
        if matches!(weights, MessageWeights::PerHead(_)) {
            assert!(
                width.is_multiple_of(n_columns),
                "x has {width} columns, expected a multiple of the {n_columns} heads"
            );
        } else {
            let adds_own = matches!(self.own, OwnRow::Scaled(_));
            assert!(!adds_own, "the own row cannot be added to the sums of several bases: concatenate it");
        }
    }

    /// Returns the aggregation with weights of another element type.
    pub(crate) fn cast(self, dtype: DType) -> Self {
        let weights = self.weights.map(|weights| match weights {
            MessageWeights::PerEdge(weights) => MessageWeights::PerEdge(weights.cast(dtype)),
            MessageWeights::PerHead(weights) => MessageWeights::PerHead(weights.cast(dtype)),
            MessageWeights::PerBasis(weights) => MessageWeights::PerBasis(weights.cast(dtype)),
        });
        Self { weights, ..self }
    }

    /// Separates the weights from the other parameters.
    pub(crate) fn into_parts(self) -> (Weights<Dispatch>, Form) {
        let Self { reduce, weights, own } = self;
        let (weights, sums) = match weights {
            None => (Weights::Ones, Sums::One),
            Some(MessageWeights::PerEdge(weights)) => (Weights::Tensor(weights.into_dispatch()), Sums::One),
            Some(MessageWeights::PerHead(weights)) => {
                let sums = Sums::PerHead(weights.dims()[1]);
                (Weights::Tensor(weights.into_dispatch()), sums)
            }
            Some(MessageWeights::PerBasis(weights)) => {
                let sums = Sums::PerBasis(weights.dims()[1]);
                (Weights::Tensor(weights.into_dispatch()), sums)
            }
        };
        (weights, Form { reduce, own, sums, to_f32: false })
    }
}

/// The edge weights of an [`Aggregation`], as tensors of a backend.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Weights<B: Backend> {
    /// No weights: every edge counts with 1.
    Ones,
    /// The weights of the edges in block order, in the shape of [`Sums::weights_shape`].
    Tensor(FloatTensor<B>),
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
        let reduce = Reduction::Sum;
        let own = OwnRow::Excluded;
        let sums = Sums::One;
        Self::new(block, Form { reduce, own, sums, to_f32: false })
    }

    /// Creates the state of a sum with a weight per head that has not been computed. The gradient of these weights is the
    /// dot products of the source rows and the gradient.
    pub(crate) fn of_dots(block: Adjacency<B>, x: FloatTensor<B>, n_heads: usize) -> Self {
        Self { x: Some(x), ..Self::new(block, Form::of_heads(n_heads)) }
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
