//! The ops as CubeCL kernels, for every device that CubeCL has a runtime for.
//!
//! One kernel, or a few that belong together, stands in a file with what launches it. What has no kernel here runs as the
//! reference in Burn's own operations, on the device too.

mod adam;
mod by_source;
mod dense;
mod dropout;
mod edge_dots;
mod features;
mod graph;
mod launch;
#[cfg(feature = "nccl")]
mod nccl;
mod philox;
mod pick;
mod relabel;
mod scan;
mod segment_max;
mod segment_sum;
mod staged;

pub(crate) use by_source::Transposed;
pub(crate) use features::{FeatureRows, row_bytes};
pub(crate) use graph::{Graph, HopArrays, HopError, anchor, float_tensor, int_tensor};
#[cfg(feature = "nccl")]
pub use nccl::NcclSum;
pub(crate) use staged::{Staged, StagedError, check_fanout};

use burn::backend::Dispatch;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use kiln_sample::RngKey;

use crate::DeviceError;
use crate::adjoint::{ArgMax, BlockAdjoints};
use crate::block::Adjacency;
use crate::by_source::BySource;
use crate::cube::launch::Rows;
use crate::cube::segment_sum::{Factor, Own, SegmentSum, Segments};
use crate::extension::BlockOps;
use crate::launch::{count_direct, count_reference};
use crate::ops::{AdamStep, Keep, Reduce};
use crate::reference;

/// Runs the kernel for element types that it has, and the reference for others.
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
    fn neighbor_sum(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::neighbor_sum(&block, x), by_dst(&block).sum_of(x).launch())
    }

    fn neighbor_weighted_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::neighbor_weighted_sum(&block, x, weights), {
            let factor = Factor::OfPosition(into_contiguous(weights));
            SegmentSum { factor, ..by_dst(&block).sum_of(x) }.launch()
        })
    }

    fn neighbor_mean(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::neighbor_mean(&block, x), {
            SegmentSum { is_mean: true, ..by_dst(&block).sum_of(x) }.launch()
        })
    }

    fn neighbor_max(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::neighbor_max(&block, x), {
            segment_max::segment_max(&by_dst(&block), x, false).0
        })
    }

    fn own_beside(block: Adjacency<Self>, x: FloatTensor<Self>, reduce: Reduce) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::own_beside(&block, x, reduce), {
            let is_mean = reduce == Reduce::Mean;
            SegmentSum { is_mean, own: Own::Beside, ..by_dst(&block).sum_of(x) }.launch()
        })
    }

    fn own_plus_sum(block: Adjacency<Self>, x: FloatTensor<Self>, own_weight: f32) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::own_plus_sum(&block, x, own_weight), {
            let own = Own::Plus { weight: own_weight, n_segments: block.n_dst };
            SegmentSum { own, ..by_dst(&block).sum_of(x) }.launch()
        })
    }

    fn dst_rows(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        // Burn's own slice: a view where the memory's alignment allows it.
        count_direct();
        reference::dst_rows(&block, x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::neighbor_sum_adjoint(&block, x)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::dropout::<Self>(x, nodes, key, keep), {
            dropout::dropout(x, nodes, key, keep, false)
        })
    }

    fn relu_dropout(
        x: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(x, reference::relu_dropout::<Self>(x, nodes, key, keep), {
            dropout::dropout(x, nodes, key, keep, true)
        })
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

    fn decayed_mean(means: FloatTensor<Self>, values: FloatTensor<Self>, decay: f32) -> FloatTensor<Self> {
        kernel_or_reference!(means, F32, reference::decayed_mean::<Self>(means, values, decay), {
            adam::decayed(means, values, decay, false)
        })
    }

    fn decayed_mean_square(
        means: FloatTensor<Self>,
        values: FloatTensor<Self>,
        decay: f32,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(means, F32, reference::decayed_mean_square::<Self>(means, values, decay), {
            adam::decayed(means, values, decay, true)
        })
    }

    fn adam_parameters(
        values: FloatTensor<Self>,
        means: FloatTensor<Self>,
        mean_squares: FloatTensor<Self>,
        step: AdamStep,
    ) -> FloatTensor<Self> {
        let stock = reference::adam_parameters::<Self>;
        kernel_or_reference!(values, F32, stock(values, means, mean_squares, step), {
            adam::parameters(values, means, mean_squares, &step)
        })
    }
}

