use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use kiln_sample::RngKey;

use crate::counts::count_reference;
use crate::device::block::Adjacency;
use crate::ops::reference;
use crate::ops::{AdamStep, Keep, Reduce};

/// The ops that have gradients. The default of each is the reference in stock tensor operations; a
/// backend with something better overrides it.
#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cube"))]
pub(crate) trait BlockOps: Backend {
    fn neighbor_sum(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_sum(&block, x)
    }

    fn neighbor_weighted_sum(
        #[extension_type] block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_weighted_sum(&block, x, weights)
    }

    fn neighbor_mean(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_mean(&block, x)
    }

    fn neighbor_max(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_max(&block, x)
    }

    fn own_beside(
        #[extension_type] block: Adjacency<Self>,
        x: FloatTensor<Self>,
        reduce: Reduce,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::own_beside(&block, x, reduce)
    }

    fn own_plus_sum(
        #[extension_type] block: Adjacency<Self>,
        x: FloatTensor<Self>,
        own_weight: f32,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::own_plus_sum(&block, x, own_weight)
    }

    fn dst_rows(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::dst_rows(&block, x)
    }

    /// `[n_dst, d] -> [n_src, d]`: what [`BlockOps::neighbor_sum`] is the adjoint of.
    fn expand(#[extension_type] block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        count_reference();
        reference::neighbor_sum_adjoint(&block, x)
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

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::add_linear::<Self>(base, x, weight)
    }

    fn decayed_mean(means: FloatTensor<Self>, values: FloatTensor<Self>, decay: f32) -> FloatTensor<Self> {
        count_reference();
        reference::decayed_mean::<Self>(means, values, decay)
    }

    fn decayed_mean_square(
        means: FloatTensor<Self>,
        values: FloatTensor<Self>,
        decay: f32,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::decayed_mean_square::<Self>(means, values, decay)
    }

    fn adam_parameters(
        values: FloatTensor<Self>,
        means: FloatTensor<Self>,
        mean_squares: FloatTensor<Self>,
        step: AdamStep,
    ) -> FloatTensor<Self> {
        count_reference();
        reference::adam_parameters::<Self>(values, means, mean_squares, step)
    }
}
