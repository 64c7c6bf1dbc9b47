//! The ops of attention layers in the autodiff graph.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::device::block::Adjacency;
use crate::ops::attention::{Attention, AttentionInput};
use crate::ops::backend::{BlockAdjoints, BlockOps};

/// Computes the attention scores. `nodes` are those of the sources' rows, the destinations' rows and the weights in the
/// autodiff graph.
pub(super) fn scores<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    inputs: Attention<B>,
    nodes: [NodeGuard; 3],
) -> FloatTensor<Autodiff<B, C>> {
    let run = |Attention { block, src, dst, weights, slope }: Attention<B>| {
        B::attention_scores(block, src, dst, weights, slope)
    };
    match ScoresOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(inputs.clone(), run(inputs)),
        OpsKind::UnTracked(prep) => prep.finish(run(inputs)),
    }
}

#[derive(Debug)]
struct ScoresOp;

impl<B: BlockAdjoints> Backward<B, 3> for ScoresOp {
    type State = Attention<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let inputs = [AttentionInput::Src, AttentionInput::Dst, AttentionInput::Weights];
        for (node, input) in ops.parents.into_iter().zip(inputs) {
            if let Some(node) = node {
                grads.register::<B>(node.id, B::attention_adjoint(&ops.state, grad.clone(), input));
            }
        }
    }
}

/// Computes the softmax of scores. `node` is the node of the scores in the autodiff graph.
pub(super) fn softmax<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    block: Adjacency<B>,
    scores: FloatTensor<B>,
    node: NodeGuard,
) -> FloatTensor<Autodiff<B, C>> {
    match SoftmaxOp.prepare::<C>([node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let output = B::edge_softmax(block.clone(), scores);
            prep.finish((block, output.clone()), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::edge_softmax(block, scores)),
    }
}

#[derive(Debug)]
struct SoftmaxOp;

impl<B: BlockAdjoints> Backward<B, 1> for SoftmaxOp {
    /// The edges and the result of the forward pass.
    type State = (Adjacency<B>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (block, output) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::edge_softmax_adjoint(&block, output, grad));
        }
    }
}
