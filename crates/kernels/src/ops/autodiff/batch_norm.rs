use burn::backend::Autodiff;
use burn::backend::AutodiffBackend;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};

use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::batch_norm::{
    NormalizationGradients, NormalizationInput, NormalizationSettings, Normalized, SavedNormalization,
};

#[derive(Debug)]
struct NormalizeOp;

impl<B: BlockAdjoints> Backward<B, 4> for NormalizeOp {
    type State = SavedNormalization<B>;

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let NormalizationGradients { x, bias, gamma, beta } = B::normalize_columns_adjoint(ops.state, grad);
        for (node, grad) in ops.parents.into_iter().zip([x, bias, gamma, beta]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, grad);
            }
        }
    }
}

/// The batch normalisation, recorded in the autodiff graph. No gradient flows through the statistics.
pub(super) fn normalize<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    input: NormalizationInput<Autodiff<B, C>>,
    settings: NormalizationSettings,
) -> Normalized<Autodiff<B, C>> {
    let NormalizationInput { x, bias, gamma, beta, moving_mean, moving_variance } = input;
    let (x, x_node) = x.into_parts();
    let (bias, bias_node) = bias.into_parts();
    let (gamma, gamma_node) = gamma.into_parts();
    let (beta, beta_node) = beta.into_parts();
    let nodes = [x_node, bias_node, gamma_node, beta_node];
    let [moving_mean, moving_variance] = [moving_mean, moving_variance].map(Autodiff::<B, C>::inner);
    let input =
        NormalizationInput { x: x.clone(), bias, gamma: gamma.clone(), beta, moving_mean, moving_variance };
    let Normalized { rows, means, variances, moving_mean, moving_variance } =
        B::normalize_columns(input, settings);
    let rows = match NormalizeOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let saved = SavedNormalization {
                x,
                gamma,
                means: means.clone(),
                variances: variances.clone(),
                epsilon: settings.epsilon,
                output: settings.has_relu.then(|| rows.clone()),
            };
            prep.finish(saved, rows)
        }
        OpsKind::UnTracked(prep) => prep.finish(rows),
    };
    let [means, variances, moving_mean, moving_variance] =
        [means, variances, moving_mean, moving_variance].map(Autodiff::<B, C>::from_inner);
    Normalized { rows, means, variances, moving_mean, moving_variance }
}
