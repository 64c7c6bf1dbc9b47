//! The outputs of a saved model for a list of items.

use crate::step::task::classification::{has_class, is_finite, predicted_class};

/// The rows that a model returns for a list of nodes or graphs: scores with one column per class, or embeddings. Row
/// `i` belongs to the `i`-th requested item.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputRows {
    values: Vec<f32>,
    width: usize,
}

impl OutputRows {
    /// Wraps `values`, `[n_rows, width]`, row-major.
    ///
    /// # Panics
    /// Panics if `width` is 0 or the values are not a whole number of rows.
    pub fn new(values: Vec<f32>, width: usize) -> Self {
        assert!(0 < width, "expected at least one column");
        assert_eq!(values.len() % width, 0, "expected rows of {width} values, got {} values", values.len());
        Self { values, width }
    }

    /// Returns the number of rows, one per requested item.
    pub fn n_rows(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns all values, `[n_rows, width]`, row-major. The scores of a classifier are logits, those of a regression are in
    /// the units of its targets.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Iterates over the rows, in the order of the requested items.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Returns the class of each row: the column with the largest score, and the first one in case of a tie. `None` for
    /// a row with NaN or without a finite largest score, which is the case for a node with a feature that is not finite in
    /// its neighbourhood. The score -inf rules a class out.
    ///
    /// ```
    /// let scores = kiln_train::OutputRows::new(vec![0.5, 2.0, f32::NAN, 1.0], 2);
    /// assert_eq!(scores.classes(), [Some(1), None]);
    /// ```
    pub fn classes(&self) -> Vec<Option<u32>> {
        self.rows().map(predicted_class).collect()
    }

    /// Returns the probability of the predicted class of each row: its share of the row's softmax. `None` for a row
    /// without a class.
    pub fn confidences(&self) -> Vec<Option<f32>> {
        self.rows()
            .map(|row: &[f32]| {
                let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = row.iter().map(|value| f64::from(value - largest).exp()).sum();
                has_class(row).then_some((1.0 / sum) as f32)
            })
            .collect()
    }

    /// Returns the positions of the rows with a value that is not finite, ascending.
    pub fn non_finite(&self) -> Vec<usize> {
        let rows = self.rows().enumerate().filter(|(_, row)| !is_finite(row));
        rows.map(|(position, _)| position).collect()
    }

    /// Returns the rows at these positions.
    pub(crate) fn take(&self, positions: &[usize]) -> Self {
        let rows = positions.iter().flat_map(|&row| &self.values[row * self.width..(row + 1) * self.width]);
        Self { values: rows.copied().collect(), width: self.width }
    }
}

/// Appends the rows of a batch.
///
/// # Panics
/// Panics if the batch has another width than the earlier ones.
pub(crate) fn append(all: &mut Option<OutputRows>, rows: Option<OutputRows>) {
    match (all, rows) {
        (Some(all), Some(rows)) => {
            assert_eq!(all.width, rows.width, "a model returned rows of different widths");
            all.values.extend(rows.values);
        }
        (all @ None, rows) => *all = rows,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_a_row_is_its_first_largest_score() {
        let scores = OutputRows::new(vec![0.0, 1.0, 1.0, 2.0, -1.0, 0.0], 3);
        assert_eq!(scores.classes(), [Some(1), Some(0)]);
    }

    #[test]
    fn confidences_are_shares_of_the_softmax() {
        let scores = OutputRows::new(vec![0.0, 0.0, 1000.0, 0.0, f32::ln(3.0), 0.0], 2);
        assert_eq!(scores.confidences(), [0.5, 1.0, 0.75].map(Some));
    }

    #[test]
    fn a_row_that_is_not_finite_has_no_class_and_no_confidence() {
        let nan = f32::NAN;
        let inf = f32::INFINITY;
        let scores = OutputRows::new(vec![nan, nan, 0.0, 0.0, 1.0, nan, inf, 0.0, 0.0, -inf], 2);
        // The score -inf rules a class out.
        assert_eq!(scores.classes(), [None, Some(0), None, None, Some(0)]);
        assert_eq!(scores.confidences(), [None, Some(0.5), None, None, Some(1.0)]);
        assert_eq!(scores.non_finite(), [0, 2, 3, 4]);
        let all = OutputRows::new(vec![nan; 4], 2);
        assert_eq!((all.classes(), all.non_finite()), (vec![None; 2], vec![0, 1]));
    }
}
