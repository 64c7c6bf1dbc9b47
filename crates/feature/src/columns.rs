//! What the feature columns of nodes mean, and features with their columns in another order.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_graph::NodeId;

use crate::{FeatureBuffer, FeatureDType, FeatureStore, Result};

/// The meaning of consecutive feature columns that were made of one column of a table, or of one of its categories.
///
/// ```
/// use kiln_feature::{ColumnDifference, FeatureColumn, order_of_columns};
/// let age = FeatureColumn::new("age", "standardize: mean 41, deviation 12");
/// let plan = FeatureColumn::new("plan=free", "one_hot");
/// // The columns of new data are in another order.
/// let order = order_of_columns(&[age.clone(), plan.clone()], &[plan.clone(), age.clone()])?;
/// assert_eq!(order, Some(vec![Some(1), Some(0)]));
/// let other = FeatureColumn::new("age", "standardize: mean 12, deviation 2");
/// let error = order_of_columns(&[age, plan.clone()], &[other, plan]).unwrap_err();
/// assert!(matches!(error, ColumnDifference::Meaning { .. }));
/// # Ok::<(), ColumnDifference>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct FeatureColumn {
    /// The name, such as `age` or `plan=free`.
    pub name: String,
    /// The number of feature columns, at least 1.
    #[cfg_attr(feature = "serde", serde(default = "one", skip_serializing_if = "is_one"))]
    pub width: usize,
    /// What the values are, such as `standardize: mean 41, deviation 12`, for comparison and messages.
    pub meaning: String,
}

#[cfg(feature = "serde")]
fn one() -> usize {
    1
}

#[cfg(feature = "serde")]
fn is_one(width: &usize) -> bool {
    *width == 1
}

impl FeatureColumn {
    /// The meaning of a column that is 1 for one of the values that occur in the data. Other data may lack the value: the column
    /// is then 0.
    pub const OCCURRING: &str = "1 for this value";

    /// Returns one feature column with this name and meaning.
    pub fn new(name: impl Into<String>, meaning: impl Into<String>) -> Self {
        Self { name: name.into(), width: 1, meaning: meaning.into() }
    }

    /// Checks that columns describe features of a width: each has a width of at least 1, and in sum they have that one.
    ///
    /// ```
    /// use kiln_feature::FeatureColumn;
    /// let columns = [FeatureColumn::new("age", "numeric"), FeatureColumn::new("plan", "ordinal")];
    /// assert_eq!(FeatureColumn::check_width(&columns, 2), Ok(()));
    /// assert_eq!(FeatureColumn::check_width(&columns, 3), Err(2));
    /// ```
    ///
    /// # Errors
    /// Returns the sum of the widths.
    pub fn check_width(columns: &[Self], expected: usize) -> Result<(), usize> {
        let sum = columns.iter().fold(0_usize, |sum, column| sum.saturating_add(column.width));
        let has_none = columns.iter().any(|column| column.width == 0);
        if sum != expected || has_none { Err(sum) } else { Ok(()) }
    }
}

/// The first difference between the feature columns of the training data and those of other data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnDifference {
    /// The data lacks a column of the training data.
    #[error("the data lacks the feature column `{name}` of the training data ({meaning})")]
    Missing {
        /// The name of the column.
        name: String,
        /// The meaning of the column.
        meaning: String,
    },
    /// The data has a column that the training data did not have.
    #[error("the data has the feature column `{name}` ({meaning}), which the training data did not have")]
    Unknown {
        /// The name of the column.
        name: String,
        /// The meaning of the column.
        meaning: String,
    },
    /// A column of this name has another meaning.
    #[error("the feature column `{name}` is {got}, and was {expected} in training")]
    Meaning {
        /// The name of the column.
        name: String,
        /// The meaning and the width in training.
        expected: String,
        /// The meaning and the width in the data.
        got: String,
    },
}

