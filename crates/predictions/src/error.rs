use kiln_comm::TransientError;

/// An error while files of predictions are written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be written.
    #[error(transparent)]
    Store(#[from] kiln_store::Error),
    /// A Parquet file could not be written.
    #[cfg(feature = "tables")]
    #[error(transparent)]
    Tables(#[from] kiln_tables::Error),
    /// A collective of the ranks failed.
    #[error(transparent)]
    Comm(#[from] kiln_comm::Error),
    /// The rank that owns the folder of several ranks was lost, and removed it: another attempt may succeed.
    #[error(transparent)]
    OwnerLost(TransientError),
}

impl Error {
    /// Returns true if another attempt may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::OwnerLost(_))
    }
}
