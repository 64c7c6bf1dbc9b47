use std::fmt;

/// The cross-validation result of one fold.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldResult {
    /// The index of the fold, from 0.
    pub fold: usize,
    /// The accuracy on this fold after each epoch, for a model trained on all other folds.
    pub accuracies: Vec<f64>,
    /// The accuracy on this fold of a model that was trained without this fold and the next fold, after the epoch with
    /// the best accuracy on the next fold.
    pub by_inner_validation: f64,
}

impl FoldResult {
    /// Evaluates a fold with two trainings: one without the fold, one without the fold and the next one. `train` trains
    /// a model without the given folds, and returns one curve for each of these folds: the accuracy on it after each
    /// epoch.
    ///
    /// # Errors
    /// Returns the errors of `train`.
    ///
    /// # Panics
    /// Panics if `n_folds` is 0, if `train` returns fewer curves than it was given folds, or if the fold's curve of the
    /// second training lacks the selected epoch.
    pub fn of<E>(
        fold: usize,
        n_folds: usize,
        mut train: impl FnMut(&[usize]) -> Result<Vec<Vec<f64>>, E>,
    ) -> Result<Self, E> {
        let accuracies = train(&[fold])?.swap_remove(0);
        let both = train(&[fold, (fold + 1) % n_folds])?;
        Ok(Self { fold, accuracies, by_inner_validation: both[0][best_epoch(&both[1])] })
    }

    /// Returns the largest accuracy over the epochs. It is optimistic, because the fold on which the accuracy is
    /// measured also selects the epoch.
    pub fn best_accuracy(&self) -> f64 {
        self.accuracies[best_epoch(&self.accuracies)]
    }
}

/// The result of cross-validation, by two protocols.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossValidation {
    /// The epoch, from 1, with the largest mean accuracy over the folds.
    pub best_epoch: usize,
    /// The mean and the deviation over the folds of the accuracy after `best_epoch`, as in the protocol of the GIN
    /// paper (Xu et al. 2019). The mean is optimistic, because the epoch is selected on the reported accuracies.
    pub best_mean: MeanAndDeviation,
    /// The mean and the deviation over the folds of [`FoldResult::by_inner_validation`], for which each fold's epoch is
    /// selected on another held-out fold.
    pub by_inner_validation: MeanAndDeviation,
}

impl CrossValidation {
    /// Combines the folds' results. Only the epochs that all folds have are compared.
    ///
    /// # Panics
    /// Panics if a fold has no epoch.
    pub fn new(folds: &[FoldResult]) -> Self {
        let n_epochs = folds.iter().map(|fold| fold.accuracies.len()).min().unwrap_or(0);
        let best = best_epoch(
            &(0..n_epochs)
                .map(|epoch: usize| folds.iter().map(|fold| fold.accuracies[epoch]).sum::<f64>())
                .collect::<Vec<_>>(),
        );
        Self {
            best_epoch: best + 1,
            best_mean: MeanAndDeviation::of(folds.iter().map(|fold| fold.accuracies[best])),
            by_inner_validation: MeanAndDeviation::of(folds.iter().map(|fold| fold.by_inner_validation)),
        }
    }
}

impl fmt::Display for CrossValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { best_epoch, best_mean, by_inner_validation } = self;
        write!(
            f,
            "paper's protocol  {best_mean} after epoch {best_epoch}\ninner validation  {by_inner_validation}"
        )
    }
}

/// The mean and the standard deviation of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanAndDeviation {
    /// The mean of the values.
    pub mean: f64,
    /// The standard deviation of the values: of the population, whose variance has their number `n` as divisor, or of a sample, whose
    /// variance has `n - 1`.
    pub deviation: f64,
}

impl MeanAndDeviation {
    /// Returns the mean and the deviation of all values of a population, such as the folds; both are NaN without values.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n_values = values.clone().count() as f64;
        Self::with_divisor(values, n_values)
    }

    /// Estimates the mean and the deviation from a sample, such as some of all seeds; both are NaN without values, and the deviation of a
    /// single value is NaN.
    ///
    /// ```
    /// use kiln_train::MeanAndDeviation;
    /// let seeds = MeanAndDeviation::estimate([0.5, 0.7, 0.6].into_iter());
    /// assert!((seeds.mean - 0.6).abs() < 1e-12 && (seeds.deviation - 0.1).abs() < 1e-12);
    /// assert!(MeanAndDeviation::estimate([0.5].into_iter()).deviation.is_nan());
    /// ```
    pub fn estimate(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n_values = values.clone().count() as f64;
        Self::with_divisor(values, n_values - 1.0)
    }

    fn with_divisor(values: impl Iterator<Item = f64> + Clone, divisor: f64) -> Self {
        let n_values = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n_values;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / divisor;
        Self { mean, deviation: variance.sqrt() }
    }
}

impl fmt::Display for MeanAndDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} ± {:.4}", self.mean, self.deviation)
    }
}

/// Returns the epoch, from 0, with the largest accuracy; the first one in case of a tie.
fn best_epoch(accuracies: &[f64]) -> usize {
    let mut best = 0;
    for (epoch, accuracy) in accuracies.iter().enumerate() {
        if *accuracy > accuracies[best] {
            best = epoch;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_one_epoch_for_all_folds_and_inner_validation_one_per_fold() {
        // There are two folds and three epochs. A training that leaves out both folds returns the reversed curve for
        // the first of them.
        let curves = [[0.5, 0.9, 0.7], [0.6, 0.6, 0.8]];
        let train = |left_out: &[usize]| {
            let mut result: Vec<Vec<f64>> = left_out.iter().map(|&fold| curves[fold].to_vec()).collect();
            if 1 < left_out.len() {
                result[0].reverse();
            }
            Ok::<_, ()>(result)
        };
        let folds = [0, 1].map(|fold| FoldResult::of(fold, 2, train).unwrap());
        // Fold 1 is best after the last epoch, fold 0 after the second one.
        assert_eq!([folds[0].by_inner_validation, folds[1].by_inner_validation], [0.5, 0.6]);
        assert_eq!([folds[0].best_accuracy(), folds[1].best_accuracy()], [0.9, 0.8]);
        let result = CrossValidation::new(&folds);
        // The means are 0.55, 0.75 and 0.75, so the second epoch is the first one with the best mean.
        assert_eq!((result.best_epoch, result.best_mean.mean), (2, 0.75));
        assert!((result.best_mean.deviation - 0.15).abs() < 1e-12);
        assert_eq!(
            result.to_string(),
            "paper's protocol  0.7500 ± 0.1500 after epoch 2\ninner validation  0.5500 ± 0.0500"
        );
    }
}
