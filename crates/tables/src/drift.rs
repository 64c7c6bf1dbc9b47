use std::fmt;

use crate::NumberStats;

/// The smallest share of values that the report of an import names if the earlier import had such values, or may have had.
const NOTABLE_SHARE: f64 = 0.1;

/// The number of standard deviations from which on a mean is another one.
const FAR_MEAN: f64 = 3.0;

/// The smallest number of values whose mean and deviation are compared.
const MIN_VALUES: u64 = 10;

/// The factor from which on a standard deviation is another one.
const FAR_DEVIATION: f64 = 10.0;

/// Values of a column that are unlike those of the earlier import whose transforms an import uses.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnDrift {
    /// The table: ``node type `user` `` or ``relation `buys` ``.
    pub table: String,
    /// The name of the column.
    pub column: String,
    /// What is unlike.
    pub kind: DriftKind,
    /// The number of such values.
    pub n_found: u64,
    /// The number of values: of rows for [`DriftKind::Missing`], and of items for a transform of lists.
    pub n_values: u64,
    /// The share of such values in the earlier import, from 0 to 1.
    pub earlier_share: f64,
}

/// The kinds of [`ColumnDrift`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DriftKind {
    /// Categories without a feature column of their own.
    Category,
    /// Numbers below the smallest or above the largest number of the earlier import.
    Range {
        /// The smallest number of the earlier import.
        min: f64,
        /// The largest number of the earlier import.
        max: f64,
    },
    /// Rows without a value.
    Missing,
    /// Numbers of another mean or deviation, as of another unit. All values are such ones.
    Scale {
        /// The statistics of the numbers.
        stats: NumberStats,
        /// Those of the earlier import.
        earlier: NumberStats,
    },
}

impl DriftKind {
    /// Returns [`DriftKind::Scale`] if the mean is off by more than [`FAR_MEAN`] deviations, or the deviation by more than a
    /// factor of [`FAR_DEVIATION`]. Those of few values are not compared.
    pub(crate) fn scale_change(n_values: u64, stats: NumberStats, earlier: NumberStats) -> Option<Self> {
        let is_far = FAR_MEAN * earlier.std < (stats.mean - earlier.mean).abs();
        let ratio = stats.std / earlier.std;
        let is_other = 0.0 < earlier.std && !(1.0 / FAR_DEVIATION..=FAR_DEVIATION).contains(&ratio);
        (MIN_VALUES <= n_values && (is_far || is_other)).then_some(Self::Scale { stats, earlier })
    }
}

impl ColumnDrift {
    fn share(&self) -> f64 {
        self.n_found as f64 / self.n_values as f64
    }

    /// Returns true if the report of an import names the column: the earlier import had no such category or no missing value,
    /// or had fewer by a tenth of the values, or all values are such ones.
    pub fn is_notable(&self) -> bool {
        let is_new = self.earlier_share == 0.0 && !matches!(self.kind, DriftKind::Range { .. });
        let has_more = self.earlier_share + NOTABLE_SHARE <= self.share();
        0 < self.n_found
            && (is_new || has_more || (self.n_found == self.n_values && self.earlier_share < 1.0))
    }
}

impl fmt::Display for ColumnDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "the earlier import")
    }
}

impl ColumnDrift {
    /// Writes the line of a report. `earlier_import` is its name in the line.
    pub(crate) fn write(&self, f: &mut impl fmt::Write, earlier_import: &str) -> fmt::Result {
        let Self { table, column, kind, n_found, n_values, earlier_share } = self;
        let percent = 100.0 * self.share();
        write!(f, "{table}, column {column:?}: {n_found} of {n_values} ")?;
        match kind {
            DriftKind::Category => {
                write!(f, "values ({percent:.1} %) have none of the categories of {earlier_import}")?
            }
            DriftKind::Range { min, max } => {
                write!(
                    f,
                    "values ({percent:.1} %) are outside of those of {earlier_import}, {min} to {max}"
                )?;
            }
            DriftKind::Missing => write!(f, "rows ({percent:.1} %) have no value")?,
            DriftKind::Scale { stats, earlier } => {
                let [now, before] =
                    [stats, earlier].map(|of| format!("{} ± {}", rounded(of.mean), rounded(of.std)));
                write!(
                    f,
                    "values have the mean and standard deviation {now}, in {earlier_import} {before}: check the unit"
                )?;
            }
        }
        match (kind, *earlier_share) {
            (DriftKind::Missing, 0.0) => {
                write!(f, ", and no feature marks them: {earlier_import} had none")
            }
            (_, 0.0) => Ok(()),
            (_, share) => write!(f, ", where {:.1} % were such", 100.0 * share),
        }
    }
}

/// Returns a number with four digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}
