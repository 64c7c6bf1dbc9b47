//! The traits that a backend implements: the ops and their adjoints.

use std::sync::Arc;

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use kiln_graph::TypeGroup;
use kiln_sample::RngKey;

use crate::counts::count_reference;
use crate::device::block::Adjacency;
use crate::ops::adam::{AdamState, AdamStep};
use crate::ops::aggregation::{self, Form, Input, Saved, Sums, Traced, Weights};
use crate::ops::attention::reference as attention;
use crate::ops::attention::{Attention, AttentionInput};
use crate::ops::batch_norm::{
    self, NormalizationGradients, NormalizationInput, NormalizationSettings, Normalized, SavedNormalization,
};
use crate::ops::cross_entropy::CrossEntropy;
use crate::ops::edge_rows::{EdgeRowsInput, Messages};
use crate::ops::keep::Keep;
use crate::ops::range_sums::{self, Ranges};
use crate::ops::{edge_rows, reference, type_products};

/// The ops that a backend provides. The default of each op is the reference implementation in Burn's tensor operations;
/// a backend with its own loops or kernels overrides the default.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub(crate) trait BlockOps: Backend {
    /// Aggregates the source rows of each destination, `[n_src, d] -> [n_dst, d]`, or `[n_dst, 2 d]` with the own rows
    /// in front.
    fn aggregate(
        #[extension_type] block: Adjacency<Self>,
        x: FloatTensor<Self>,
        #[extension_type] weights: Weights<Self>,
        form: Form,
    ) -> FloatTensor<Self> {
        count_reference();
        aggregation::aggregate(&block, x, &weights, form)
    }

    fn take_dst(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::take_dst(&block, x)
    }

    /// Computes the adjoint of the unweighted sum, `[n_dst, d] -> [n_src, d]`.
    fn expand(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        aggregation::sum_adjoint(&block, x, &Weights::Ones, Sums::One)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        count_reference();
        reference::dropout::<Self>(x, nodes, key, keep)
    }

    fn relu_dropout(
        x: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::relu_dropout::<Self>(x, nodes, key, keep)
    }

    /// Adds a bias to all rows, applies ReLU if `has_relu` is true, and then dropout, `[n, d], [d] -> [n, d]`.
    fn bias_dropout(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
        has_relu: bool,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::bias_dropout::<Self>(x, bias, nodes, key, keep, has_relu)
    }

    /// Computes the exponential linear unit: `x`, or `exp(x) - 1` below 0.
    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::elu::<Self>(x)
    }

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::add_linear::<Self>(base, x, weight)
    }

    /// Computes the product of a matrix and a weight, `[n, d_in], [d_in, d_out] -> [n, d_out]`.
    fn product(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        Self::float_matmul(x, weight)
    }

    /// Puts the rows of two matrices one below the other, `[n, d], [m, d] -> [n + m, d]`.
    fn stack_rows(first: FloatTensor<Self>, second: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        Self::float_cat(vec![first, second], 0)
    }

    /// Computes a dense layer for the destinations of each type, `[n_types, d_out], [n_segments, d], [n_matrices * d, d_out]
    /// -> [n_dst, d_out]`. It consists of [`BlockOps::add_linear`] on each type, so backends need not override it.
    fn grouped_linear(
        types: Arc<[TypeGroup]>,
        bias: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        type_products::products::<Self>(&types, bias, x, weight, Self::add_linear)
    }

    /// Multiplies the rows by the transposed matrices of their types, `[n_dst, d], [n_matrices * d_out, d] ->
    /// [n_segments, d_out]`.
    fn grouped_transposed(
        types: Arc<[TypeGroup]>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        d_out: usize,
    ) -> FloatTensor<Self> {
        count_reference();
        type_products::x_adjoint::<Self>(&types, &x, &weight, d_out, reference::linear_x_adjoint::<Self>)
    }

    /// Computes the dot products of the rows of each edge's source and destination, for each head, `[n_src, k d],
    /// [n_dst, k d] -> [n_edges, k]`.
    fn edge_dots(
        #[extension_type] block: Adjacency<Self>,
        srcs: FloatTensor<Self>,
        dsts: FloatTensor<Self>,
        n_heads: usize,
    ) -> FloatTensor<Self> {
        count_reference();
        aggregation::adjoint(&Saved::of_dots(block, srcs, n_heads), dsts, Input::Weights)
    }

    /// Computes the cross entropy of the rows' classes, summed over the rows, `[n, d], [n] -> [1]`.
    fn cross_entropy(x: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::cross_entropy::<Self>(x, labels).loss
    }

    /// Computes the attention scores of the edges, `[n_src, k d], [n_dst, k d], [k, d] -> [n_edges, k]`.
    fn attention_scores(
        #[extension_type] block: Adjacency<Self>,
        src: FloatTensor<Self>,
        dst: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        slope: f32,
    ) -> FloatTensor<Self> {
        count_reference();
        attention::scores(&Attention { block, src, dst, weights, slope })
    }

    /// Computes the softmax over the edges of each destination, `[n_edges, k] -> [n_edges, k]`.
    fn edge_softmax(
        #[extension_type] block: Adjacency<Self>,
        scores: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        attention::softmax(&block, scores)
    }

    fn edge_dropout(
        x: FloatTensor<Self>,
        edge_ids: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        count_reference();
        attention::edge_dropout::<Self>(x, edge_ids, key, keep)
    }

    /// Computes the sum over the edges of each destination of the ReLU of the source's row plus the edge's row,
    /// `[n_src, d], [n_edges, d] -> [n_dst, d]`.
    fn edge_relu_sum(
        #[extension_type] block: Adjacency<Self>,
        x: FloatTensor<Self>,
        edge_rows: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        crate::ops::edge_rows::relu_sum(&Messages { block, x, edge_rows })
    }

    /// Returns 1 divided by the number of edges of each edge's type at its destination, `[n_edges]`, as f32. With weights, which
    /// are f32, returns each edge's weight divided by the sum of the absolute values of these edges' weights; 0 if that is 0. If
    /// there is one type, `types` is not read.
    fn relation_shares(
        #[extension_type] block: Adjacency<Self>,
        types: IntTensor<Self>,
        n_types: usize,
        #[extension_type] weights: Weights<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::relation_shares(&block, types, n_types, weights)
    }

    /// Computes the sums of the columns, `[n, d] -> [1, d]`.
    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::column_sums::<Self>(x)
    }

    /// Repeats a row without copying it, `[1, d] -> [n_rows, d]`. Its adjoint is [`BlockOps::column_sums`].
    fn expand_row(row: FloatTensor<Self>, n_rows: usize) -> FloatTensor<Self> {
        reference::expand_row::<Self>(row, n_rows)
    }

    /// Computes the sums over equal ranges of columns, `[n, k * d] -> [n, k]` or `[n, d]`.
    fn sum_ranges(x: FloatTensor<Self>, ranges: Ranges) -> FloatTensor<Self> {
        count_reference();
        range_sums::sum_ranges::<Self>(x, ranges)
    }

    /// Computes the maximum of each row, `[n, d] -> [n, 1]`; NaN if the row has one. There is no gradient.
    fn row_maxima(x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        Self::float_max_dim(x, 1)
    }

    /// Repeats sums over ranges for the columns that they are of, `[n, k]` or `[n, d]` to `[n, width]`. It is the adjoint of
    /// [`BlockOps::sum_ranges`].
    fn spread_ranges(sums: FloatTensor<Self>, ranges: Ranges, width: usize) -> FloatTensor<Self> {
        range_sums::spread_ranges::<Self>(sums, ranges, width)
    }

    /// Normalizes the columns by their means and variances, `[n, d] -> [n, d]`.
    fn normalize_columns(
        #[extension_type] input: NormalizationInput<Self>,
        settings: NormalizationSettings,
    ) -> Normalized<Self> {
        count_reference();
        batch_norm::normalize::<Self>(input, settings)
    }

    fn adam(
        #[extension_type] state: AdamState<Self>,
        gradient: FloatTensor<Self>,
        step: AdamStep,
    ) -> AdamState<Self> {
        count_reference();
        reference::adam(state, gradient, &step)
    }
}

