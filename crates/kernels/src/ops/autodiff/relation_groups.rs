use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use kiln_graph::TypeGroup;

use crate::device::block::Adjacency;
use crate::ops::aggregation::{Form, Input, Saved, Weights};
use crate::ops::autodiff::product::Factors;
use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::edges::zero_rows;
use crate::ops::type_products::{bias_adjoint, weight_adjoint, x_adjoint};

/// The products of [`crate::ops::grouped_linear`], recorded in the autodiff graph.
pub(super) fn grouped_linear<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    types: Arc<[TypeGroup]>,
    bias: FloatTensor<Autodiff<B, C>>,
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let factors = Factors::of::<C>(&x, &weight);
    let nodes = [bias.node(), x.node(), weight.node()];
    let d_in = x.primitive().shape()[1];
    let bias = bias.into_primitive();
    let x = x.into_primitive();
    let weight = weight.into_primitive();
    match GroupedLinearOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::grouped_linear(Arc::clone(&types), bias, x, weight);
            prep.finish(GroupedLinearState { types, d_in, factors }, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::grouped_linear(types, bias, x, weight)),
    }
}

#[derive(Debug)]
struct GroupedLinearOp;

#[derive(Debug, Clone)]
struct GroupedLinearState<B: Backend> {
    types: Arc<[TypeGroup]>,
    d_in: usize,
    factors: Factors<B>,
}

impl<B: BlockAdjoints> Backward<B, 3> for GroupedLinearOp {
    type State = GroupedLinearState<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [bias_node, x_node, weight_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let GroupedLinearState { types, d_in, factors } = ops.state;
        if let (Some(node), Some(weight)) = (x_node, factors.weight) {
            grads.register::<B>(node.id, x_adjoint::<B>(&types, &grad, &weight, d_in, B::linear_x_adjoint));
        }
        if let (Some(node), Some(x)) = (weight_node, factors.x) {
            grads.register::<B>(node.id, weight_adjoint::<B>(&types, &grad, &x, B::linear_weight_adjoint));
        }
        if let Some(node) = bias_node {
            grads.register::<B>(node.id, bias_adjoint::<B>(&types, &grad, B::column_sums));
        }
    }
}

/// The products of [`crate::ops::grouped_transposed`], recorded in the autodiff graph.
pub(super) fn grouped_transposed<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    types: Arc<[TypeGroup]>,
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    d_out: usize,
) -> FloatTensor<Autodiff<B, C>> {
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    match GroupedTransposedOp.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::grouped_transposed(Arc::clone(&types), x.clone(), weight.clone(), d_out);
            prep.finish((types, [x, weight]), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::grouped_transposed(types, x, weight, d_out)),
    }
}

#[derive(Debug)]
struct GroupedTransposedOp;

impl<B: BlockOps + BlockAdjoints> Backward<B, 2> for GroupedTransposedOp {
    /// The types, the rows and the weight.
    type State = (Arc<[TypeGroup]>, [FloatTensor<B>; 2]);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [x_node, weight_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (types, [x, weight]) = ops.state;
        if let Some(node) = weight_node {
            let product = B::linear_weight_adjoint;
            grads.register::<B>(node.id, weight_adjoint::<B>(&types, &x, &grad, product));
        }
        if let Some(node) = x_node {
            let no_bias = zero_rows::<B>(types.len(), &weight);
            grads.register::<B>(node.id, B::grouped_linear(types, no_bias, grad, weight));
        }
    }
}

/// The dot products of [`crate::ops::group_dots`], recorded in the autodiff graph.
pub(super) fn edge_dots<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    block: Adjacency<B>,
    srcs: FloatTensor<Autodiff<B, C>>,
    dsts: FloatTensor<Autodiff<B, C>>,
    n_heads: usize,
) -> FloatTensor<Autodiff<B, C>> {
    let (srcs, srcs_node) = srcs.into_parts();
    let (dsts, dsts_node) = dsts.into_parts();
    let op = EdgeDotsOp { n_heads };
    match op.prepare::<C>([srcs_node, dsts_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::edge_dots(block.clone(), srcs.clone(), dsts.clone(), n_heads);
            prep.finish((block, [srcs, dsts]), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::edge_dots(block, srcs, dsts, n_heads)),
    }
}

/// Each gradient is a sum of the other rows, with the gradients of the dot products as the weights of edges.
#[derive(Debug)]
struct EdgeDotsOp {
    n_heads: usize,
}

impl<B: BlockAdjoints> Backward<B, 2> for EdgeDotsOp {
    /// The edges, and the rows of sources and destinations.
    type State = (Adjacency<B>, [FloatTensor<B>; 2]);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [srcs_node, dsts_node] = ops.parents;
        let weights = Weights::Tensor(grads.consume::<B>(&ops.node));
        let (block, [srcs, dsts]) = ops.state;
        let saved = Saved { weights, ..Saved::new(block, Form::of_heads(self.n_heads)) };
        if let Some(node) = dsts_node {
            let sums = B::aggregate_traced(&saved.block, srcs, &saved.weights, saved.form);
            grads.register::<B>(node.id, sums.values);
        }
        if let Some(node) = srcs_node {
            grads.register::<B>(node.id, B::aggregate_adjoint(&saved, dsts, Input::Rows));
        }
    }
}
