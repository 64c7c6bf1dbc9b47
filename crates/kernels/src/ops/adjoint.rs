use burn::backend::Backend;
use burn::backend::tensor::{FloatTensor, IntTensor};

use crate::counts::count_reference;
use crate::device::block::Adjacency;
use crate::ops::reference;
use crate::ops::{Keep, Reduce};

/// The largest values of the neighbours and where they came from.
#[derive(Debug, Clone)]
pub(crate) struct ArgMax<B: Backend> {
    /// The values, `[n_dst, d]`.
    pub(crate) values: FloatTensor<B>,
    /// The edge that each came from, by its position in the block, -1 where there is none, `[n_dst, d]`.
    pub(crate) edges: IntTensor<B>,
}

/// What the gradients of [`BlockOps`](crate::ops::backend::BlockOps) are made of, with the same rule for
/// defaults. They are called on a plain backend only, from the backward pass.
pub(crate) trait BlockAdjoints: Backend {
    /// `[n_dst, d] -> [n_src, d]`: each source's sum over its edges of the destination's row.
    fn neighbor_sum_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_sum_adjoint(block, grad)
    }

    /// The same, each row multiplied by the edge's weight.
    fn neighbor_weighted_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_weighted_sum_adjoint(block, grad, weights)
    }

    /// `[n_src, d], [n_dst, d] -> [n_edges]`: the dot product of each edge's two rows.
    fn edge_dots(
        block: &Adjacency<Self>,
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::edge_dots(block, x, grad)
    }

    /// `[n_dst, d] -> [n_src, d]`: each row is divided by its destination's degree first.
    fn neighbor_mean_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_mean_adjoint(block, grad)
    }

    /// `[n_dst, 2 d] -> [n_src, d]`: what flows back to the first half of the columns goes to the own rows,
    /// the second half to the neighbours.
    fn own_beside_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        reduce: Reduce,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::own_beside_adjoint(block, grad, reduce)
    }

    /// `[n_dst, d] -> [n_src, d]`: each row goes to the neighbours, and times the weight to the own row.
    fn own_plus_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        own_weight: f32,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::own_plus_sum_adjoint(block, grad, own_weight)
    }

    /// The maximum and its edges; the backward pass needs both.
    fn neighbor_argmax(block: &Adjacency<Self>, x: FloatTensor<Self>) -> ArgMax<Self> {
        count_reference();
        reference::neighbor_argmax(block, x)
    }

    /// `[n_dst, d] -> [n_src, d]`: each number goes to the source of its edge.
    fn neighbor_max_adjoint(
        block: &Adjacency<Self>,
        edges: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_max_adjoint(block, edges, grad)
    }

    /// `[n, d] -> [n, d]`: each value is multiplied by the scale where the output is not zero.
    fn relu_dropout_adjoint(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        keep: Keep,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::relu_dropout_adjoint::<Self>(output, grad, keep)
    }

    /// `[n, d_out], [d_in, d_out] -> [n, d_in]`: the rows times the transposed weight.
    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::linear_x_adjoint::<Self>(grad, weight)
    }

    /// `[n, d_in], [n, d_out] -> [d_in, d_out]`: the transposed input times the rows.
    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::linear_weight_adjoint::<Self>(x, grad)
    }

    /// `[n, d] -> [1, d]`: the sum of the rows.
    fn row_sum(grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::row_sum::<Self>(grad)
    }

    /// `[n_dst, d] -> [n_src, d]`: zeros below.
    fn dst_rows_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::dst_rows_adjoint(block, grad)
    }
}
