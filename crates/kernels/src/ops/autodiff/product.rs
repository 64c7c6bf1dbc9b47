//! Products of matrices and stacked rows in the autodiff graph.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Slice};

use crate::ops::autodiff::features;
use crate::ops::backend::{BlockAdjoints, BlockOps};

#[derive(Debug)]
struct ProductOp;

/// The state of a product. The gradient of each input reads the other one, so an input is saved only if the other one is
/// tracked.
#[derive(Debug, Clone)]
struct Factors<B: Backend> {
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
    /// The element type of `x`.
    row_type: DType,
}

impl<B: BlockAdjoints> Backward<B, 2> for ProductOp {
    type State = Factors<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [x_node, weight_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let Factors { x, weight, row_type } = ops.state;
        if let (Some(node), Some(weight)) = (x_node, weight) {
            let of_rows = B::linear_x_adjoint(grad.clone(), weight);
            grads.register::<B>(node.id, features::row_gradient::<B>(of_rows, row_type));
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            grads.register::<B>(node.id, B::linear_weight_adjoint(x, grad));
        }
    }
}

/// The product of a matrix and a weight.
pub(super) fn product<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let kept_x = weight.is_tracked().then(|| x.primitive().clone());
    let kept_weight = x.is_tracked().then(|| weight.primitive().clone());
    let row_type = x.dtype();
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    match ProductOp.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            prep.finish(Factors { x: kept_x, weight: kept_weight, row_type }, B::product(x, weight))
        }
        OpsKind::UnTracked(prep) => prep.finish(B::product(x, weight)),
    }
}

#[derive(Debug)]
struct StackOp;

impl<B: Backend> Backward<B, 2> for StackOp {
    /// The numbers of rows of both matrices.
    type State = [usize; 2];

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [n_first, n_second] = ops.state;
        for (node, rows) in ops.parents.into_iter().zip([0..n_first, n_first..n_first + n_second]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, B::float_slice(grad.clone(), &[Slice::from(rows)]));
            }
        }
    }
}

/// The rows of two matrices, one below the other.
pub(super) fn stack_rows<B: BlockOps, C: CheckpointStrategy>(
    first: FloatTensor<Autodiff<B, C>>,
    second: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let n_rows = [&first, &second].map(|rows| rows.primitive().shape()[0]);
    let (first, first_node) = first.into_parts();
    let (second, second_node) = second.into_parts();
    match StackOp.prepare::<C>([first_node, second_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(n_rows, B::stack_rows(first, second)),
        OpsKind::UnTracked(prep) => prep.finish(B::stack_rows(first, second)),
    }
}
