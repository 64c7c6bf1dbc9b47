use std::fmt;

/// What cross-validation gives of one fold.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldResult {
    /// The fold, from 0.
    pub fold: usize,
    /// The accuracy on the fold after each epoch on all others.
    pub accuracies: Vec<f64>,
    /// The accuracy on the fold of a model that learned from all others but the next one, after the epoch that was best on
    /// that one.
    pub by_inner_validation: f64,
}

impl FoldResult {
    /// Judges a fold by two trainings. `train` trains a model without the folds that it is given, and returns the
    /// accuracies on each of these after each epoch.
    ///
    /// # Errors
    /// Those of `train`.
    ///
    /// # Panics
    /// When `train` returns fewer curves than it was given folds, or a curve without an epoch.
    pub fn of<E>(
        fold: usize,
        n_folds: usize,
        mut train: impl FnMut(&[usize]) -> Result<Vec<Vec<f64>>, E>,
    ) -> Result<Self, E> {
        let accuracies = train(&[fold])?.swap_remove(0);
        let both = train(&[fold, (fold + 1) % n_folds])?;
        Ok(Self { fold, accuracies, by_inner_validation: both[0][best_epoch(&both[1])] })
    }

    /// The largest accuracy, which is chosen on what it reports.
    pub fn best_accuracy(&self) -> f64 {
        self.accuracies[best_epoch(&self.accuracies)]
    }
}

/// The result of cross-validation, in the two ways in which it is reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossValidation {
    /// The epoch, from 1, after which the mean of the folds' accuracies was largest.
    pub best_epoch: usize,
    /// The accuracies after that epoch: the protocol of the GIN paper (Xu et al. 2019), whose epoch is chosen on what it
    /// reports.
    pub best_mean: MeanAndDeviation,
    /// The accuracies after epochs that were chosen on one more fold that is held out.
    pub by_inner_validation: MeanAndDeviation,
}

impl CrossValidation {
    /// The result of these folds, each with as many epochs.
    ///
    /// # Panics
    /// Without a fold or an epoch.
    pub fn new(folds: &[FoldResult]) -> Self {
        let n_epochs = folds.iter().map(|fold| fold.accuracies.len()).min().unwrap_or(0);
        let sum_after = |epoch: usize| folds.iter().map(|fold| fold.accuracies[epoch]).sum::<f64>();
        let best = best_epoch(&(0..n_epochs).map(sum_after).collect::<Vec<_>>());
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

/// A mean with its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanAndDeviation {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the values, not of their mean; divided by their number.
    pub deviation: f64,
}

impl MeanAndDeviation {
    /// The mean of these values; not a number without any.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        Self { mean, deviation: variance.sqrt() }
    }
}

impl fmt::Display for MeanAndDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} +- {:.4}", self.mean, self.deviation)
    }
}

/// The epoch, from 0, after which the accuracy was largest: the first of those that tie.
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
    fn the_paper_chooses_one_epoch_for_all_folds_and_inner_validation_one_for_each() {
        // Two folds and three epochs; a model without both folds has the curve of its fold, backwards.
        let curves = [[0.5, 0.9, 0.7], [0.6, 0.6, 0.8]];
        let train = |left_out: &[usize]| {
            let mut result: Vec<Vec<f64>> = left_out.iter().map(|&fold| curves[fold].to_vec()).collect();
            if 1 < left_out.len() {
                result[0].reverse();
            }
            Ok::<_, ()>(result)
        };
        let folds = [0, 1].map(|fold| FoldResult::of(fold, 2, train).unwrap());
        // Fold 1 is best after the last epoch, and fold 0 after the second one.
        assert_eq!([folds[0].by_inner_validation, folds[1].by_inner_validation], [0.5, 0.6]);
        assert_eq!([folds[0].best_accuracy(), folds[1].best_accuracy()], [0.9, 0.8]);
        let result = CrossValidation::new(&folds);
        // Means 0.55, 0.75 and 0.75: the first of those that tie.
        assert_eq!((result.best_epoch, result.best_mean.mean), (2, 0.75));
        assert!((result.best_mean.deviation - 0.15).abs() < 1e-12);
        assert_eq!(
            result.to_string(),
            "paper's protocol  0.7500 +- 0.1500 after epoch 2\ninner validation  0.5500 +- 0.0500"
        );
    }
}
