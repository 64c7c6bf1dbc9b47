//! Arrays and small files on disk: `.npy` arrays ([`npy`], [`ArrayFile`]), folders of arrays with a manifest
//! ([`array_folder`]), files and folders that are complete or absent ([`whole_file`], [`array_folder::FolderWriter`]), and
//! hashes ([`Hasher`]). With the feature `formats` also archives of arrays, tables of text and YAML.
//!
//! Files of any bytes give values or an error that names the file, within memory that their bytes justify. This crate
//! knows no data set, no tensor and no thread; of the graph crate it uses mapped files and arrays.
//!
//! ```
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("primes.npy");
//! kiln_store::whole_file::write_whole(&path, &kiln_store::npy::write(&[2_u32, 3, 5], &[3]))?;
//! let primes = kiln_store::ArrayFile::open(&path)?;
//! assert_eq!(*primes.values::<u32>()?, [2, 3, 5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod array_file;
pub mod array_folder;
mod error;
mod hash;
pub mod npy;
#[cfg(feature = "formats")]
mod npz;
mod parse_bytes;
pub mod paths;
#[cfg(feature = "formats")]
pub mod text;
pub mod whole_file;
#[cfg(feature = "formats")]
pub mod yaml;

pub use array_file::ArrayFile;
pub use error::{Error, Result, check_count, io_error};
pub use hash::{Hasher, sha256, sha256_of_file};
#[cfg(feature = "formats")]
pub use npz::Npz;
pub use parse_bytes::parse_bytes;

/// The example of the README, which the tests of the docs run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
