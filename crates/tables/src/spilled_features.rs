//! The features of the edges of a relation in temporary files.

use kiln_data::convert::ColumnFormat;
use kiln_graph::EdgeColumns;
use kiln_store::array_folder::ElementType;

use crate::spill::{SPILL_BUFFER, SpillFile, SpillReader};
use crate::{FittedRelation, Result};

/// The features of the edges of a relation, by the rows of its table.
#[derive(Debug)]
pub(crate) struct SpilledFeatures {
    pub(crate) fitted: FittedRelation,
    /// The number of feature columns.
    pub(crate) dim: usize,
    /// A number per row: 1 plus the number of its first bad column, or 0.
    pub(crate) marks: SpillFile,
    /// The feature row of each row, zeros for a bad one.
    pub(crate) rows: SpillFile,
}

/// A reader of the features, row by row.
pub(crate) struct FeatureReader {
    marks: SpillReader,
    rows: SpillReader,
    /// The row that was read last.
    values: Vec<u8>,
}

impl SpilledFeatures {
    pub(crate) fn read(&self) -> Result<FeatureReader> {
        let marks = self.marks.read(SPILL_BUFFER)?;
        let rows = self.rows.read(SPILL_BUFFER)?;
        Ok(FeatureReader { marks, rows, values: vec![0; size_of::<f32>() * self.dim] })
    }

    /// Returns the column of the edges; `None` if the columns have no features, such as categories of a table without values.
    pub(crate) fn format(&self) -> Option<ColumnFormat> {
        let name = EdgeColumns::FEATURES.to_owned();
        (self.dim > 0).then_some(ColumnFormat { name, element: ElementType::F32, width: self.dim })
    }
}

impl FeatureReader {
    /// Reads a row, and returns the number of its first bad column; `None` for a good row.
    pub(crate) fn next(&mut self) -> Result<Option<usize>> {
        self.rows.read_exact(&mut self.values)?;
        Ok(self.marks.read_u32()?.checked_sub(1).map(|column| column as usize))
    }

    /// Returns the features of the row that was read last, as bytes.
    pub(crate) fn values(&self) -> &[u8] {
        &self.values
    }
}
