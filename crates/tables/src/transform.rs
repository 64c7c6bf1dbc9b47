//! Columns that become features: reading values, statistics of a table, and the features of a row.

mod accumulator;
mod apply;
mod moments;
mod ngrams;
mod quantiles;
mod time;
mod value;
mod vocabulary;

use kiln_feature::FeatureColumn;
use kiln_store::sha256;
use serde::{Deserialize, Serialize};

pub(crate) use self::accumulator::Accumulator;
pub(crate) use self::apply::ColumnEncoder;
pub(crate) use self::moments::Moments;
pub(crate) use self::value::{check, for_each_item, is_in_unit, micros, number};
pub(crate) use self::vocabulary::{Counter, MAX_CATEGORIES, ascending, position_by_name};
use crate::spec::{NgramUnit, TimePart, TimeUnit};

/// A column's transform with the statistics of the table that it was imported from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedColumn {
    /// The name of the column.
    pub column: String,
    /// The transform.
    pub transform: FittedTransform,
    /// The number of rows.
    pub n_rows: u64,
    /// The number of rows without a value. Unless it is 0, the last feature column of the column is 1 for such rows.
    pub n_missing: u64,
    /// The number of values that are categories: those of the rows, or the items of their lists. 0 for other transforms.
    pub n_values: u64,
    /// The number of these values that have no feature column or position of their own.
    pub n_other: u64,
    /// The statistics of the numbers; `None` without numbers and for transforms of other values.
    pub numbers: Option<NumberStats>,
}

/// The statistics of the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NumberStats {
    /// The smallest number.
    pub min: f64,
    /// The largest number.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the population.
    pub std: f64,
}

impl NumberStats {
    /// Returns true if a number is neither below the smallest nor above the largest one.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// The statistics of times, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeStats {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the population.
    pub std: f64,
}

/// A transform with its statistics. [`ColumnTransform`](crate::ColumnTransform) describes the features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FittedTransform {
    /// A number as it is.
    Numeric,
    /// `(x - mean) / std`.
    Standardize {
        /// The mean of the values.
        mean: f64,
        /// Their standard deviation.
        std: f64,
    },
    /// The rank among the quantiles.
    Quantile {
        /// At most 1001 order statistics at equal distances, of at most 65,536 values; ascending.
        quantiles: Vec<f64>,
    },
    /// A column per category.
    OneHot {
        /// The categories, the most frequent first; those with the same frequency in ascending order.
        categories: Vec<String>,
        /// True if the last column stands for all other values.
        has_other: bool,
    },
    /// The position of the category; the number of categories for all other values.
    Ordinal {
        /// The categories, as for `OneHot`.
        categories: Vec<String>,
    },
    /// A column per value of the hash.
    Hash {
        /// The number of columns.
        columns: usize,
    },
    /// A column per item of a list.
    MultiHot {
        /// The items, as the categories of `OneHot`; the frequency is the number of lists with the item.
        categories: Vec<String>,
        /// True if the last column stands for all other items.
        has_other: bool,
        /// The text between items.
        separator: Option<String>,
    },
    /// Sine and cosine of parts of a timestamp.
    Time {
        /// The parts.
        parts: Vec<TimePart>,
        /// The unit of integers.
        unit: TimeUnit,
        /// The statistics of the part `trend`; `None` without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trend: Option<TimeStats>,
    },
    /// Hashed n-grams.
    Text {
        /// The number of columns.
        columns: usize,
        /// What an n-gram consists of.
        unit: NgramUnit,
        /// The smallest length.
        min_n: usize,
        /// The largest length.
        max_n: usize,
    },
    /// A list of numbers as it is.
    Vector {
        /// The number of items.
        columns: usize,
        /// The text between items.
        separator: Option<String>,
    },
}

impl FittedColumn {
    /// Returns the number of feature columns.
    pub fn width(&self) -> usize {
        self.transform.width() + usize::from(self.n_missing > 0)
    }

    /// Returns the name of each feature column, such as `country=DE` or `age=missing`.
    pub fn feature_names(&self) -> Vec<String> {
        let of = |suffix: &str| format!("{}{suffix}", self.column);
        let numbered = |n: usize| (0..n).map(|position| of(&format!("[{position}]"))).collect();
        let mut names: Vec<String> = match &self.transform {
            FittedTransform::Numeric
            | FittedTransform::Standardize { .. }
            | FittedTransform::Quantile { .. }
            | FittedTransform::Ordinal { .. } => vec![of("")],
            FittedTransform::OneHot { categories, has_other }
            | FittedTransform::MultiHot { categories, has_other, .. } => {
                let names = categories.iter().map(|category| of(&format!("={category}")));
                names.chain(has_other.then(|| of("=other"))).collect()
            }
            FittedTransform::Time { parts, .. } => parts
                .iter()
                .flat_map(|part: &TimePart| match part {
                    TimePart::Trend => vec![of(".Trend")],
                    part => vec![of(&format!(".{part:?}.sin")), of(&format!(".{part:?}.cos"))],
                })
                .collect(),
            FittedTransform::Hash { columns }
            | FittedTransform::Text { columns, .. }
            | FittedTransform::Vector { columns, .. } => numbered(*columns),
        };
        if self.n_missing > 0 {
            names.push(of("=missing"));
        }
        names
    }
}

