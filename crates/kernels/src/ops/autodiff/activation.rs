use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::FloatTensor;

use crate::ops::backend::BlockAdjoints;
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
