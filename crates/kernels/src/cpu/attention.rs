//! The ops of attention layers on the CPU.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::TensorData;
use kiln_sample::RngKey;

use crate::cpu::aggregate::{by_dst, by_src, transposed};
use crate::cpu::columns::PerHead;
use crate::cpu::cost::{DRAW_NS, EXP_NS, PASS_NS, edge_ns};
use crate::cpu::dense::column_sums;
use crate::cpu::edges::{EdgeRow, SegmentRows, fill_edges, fill_segments};
use crate::cpu::rows::{Rows, Segments};
use crate::cpu::sum::Sum;
use crate::cpu::tasks::in_tasks;
use crate::cpu::tensor::{contiguous, floats, in_place, matrix, rows};
use crate::cpu::term::{LeakySum, SlopeOfSum, leaky_relu};
use crate::device::block::Adjacency;
use crate::ops::attention::{Attention, AttentionInput};
use crate::ops::keep::Keep;

/// Computes the scores, `[n_edges, n_heads]`.
pub(super) fn scores(inputs: Attention<Flex>) -> FloatTensor<Flex> {
    let Attention { block, src, dst, weights, slope } = inputs;
    let src = contiguous(src);
    let dst = contiguous(dst);
    let weights = contiguous(weights);
    let [n_heads, width] = weights.shape().dims();
    let segments = by_dst(&block);
    let scores =
        Scores { segments, src: rows(&src), dst: rows(&dst), weights: floats(&weights), width, slope };
    let values = fill_edges(segments, n_heads, edge_ns(n_heads * width), &scores);
    FloatTensor::<Flex>::from_data(TensorData::new(values, [block.n_edges, n_heads]))
}

struct Scores<'a> {
    segments: Segments<'a>,
    src: Rows<'a>,
    dst: Rows<'a>,
    weights: &'a [f32],
    width: usize,
    slope: f32,
}

impl EdgeRow for Scores<'_> {
    #[inline(always)]
    fn write(&self, row: usize, position: usize, out: &mut [f32]) {
        let Self { segments, src, dst, weights, width, slope } = *self;
        let columns = 0..src.width;
        src.ask_ahead(segments.items, position, &columns);
        let src = src.row(segments.items[position] as usize, &columns);
        let dst = dst.row(row, &columns);
        for (head, out) in out.iter_mut().enumerate() {
            let range = head * width..(head + 1) * width;
            *out = weighted_sum(&src[range.clone()], &dst[range.clone()], &weights[range], slope);
        }
    }
}

