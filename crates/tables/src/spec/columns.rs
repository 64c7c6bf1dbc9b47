use serde::{Deserialize, Serialize};

use super::{TimeSplitSpec, TimeUnit};

/// A column of a table and the features that it becomes. A column with missing values gets one more feature column, which is
/// 1 where the value is missing. A value is a category by its text, which is the same in every format: `True` in CSV is `true`
/// in Parquet and JSON lines, and `1.0` is `1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// The name of the column.
    pub column: String,
    /// The transform of its values.
    pub transform: ColumnTransform,
}

/// The transform of a column to features. Missing values become zeros, except by `quantile`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ColumnTransform {
    /// A number as it is.
    Numeric,
    /// `(x - mean) / standard deviation`, of the population; 0 if all values are equal.
    Standardize,
    /// The rank among the values of the table, from 0 to 1. A missing value becomes 0.5.
    Quantile,
    /// One column for each of the most frequent values, and one for all others if there are any.
    OneHot {
        /// The maximum number of values with a column of their own.
        max_categories: usize,
    },
    /// One column with the position of the value among the most frequent ones, the most frequent first; all other values
    /// share the last position.
    Ordinal {
        /// The maximum number of values with a position of their own.
        max_categories: usize,
    },
    /// A column for each value of the hash of the text: no vocabulary is stored, and values may share a column.
    Hash {
        /// The number of columns.
        columns: usize,
    },
    /// A column for each of the most frequent items of a list, and one for all others if there are any.
    MultiHot {
        /// The maximum number of items with a column of their own.
        max_categories: usize,
        /// The text between the items, for columns of text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        separator: Option<String>,
    },
    /// Sine and cosine of parts of a timestamp (UTC): `2 pi (part / period)`; of the part `trend`, the time itself.
    Time {
        /// The parts, each of which becomes two columns, and `trend` one.
        parts: Vec<TimePart>,
        /// The unit of columns of integers, which count from 1970.
        #[serde(default)]
        unit: TimeUnit,
    },
    /// The number of occurrences of each hashed n-gram of a text in lower case, divided by the Euclidean norm of the row.
    Text {
        /// The number of columns.
        columns: usize,
        /// What an n-gram consists of.
        #[serde(default)]
        unit: NgramUnit,
        /// The smallest length of an n-gram.
        #[serde(default = "one")]
        min_n: usize,
        /// The largest length of an n-gram.
        #[serde(default = "one")]
        max_n: usize,
    },
    /// A list of numbers as it is.
    Vector {
        /// The number of items of every list.
        columns: usize,
        /// The text between the items, for columns of text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        separator: Option<String>,
    },
}

fn one() -> usize {
    1
}

/// A part of a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimePart {
    /// The hour of the day, 0 to 23, of 24.
    Hour,
    /// The day of the week, 0 for Monday to 6, of 7.
    DayOfWeek,
    /// The day of the month less one, 0 to 30, of 31.
    DayOfMonth,
    /// The month less one, 0 to 11, of 12.
    Month,
    /// The day of the year less one, 0 to 365, of 366.
    DayOfYear,
    /// The time itself, `(t - mean) / standard deviation` of the population; 0 if all times are equal. The other parts are periodic.
    Trend,
}

impl TimePart {
    /// Returns the number of feature columns.
    pub(crate) fn width(self) -> usize {
        if self == Self::Trend { 1 } else { 2 }
    }
}

/// What an n-gram consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NgramUnit {
    /// Words: runs of letters and digits. An n-gram is `n` words, joined by spaces.
    #[default]
    Word,
    /// Characters of a word between `<` and `>`, as in fastText.
    Char,
}

/// The targets of a node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetSpec {
    /// A class per node. Classes are numbered in ascending order, as numbers if all are integers.
    Class {
        /// The column of the classes.
        column: String,
    },
    /// Numbers to predict.
    Regression {
        /// The columns of the numbers.
        columns: Vec<String>,
    },
    /// Several labels per node: a list of the labels that it has.
    MultiLabel {
        /// The column of the lists.
        column: String,
        /// The text between the labels, for columns of text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        separator: Option<String>,
    },
}

/// The split of nodes for training, validation and test. A node without a target is in no part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SplitSpec {
    /// A column with `train`, `val`, `test` or a missing value.
    Column {
        /// The name of the column.
        column: String,
    },
    /// Columns of booleans, which mark the nodes of each part. A missing value is false.
    Masks {
        /// The column of the training part.
        train: String,
        /// The column of the validation part; `None` if no node is in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        val: Option<String>,
        /// The column of the test part; `None` if no node is in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        test: Option<String>,
    },
    /// Nodes before a step for training, and nodes from another step on for test.
    Steps {
        /// The column of the steps, which are integers.
        column: String,
        /// The first step of the validation part.
        val_from: i64,
        /// The first step of the test part; that of the validation part if no node is in the latter.
        test_from: i64,
    },
    /// A random part for each node, which depends on the seed and on its key only.
    Random {
        /// The seed.
        seed: u64,
        /// The probability of the training part.
        train: f64,
        /// The probability of the validation part.
        val: f64,
        /// The probability of the test part.
        test: f64,
    },
    /// Nodes before a time for training, and nodes from another time on for test.
    Time(TimeSplitSpec),
}
