//! The ops on Flex, Burn's CPU backend: loops over the tensors' own memory.
//!
//! Other element types than f32 go through the reference.

mod dense;
mod dropout;
mod fill;
mod segment;

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, TensorData};
use kiln_sample::RngKey;

use crate::adjoint::{ArgMax, BlockAdjoints};
use crate::block::Adjacency;
use crate::extension::BlockOps;
use crate::flex::segment::{Rows, Segments};
use crate::launch::{count_direct, count_reference};
use crate::ops::Keep;
use crate::reference;

/// Runs the direct body for f32 tensors and the reference for others.
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
    fn neighbor_sum(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_sum(&block, x), {
            let x = contiguous(x);
            matrix(segment::sum(by_dst(&block), rows(&x), |_, _| 1.0, false), block.n_dst, &x)
        })
    }

    fn neighbor_weighted_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_weighted_sum(&block, x, weights), {
            let (x, weights) = (contiguous(x), contiguous(weights));
            let weights = floats(&weights);
            matrix(segment::sum(by_dst(&block), rows(&x), |edge, _| weights[edge], false), block.n_dst, &x)
        })
    }

    fn neighbor_mean(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_mean(&block, x), {
            let x = contiguous(x);
            matrix(segment::sum(by_dst(&block), rows(&x), |_, _| 1.0, true), block.n_dst, &x)
        })
    }

    fn neighbor_max(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_max(&block, x), {
            let x = contiguous(x);
            matrix(segment::max(by_dst(&block), rows(&x)), block.n_dst, &x)
        })
    }

    fn dst_rows(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        // On Flex a slice of the first rows is a view of the same memory.
        count_direct();
        reference::dst_rows(&block, x)
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

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::add_linear::<Self>(base, x, weight), {
            let (x, weight) = (contiguous(x), contiguous(weight));
            let n_rows = x.shape()[0];
            if base.shape()[0] == n_rows {
                in_place(base, |sum, _| dense::add_product(sum, dense_matrix(&x), dense_matrix(&weight)))
            } else {
                let base = contiguous(base);
                let row = floats(&base);
                let mut sum = fill::copied_rows(n_rows, row.len(), |_, columns| Some(&row[columns]));
                dense::add_product(&mut sum, dense_matrix(&x), dense_matrix(&weight));
                matrix(sum, n_rows, &base)
            }
        })
    }
}