/// Returns the sum of `weights[c] * leaky_relu(one[c] + other[c])`, computed as sixteen partial sums that are added in a
/// fixed order.
#[inline(always)]
fn weighted_sum(one: &[f32], other: &[f32], weights: &[f32], slope: f32) -> f32 {
    let mut sums = [0.0_f32; 16];
    let ones = one.chunks_exact(16);
    let others = other.chunks_exact(16);
    let factors = weights.chunks_exact(16);
    let ends = ones.remainder().iter().zip(others.remainder()).zip(factors.remainder());
    let rest: f32 = ends.map(|((a, b), factor)| factor * leaky_relu(a + b, slope)).sum();
    for ((a, b), factors) in ones.zip(others).zip(factors) {
        for lane in 0..16 {
            sums[lane] += factors[lane] * leaky_relu(a[lane] + b[lane], slope);
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Computes the gradient of one input of the scores.
pub(super) fn scores_adjoint(
    inputs: &Attention<Flex>,
    grad: FloatTensor<Flex>,
    input: AttentionInput,
) -> FloatTensor<Flex> {
    let Attention { block, src, dst, weights, slope } = inputs;
    let [n_heads, width] = weights.shape().dims();
    let src = contiguous(src.clone());
    let dst = contiguous(dst.clone());
    let grad = contiguous(grad);
    let weights = contiguous(weights.clone());
    let grads = floats(&grad);
    let slope = *slope;
    let of_edge = |edge: usize, _, head| grads[edge * n_heads + head];
    let columns = PerHead(n_heads);
    match input {
        AttentionInput::Src => {
            let edges = transposed(block).edges();
            let term = SlopeOfSum { rows: rows(&src), slope };
            let sum = Sum::new(by_src(block), rows(&dst), |position: usize, _, head| {
                grads[edges[position] as usize * n_heads + head]
            })
            .with_columns(columns)
            .with_term(term);
            matrix(scaled(sum.run(), floats(&weights)), block.n_src, &src)
        }
        AttentionInput::Dst => {
            let term = SlopeOfSum { rows: rows(&dst), slope };
            let sum = Sum::new(by_dst(block), rows(&src), of_edge).with_columns(columns).with_term(term);
            matrix(scaled(sum.run(), floats(&weights)), block.n_dst, &dst)
        }
        AttentionInput::Weights => {
            let term = LeakySum { rows: rows(&dst), slope };
            let sum = Sum::new(by_dst(block), rows(&src), of_edge).with_columns(columns).with_term(term);
            let values = column_sums(&sum.run(), n_heads * width);
            FloatTensor::<Flex>::from_data(TensorData::new(values, [n_heads, width]))
        }
    }
}

/// Multiplies each row by `factors`.
fn scaled(mut values: Vec<f32>, factors: &[f32]) -> Vec<f32> {
    let width = factors.len().max(1);
    in_tasks(&mut values, width, PASS_NS, |_, values| {
        for row in values.chunks_exact_mut(width) {
            row.iter_mut().zip(factors).for_each(|(value, factor)| *value *= factor);
        }
    });
    values
}

/// Computes the softmax over the edges of each destination.
pub(super) fn softmax(block: &Adjacency<Flex>, scores: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let scores = contiguous(scores);
    let n_heads = scores.shape()[1];
    let softmax = Softmax { scores: floats(&scores), n_heads };
    let values = fill_segments(by_dst(block), n_heads, EXP_NS, &softmax);
    matrix(values, block.n_edges, &scores)
}

struct Softmax<'a> {
    scores: &'a [f32],
    n_heads: usize,
}

impl SegmentRows for Softmax<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        let n_heads = self.n_heads;
        let scores = &self.scores[first * n_heads..][..out.len()];
        for head in 0..n_heads {
            let of_head = || scores.iter().skip(head).step_by(n_heads);
            // A NaN is larger than all values, so that it reaches the result.
            let largest = of_head().fold(f32::NEG_INFINITY, |a, &b| if a < b || b.is_nan() { b } else { a });
            let mut sum = 0.0;
            for (out, score) in out.iter_mut().skip(head).step_by(n_heads).zip(of_head()) {
                *out = (score - largest).exp();
                sum += *out;
            }
            out.iter_mut().skip(head).step_by(n_heads).for_each(|out| *out /= sum);
        }
    }
}

/// Computes the gradient of the softmax from its result.
pub(super) fn softmax_adjoint(
    block: &Adjacency<Flex>,
    output: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
) -> FloatTensor<Flex> {
    let output = contiguous(output);
    let grad = contiguous(grad);
    let n_heads = output.shape()[1];
    let adjoint = SoftmaxAdjoint { output: floats(&output), grad: floats(&grad), n_heads };
    matrix(fill_segments(by_dst(block), n_heads, PASS_NS, &adjoint), block.n_edges, &output)
}

struct SoftmaxAdjoint<'a> {
    output: &'a [f32],
    grad: &'a [f32],
    n_heads: usize,
}

impl SegmentRows for SoftmaxAdjoint<'_> {
    fn write(&self, _: usize, first: usize, out: &mut [f32]) {
        let n_heads = self.n_heads;
        let [output, grad] = [self.output, self.grad].map(|rows| &rows[first * n_heads..][..out.len()]);
        for head in 0..n_heads {
            let edges = || (head..out.len()).step_by(n_heads);
            let mean: f32 = edges().map(|i| output[i] * grad[i]).sum();
            for i in (head..out.len()).step_by(n_heads) {
                out[i] = output[i] * (grad[i] - mean);
            }
        }
    }
}

/// Masks the rows of edges, in place if no other tensor refers to them.
pub(super) fn edge_dropout(
    x: FloatTensor<Flex>,
    edge_ids: &IntTensor<Flex>,
    key: RngKey,
    keep: Keep,
) -> FloatTensor<Flex> {
    let ids: &[i64] = edge_ids.as_slice().expect("edge ids should be contiguous i64");
    in_place(x, |values, width| {
        if width == 0 {
            return;
        }
        in_tasks(values, width, DRAW_NS, |start, values| {
            for (row, &edge) in values.chunks_exact_mut(width).zip(&ids[start / width..]) {
                for (column, value) in row.iter_mut().enumerate() {
                    *value *= keep.edge_factor(key, edge, column as u32);
                }
            }
        });
    })
}
