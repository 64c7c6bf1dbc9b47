//! The files of a run folder with the result of the run.

use crate::error::Result;
use crate::evaluate::evaluation::Evaluation;
use crate::run::folder::RunFolder;
use crate::run::item_columns::ItemColumns;
use crate::run::summary::Summary;
use crate::step::task::classification::Prediction;

impl RunFolder {
    /// Writes `test_predictions.csv` with the columns `item,label,predicted`, in the given order; `columns` follow the item. The
    /// prediction is empty if the outputs of the item are not finite.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Io`] if it cannot be written.
    pub fn write_predictions(&self, predictions: &[Prediction], columns: Option<&ItemColumns>) -> Result<()> {
        let mut csv = "item".to_owned();
        columns.into_iter().for_each(|columns| columns.push_header(&mut csv));
        csv.push_str(",label,predicted\n");
        for said in predictions {
            let predicted = said.predicted.map(|class| class.to_string()).unwrap_or_default();
            csv.push_str(&said.item.to_string());
            columns.into_iter().for_each(|columns| columns.push_fields(&mut csv, said.item));
            csv.push_str(&format!(",{},{predicted}\n", said.label));
        }
        self.write("test_predictions.csv", csv.as_bytes())
    }

    /// Writes `test_predictions.csv` for several labels or regression: a line for each item, in ascending order, with
    /// its targets, which are empty if missing, and its outputs (logits of labels, or numbers). For links: a line for
    /// each link with its nodes, its score and its rank among its negatives. `columns` follow the item, instead of the nodes
    /// of a link.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Io`] if it cannot be written.
    pub fn write_outputs(&self, evaluation: &Evaluation, columns: Option<&ItemColumns>) -> Result<()> {
        self.write("test_predictions.csv", evaluation.to_csv(columns).as_bytes())
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// Returns [`crate::RunError::Io`] if it cannot be written.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write_json("summary.json", summary)
    }
}
