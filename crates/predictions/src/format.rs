/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PredictionFormat {
    /// Text, one line per item, which begins with its id and its name.
    #[default]
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
    /// Parquet files, with the id and the name of each item; scores also with label, class and probability.
    #[cfg(feature = "tables")]
    Parquet,
}
