//! Arrays and small files on disk: `.npy` arrays ([`npy`], [`ArrayFile`]), folders of arrays with a manifest
//! ([`array_folder`]), atomic writes of files and folders ([`whole_file`], [`array_folder::FolderWriter`]) and what they leave ([`unfinished`]), SHA-256
//! hashes ([`Hasher`]), numbers in messages ([`counted`]), and the progress of long work ([`progress`]). The feature `formats` adds `.npz` archives, text tables and YAML.
//!
//! Untrusted input is safe to read: invalid files are rejected with an error that contains the path, and memory is
//! limited by the size of the file. The crate is independent of data sets and tensors. Only a printer of progress starts a
//! thread and reads the clock. The crate uses mapped files and shared arrays from `kiln_graph`.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("primes.npy");
//! kiln_store::whole_file::write_whole(&path, &kiln_store::npy::write(&[2_u32, 3, 5], &[3]))?;
//! let primes = kiln_store::ArrayFile::open(&path)?;
//! assert_eq!(*primes.values::<u32>()?, [2, 3, 5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aligned_table;
mod array_file;
pub mod array_folder;
mod byte_size;
mod counted;
pub mod csv;
mod error;
pub mod folder_lock;
mod hash;
pub mod npy;
#[cfg(feature = "formats")]
mod npz;
mod parse_bytes;
pub mod paths;
pub mod progress;
mod similar_path;
mod source_files;
mod system_memory;
#[cfg(feature = "formats")]
pub mod text;
pub mod unfinished;
pub mod whole_file;
#[cfg(feature = "formats")]
pub mod yaml;

pub use aligned_table::AlignedTable;
pub use array_file::ArrayFile;
pub use counted::counted;
pub use error::{Error, Result, check_count, io_error};
pub use hash::{Hasher, name_key, sha256, sha256_of_file};
#[cfg(feature = "formats")]
pub use npz::Npz;
pub use parse_bytes::parse_bytes;
pub use source_files::{SourceFiles, SourceReader};
pub use system_memory::available_memory;

/// The code example of this crate's README, run as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
