use kiln_graph::ItemId;

use crate::{Result, ScalingError, TargetValues};

/// The number of items whose targets are read at a time.
const ITEMS_AT_ONCE: usize = 4096;

/// The standardisation of regression targets: a model learns `(y - means[c]) / deviations[c]` instead of the target `y` in
/// column `c`, and its outputs are returned to the units of the targets. All values are computed in f64.
///
/// ```
/// use kiln_feature::{TargetScaler, TargetValues};
/// use kiln_graph::NodeId;
/// let prices = TargetValues::regression(vec![100_000.0, 300_000.0, 7.0], 1)?;
/// // The last node is not in the training split.
/// let scaler = TargetScaler::standardize(&prices, &[NodeId(0), NodeId(1)])?;
/// assert_eq!((scaler.means(), scaler.deviations()), (&[200_000.0][..], &[100_000.0][..]));
/// let mut targets = vec![100_000.0];
/// scaler.scale(&mut targets);
/// assert_eq!(targets, [-1.0]);
/// let mut outputs = vec![0.5];
/// scaler.restore(&mut outputs, 1);
/// assert_eq!(outputs, [250_000.0]);
/// # Ok::<(), kiln_feature::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct TargetScaler {
    /// The mean of each column, `[n_columns]`.
    means: Vec<f64>,
    /// The standard deviation of each column, `[n_columns]`, above 0.
    deviations: Vec<f64>,
}

/// The known targets of one column.
#[derive(Debug, Clone, Copy, Default)]
struct Column {
    n: u64,
    first: f32,
    varies: bool,
    sum: f64,
    squares: f64,
}

impl Column {
    fn mean(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum / self.n as f64 }
    }

    /// Returns the deviation of the population. Whether a column is constant is determined by comparing its values, because
    /// a rounded mean differs from them.
    fn deviation(&self) -> f64 {
        if self.varies { (self.squares / self.n as f64).sqrt() } else { 1.0 }
    }
}

impl TargetScaler {
    /// Returns the scaler to mean 0 and standard deviation 1 over the targets of `items`, without missing ones. The
    /// deviation is that of the population. A column of equal targets is only shifted, and a column without any is not
    /// changed. The sums are in the order of `items`, so that every rank and every partitioned graph has the same scaler.
    ///
    /// # Errors
    /// Returns the errors of [`TargetValues::gather`].
    pub fn standardize<I: ItemId>(targets: &TargetValues<I>, items: &[I]) -> Result<Self> {
        let mut columns = vec![Column::default(); targets.n_columns()];
        for_each_known(targets, items, |column, value| {
            let column = &mut columns[column];
            if column.n == 0 {
                column.first = value;
            }
            column.n += 1;
            column.varies |= value != column.first;
            column.sum += f64::from(value);
        })?;
        let means: Vec<f64> = columns.iter().map(Column::mean).collect();
        for_each_known(targets, items, |column, value| {
            columns[column].squares += (f64::from(value) - means[column]).powi(2);
        })?;
        Ok(Self { means, deviations: columns.iter().map(Column::deviation).collect() })
    }

    /// Returns the mean of each column, `[n_columns]`.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// Returns the standard deviation of each column, `[n_columns]`; 1 for a column of equal targets, or without any.
    pub fn deviations(&self) -> &[f64] {
        &self.deviations
    }

    /// Replaces targets, `[n, n_columns]`, row-major, by the values that a model learns. Missing ones (NaN) stay missing.
    pub fn scale(&self, targets: &mut [f32]) {
        for row in targets.chunks_exact_mut(self.means.len().max(1)) {
            for ((value, mean), deviation) in row.iter_mut().zip(&self.means).zip(&self.deviations) {
                *value = ((f64::from(*value) - mean) / deviation) as f32;
            }
        }
    }

    /// Replaces a model's outputs, `[n, width]`, row-major, by numbers in the units of the targets. Columns after the last
    /// one of the scaler are not changed.
    ///
    /// # Panics
    /// Panics if `width` is 0.
    pub fn restore(&self, outputs: &mut [f32], width: usize) {
        for row in outputs.chunks_exact_mut(width) {
            for ((value, mean), deviation) in row.iter_mut().zip(&self.means).zip(&self.deviations) {
                *value = (f64::from(*value) * deviation + mean) as f32;
            }
        }
    }

    /// Checks a scaler that was read from a file.
    ///
    /// # Errors
    /// Returns [`ScalingError::TargetScalingWidth`] unless there are `n_columns` means and deviations,
    /// [`ScalingError::ScalingNotFinite`] if one is infinite or NaN, and [`ScalingError::DeviationNotPositive`] for a
    /// deviation that is not above 0.
    pub fn check(&self, n_columns: usize) -> Result<()> {
        for (what, values) in [("means", &self.means), ("deviations", &self.deviations)] {
            if values.len() != n_columns {
                let got = values.len();
                return Err(ScalingError::TargetScalingWidth { what, expected: n_columns, got }.into());
            }
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                return Err(ScalingError::ScalingNotFinite { what, column, value: values[column] }.into());
            }
        }
        match self.deviations.iter().position(|deviation| *deviation <= 0.0) {
            Some(column) => {
                let value = self.deviations[column];
                Err(ScalingError::DeviationNotPositive { column, value }.into())
            }
            None => Ok(()),
        }
    }
}

/// Calls `visit` with the column and the value of each known target, item by item.
fn for_each_known<I: ItemId>(
    targets: &TargetValues<I>,
    items: &[I],
    mut visit: impl FnMut(usize, f32),
) -> Result<()> {
    let mut values = Vec::new();
    for items in items.chunks(ITEMS_AT_ONCE) {
        targets.gather(items, &mut values)?;
        for row in values.chunks_exact(targets.n_columns()) {
            for (column, &value) in row.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                visit(column, value);
            }
        }
    }
    Ok(())
}
