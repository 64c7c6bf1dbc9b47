/// What a file states before its rows are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileInfo {
    /// The number of rows; `None` if the file must be read to count them.
    pub(crate) n_rows: Option<u64>,
    /// The type of each column; `None` for formats without types.
    pub(crate) types: Vec<Option<String>>,
}
