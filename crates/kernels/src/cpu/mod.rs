//! The ops on Flex, Burn's CPU backend: multithreaded loops over the memory of f32 tensors, or of f16 and bf16 tensors in
//! ops that read features and return f32. Other element types use the reference.

mod adam;
mod aggregate;
mod attention;
#[cfg(target_arch = "x86_64")]
mod bf16;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_bf16.rs"]
mod bf16;
mod columns;
mod cost;
mod dense;
mod dropout;
mod edge_rows;
mod edges;
pub(crate) mod features;
mod fill;
mod instructions;
mod matrix;
mod maxima;
mod relations;
mod row_value;
mod rows;
mod sum;
mod tasks;
mod tensor;
mod term;

pub(crate) use instructions::has_bf16_products;

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, TensorData};
use kiln_graph::TypeGroup;
use kiln_sample::RngKey;

use crate::counts::{count_direct, count_reference};
use crate::cpu::matrix::Matrix;
use crate::cpu::row_value::RowValue;
use crate::cpu::tensor::{
    changed, contiguous, dense_matrix, floats, in_place, matrix, matrix_of, node_ids, rows, with_row_type,
};
use crate::device::block::Adjacency;
use crate::ops::adam::{AdamState, AdamStep};
use crate::ops::aggregation::{Form, Input, Saved, Traced, Weights};
use crate::ops::attention::{Attention, AttentionInput, reference as reference_attention};
use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::edge_rows::{self as reference_edge_rows, EdgeRowsInput, Messages};
use crate::ops::keep::Keep;
use crate::ops::{reference, type_products};

/// Runs `$direct` for f32 tensors and `$reference` for others, and counts which one ran.
macro_rules! direct_or_reference {
    ($x:ident, $reference:expr, $direct:expr) => {
        if $x.dtype() == DType::F32 {
            count_direct();
            $direct
        } else {
            count_reference();
            $reference
        }
    };
}

impl BlockOps for Flex {
    fn aggregate(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: Weights<Self>,
        form: Form,
    ) -> FloatTensor<Self> {
        aggregate::aggregate(&block, x, &weights, form)
    }

    fn take_dst(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        // On Flex, a slice of the first rows is a view, so there is nothing to optimise.
        count_direct();
        reference::take_dst(&block, x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        aggregate::adjoint(&Saved::of_sum(block), x, Input::Rows)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::dropout::<Self>(x, nodes, key, keep), {
            let nodes = node_ids(&nodes);
            in_place(x, |values, width| dropout::dropout(values, width, nodes, key, keep))
        })
    }

    fn relu_dropout(
        x: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::relu_dropout::<Self>(x, nodes, key, keep), {
            let nodes = node_ids(&nodes);
            in_place(x, |values, width| dropout::relu_dropout(values, width, nodes, key, keep))
        })
    }

    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::elu::<Self>(x), in_place(x, |values, _| dropout::elu(values)))
    }

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(weight, reference::add_linear::<Self>(base, x, weight), {
            let x = contiguous(x);
            let weight = contiguous(weight);
            with_row_type!(E of x => add_product(base, matrix_of::<E>(&x), dense_matrix(&weight)))
        })
    }

    fn grouped_transposed(
        types: Arc<[TypeGroup]>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        d_out: usize,
    ) -> FloatTensor<Self> {
        type_products::x_adjoint::<Self>(&types, &x, &weight, d_out, Self::linear_x_adjoint)
    }

    fn edge_dots(
        block: Adjacency<Self>,
        srcs: FloatTensor<Self>,
        dsts: FloatTensor<Self>,
        n_heads: usize,
    ) -> FloatTensor<Self> {
        aggregate::adjoint(&Saved::of_dots(block, srcs, n_heads), dsts, Input::Weights)
    }

    fn attention_scores(
        block: Adjacency<Self>,
        src: FloatTensor<Self>,
        dst: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        slope: f32,
    ) -> FloatTensor<Self> {
        let inputs = Attention { block, src, dst, weights, slope };
        let x = &inputs.src;
        direct_or_reference!(x, reference_attention::scores(&inputs), attention::scores(inputs))
    }

    fn edge_softmax(block: Adjacency<Self>, scores: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(scores, reference_attention::softmax(&block, scores), {
            attention::softmax(&block, scores)
        })
    }

    fn edge_dropout(
        x: FloatTensor<Self>,
        edge_ids: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        direct_or_reference!(x, reference_attention::edge_dropout::<Self>(x, edge_ids, key, keep), {
            attention::edge_dropout(x, &edge_ids, key, keep)
        })
    }

    fn edge_relu_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        edge_rows: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let messages = Messages { block, x, edge_rows };
        let x = &messages.x;
        direct_or_reference!(x, reference_edge_rows::relu_sum(&messages), edge_rows::relu_sum(messages))
    }

    fn relation_shares(
        block: Adjacency<Self>,
        types: IntTensor<Self>,
        n_types: usize,
        weights: Weights<Self>,
    ) -> FloatTensor<Self> {
        count_direct();
        relations::relation_shares(&block, &types, n_types, &weights)
    }

    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::column_sums::<Self>(x), {
            let x = contiguous(x);
            matrix(dense::column_sums(floats(&x), x.shape()[1]), 1, &x)
        })
    }

    fn adam(state: AdamState<Self>, gradient: FloatTensor<Self>, step: AdamStep) -> AdamState<Self> {
        direct_or_reference!(gradient, reference::adam(state, gradient, &step), {
            let gradient = contiguous(gradient);
            let AdamState { values, means, mean_squares } = state;
            let means = changed(means, |means| adam::decayed_mean(means, floats(&gradient), step.betas[0]));
            let mean_squares = changed(mean_squares, |squares| {
                adam::decayed_mean_square(squares, floats(&gradient), step.betas[1]);
            });
            let values = changed(values, |values| {
                adam::parameters(values, floats(&means), floats(&mean_squares), &step);
            });
            AdamState { values, means, mean_squares }
        })
    }
}

