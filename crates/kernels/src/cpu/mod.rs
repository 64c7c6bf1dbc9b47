//! The ops on Flex, Burn's CPU backend: loops over the tensors' own memory.
//!
//! Other element types than f32 go through the reference.

mod adam;
mod dense;
mod dropout;
mod fill;
mod segment;
mod sum;
mod tasks;
mod vector;

use burn::backend::Flex;
use burn::backend::TensorMetadata;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, TensorData};
use bytemuck::cast_slice;
use kiln_graph::Transposed;
use kiln_sample::RngKey;

use crate::counts::{count_direct, count_reference};
use crate::cpu::segment::{Rows, Segments};
use crate::cpu::sum::{Sum, sum, weighted_sum};
use crate::device::block::Adjacency;
use crate::ops::adjoint::{ArgMax, BlockAdjoints};
use crate::ops::backend::BlockOps;
use crate::ops::reference;
use crate::ops::{AdamStep, Keep, Reduce};

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
            summed(block.n_dst, sum(by_dst(&block), rows(&x)))
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
            let factor = |edge: usize, _| weights[edge];
            summed(block.n_dst, weighted_sum(by_dst(&block), rows(&x), factor))
        })
    }

    fn neighbor_mean(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_mean(&block, x), {
            let x = contiguous(x);
            summed(block.n_dst, sum(by_dst(&block), rows(&x)).mean())
        })
    }

    fn neighbor_max(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::neighbor_max(&block, x), {
            let x = contiguous(x);
            matrix(segment::max(by_dst(&block), rows(&x)), block.n_dst, &x)
        })
    }

    fn own_beside(block: Adjacency<Self>, x: FloatTensor<Self>, reduce: Reduce) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::own_beside(&block, x, reduce), {
            let x = contiguous(x);
            let sum = sum(by_dst(&block), rows(&x)).beside(rows(&x));
            summed(block.n_dst, if reduce == Reduce::Mean { sum.mean() } else { sum })
        })
    }

    fn own_plus_sum(block: Adjacency<Self>, x: FloatTensor<Self>, own_weight: f32) -> FloatTensor<Self> {
        direct_or_reference!(x, reference::own_plus_sum(&block, x, own_weight), {
            let x = contiguous(x);
            summed(block.n_dst, sum(by_dst(&block), rows(&x)).plus(rows(&x), block.n_dst, own_weight))
        })
    }

    fn dst_rows(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        // On Flex a slice of the first rows is a view of the same memory.
        count_direct();
        reference::dst_rows(&block, x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::neighbor_sum_adjoint(&block, x)
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
                matrix(dense::add_row(row, dense_matrix(&x), dense_matrix(&weight)), n_rows, &base)
            }
        })
    }

    fn decayed_mean(means: FloatTensor<Self>, values: FloatTensor<Self>, decay: f32) -> FloatTensor<Self> {
        direct_or_reference!(means, reference::decayed_mean::<Self>(means, values, decay), {
            let values = contiguous(values);
            changed(means, |means| adam::decayed_mean(means, floats(&values), decay))
        })
    }

    fn decayed_mean_square(
        means: FloatTensor<Self>,
        values: FloatTensor<Self>,
        decay: f32,
    ) -> FloatTensor<Self> {
        direct_or_reference!(means, reference::decayed_mean_square::<Self>(means, values, decay), {
            let values = contiguous(values);
            changed(means, |means| adam::decayed_mean_square(means, floats(&values), decay))
        })
    }

    fn adam_parameters(
        values: FloatTensor<Self>,
        means: FloatTensor<Self>,
        mean_squares: FloatTensor<Self>,
        step: AdamStep,
    ) -> FloatTensor<Self> {
        direct_or_reference!(values, reference::adam_parameters::<Self>(values, means, mean_squares, step), {
            let (means, squares) = (contiguous(means), contiguous(mean_squares));
            changed(values, |values| adam::parameters(values, floats(&means), floats(&squares), &step))
        })
    }
}

