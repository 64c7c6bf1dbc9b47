use std::io::{self, Read};
use std::path::Path;

use kiln_graph::open_file;
use sha2::{Digest, Sha256};

use crate::progress::{Progress, ProgressUnit};
use crate::{Error, Result};

/// The buffer size for reading files.
const BUFFER_BYTES: usize = 1 << 16;

/// An incremental SHA-256 hasher.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// Returns the hash in lower-case hexadecimal.
    pub fn finish(self) -> String {
        self.finish_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the bytes of the hash.
    pub fn finish_bytes(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Returns the SHA-256 of bytes, in lower-case hexadecimal.
///
/// ```
/// let hash = kiln_store::sha256(b"kiln");
/// assert_eq!(hash.len(), 64);
/// ```
pub fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// Returns the key of a name, by which it is found in other data: the first 16 bytes of its SHA-256. Different names have the same
/// key with a probability below 1e-23, for 10 million names.
pub fn name_key(name: &str) -> [u8; 16] {
    let mut hasher = Hasher::default();
    hasher.update(name);
    hasher.finish_bytes().as_chunks().0[0]
}

/// Returns the SHA-256 of a file, in lower-case hexadecimal. The file is read through a small buffer.
///
/// # Errors
/// Returns [`Error::Io`] if the file cannot be read.
pub fn sha256_of_file(path: &Path) -> Result<String> {
    let name = path.file_name().unwrap_or_default().display();
    let n_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let progress = Progress::start(format_args!("hashing {name}"), ProgressUnit::Bytes, n_bytes);
    hash_file(path, &progress)
}

/// Returns the SHA-256 of a file as [`sha256_of_file`] does, as a part of a stage of progress.
pub(crate) fn hash_file(path: &Path, progress: &Progress) -> Result<String> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let mut file = open_file(path).map_err(io)?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(n_bytes) => {
                hasher.update(&buffer[..n_bytes]);
                progress.advance(n_bytes as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io(error)),
        }
    }
}
