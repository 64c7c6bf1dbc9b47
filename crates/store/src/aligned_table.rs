use std::fmt;

/// A table of texts, which prints with columns of equal widths.
///
/// ```
/// let rows = vec![vec!["sage".into(), "0.9".into()], vec!["gat".into(), "0.8".into()]];
/// let table = kiln_store::AlignedTable { headings: vec!["model".into(), "accuracy".into()], rows };
/// assert_eq!(table.to_string(), "model  accuracy\nsage   0.9\ngat    0.8");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlignedTable {
    /// The heading of each column; at least one.
    pub headings: Vec<String>,
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl fmt::Display for AlignedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = vec![0; self.headings.len()];
        for row in [&self.headings].into_iter().chain(&self.rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (position, row) in [&self.headings].into_iter().chain(&self.rows).enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let start = if position == 0 { "" } else { "\n" };
            write!(f, "{start}{}", line.trim_end())?;
        }
        Ok(())
    }
}
