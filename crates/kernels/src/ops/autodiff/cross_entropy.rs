use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::{FloatTensor, IntTensor};

use crate::ops::backend::BlockAdjoints;
use crate::ops::cross_entropy::CrossEntropy;

#[derive(Debug)]
pub(super) struct CrossEntropyOp;

impl<B: BlockAdjoints> Backward<B, 1> for CrossEntropyOp {
    /// The rows, their classes, and the results of the forward pass.
    type State = (FloatTensor<B>, IntTensor<B>, CrossEntropy<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (x, labels, traced) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::cross_entropy_adjoint(x, labels, traced, grad));
        }
    }
}