impl BlockAdjoints for Flex {
    fn neighbor_sum_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_sum_adjoint(block, grad), {
            let grad = contiguous(grad);
            matrix(segment::sum(by_src(block), rows(&grad), |_, _| 1.0, false), block.n_src, &grad)
        })
    }

    fn neighbor_weighted_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_weighted_sum_adjoint(block, grad, weights), {
            let (grad, weights) = (contiguous(grad), contiguous(weights));
            let (edges, weights) = (ints(&block.out_edges), floats(&weights));
            let weight = |position: usize, _| weights[edges[position] as usize];
            matrix(segment::sum(by_src(block), rows(&grad), weight, false), block.n_src, &grad)
        })
    }

    fn edge_dots(
        block: &Adjacency<Self>,
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::edge_dots(block, x, grad), {
            let (x, grad) = (contiguous(x), contiguous(grad));
            let dots = segment::edge_dots(by_dst(block), rows(&x), rows(&grad));
            FloatTensor::<Self>::from_data(TensorData::new(dots, [block.n_edges]))
        })
    }

    fn neighbor_mean_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_mean_adjoint(block, grad), {
            let grad = contiguous(grad);
            let starts = ints(&block.indptr);
            let share = |_, dst: usize| 1.0 / (starts[dst + 1] - starts[dst]) as f32;
            matrix(segment::sum(by_src(block), rows(&grad), share, false), block.n_src, &grad)
        })
    }

    fn neighbor_argmax(block: &Adjacency<Self>, x: FloatTensor<Self>) -> ArgMax<Self> {
        direct_or_reference!(x, reference::neighbor_argmax(block, x), {
            let x = contiguous(x);
            let (values, edges) = segment::argmax(by_dst(block), rows(&x));
            let shape = [block.n_dst, x.shape()[1]];
            ArgMax {
                values: matrix(values, block.n_dst, &x),
                edges: IntTensor::<Self>::from_data(TensorData::new(edges, shape)),
            }
        })
    }

    fn neighbor_max_adjoint(
        block: &Adjacency<Self>,
        edges: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_max_adjoint(block, edges, grad), {
            let grad = contiguous(grad);
            let values =
                segment::max_adjoint(by_src(block), ints(&block.out_edges), ints(&edges), rows(&grad));
            matrix(values, block.n_src, &grad)
        })
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

    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::linear_x_adjoint::<Self>(grad, weight), {
            let (grad, weight) = (contiguous(grad), contiguous(weight));
            let values = dense::product(dense_matrix(&grad), dense_matrix(&weight).transposed());
            FloatTensor::<Self>::from_data(TensorData::new(values, [grad.shape()[0], weight.shape()[0]]))
        })
    }

    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::linear_weight_adjoint::<Self>(x, grad), {
            let (x, grad) = (contiguous(x), contiguous(grad));
            let values = dense::product(dense_matrix(&x).transposed(), dense_matrix(&grad));
            matrix(values, x.shape()[1], &grad)
        })
    }

    fn row_sum(grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::row_sum::<Self>(grad), {
            let grad = contiguous(grad);
            matrix(dense::column_sums(floats(&grad), grad.shape()[1]), 1, &grad)
        })
    }

    fn dst_rows_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::dst_rows_adjoint(block, grad), {
            let grad = contiguous(grad);
            let given = rows(&grad);
            let own = |row, columns| (row < block.n_dst).then(|| given.row(row, &columns));
            matrix(fill::copied_rows(block.n_src, given.width, own), block.n_src, &grad)
        })
    }
}

/// The tensor with its values one after the other; copies only if they are not.
fn contiguous(x: FloatTensor<Flex>) -> FloatTensor<Flex> {
    if x.as_slice::<f32>().is_some() { x } else { x.to_contiguous() }
}

/// Changes the tensor's values where they are, or in a copy if something else refers to them. `change`
/// is given the values, row by row, and the width of a row.
fn in_place(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32], usize)) -> FloatTensor<Flex> {
    let [n_rows, width] = x.shape().dims();
    let mut x = contiguous(x);
    // A view of a part of a larger tensor is copied, so that the rest is left alone and not kept.
    let is_whole = x.storage::<f32>().len() == n_rows * width;
    match x.try_storage_mut::<f32>().filter(|_| is_whole) {
        Some(values) => {
            change(values, width);
            x
        }
        None => {
            let mut values = floats(&x).to_vec();
            change(&mut values, width);
            matrix(values, n_rows, &x)
        }
    }
}

fn dense_matrix(x: &FloatTensor<Flex>) -> dense::Matrix<'_> {
    dense::Matrix::new(floats(x), x.shape().dims())
}

fn floats(x: &FloatTensor<Flex>) -> &[f32] {
    x.as_slice().expect("the tensor should be contiguous f32")
}

fn ints(x: &IntTensor<Flex>) -> &[i32] {
    x.as_slice().expect("a block's index tensors should be contiguous i32")
}

fn node_ids(x: &IntTensor<Flex>) -> &[u32] {
    x.as_slice().expect("node ids should be contiguous u32")
}

/// A matrix of rows as wide as the given one's.
fn matrix(values: Vec<f32>, n_rows: usize, like: &FloatTensor<Flex>) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, [n_rows, like.shape()[1]]))
}

fn rows(x: &FloatTensor<Flex>) -> Rows<'_> {
    Rows { values: floats(x), width: x.shape()[1] }
}

fn by_dst(block: &Adjacency<Flex>) -> Segments<'_> {
    Segments { indptr: ints(&block.indptr), items: ints(&block.indices) }
}

fn by_src(block: &Adjacency<Flex>) -> Segments<'_> {
    Segments { indptr: ints(&block.out_indptr), items: ints(&block.out_dsts) }
}
