//! The kiln format of a data set on disk: a folder of plain `.npy` arrays, which NumPy and
//! [`npy::open`](crate::npy::open) can read, and a small manifest, `kiln.json`, with the counts, the names of classes
//! and edge types, and the element type, shape and SHA-256 of each file. The files of a heterogeneous set have the number of
//! their node type or relation. `docs/formats.md` specifies both layouts.
//!
//! ```
//! use kiln_data::{Dataset, format, synthetic};
//! use kiln_graph::NodeTypes;
//! let folder = tempfile::tempdir()?;
//! let ring = folder.path().join("ring");
//! format::write(&synthetic::ring(6)?, &ring)?;
//! assert_eq!(format::open(&ring)?.graph.n_edges(), 12);
//! assert_eq!(format::verify(&ring)?.n_hashed, 7);
//!
//! let types = NodeTypes::new([("user", 2), ("item", 3)])?;
//! let data = Dataset::builder_with_types(types).nodes("user").features(vec![0.5, 1.0], 1).build()?;
//! let ratings = folder.path().join("ratings");
//! format::write(&data, &ratings)?;
//! assert_eq!(format::open(&ratings)?.hash()?, data.hash()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attachment;
mod contents;
mod copy;
mod edges_by_time;
mod links_entry;
mod location;
mod manifest;
mod numbered_manifest;
pub(crate) mod plain_manifest;
mod set;
mod tasks_entry;
mod verify;
mod write;
mod writer;

use std::path::Path;

use kiln_graph::Csc;

use self::manifest::{Manifest, layout_of};
use self::set::Set;
use self::write::{write_attached, write_set};
use crate::layout::Layout;
use crate::{Dataset, Result};

pub use self::contents::TimesEntry;
pub(crate) use self::copy::copy_verified;
pub(crate) use self::location::path_in;
pub use self::verify::{VerifyReport, verify};
pub use self::writer::{LinkWriters, RelationTypes, SetWriter, TargetWriters, TaskWriters};

/// Returns true if a folder has the manifest of a heterogeneous set.
pub(crate) fn is_heterogeneous(folder: &Path) -> bool {
    layout_of(folder) == Some(Layout::Numbered)
}

/// Opens a set in the kiln format. The time does not depend on the size of the set: the manifest and the headers of the
/// arrays are read, and the arrays are mapped.
///
/// Element types, shapes and the files' lengths are checked; values are not. Samplers and feature stores check the
/// values that they use, and [`verify`] checks all values and the hashes.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`] if the folder has no manifest, [`kiln_store::Error::Manifest`] if it is not
/// valid JSON of a manifest, [`kiln_store::Error::Format`] if it has another version, [`kiln_store::Error::Metadata`]
/// if it contradicts itself or the files, [`kiln_store::Error::Io`] or [`kiln_store::Error::Npy`] if a file is
/// missing, truncated or of another element type, [`kiln_store::Error::Inconsistent`] or
/// [`kiln_store::Error::BadValue`] if offsets do not start at 0 or do not end at the number of edges or values, and
/// [`Error::WrongKind`](crate::Error::WrongKind) for a graph without node data.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    Set::open(folder.as_ref())?.dataset()
}

/// Opens the topology of a homogeneous set in the kiln format. The set may be a graph without node data, which
/// [`convert`](crate::convert::convert) writes for an edge list.
///
/// # Errors
/// Returns the errors of [`open`], with [`Error::WrongKind`](crate::Error::WrongKind) for a heterogeneous set only.
pub fn open_graph(folder: impl AsRef<Path>) -> Result<Csc> {
    Set::open(folder.as_ref())?.csc()
}

