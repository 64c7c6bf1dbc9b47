/// An error in a column of edges.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// The name of a column is not allowed.
    #[error("edge column `{name}`: expected a name of 1 to 64 small letters, digits and underscores")]
    Name {
        /// The name.
        name: String,
    },
    /// A column has another element type or width than its name requires.
    #[error("edge column `{name}` has {got}, expected {expected}")]
    Values {
        /// The name of the column.
        name: String,
        /// What the column should have.
        expected: &'static str,
        /// The width and the element type.
        got: String,
    },
    /// The number of values is not a multiple of the width.
    #[error(
        "{n_values} values of an edge column are not rows of {width}: pass a row of the same width per edge"
    )]
    Width {
        /// The number of values per edge.
        width: usize,
        /// The number of values.
        n_values: usize,
    },
    /// A column has another number of rows than the graph has edges.
    #[error("edge column `{name}` has {got} rows, expected {expected}, one per edge")]
    Length {
        /// The name of the column.
        name: String,
        /// The number of edges.
        expected: u64,
        /// The number of rows.
        got: u64,
    },
    /// An edge weight is infinite or NaN, so it cannot be normalised.
    #[error("edge {edge} has weight {weight}, expected a finite number: clean the weights first")]
    WeightNotFinite {
        /// The position of the edge in the graph's `indices`.
        edge: u64,
        /// The weight of the edge.
        weight: f32,
    },
    /// A column is given twice.
    #[error("the edge column `{name}` is given twice: remove one of them")]
    Repeated {
        /// The name of the column.
        name: String,
    },
    /// A self loop would be added, which has no row in the columns.
    #[error(
        "an added self loop has no row in the edge columns: add the loops and their rows to the edge list"
    )]
    AddedLoop,
    /// A row of a column does not exist.
    #[error("row {row} of an edge column does not exist: it has {n_rows} rows")]
    NoRow {
        /// The row.
        row: u64,
        /// The number of rows.
        n_rows: u64,
    },
    /// Selected rows do not fit in memory.
    #[error("out of memory: {n_rows} rows of {width} values per edge do not fit")]
    OutOfMemory {
        /// The number of rows.
        n_rows: usize,
        /// The number of values per row.
        width: usize,
    },
}