/// Returns the order in which the feature columns of data are those of the training data: position `i` of the result is the
/// column of the data that is column `i` in training, or `None` for a column of zeros ([`FeatureColumn::OCCURRING`]). `None` if the
/// columns are the same. Columns are found by name and meaning.
///
/// # Errors
/// Returns the first difference if the columns are not the same in some order.
pub fn order_of_columns(
    training: &[FeatureColumn],
    data: &[FeatureColumn],
) -> Result<Option<Vec<Option<usize>>>, ColumnDifference> {
    if training == data {
        return Ok(None);
    }
    let mut first = 0;
    let mut left: HashMap<&FeatureColumn, Vec<usize>> = HashMap::new();
    for column in data {
        left.entry(column).or_default().push(first);
        first += column.width;
    }
    // Equal columns are taken in their order.
    left.values_mut().for_each(|starts| starts.reverse());
    let mut order = Vec::with_capacity(first);
    for column in training {
        match left.get_mut(column).and_then(Vec::pop) {
            Some(start) => order.extend((start..start + column.width).map(Some)),
            None if column.meaning == FeatureColumn::OCCURRING => order.extend(vec![None; column.width]),
            None => return Err(difference(column, data)),
        }
    }
    match data.iter().find(|column| left.get(column).is_some_and(|starts| !starts.is_empty())) {
        Some(FeatureColumn { name, meaning, .. }) => {
            Err(ColumnDifference::Unknown { name: name.clone(), meaning: meaning.clone() })
        }
        None => Ok(Some(order)),
    }
}

/// Returns the difference of data without a column.
fn difference(expected: &FeatureColumn, data: &[FeatureColumn]) -> ColumnDifference {
    let FeatureColumn { name, meaning, .. } = expected;
    let shown = |column: &FeatureColumn| match column.width {
        1 => column.meaning.clone(),
        width => format!("{} in {width} columns", column.meaning),
    };
    match data.iter().find(|column| column.name == *name) {
        Some(got) => {
            ColumnDifference::Meaning { name: name.clone(), expected: shown(expected), got: shown(got) }
        }
        None => ColumnDifference::Missing { name: name.clone(), meaning: meaning.clone() },
    }
}

/// Returns features whose column `i` is the column `order[i]` of `source`, or zeros. Rows are reordered when they are gathered.
///
/// ```
/// use std::sync::Arc;
/// use kiln_feature::{DenseFeatures, FeatureStore, with_column_order};
/// use kiln_graph::NodeId;
/// let source = Arc::new(DenseFeatures::from_f32(vec![1.0, 2.0, 3.0], 3)?);
/// let features = with_column_order(source, vec![Some(2), None, Some(0), Some(1)]);
/// assert_eq!(features.row(NodeId(0))?, [3.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), kiln_feature::Error>(())
/// ```
///
/// # Panics
/// Panics if there are no columns, or if one is not a column of the source.
pub fn with_column_order(source: Arc<dyn FeatureStore>, order: Vec<Option<usize>>) -> Arc<dyn FeatureStore> {
    let dim = source.dim();
    let are_columns = order.iter().flatten().all(|column| *column < dim);
    assert!(!order.is_empty() && are_columns, "the order should have columns of the {dim}");
    Arc::new(OrderedFeatures { source, order })
}

#[derive(Debug)]
struct OrderedFeatures {
    source: Arc<dyn FeatureStore>,
    /// The column of the source for each column; `None` for zeros.
    order: Vec<Option<usize>>,
}

impl FeatureStore for OrderedFeatures {
    fn dim(&self) -> usize {
        self.order.len()
    }

    fn n_rows(&self) -> usize {
        self.source.n_rows()
    }

    fn dtype(&self) -> FeatureDType {
        self.source.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        self.source.gather(ids, out)?;
        let width = self.source.dim();
        match out {
            FeatureBuffer::F32(rows) => *rows = reorder_rows(rows, width, &self.order, Default::default()),
            FeatureBuffer::F16(rows) => *rows = reorder_rows(rows, width, &self.order, Default::default()),
            FeatureBuffer::BF16(rows) => *rows = reorder_rows(rows, width, &self.order, Default::default()),
        }
        Ok(())
    }