/// The adjoints of [`BlockOps`], which also default to reference implementations. Only the backward pass calls them,
/// always on a backend without autodiff.
pub(crate) trait BlockAdjoints: BlockOps {
    /// Returns true if layers read rows in bf16 on the device of a tensor; see
    /// [`MatmulPrecision::Bf16`](crate::ops::MatmulPrecision::Bf16).
    fn reads_bf16(_x: &FloatTensor<Self>) -> bool {
        false
    }

    /// Same as [`BlockOps::aggregate`], but also returns the data that its adjoint needs.
    fn aggregate_traced(
        block: &Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: &Weights<Self>,
        form: Form,
    ) -> Traced<Self> {
        count_reference();
        aggregation::traced(block, x, weights, form)
    }

    /// Computes the gradient of one input of [`BlockOps::aggregate`] from the gradient of the result: `[n_src, d]` for
    /// the rows, the shape of the weights for the weights.
    fn aggregate_adjoint(saved: &Saved<Self>, grad: FloatTensor<Self>, input: Input) -> FloatTensor<Self> {
        count_reference();
        aggregation::adjoint(saved, grad, input)
    }

    /// `[n_dst, d] -> [n_src, d]`: appends a row of zeros for each source that is not a destination.
    fn take_dst_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::take_dst_adjoint(block, grad)
    }

    /// `[n, d] -> [n, d]`: the gradient times the scale, and zeros where the output is at most 0.
    fn relu_dropout_adjoint(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        keep: Keep,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::relu_dropout_adjoint::<Self>(output, grad, keep)
    }

    /// `[n, d] -> [n, d]`: the gradient times 1, or times the output plus 1 where the output is below 0.
    fn elu_adjoint(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::elu_adjoint::<Self>(output, grad)
    }

    /// `[n, d_out], [d_in, d_out] -> [n, d_in]`: the gradient of the output times the transposed weight.
    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::linear_x_adjoint::<Self>(grad, weight)
    }

    /// `[n, d_in], [n, d_out] -> [d_in, d_out]`: the transposed input times the gradient of the output.
    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::linear_weight_adjoint::<Self>(x, grad)
    }

    /// Same as [`BlockOps::cross_entropy`], but also returns what its adjoint needs.
    fn cross_entropy_traced(x: FloatTensor<Self>, labels: IntTensor<Self>) -> CrossEntropy<Self> {
        count_reference();
        reference::cross_entropy::<Self>(x, labels)
    }

    /// `[n, d], [n], [1] -> [n, d]`: the gradient of the rows of [`BlockOps::cross_entropy`] from that of the loss.
    fn cross_entropy_adjoint(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        of_loss: CrossEntropy<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::cross_entropy_adjoint::<Self>(x, labels, of_loss, grad)
    }

    /// Computes the gradient of one input of [`BlockOps::attention_scores`] from that of the scores.
    fn attention_adjoint(
        inputs: &Attention<Self>,
        grad: FloatTensor<Self>,
        input: AttentionInput,
    ) -> FloatTensor<Self> {
        count_reference();
        attention::scores_adjoint(inputs, grad, input)
    }

    /// Computes the gradient of [`BlockOps::edge_softmax`] from its result and the result's gradient.
    fn edge_softmax_adjoint(
        block: &Adjacency<Self>,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        attention::softmax_adjoint(block, output, grad)
    }

    /// Computes the gradient of one input of [`BlockOps::edge_relu_sum`] from that of the sums.
    fn edge_relu_sum_adjoint(
        messages: &Messages<Self>,
        grad: FloatTensor<Self>,
        input: EdgeRowsInput,
    ) -> FloatTensor<Self> {
        count_reference();
        edge_rows::relu_sum_adjoint(messages, grad, input)
    }

    /// Computes the gradients of the inputs of [`BlockOps::normalize_columns`] from that of the result.
    fn normalize_columns_adjoint(
        saved: SavedNormalization<Self>,
        grad: FloatTensor<Self>,
    ) -> NormalizationGradients<Self> {
        count_reference();
        batch_norm::adjoint(saved, grad)
    }
}
