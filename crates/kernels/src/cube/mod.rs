//! The ops as CubeCL kernels, for every device that CubeCL has a runtime for.
//!
//! Each file contains one kernel, or a few related ones, with the host code that launches them. Ops without a kernel
//! run as the reference in Burn's operations, also on the device. The docs of kernels use CubeCL's words: a unit is a
//! GPU thread, a cube is a block of threads, and a plane is a warp.

pub(crate) mod adam;
mod aggregate;
mod attention;
mod batch_norm;
pub(crate) mod by_source;
mod column_chunks;
mod column_moments;
mod column_sums;
mod cross_entropy;
pub(crate) mod dense;
mod dropout;
mod edge_dots;
mod edge_rows;
pub(crate) mod edge_times;
mod edge_types;
pub(crate) mod excluded;
pub(crate) mod features;
pub(crate) mod graph;
pub(crate) mod hop;
mod known_edges;
mod known_lists;
mod lanes;
pub(crate) mod launch;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
mod neighborhood;
mod philox;
mod pick;
mod pick_timed;
mod pick_weights;
mod places;
mod ranges;
mod relabel;
mod relabel_timed;
pub(crate) mod rule;
pub(crate) mod scan;
mod segment_max;
mod segment_sum;
mod segments;
mod shares;
mod stack;
pub(crate) mod staging;
mod sum_factor;
mod sum_term;
mod table_sums;
#[cfg(all(test, feature = "cube-cpu"))]
mod tests;

use std::sync::Arc;

use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Device};
use burn_cubecl::CubeBackend;
use kiln_graph::TypeGroup;
use kiln_sample::RngKey;

use crate::counts::{count_direct, count_reference};
use crate::device::block::Adjacency;
use crate::ops::adam::{AdamState, AdamStep};
use crate::ops::aggregation::{Form, Input, Saved, Traced, Weights};
use crate::ops::attention::{Attention, AttentionInput, reference as reference_attention};
use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::batch_norm::{
    self as reference_batch_norm, NormalizationGradients, NormalizationInput, NormalizationSettings,
    Normalized, SavedNormalization,
};
use crate::ops::cross_entropy::CrossEntropy;
use crate::ops::edge_rows::{self as reference_edge_rows, EdgeRowsInput, Messages};
use crate::ops::half::reads_bf16;
use crate::ops::keep::Keep;
use crate::ops::range_sums::{self as reference_ranges, Ranges};
use crate::ops::{reference, type_products};

/// Runs `$kernel` for the element types that it supports and `$reference` for others, and counts which one ran.
macro_rules! kernel_or_reference {
    ($x:ident, $reference:expr, $kernel:expr) => {
        kernel_or_reference!($x, F32 | F16 | BF16, $reference, $kernel)
    };
    ($x:ident, $($dtype:ident)|+, $reference:expr, $kernel:expr) => {
        if matches!($x.dtype, $(DType::$dtype)|+) {
            count_direct();
            $kernel
        } else {
            count_reference();
            $reference
        }
    };
}

impl BlockOps for CubeBackend {
    fn aggregate(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: Weights<Self>,
        form: Form,
    ) -> FloatTensor<Self> {
        aggregate::aggregate(&block, x, &weights, form)
    }

    fn take_dst(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        // Burn's slice returns a view, or a copy if the alignment of the memory does not allow a view.
        count_direct();
        reference::take_dst(&block, x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        aggregate::adjoint(&Saved::of_sum(block), x, Input::Rows)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::dropout::<Self>(x, nodes, key, keep), {
            dropout::dropout(x, None, nodes, key, keep, false)
        })
    }

