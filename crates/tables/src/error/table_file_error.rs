use std::path::PathBuf;

use kiln_store::counted;

/// An error in the content of a table's file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableFileError {
    /// A CSV file ends within a quoted field.
    #[error(
        "{path}: {} has a quote that is never closed, expected a closing quote before the end of the file: \
         close it, or write a quote within a quoted field twice",
        .row.map_or_else(|| "the header".to_owned(), |row| format!("row {row}"))
    )]
    OpenQuote {
        /// The path of the file.
        path: PathBuf,
        /// The number of the row in the file at which the record starts, from 1; `None` for the header.
        row: Option<u64>,
    },
    /// The first line of a CSV file can be split in several ways.
    #[error(
        "{path}: {line} has {found}, and is no list of the import's columns with one of them: set the separator in the \
         spec, such as `csv: {{separator: ';'}}`"
    )]
    Separator {
        /// The path of the file.
        path: PathBuf,
        /// The line: the header or the first row.
        line: &'static str,
        /// The separators.
        found: String,
    },
    /// The rows of a CSV file have one field more than its header.
    #[error(
        "{path}: the header has {} and the first rows have {n_row}, expected as many: put values with a separator in quotes, \
         remove a separator at the ends of the rows, or, if the first field is a row name of R, read it as the column \
         `row.names` or write the file without it (`row.names = FALSE`)",
        counted(*.n_header as u64, "field")
    )]
    Fields {
        /// The path of the file.
        path: PathBuf,
        /// The number of fields of the header.
        n_header: usize,
        /// The number of fields of the first rows.
        n_row: usize,
    },
    /// A text file has content of another kind, such as UTF-16 or a Parquet file.
    #[error("{path}: the file is {found}, expected {expected}")]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// What the file is.
        found: &'static str,
        /// What it should be, and what to do.
        expected: &'static str,
    },
    /// A Parquet file is damaged or uses a feature that is not supported.
    #[error("{path}: cannot read the Parquet file: {message}")]
    Parquet {
        /// The path of the file.
        path: PathBuf,
        /// The reader's message.
        message: String,
    },
    /// An Arrow file is damaged or uses a feature that is not supported.
    #[error("{path}: cannot read the Arrow file: {message}")]
    Arrow {
        /// The path of the file.
        path: PathBuf,
        /// The reader's message.
        message: String,
    },
    /// Rows cannot be written to a Parquet file.
    #[error("{path}: cannot write the Parquet file: {message}")]
    Written {
        /// The path of the file.
        path: PathBuf,
        /// The writer's message.
        message: String,
    },
    /// A Parquet file is compressed by a codec that this program was built without.
    #[error(
        "{path}: column {column:?} is compressed by {codec}, which this program was built without: build it with the \
         feature `{feature}` of kiln-tables, or write the file with another codec"
    )]
    Codec {
        /// The path of the file.
        path: PathBuf,
        /// The name of the column.
        column: String,
        /// The name of the codec.
        codec: String,
        /// The feature of this crate that includes the codec.
        feature: &'static str,
    },
}
