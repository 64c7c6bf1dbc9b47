use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata};
use kiln_graph::TypeGroup;

use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::type_products::{bias_adjoint, weight_adjoint, x_adjoint};

/// The products of [`crate::ops::grouped_linear`], recorded in the autodiff graph.
pub(super) fn grouped_linear<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    types: Arc<[TypeGroup]>,
    bias: FloatTensor<Autodiff<B, C>>,
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    // The gradient of each input reads the other one, so an input is saved only if the other one is tracked.
    let kept_x = weight.is_tracked().then(|| x.primitive().clone());
    let kept_weight = x.is_tracked().then(|| weight.primitive().clone());
    let nodes = [bias.node(), x.node(), weight.node()];
    let d_in = x.primitive().shape()[1];
    let (bias, x, weight) = (bias.into_primitive(), x.into_primitive(), weight.into_primitive());
    match GroupedLinearOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::grouped_linear(Arc::clone(&types), bias, x, weight);
            prep.finish(GroupedLinearState { types, d_in, x: kept_x, weight: kept_weight }, output)
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
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
}

impl<B: BlockAdjoints> Backward<B, 3> for GroupedLinearOp {
    type State = GroupedLinearState<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [bias_node, x_node, weight_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let GroupedLinearState { types, d_in, x, weight } = ops.state;
        if let (Some(node), Some(weight)) = (x_node, weight) {
            grads.register::<B>(node.id, x_adjoint::<B>(&types, &grad, &weight, d_in, B::linear_x_adjoint));
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            grads.register::<B>(node.id, weight_adjoint::<B>(&types, &grad, &x, B::linear_weight_adjoint));
        }
        if let Some(node) = bias_node {
            grads.register::<B>(node.id, bias_adjoint::<B>(&types, &grad, B::row_sum));
        }
    }
}
