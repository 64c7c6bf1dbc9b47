//! The sum of messages with a row per edge in the autodiff graph.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::edge_rows::{EdgeRowsInput, Messages};

/// Computes the sums. `nodes` are those of the sources' rows and of the edges' rows in the autodiff graph.
pub(super) fn relu_sum<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    messages: Messages<B>,
    nodes: [NodeGuard; 2],
) -> FloatTensor<Autodiff<B, C>> {
    let run = |Messages { block, x, edge_rows }: Messages<B>| B::edge_relu_sum(block, x, edge_rows);
    match ReluSumOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(messages.clone(), run(messages)),
        OpsKind::UnTracked(prep) => prep.finish(run(messages)),
    }
}

#[derive(Debug)]
struct ReluSumOp;

impl<B: BlockAdjoints> Backward<B, 2> for ReluSumOp {
    type State = Messages<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        for (node, input) in ops.parents.into_iter().zip([EdgeRowsInput::Nodes, EdgeRowsInput::Edges]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, B::edge_relu_sum_adjoint(&ops.state, grad.clone(), input));
            }
        }
    }
}
