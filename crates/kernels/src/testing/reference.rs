//! The ops as their references run them, with Burn's own automatic differentiation: an oracle for tests.
//! Shapes and meaning are those of [`crate::ops`].

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor};
use kiln_sample::{Domain, RngKey};

use crate::device::block::DeviceBlock;
use crate::device::graphs::DeviceSegments;
use crate::ops::reference;
use crate::ops::{Keep, Reduce};

/// The reference of [`crate::ops::neighbor_sum`].
pub fn neighbor_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_sum::<Dispatch>(&block.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::neighbor_weighted_sum`].
pub fn neighbor_weighted_sum(block: &DeviceBlock, x: Tensor<2>, weights: Tensor<1>) -> Tensor<2> {
    let weights = weights.into_dispatch();
    let sum = reference::neighbor_weighted_sum::<Dispatch>(&block.adjacency(), x.into_dispatch(), weights);
    Tensor::from_dispatch(sum)
}

/// The reference of [`crate::ops::neighbor_mean`].
pub fn neighbor_mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_mean::<Dispatch>(&block.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::neighbor_max`].
pub fn neighbor_max(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_max::<Dispatch>(&block.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::segment_sum`].
pub fn segment_sum(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_sum::<Dispatch>(&segments.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::segment_mean`].
pub fn segment_mean(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_mean::<Dispatch>(&segments.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::segment_max`].
pub fn segment_max(segments: &DeviceSegments, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::neighbor_max::<Dispatch>(&segments.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::own_beside_mean`].
pub fn own_beside_mean(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    let (block, x) = (block.adjacency(), x.into_dispatch());
    Tensor::from_dispatch(reference::own_beside::<Dispatch>(&block, x, Reduce::Mean))
}

/// The reference of [`crate::ops::own_beside_sum`].
pub fn own_beside_sum(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    let (block, x) = (block.adjacency(), x.into_dispatch());
    Tensor::from_dispatch(reference::own_beside::<Dispatch>(&block, x, Reduce::Sum))
}

/// The reference of [`crate::ops::own_plus_sum`].
pub fn own_plus_sum(block: &DeviceBlock, x: Tensor<2>, own_weight: f32) -> Tensor<2> {
    let (block, x) = (block.adjacency(), x.into_dispatch());
    Tensor::from_dispatch(reference::own_plus_sum::<Dispatch>(&block, x, own_weight))
}

/// The reference of [`crate::ops::dst_rows`].
pub fn dst_rows(block: &DeviceBlock, x: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(reference::dst_rows::<Dispatch>(&block.adjacency(), x.into_dispatch()))
}

/// The reference of [`crate::ops::linear`].
pub fn linear(base: Tensor<2>, x: Tensor<2>, weight: Tensor<2>) -> Tensor<2> {
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(reference::add_linear::<Dispatch>(base.into_dispatch(), x, weight))
}

/// The reference of [`crate::ops::relu_dropout`].
pub fn relu_dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    let key = key.fold(Domain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(reference::relu_dropout::<Dispatch>(x.into_dispatch(), nodes, key, Keep::new(p)))
}

/// The reference of [`crate::ops::dropout`].
pub fn dropout(x: Tensor<2>, nodes: &Tensor<1, Int>, key: RngKey, layer: usize, p: f64) -> Tensor<2> {
    let key = key.fold(Domain::Dropout, layer as u64);
    let nodes = nodes.clone().into_dispatch();
    Tensor::from_dispatch(reference::dropout::<Dispatch>(x.into_dispatch(), nodes, key, Keep::new(p)))
}