    fn relu_dropout(
        x: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::relu_dropout::<Self>(x, nodes, key, keep), {
            dropout::dropout(x, None, nodes, key, keep, true)
        })
    }

    fn bias_dropout(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
        has_relu: bool,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::bias_dropout::<Self>(x, bias, nodes, key, keep, has_relu), {
            dropout::dropout(x, Some(bias), nodes, key, keep, has_relu)
        })
    }

    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        // Burn's operations also run kernels on the device, so they do not count as the reference.
        count_direct();
        reference::elu::<Self>(x)
    }

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::add_linear::<Self>(base, x, weight), {
            Self::float_add(dense::product(x, weight), base)
        })
    }

    fn product(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, Self::float_matmul(x, weight), dense::product(x, weight))
    }

    fn stack_rows(first: FloatTensor<Self>, second: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(first, Self::float_cat(vec![first, second], 0), {
            stack::stack_rows(first, second)
        })
    }

    fn cross_entropy(x: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, F32, reference::cross_entropy::<Self>(x, labels).loss, {
            cross_entropy::cross_entropy(x, labels).loss
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
        kernel_or_reference!(x, reference_attention::scores(&inputs), attention::scores(inputs))
    }

    fn edge_softmax(block: Adjacency<Self>, scores: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(scores, reference_attention::softmax(&block, scores), {
            attention::softmax(&block, scores)
        })
    }

    fn edge_dropout(
        x: FloatTensor<Self>,
        edge_ids: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference_attention::edge_dropout::<Self>(x, edge_ids, key, keep), {
            dropout::edge_dropout(x, edge_ids, key, keep)
        })
    }

    fn edge_relu_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        edge_rows: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let messages = Messages { block, x, edge_rows };
        let x = &messages.x;
        kernel_or_reference!(x, reference_edge_rows::relu_sum(&messages), edge_rows::relu_sum(messages))
    }

    fn relation_shares(
        block: Adjacency<Self>,
        types: IntTensor<Self>,
        n_types: usize,
        weights: Weights<Self>,
    ) -> FloatTensor<Self> {
        // Burn's sum by index of one column is one unit.
        count_direct();
        shares::shares(&block, types, n_types, weights)
    }

    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::column_sums::<Self>(x), column_sums::column_sums(x))
    }

    fn sum_ranges(x: FloatTensor<Self>, of: Ranges) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference_ranges::sum_ranges::<Self>(x, of), ranges::sum_ranges(x, of))
    }

    fn row_maxima(x: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, Self::float_max_dim(x, 1), ranges::row_maxima(x))
    }

    fn normalize_columns(
        input: NormalizationInput<Self>,
        settings: NormalizationSettings,
    ) -> Normalized<Self> {
        let x = &input.x;
        kernel_or_reference!(x, F32, reference_batch_norm::normalize::<Self>(input, settings), {
            batch_norm::normalize(input, settings)
        })
    }

    fn adam(state: AdamState<Self>, gradient: FloatTensor<Self>, step: AdamStep) -> AdamState<Self> {
        kernel_or_reference!(gradient, F32, reference::adam(state, gradient, &step), {
            adam::adam(state, gradient, &step)
        })
    }
}

impl BlockAdjoints for CubeBackend {
    fn reads_bf16(x: &FloatTensor<Self>) -> bool {
        reads_bf16(&Device::new(x.device.clone()))
    }

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
        kernel_or_reference!(grad, reference::relu_dropout_adjoint::<Self>(output, grad, keep), {
            dropout::relu_dropout_adjoint(output, grad, keep)
        })
    }

    fn elu_adjoint(output: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_direct();
        reference::elu_adjoint::<Self>(output, grad)
    }

    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::linear_x_adjoint::<Self>(grad, weight), {
            dense::product(grad, Self::float_transpose(weight))
        })
    }

    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::linear_weight_adjoint::<Self>(x, grad), {
            dense::weight_gradient(x, grad)
        })
    }

    fn cross_entropy_traced(x: FloatTensor<Self>, labels: IntTensor<Self>) -> CrossEntropy<Self> {
        kernel_or_reference!(x, F32, reference::cross_entropy::<Self>(x, labels), {
            cross_entropy::cross_entropy(x, labels)
        })
    }

    fn cross_entropy_adjoint(
        x: FloatTensor<Self>,
        labels: IntTensor<Self>,
        of_loss: CrossEntropy<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(
            x,
            F32,
            reference::cross_entropy_adjoint::<Self>(x, labels, of_loss, grad),
            cross_entropy::cross_entropy_adjoint(x, labels, of_loss, grad)
        )
    }

    fn attention_adjoint(
        inputs: &Attention<Self>,
        grad: FloatTensor<Self>,
        input: AttentionInput,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference_attention::scores_adjoint(inputs, grad, input), {
            attention::scores_adjoint(inputs, grad, input)
        })
    }

    fn edge_softmax_adjoint(
        block: &Adjacency<Self>,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference_attention::softmax_adjoint(block, output, grad), {
            attention::softmax_adjoint(block, output, grad)
        })
    }

    fn edge_relu_sum_adjoint(
        messages: &Messages<Self>,
        grad: FloatTensor<Self>,
        input: EdgeRowsInput,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference_edge_rows::relu_sum_adjoint(messages, grad, input), {
            edge_rows::relu_sum_adjoint(messages, grad, input)
        })
    }

    fn normalize_columns_adjoint(
        saved: SavedNormalization<Self>,
        grad: FloatTensor<Self>,
    ) -> NormalizationGradients<Self> {
        kernel_or_reference!(grad, F32, reference_batch_norm::adjoint(saved, grad), {
            batch_norm::adjoint(saved, grad)
        })
    }

    fn take_dst_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::take_dst_adjoint(block, grad), {
            stack::pad_rows(grad, block.n_src)
        })
    }
}