    fn in_memory(&self) -> Option<Arc<dyn FeatureStore>> {
        let source = self.source.in_memory()?;
        Some(Arc::new(Self { source, order: self.order.clone() }))
    }
}

/// Returns rows of `width` values with their columns in another order: column `i` is the old column `order[i]`, or has the value
/// `missing` in all rows.
///
/// ```
/// let rows = kiln_feature::reorder_rows(&[1, 2, 3, 4], 2, &[Some(1), None, Some(0)], -1);
/// assert_eq!(rows, [2, -1, 1, 4, -1, 3]);
/// ```
///
/// # Panics
/// Panics if `width` is 0 or an old column is not below it.
pub fn reorder_rows<T: Copy>(rows: &[T], width: usize, order: &[Option<usize>], missing: T) -> Vec<T> {
    let mut reordered = Vec::with_capacity(rows.len() / width * order.len());
    for row in rows.chunks_exact(width) {
        reordered.extend(order.iter().map(|column| column.map_or(missing, |column| row[column])));
    }
    reordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DenseFeatures;

    fn wide(name: &str, width: usize) -> FeatureColumn {
        FeatureColumn { width, ..FeatureColumn::new(name, "text") }
    }

    #[test]
    fn columns_of_several_widths_are_found_by_name_and_meaning() {
        let training = [wide("a", 2), wide("b", 1), wide("c", 3)];
        let [a, b, c] = training.clone();
        assert_eq!(order_of_columns(&training, &training), Ok(None));
        assert_eq!(order_of_columns(&training, &[c, a, b]), Ok(Some([3, 4, 5, 0, 1, 2].map(Some).to_vec())));
    }

    #[test]
    fn values_that_do_not_occur_are_columns_of_zeros() {
        let [a, b] = ["a", "b"].map(|name| FeatureColumn::new(name, FeatureColumn::OCCURRING));
        let order = order_of_columns(&[a.clone(), b.clone()], std::slice::from_ref(&b));
        assert_eq!(order, Ok(Some(vec![None, Some(0)])));
        // A value that training did not have has no column.
        let error = order_of_columns(std::slice::from_ref(&a), &[a.clone(), b]).unwrap_err();
        assert!(matches!(error, ColumnDifference::Unknown { name, .. } if name == "b"));
    }

    #[test]
    fn equal_columns_keep_their_order() {
        let [a, b] = [wide("a", 1), wide("b", 1)];
        let order = order_of_columns(&[a.clone(), a.clone(), b.clone()], &[a.clone(), b, a]);
        assert_eq!(order, Ok(Some([0, 2, 1].map(Some).to_vec())));
    }

    #[test]
    fn the_first_difference_names_the_column() {
        let [a, b] = [wide("a", 1), wide("b", 1)];
        let check = |data: &[FeatureColumn], expected: &str| {
            let error = order_of_columns(&[a.clone(), b.clone()], data).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        check(std::slice::from_ref(&a), "lacks the feature column `b` of the training data (text)");
        check(&[a.clone(), b.clone(), wide("c", 1)], "has the feature column `c` (text)");
        check(&[a.clone(), wide("b", 2)], "`b` is text in 2 columns, and was text in training");
        check(&[a.clone(), FeatureColumn::new("b", "numeric")], "`b` is numeric, and was text");
    }

    #[test]
    fn rows_of_every_element_type_are_reordered() {
        let source: Arc<dyn FeatureStore> =
            Arc::new(DenseFeatures::from_f32(vec![1.0, 2.0, 3.0, 4.0], 2).unwrap());
        let features = with_column_order(source, vec![Some(1), Some(0), None]);
        let mut rows = FeatureBuffer::default();
        features.gather(&[NodeId(1), NodeId(0)], &mut rows).unwrap();
        assert_eq!(rows.into_f32(), [4.0, 3.0, 0.0, 2.0, 1.0, 0.0]);
    }
}