impl BlockAdjoints for Flex {
    fn aggregate_traced(
        block: &Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: &Weights<Self>,
        form: Form,
    ) -> Traced<Self> {
        aggregate::traced(block, x, weights, form)
    }

    fn aggregate_adjoint(saved: &Saved<Self>, grad: FloatTensor<Self>, input: Input) -> FloatTensor<Self> {
        aggregate::adjoint(saved, grad, input)
    }

    fn relu_dropout_adjoint(
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        keep: Keep,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::relu_dropout_adjoint::<Self>(output, grad, keep), {
            let output = contiguous(output);
            in_place(grad, |grad, _| dropout::relu_dropout_adjoint(floats(&output), grad, keep))
        })
    }

    fn elu_adjoint(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::elu_adjoint::<Self>(output, grad), {
            let output = contiguous(output);
            in_place(grad, |grad, _| dropout::elu_adjoint(floats(&output), grad))
        })
    }

    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::linear_x_adjoint::<Self>(grad, weight), {
            let grad = contiguous(grad);
            let weight = contiguous(weight);
            let values = dense::product(dense_matrix(&grad), dense_matrix(&weight).transposed());
            FloatTensor::<Self>::from_data(TensorData::new(values, [grad.shape()[0], weight.shape()[0]]))
        })
    }

    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::linear_weight_adjoint::<Self>(x, grad), {
            let x = contiguous(x);
            let grad = contiguous(grad);
            let grads = dense_matrix(&grad);
            let values = with_row_type!(E of x => dense::weight_gradient(matrix_of::<E>(&x), grads));
            matrix(values, x.shape()[1], &grad)
        })
    }

    fn attention_adjoint(
        inputs: &Attention<Self>,
        grad: FloatTensor<Self>,
        input: AttentionInput,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference_attention::scores_adjoint(inputs, grad, input), {
            attention::scores_adjoint(inputs, grad, input)
        })
    }

    fn edge_softmax_adjoint(
        block: &Adjacency<Self>,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference_attention::softmax_adjoint(block, output, grad), {
            attention::softmax_adjoint(block, output, grad)
        })
    }

    fn edge_relu_sum_adjoint(
        messages: &Messages<Self>,
        grad: FloatTensor<Self>,
        input: EdgeRowsInput,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference_edge_rows::relu_sum_adjoint(messages, grad, input), {
            edge_rows::relu_sum_adjoint(messages, grad, input)
        })
    }

    fn take_dst_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::take_dst_adjoint(block, grad), {
            let grad = contiguous(grad);
            let given = rows(&grad);
            matrix(
                fill::copied_rows(block.n_src, given.width, |row, columns| {
                    (row < block.n_dst).then(|| given.row(row, &columns))
                }),
                block.n_src,
                &grad,
            )
        })
    }
}

/// Adds the product to `base`, which has as many rows or is one row for all of them.
fn add_product<E: RowValue>(
    base: FloatTensor<Flex>,
    x: Matrix<'_, E>,
    weight: Matrix<'_>,
) -> FloatTensor<Flex> {
    let [n_rows, _] = x.shape();
    if base.shape()[0] == n_rows {
        return in_place(base, |sum, _| dense::add_product(sum, x, weight));
    }
    let base = contiguous(base);
    matrix(dense::add_row(floats(&base), x, weight), n_rows, &base)
}
