use burn::tensor::Tensor;
use burn::tensor::activation::log_sigmoid;
use kiln_kernels::ops;

use crate::loss::sum_all;
use crate::{Error, LossError, LossSum, Result, TargetLoss};

/// The loss of links and their negatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LinkLoss {
    /// The binary cross entropy of the scores as logits, with the target 1 for a link and 0 for a negative: the mean
    /// over all pairs with equal weights, as in PyG's examples of link prediction.
    #[default]
    BinaryCrossEntropy,
    /// The Bayesian personalized ranking of Rendle, Freudenthaler, Gantner and Schmidt-Thieme 2009, section 4.1, without
    /// regularisation: `-log(sigmoid(score of the link - score of the negative))`, the mean over all negatives.
    BayesianPersonalizedRanking,
}

impl LinkLoss {
    /// Checks the number of negatives of a link.
    ///
    /// # Errors
    /// Returns [`LossError::NoNegatives`] for 0 negatives, because no loss can then be learned from.
    pub fn check(&self, n_negatives: usize) -> Result<()> {
        if 0 < n_negatives { Ok(()) } else { Err(Error::Loss(LossError::NoNegatives)) }
    }

    /// Computes the loss of links. The weight is the number of pairs, or that of negatives for
    /// [`LinkLoss::BayesianPersonalizedRanking`]. The losses are added in a fixed order.
    ///
    /// # Shapes
    /// `scores` are `[n_links, 1 + n_negatives]`; column 0 has the scores of the links.
    ///
    /// # Panics
    /// Panics if [`LinkLoss::check`] fails.
    pub fn sum(&self, scores: Tensor<2>) -> LossSum {
        let [n_links, n_columns] = scores.dims();
        let n_negatives = n_columns.saturating_sub(1);
        self.check(n_negatives).expect("the loss should have been checked for the number of negatives");
        match self {
            Self::BinaryCrossEntropy => {
                let mut targets = vec![0.0; n_links * n_columns];
                targets.iter_mut().step_by(n_columns).for_each(|target| *target = 1.0);
                TargetLoss::BinaryCrossEntropy.sum(scores, &targets)
            }
            Self::BayesianPersonalizedRanking => {
                let of_links = ops::repeat_columns(scores.clone().narrow(1, 0, 1), n_negatives);
                let of_negatives = scores.narrow(1, 1, n_negatives);
                let losses = log_sigmoid(of_links - of_negatives).neg();
                LossSum { sum: sum_all(losses), weight: (n_links * n_negatives) as f64 }
            }
        }
    }
}