/// Returns the SHA-256, in lower-case hexadecimal, of all training data of a set in the kiln format, which may be a
/// graph without node data: topology, features of nodes and edges, labels and split, but no names and no orders of the edges by
/// time, which are made from the others. It is computed from the manifest,
/// which contains the hashes of the files, so the time does not depend on the size of the set.
///
/// The files are assumed to match the manifest; [`verify`] checks that. The hash differs from [`Dataset::hash`] for the
/// same set, since it also depends on the layout of the arrays in their files.
///
/// The hashed bytes of a homogeneous set are the line `kiln format 1`, then the line `dim D` and the line `n_classes C` if the manifest has
/// them, and then a line `NAME TYPE LENGTHS SHA256` for each file, in the order of their names, such as
/// `features.npy f32 34x2 9f86…`.
///
/// Those of a heterogeneous set are the line `kiln typed format 1`; a line `node_type N D NAME` for each type, with its
/// number of nodes, its number of feature columns (or `null`) and its name as a JSON string; a line `relation S D NAME` for
/// each relation, with the numbers of its types; the line `target_type T C` with the number of the type and the number of
/// classes, if there are targets; the line `links RELATION REVERSE` with the names of the relations as JSON strings (`null`
/// without a reverse), if there are links; a line `task T N C NAME` for each task table, with the number of the type, of the rows and
/// of the classes; and then the lines of the files.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`], [`kiln_store::Error::Manifest`], [`kiln_store::Error::Format`],
/// [`kiln_store::Error::Metadata`] or [`kiln_store::Error::Io`] in the cases in which [`open`] does.
pub fn hash(folder: impl AsRef<Path>) -> Result<String> {
    Ok(Manifest::read(folder.as_ref())?.hash())
}

/// Returns the content of a JSON file that was attached to a heterogeneous set in the kiln format, after its hash was
/// compared with the manifest; `None` if the set has no such file. [`SetWriter::attach`] writes it.
///
/// # Errors
/// Returns the errors of [`open`] for an invalid manifest, [`kiln_store::Error::HashMismatch`] if the file has
/// changed, [`kiln_store::Error::Metadata`] if it is larger than 256 MiB, and [`kiln_store::Error::Io`] if it cannot be read.
pub fn attachment(folder: impl AsRef<Path>, name: &str) -> Result<Option<Vec<u8>>> {
    let folder = folder.as_ref();
    match Manifest::read(folder)? {
        Manifest::Plain(_) => Ok(None),
        Manifest::Numbered(manifest) => {
            manifest.attachments.get(name).map(|hash| attachment::read(folder, name, hash)).transpose()
        }
    }
}

/// Writes a set to a new folder. Missing parent folders are created.
///
/// The folder appears atomically: all files are written to `FOLDER.unfinished-…` beside it and synced to disk, the
/// manifest last, and then that folder is renamed. An error removes the written files; a crash leaves an unfinished
/// folder, which can be deleted.
///
/// The output is a function of the set. Features are written in chunks of rows with their stored element type: dense
/// ones as `f32`, `f16` or `bf16`, sparse ones as the arrays of a CSR matrix. [`Dataset::notes`] and attachments are not written.
/// Values are not checked.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the folder exists and is not empty, before anything is written;
/// [`kiln_store::Error::Inconsistent`] or [`Error::InPart`](crate::Error::InPart) if the parts of the set are inconsistent; [`kiln_store::Error::Metadata`] if
/// the number of class names differs from the number of classes; [`Error::Feature`](crate::Error::Feature) if rows
/// cannot be read; and [`kiln_store::Error::Io`] if writing fails.
pub fn write(data: &Dataset, folder: impl AsRef<Path>) -> Result<()> {
    write_set(data, folder.as_ref())
}

/// Writes a set as [`write()`] does, with the [`attachment()`]s of the set that it was made of, if `source` is a folder with a
/// heterogeneous set in the kiln format.
///
/// # Errors
/// Returns the errors of [`write()`], and those of [`attachment()`].
pub fn write_with_attachments(
    data: &Dataset,
    folder: impl AsRef<Path>,
    source: impl AsRef<Path>,
) -> Result<()> {
    let source = source.as_ref();
    if is_heterogeneous(source)
        && let Manifest::Numbered(manifest) = Manifest::read(source)?
    {
        return write_attached(data, folder.as_ref(), &manifest, source);
    }
    write_set(data, folder.as_ref())
}