/// The largest number of categories that are described one by one.
const MOST_DESCRIBED: usize = 1000;

impl FittedColumn {
    /// Returns what the feature columns mean, by which a model recognises those of its training. Categories are described one by
    /// one, so that they may be in another order; of more than 1,000, all together.
    pub fn feature_columns(&self) -> Vec<FeatureColumn> {
        let mut names = self.feature_names().into_iter();
        let digest = || {
            let transform = serde_json::to_vec(&self.transform).unwrap_or_default();
            sha256(&transform)[..16].to_owned()
        };
        let wide = |meaning: String| {
            vec![FeatureColumn { name: self.column.clone(), width: self.transform.width(), meaning }]
        };
        let mut columns = match &self.transform {
            FittedTransform::Numeric => wide("numeric".to_owned()),
            FittedTransform::Standardize { mean, std } => {
                wide(format!("standardize: mean {mean}, deviation {std}"))
            }
            FittedTransform::Quantile { quantiles } => {
                wide(format!("quantile: {} order statistics {}", quantiles.len(), digest()))
            }
            FittedTransform::Ordinal { categories } => {
                wide(format!("ordinal: {} categories {}", categories.len(), digest()))
            }
            FittedTransform::OneHot { categories, .. } | FittedTransform::MultiHot { categories, .. }
                if MOST_DESCRIBED < categories.len() =>
            {
                wide(format!("{}: {} categories {}", self.transform.kind(), categories.len(), digest()))
            }
            FittedTransform::OneHot { categories, has_other }
            | FittedTransform::MultiHot { categories, has_other, .. } => {
                let kind = self.transform.kind();
                let named = names.by_ref().take(categories.len());
                let mut columns: Vec<_> = named.map(|name| FeatureColumn::new(name, kind)).collect();
                if let Some(name) = names.next().filter(|_| *has_other) {
                    let meaning = format!("{kind}: other than {}", describe_categories(categories));
                    columns.push(FeatureColumn::new(name, meaning));
                }
                columns
            }
            FittedTransform::Time { unit, trend, parts } => {
                let periodic = format!("time, integers in {unit:?}").to_lowercase();
                let TimeStats { mean, std } = trend.unwrap_or(TimeStats { mean: 0.0, std: 0.0 });
                let linear = format!("{periodic}, trend: mean {mean}, deviation {std}");
                let meanings = parts.iter().flat_map(|part| match part {
                    TimePart::Trend => std::iter::repeat_n(&linear, 1),
                    part => std::iter::repeat_n(&periodic, part.width()),
                });
                names
                    .by_ref()
                    .zip(meanings)
                    .map(|(name, meaning)| FeatureColumn::new(name, meaning))
                    .collect()
            }
            FittedTransform::Hash { .. } => wide("hash".to_owned()),
            FittedTransform::Text { unit, min_n, max_n, .. } => {
                wide(format!("text: {min_n} to {max_n} {unit:?}").to_lowercase())
            }
            FittedTransform::Vector { .. } => wide("vector".to_owned()),
        };
        if self.n_missing > 0 {
            columns.push(FeatureColumn::new(format!("{}=missing", self.column), "1 if missing"));
        }
        columns
    }
}

/// Returns the number of categories and a digest of them, in any order.
fn describe_categories(categories: &[String]) -> String {
    let mut ascending: Vec<&String> = categories.iter().collect();
    ascending.sort_unstable();
    let text = serde_json::to_vec(&ascending).unwrap_or_default();
    format!("{} categories {}", categories.len(), &sha256(&text)[..16])
}

impl FittedTransform {
    /// Returns the categories; empty for a transform without.
    pub(crate) fn categories(&self) -> &[String] {
        match self {
            Self::OneHot { categories, .. }
            | Self::Ordinal { categories }
            | Self::MultiHot { categories, .. } => categories,
            _ => &[],
        }
    }

    /// Returns the name of a transform with categories, as in a spec.
    fn kind(&self) -> &'static str {
        match self {
            Self::MultiHot { .. } => "multi_hot",
            _ => "one_hot",
        }
    }

    /// Returns the number of feature columns without the one for missing values.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Numeric | Self::Standardize { .. } | Self::Quantile { .. } | Self::Ordinal { .. } => 1,
            Self::OneHot { categories, has_other } | Self::MultiHot { categories, has_other, .. } => {
                categories.len() + usize::from(*has_other)
            }
            Self::Time { parts, .. } => parts.iter().map(|part| part.width()).sum(),
            Self::Hash { columns } | Self::Text { columns, .. } | Self::Vector { columns, .. } => *columns,
        }
    }
}
