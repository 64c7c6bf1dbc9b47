//! The reference implementations of the ops, differentiated by Burn's automatic differentiation: an oracle for tests.
//! Shapes and semantics are those of [`crate::ops`].

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};
use kiln_sample::{KeyDomain, RngKey};

use crate::device::block::DeviceBlock;
use crate::device::graphs::DeviceSegments;
use crate::ops::aggregation::{self, Aggregation, Reduction};
use crate::ops::attention::{Attention, reference as attention};
use crate::ops::keep::Keep;
use crate::ops::reference;

/// The reference implementation of [`crate::ops::aggregate`].
pub fn aggregate(block: &DeviceBlock, x: Tensor<2>, aggregation: impl Into<Aggregation>) -> Tensor<2> {
    let (weights, form) = aggregation.into().into_parts();
    let block = block.adjacency();
    let x = x.into_dispatch();
    Tensor::from_dispatch(aggregation::aggregate::<Dispatch>(&block, x, &weights, form))
}

/// The reference implementation of [`crate::ops::segment_reduce`].
pub fn segment_reduce(segments: &DeviceSegments, x: Tensor<2>, reduce: Reduction) -> Tensor<2> {
    let (weights, form) = Aggregation::from(reduce).into_parts();
    let edges = segments.adjacency();
    let x = x.into_dispatch();
    Tensor::from_dispatch(aggregation::aggregate::<Dispatch>(&edges, x, &weights, form))
}

/// The reference implementation of [`crate::ops::take_dst`].
pub fn take_dst(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::take_dst::<Dispatch>(&block.adjacency(), x.into_dispatch()))
}

/// The reference implementation of [`crate::ops::linear`].
pub fn linear(base: Tensor<2>, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let x = x.into_dispatch();
    let weight = weight.into_dispatch();
    Tensor::from_dispatch(reference::add_linear::<Dispatch>(base.into_dispatch(), x, weight))
}

/// The reference implementation of [`crate::ops::relu_dropout`].
pub fn relu_dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(reference::relu_dropout::<Dispatch>(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// The reference implementation of [`crate::ops::dropout`].
pub fn dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    let key = key.fold_in(KeyDomain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(reference::dropout::<Dispatch>(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// The reference implementation of [`crate::ops::attention_scores`].
pub fn attention_scores(
    block: &DeviceBlock,
    src: Tensor<2>,
    dst: Tensor<2>,
    weights: Tensor<2>,
    negative_slope: f32,
) -> Tensor<2> {
    let src = src.into_dispatch();
    let dst = dst.into_dispatch();
    let weights = weights.into_dispatch();
    let block = block.adjacency();
    let inputs = Attention::<Dispatch> { block, src, dst, weights, slope: negative_slope };
    Tensor::from_dispatch(attention::scores(&inputs))
}

/// The reference implementation of [`crate::ops::edge_softmax`].
pub fn edge_softmax(block: &DeviceBlock, scores: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(attention::softmax::<Dispatch>(&block.adjacency(), scores.into_dispatch()))
}
