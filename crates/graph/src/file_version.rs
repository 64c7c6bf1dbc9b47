use std::fmt;
use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

/// The length and the modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    /// The length in bytes.
    pub n_bytes: u64,
    /// The modification time; `None` if the file system does not store one.
    pub modified: Option<SystemTime>,
}

impl FileVersion {
    /// Returns the version of a file from its metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self { n_bytes: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.n_bytes)?;
        match self.modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok()) {
            Some(since) => {
                write!(f, ", modified {}.{:09} s after 1970", since.as_secs(), since.subsec_nanos())
            }
            None => Ok(()),
        }
    }
}
