//! The sum of messages with a row per edge on the CPU.

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;

use crate::cpu::aggregate::{by_dst, by_src, transposed};
use crate::cpu::cost::edge_ns;
use crate::cpu::edges::{EdgeRow, fill_edges};
use crate::cpu::rows::{Rows, Segments};
use crate::cpu::sum::{Sum, one};
use crate::cpu::tensor::{contiguous, matrix, rows};
use crate::cpu::term::{ReluOfEdge, WhereAboveZero};
use crate::ops::edge_rows::{EdgeRowsInput, Messages};

/// Computes the sums, `[n_dst, d]`.
pub(super) fn relu_sum(messages: Messages<Flex>) -> FloatTensor<Flex> {
    let Messages { block, x, edge_rows } = messages;
    let x = contiguous(x);
    let edge_rows = contiguous(edge_rows);
    let term = ReluOfEdge { edge_rows: rows(&edge_rows) };
    let sum = Sum::new(by_dst(&block), rows(&x), one).with_term(term);
    matrix(sum.run(), block.n_dst, &x)
}

/// Computes the gradient of one input of the sums.
pub(super) fn relu_sum_adjoint(
    messages: &Messages<Flex>,
    grad: FloatTensor<Flex>,
    input: EdgeRowsInput,
) -> FloatTensor<Flex> {
    let Messages { block, x, edge_rows } = messages;
    let x = contiguous(x.clone());
    let edge_rows = contiguous(edge_rows.clone());
    let grad = contiguous(grad);
    let of_x = rows(&x);
    let of_edges = rows(&edge_rows);
    let grads = rows(&grad);
    match input {
        EdgeRowsInput::Nodes => {
            let edges = transposed(block).edges();
            let term = WhereAboveZero { rows: of_x, edge_rows: of_edges, edges };
            let sum = Sum::new(by_src(block), grads, one).with_term(term);
            matrix(sum.run(), block.n_src, &x)
        }
        EdgeRowsInput::Edges => {
            let segments = by_dst(block);
            let width = x.shape()[1];
            let passed = Passed { segments, of_x, of_edges, grads };
            let values = fill_edges(segments, width, edge_ns(width), &passed);
            matrix(values, block.n_edges, &x)
        }
    }
}

/// The gradient of an edge's row: that of its destination where the message is above 0.
struct Passed<'a> {
    segments: Segments<'a>,
    of_x: Rows<'a>,
    of_edges: Rows<'a>,
    grads: Rows<'a>,
}

impl EdgeRow for Passed<'_> {
    #[inline(always)]
    fn write(&self, row: usize, position: usize, out: &mut [f32]) {
        let Self { segments, of_x, of_edges, grads } = *self;
        let columns = 0..out.len();
        of_x.ask_ahead(segments.items, position, &columns);
        let src = of_x.row(segments.items[position] as usize, &columns);
        let edge = of_edges.row(position, &columns);
        let grad = grads.row(row, &columns);
        for (((out, src), edge), grad) in out.iter_mut().zip(src).zip(edge).zip(grad) {
            *out = if src + edge <= 0.0 { 0.0 } else { *grad };
        }
    }
}