impl BlockAdjoints for Flex {
    fn neighbor_sum_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_sum_adjoint(block, grad), {
            let grad = contiguous(grad);
            summed(block.n_src, sum(by_src(block), rows(&grad)))
        })
    }

    fn neighbor_weighted_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::neighbor_weighted_sum_adjoint(block, grad, weights), {
            let (grad, weights) = (contiguous(grad), contiguous(weights));
            let (edges, weights) = (transposed(block).edges(), floats(&weights));
            let factor = |position: usize, _| weights[edges[position] as usize];
            summed(block.n_src, weighted_sum(by_src(block), rows(&grad), factor))
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
            let factor = share(block);
            summed(block.n_src, weighted_sum(by_src(block), rows(&grad), factor))
        })
    }

    fn own_beside_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        reduce: Reduce,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::own_beside_adjoint(block, grad, reduce), {
            let grad = contiguous(grad);
            let (left, right) = halves(&grad);
            let (sum, shares) = (sum(by_src(block), right), weighted_sum(by_src(block), right, share(block)));
            match reduce {
                Reduce::Sum => summed(block.n_src, sum.plus(left, block.n_dst, 1.0)),
                Reduce::Mean => summed(block.n_src, shares.plus(left, block.n_dst, 1.0)),
            }
        })
    }

    fn own_plus_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        own_weight: f32,
    ) -> FloatTensor<Self> {
        direct_or_reference!(grad, reference::own_plus_sum_adjoint(block, grad, own_weight), {
            let grad = contiguous(grad);
            summed(block.n_src, sum(by_src(block), rows(&grad)).plus(rows(&grad), block.n_dst, own_weight))
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
                segment::max_adjoint(by_src(block), transposed(block).edges(), ints(&edges), rows(&grad));
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
            let values = dense::weight_gradient(dense_matrix(&x), dense_matrix(&grad));
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

/// Changes the tensor's values where they are, or in a copy if something else refers to them.
fn changed(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32])) -> FloatTensor<Flex> {
    let mut x = contiguous(x);
    // A view of a part of a larger tensor is copied, so that the rest is left alone and not kept.
    let is_whole = x.storage::<f32>().len() == x.shape().num_elements();
    match x.try_storage_mut::<f32>().filter(|_| is_whole) {
        Some(values) => {
            change(values);
            x
        }
        None => {
            let mut values = floats(&x).to_vec();
            change(&mut values);
            FloatTensor::<Flex>::from_data(TensorData::new(values, x.shape()))
        }
    }
}

/// The same for a matrix: `change` is given the values, row by row, and the width of a row.
fn in_place(x: FloatTensor<Flex>, change: impl FnOnce(&mut [f32], usize)) -> FloatTensor<Flex> {
    let width = x.shape()[1];
    changed(x, |values| change(values, width))
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

/// A matrix of the sums.
fn summed<F: Fn(usize, usize) -> f32 + Copy + Sync>(n_rows: usize, sum: Sum<'_, F>) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(sum.run(), [n_rows, sum.width()]))
}

/// What a destination's row is multiplied by on the way back from its mean.
fn share(block: &Adjacency<Flex>) -> impl Fn(usize, usize) -> f32 + Copy + Sync {
    let starts = ints(&block.indptr);
    |_, dst| 1.0 / (starts[dst + 1] - starts[dst]) as f32
}

fn rows(x: &FloatTensor<Flex>) -> Rows<'_> {
    let width = x.shape()[1];
    Rows::new(floats(x), 0, width, width)
}

/// The first half of the columns, and the second.
fn halves(x: &FloatTensor<Flex>) -> (Rows<'_>, Rows<'_>) {
    let stride = x.shape()[1];
    let half = |first| Rows::new(floats(x), first, stride / 2, stride);
    (half(0), half(stride / 2))
}

fn by_dst(block: &Adjacency<Flex>) -> Segments<'_> {
    Segments { indptr: ints(&block.indptr), items: ints(&block.indices) }
}

fn by_src(block: &Adjacency<Flex>) -> Segments<'_> {
    let transposed = transposed(block);
    Segments { indptr: cast_slice(transposed.indptr()), items: cast_slice(transposed.dsts()) }
}

fn transposed(block: &Adjacency<Flex>) -> &Transposed {
    let list = || {
        Transposed::of_edges(cast_slice(ints(&block.indptr)), cast_slice(ints(&block.indices)), block.n_src)
    };
    block.by_source.host_or(list)
}
