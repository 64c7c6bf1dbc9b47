use burn::backend::Autodiff;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::batch_norm::{BatchStatistics, Normalized};

#[derive(Debug)]
struct NormalizeOp;

impl<B: BlockAdjoints> Backward<B, 3> for NormalizeOp {
    type State = BatchStatistics<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let of_inputs = B::normalize_columns_adjoint(ops.state, grad);
        for (node, grad) in ops.parents.into_iter().zip([of_inputs.x, of_inputs.gamma, of_inputs.beta]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// The batch normalisation, recorded in the autodiff graph. No gradient flows through the returned statistics.
pub(super) fn normalize<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    gamma: FloatTensor<Autodiff<B, C>>,
    beta: FloatTensor<Autodiff<B, C>>,
    epsilon: f64,
) -> Normalized<Autodiff<B, C>> {
    let (x, x_node) = x.into_parts();
    let (gamma, gamma_node) = gamma.into_parts();
    let (beta, beta_node) = beta.into_parts();
    let nodes = [x_node, gamma_node, beta_node];
    let Normalized { rows, means, variances } = B::normalize_columns(x.clone(), gamma.clone(), beta, epsilon);
    let rows = match NormalizeOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let means = means.clone();
            let variances = variances.clone();
            prep.finish(BatchStatistics { x, gamma, means, variances, epsilon }, rows)
        }
        OpsKind::UnTracked(prep) => prep.finish(rows),
    };
    let [means, variances] = [means, variances].map(Autodiff::<B, C>::from_inner);
    Normalized { rows, means, variances }
}
