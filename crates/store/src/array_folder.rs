//! Folders of plain `.npy` arrays with a small JSON manifest. A folder format consists of a manifest type, which
//! contains [`Entries`], and the list of arrays that it defines ([`Known`]).
//!
//! A [`FolderWriter`] writes a folder atomically. An [`ArrayFolder`] maps the arrays of a folder.
//!
//! ```
//! use kiln_store::array_folder::{ArrayFolder, ElementType, Entries, FolderWriter, read_manifest};
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Manifest {
//!     format: u32,
//!     files: Entries,
//! }
//! let root = tempfile::tempdir()?;
//! let folder = root.path().join("primes");
//! let mut writer = FolderWriter::create(&folder)?;
//! writer.put("primes.npy", ElementType::U32, &[2_u32, 3, 5])?;
//! let files = writer.entries().clone();
//! writer.commit_with("primes.json", &Manifest { format: 1, files })?;
//!
//! let path = folder.join("primes.json");
//! let manifest: Manifest = read_manifest(&path, 1..=1, "the manifest of some primes")?;
//! let primes = ArrayFolder::open(&path, &manifest.files)?.values::<u32>("primes.npy")?;
//! assert_eq!(*primes, [2, 3, 5]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod entry;
mod manifest;
mod reader;
mod text_writer;
mod writer;

pub use self::entry::{ElementType, Entries, Entry, Known};
pub use self::manifest::{
    bad_entry, bad_key, check_entries, check_together, check_unlisted, missing_entry, read_manifest,
};
pub use self::reader::ArrayFolder;
pub use self::text_writer::TextWriter;
pub use self::writer::{ArrayWriter, BUFFER_BYTES, FolderWriter, check_free, check_new};
