//! What accuracies come to.

use std::fmt;

/// A mean with its standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the values, not of their mean; divided by their number.
    pub deviation: f64,
}

impl Mean {
    /// Of these values; not a number without any.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        Self { mean, deviation: variance.sqrt() }
    }
}

impl fmt::Display for Mean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4} +- {:.4}", self.mean, self.deviation)
    }
}

/// The epoch, from 0, after which the accuracy was largest: the first of those that tie.
pub fn best_epoch(accuracies: &[f64]) -> usize {
    let mut best = 0;
    for (epoch, accuracy) in accuracies.iter().enumerate() {
        if *accuracy > accuracies[best] {
            best = epoch;
        }
    }
    best
}
