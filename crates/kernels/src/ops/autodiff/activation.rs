use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, TensorMetadata};
use burn::tensor::Shape;
use kiln_sample::RngKey;

use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::keep::Keep;

#[derive(Debug)]
pub(super) struct EluOp;

impl<B: BlockAdjoints> Backward<B, 1> for EluOp {
    /// The result of the forward pass.
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::elu_adjoint(ops.state, grad));
        }
    }
}

#[derive(Debug)]
pub(super) struct ReluDropout;

impl<B: BlockAdjoints> Backward<B, 1> for ReluDropout {
    type State = (FloatTensor<B>, Keep);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (output, keep) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::relu_dropout_adjoint(output, grad, keep));
        }
    }
}

#[derive(Debug)]
struct BiasDropout;

/// What the gradient of the rows is computed from.
#[derive(Debug, Clone)]
enum SavedMask<B: Backend> {
    /// The result of a ReLU, and the dropout after it.
    Output(FloatTensor<B>, Keep),
    /// The nodes and the key from which the mask of the dropout is drawn again.
    Draws(IntTensor<B>, RngKey, Keep),
    /// The result is the sum.
    Nothing,
}

impl<B: BlockOps + BlockAdjoints> Backward<B, 2> for BiasDropout {
    type State = SavedMask<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [x_node, bias_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let row_grad = match ops.state {
            SavedMask::Output(output, keep) => B::relu_dropout_adjoint(output, grad, keep),
            SavedMask::Draws(nodes, key, keep) => B::dropout(grad, nodes, key, keep),
            SavedMask::Nothing => grad,
        };
        if let Some(node) = bias_node {
            let width = row_grad.shape()[1];
            let sums = B::column_sums(row_grad.clone());
            grads.register::<B>(node.id, B::float_reshape(sums, Shape::new([width])));
        }
        if let Some(node) = x_node {
            grads.register::<B>(node.id, row_grad);
        }
    }
}

/// The sum of rows and a bias, with an optional ReLU, then dropout.
pub(super) fn bias_dropout<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    [x, bias]: [FloatTensor<Autodiff<B, C>>; 2],
    nodes: IntTensor<B>,
    key: RngKey,
    keep: Keep,
    has_relu: bool,
) -> FloatTensor<Autodiff<B, C>> {
    let (x, x_node) = x.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let output = B::bias_dropout(x, bias, nodes.clone(), key, keep, has_relu);
    match BiasDropout.prepare::<C>([x_node, bias_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let saved = match has_relu {
                true => SavedMask::Output(output.clone(), keep),
                false if keep.is_everything() => SavedMask::Nothing,
                false => SavedMask::Draws(nodes, key, keep),
            };
            prep.finish(saved, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}
