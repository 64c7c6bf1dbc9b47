use std::ops::AddAssign;

/// The sums of a regression from which RMSE, MAE and R² are computed. Values of batches and of ranks can be added.
/// Missing targets are not counted.
#[derive(Debug, Clone, PartialEq)]
pub struct RegressionSums {
    /// The sums of each target column.
    columns: Vec<ColumnSums>,
    /// The items with at least one known target.
    n_items: u64,
}

/// The sums of one target column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct ColumnSums {
    /// The number of known targets.
    n: u64,
    squared_error: f64,
    absolute_error: f64,
    mean: f64,
    /// The sum of the squared distances of the targets to their mean.
    deviation: f64,
}

/// The number of 64-bit words of the sums of one column.
const WORDS: usize = 5;

impl RegressionSums {
    /// Creates the sums of `n_columns` target columns, all 0.
    pub fn new(n_columns: usize) -> Self {
        Self { columns: vec![ColumnSums::default(); n_columns], n_items: 0 }
    }

    /// Adds an item with these targets (NaN if missing) and outputs.
    ///
    /// # Panics
    /// Panics if the lengths differ from the number of columns.
    pub fn add(&mut self, targets: &[f32], outputs: &[f32]) {
        let n_columns = self.columns.len();
        assert!(
            targets.len() == n_columns && outputs.len() == n_columns,
            "an item has {} targets and {} outputs, expected {n_columns}",
            targets.len(),
            outputs.len()
        );
        let mut is_known = false;
        for (sums, (&target, &output)) in self.columns.iter_mut().zip(targets.iter().zip(outputs)) {
            if !target.is_nan() {
                sums.add(f64::from(target), f64::from(output));
                is_known = true;
            }
        }
        self.n_items += u64::from(is_known);
    }

    /// Returns the number of items with at least one known target.
    pub fn n_items(&self) -> u64 {
        self.n_items
    }

    /// Returns the root of the mean squared error, averaged over the columns as scikit-learn's
    /// `root_mean_squared_error` does. Columns without targets are left out; `None` if none is left.
    pub fn rmse(&self) -> Option<f64> {
        self.mean_of(|sums| (0 < sums.n).then(|| (sums.squared_error / sums.n as f64).sqrt()))
    }

    /// Returns the mean absolute error, averaged over the columns. Columns without targets are left out; `None` if none
    /// is left.
    pub fn mae(&self) -> Option<f64> {
        self.mean_of(|sums| (0 < sums.n).then(|| sums.absolute_error / sums.n as f64))
    }

    /// Returns the coefficient of determination, `1 - squared error / squared deviation`, averaged over the columns. As
    /// in scikit-learn's `r2_score`, a column of equal targets has the value 1 if all outputs are exact, otherwise 0,
    /// and a column with fewer than two targets has no value and is left out; `None` if none is left.
    pub fn r2(&self) -> Option<f64> {
        self.mean_of(|sums| {
            (1 < sums.n).then(|| match (sums.squared_error, sums.deviation) {
                (0.0, _) => 1.0,
                (_, 0.0) => 0.0,
                (error, deviation) => 1.0 - error / deviation,
            })
        })
    }

    fn mean_of(&self, value: impl Fn(&ColumnSums) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.columns.iter().filter_map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Encodes the sums as 64-bit words, without rounding.
    pub(crate) fn to_words(&self) -> Vec<u64> {
        let columns = self.columns.iter().flat_map(
            |&ColumnSums { n, squared_error, absolute_error, mean, deviation }| {
                let [squared_error, absolute_error, mean, deviation] =
                    [squared_error, absolute_error, mean, deviation].map(f64::to_bits);
                [n, squared_error, absolute_error, mean, deviation]
            },
        );
        [self.n_items].into_iter().chain(columns).collect()
    }

    /// Decodes the words of [`RegressionSums::to_words`].
    pub(crate) fn from_words(words: &[u64]) -> Self {
        Self {
            columns: words[1..]
                .chunks_exact(WORDS)
                .map(|words: &[u64]| {
                    let [squared_error, absolute_error, mean, deviation] =
                        [1, 2, 3, 4].map(|i| f64::from_bits(words[i]));
                    ColumnSums { n: words[0], squared_error, absolute_error, mean, deviation }
                })
                .collect(),
            n_items: words[0],
        }
    }
}

impl ColumnSums {
    /// Adds a target and its prediction. Mean and deviation are updated as by Welford 1962, because a difference of
    /// sums of squares would cancel.
    fn add(&mut self, target: f64, output: f64) {
        let error = output - target;
        self.n += 1;
        self.squared_error += error * error;
        self.absolute_error += error.abs();
        let from_old_mean = target - self.mean;
        self.mean += from_old_mean / self.n as f64;
        self.deviation += from_old_mean * (target - self.mean);
    }

    /// Adds the sums of other items; mean and deviation are combined as by Chan, Golub and LeVeque 1979, equation 2.1.
    fn merge(&mut self, other: &Self) {
        let n = self.n + other.n;
        if n == 0 {
            return;
        }
        let distance = other.mean - self.mean;
        let share = other.n as f64 / n as f64;
        self.mean += distance * share;
        self.deviation += other.deviation + distance * distance * self.n as f64 * share;
        self.squared_error += other.squared_error;
        self.absolute_error += other.absolute_error;
        self.n = n;
    }
}

impl AddAssign<&RegressionSums> for RegressionSums {
    /// Adds the sums of other items.
    ///
    /// # Panics
    /// Panics if the numbers of columns differ.
    fn add_assign(&mut self, other: &RegressionSums) {
        assert_eq!(self.columns.len(), other.columns.len(), "the numbers of target columns should be equal");
        for (sums, others) in self.columns.iter_mut().zip(&other.columns) {
            sums.merge(others);
        }
        self.n_items += other.n_items;
    }
}