impl BlockAdjoints for CubeBackend {
    fn neighbor_sum_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::neighbor_sum_adjoint(block, grad), {
            by_src(block).sum_of(grad).launch()
        })
    }

    fn neighbor_weighted_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::neighbor_weighted_sum_adjoint(block, grad, weights), {
            let edges = transposed(block).edges.clone();
            let factor = Factor::OfEdge { weights: into_contiguous(weights), edges };
            SegmentSum { factor, ..by_src(block).sum_of(grad) }.launch()
        })
    }

    fn edge_dots(
        block: &Adjacency<Self>,
        x: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(
            x,
            reference::edge_dots(block, x, grad),
            edge_dots::edge_dots(&by_dst(block), x, grad)
        )
    }

    fn neighbor_mean_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::neighbor_mean_adjoint(block, grad), {
            SegmentSum { factor: share(block), ..by_src(block).sum_of(grad) }.launch()
        })
    }

    fn own_beside_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        reduce: Reduce,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::own_beside_adjoint(block, grad, reduce), {
            let factor = match reduce {
                Reduce::Sum => Factor::One,
                Reduce::Mean => share(block),
            };
            let own = Own::Plus { weight: 1.0, n_segments: block.n_dst };
            let sum = by_src(block).sum_of(grad);
            let (_, both) = sum.columns;
            SegmentSum { columns: (both / 2, both / 2), factor, own, ..sum }.launch()
        })
    }

    fn own_plus_sum_adjoint(
        block: &Adjacency<Self>,
        grad: FloatTensor<Self>,
        own_weight: f32,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::own_plus_sum_adjoint(block, grad, own_weight), {
            let own = Own::Plus { weight: own_weight, n_segments: block.n_dst };
            SegmentSum { own, ..by_src(block).sum_of(grad) }.launch()
        })
    }

    fn neighbor_argmax(block: &Adjacency<Self>, x: FloatTensor<Self>) -> ArgMax<Self> {
        kernel_or_reference!(x, reference::neighbor_argmax(block, x), {
            let (values, edges) = segment_max::segment_max(&by_dst(block), x, true);
            ArgMax { values, edges }
        })
    }

    fn neighbor_max_adjoint(
        block: &Adjacency<Self>,
        edges: IntTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::neighbor_max_adjoint(block, edges, grad), {
            segment_max::segment_max_adjoint(&by_src(block), &transposed(block).edges, edges, grad)
        })
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

    fn linear_x_adjoint(grad: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::linear_x_adjoint::<Self>(grad, weight), {
            dense::product(grad, Self::float_transpose(weight))
        })
    }

    fn linear_weight_adjoint(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        kernel_or_reference!(grad, reference::linear_weight_adjoint::<Self>(x, grad), {
            dense::product(Self::float_transpose(x), grad)
        })
    }

    fn row_sum(grad: FloatTensor<Self>) -> FloatTensor<Self> {
        // Burn's own.
        count_direct();
        reference::row_sum::<Self>(grad)
    }

    fn dst_rows_adjoint(block: &Adjacency<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        count_direct();
        reference::dst_rows_adjoint(block, grad)
    }
}

fn by_dst(block: &Adjacency<CubeBackend>) -> Segments {
    Segments {
        indptr: block.indptr.clone(),
        items: block.indices.clone(),
        n_segments: block.n_dst,
        n_positions: block.n_edges,
    }
}

fn by_src(block: &Adjacency<CubeBackend>) -> Segments {
    let transposed = transposed(block);
    Segments {
        indptr: transposed.indptr.clone(),
        items: transposed.dsts.clone(),
        n_segments: block.n_src,
        n_positions: block.n_edges,
    }
}

/// What a destination's row is multiplied by on the way back from its mean.
fn share(block: &Adjacency<CubeBackend>) -> Factor {
    Factor::Share { indptr: block.indptr.clone() }
}

impl Segments {
    /// The plain sum of all columns.
    fn sum_of(self, x: CubeTensor) -> SegmentSum {
        let rows = Rows::of(x);
        let columns = (0, rows.width());
        SegmentSum { segments: self, rows, columns, factor: Factor::One, is_mean: false, own: Own::Nothing }
    }
}

/// Waits until the device has written a tensor; of other devices' tensors nothing has to be waited for.
///
/// # Errors
/// [`DeviceError::Failed`].
pub(crate) fn finish(tensor: &Tensor<2>) -> Result<(), DeviceError> {
    tensor.clone().try_into_primitive::<CubeBackend>().map_or(Ok(()), |tensor| launch::finish(&tensor))
}

/// Bytes of the memory that a tensor keeps, of which it may be a part; `None` of other devices' tensors.
pub(crate) fn n_bytes_kept(tensor: &Tensor<1, Int>) -> Option<usize> {
    let array = tensor.clone().try_into_primitive::<CubeBackend>().ok()?;
    Some(array.handle.size() as usize)
}

/// Copies the list that a block carries to the block's device, if that is one of ours, where a gradient will ask for it.
pub(crate) fn upload_by_source(indptr: &Tensor<1, Int>, by_source: &BySource) {
    if by_source.host().is_some()
        && let Ok(indptr) = indptr.clone().try_into_primitive::<CubeBackend>()
    {
        by_source
            .device_or(|host| Transposed::upload(&indptr, host.expect("the list should still be there")));
    }
}

/// The edges of a block on a device by source, listed there, as the arrays of [`kiln_graph::Transposed`]; `None` where it
/// is on another device.
pub(crate) fn read_by_source(block: Adjacency<Dispatch>) -> Option<[Vec<u32>; 3]> {
    let array = |tensor| Tensor::<1, Int>::from_dispatch(tensor).try_into_primitive::<CubeBackend>().ok();
    let (indptr, indices) = (array(block.indptr)?, array(block.indices)?);
    Some(Transposed::list(&indptr, &indices, block.n_src).read())
}

/// The edges by source: the host's list where the block carries one, otherwise listed on the device.
fn transposed(block: &Adjacency<CubeBackend>) -> &Transposed {
    block.by_source.device_or(|host| match host {
        Some(list) => Transposed::upload(&block.indptr, list),
        None => Transposed::list(&block.indptr, &block.indices, block.n_src),
    })
}
