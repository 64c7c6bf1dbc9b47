//! Heterogeneous data sets: several types of nodes with features of their own, and one graph per relation.
//!
//! [`open`], [`write()`], [`verify`] and [`hash`] handle the kiln format of such sets: a folder of `.npy` arrays, numbered
//! by node type or relation, and the manifest `kiln.json`. `docs/formats.md` specifies it.
//!
//! ```
//! use kiln_data::{TypedDataset, typed};
//! use kiln_graph::{NodeTypes, RelationEdges};
//! let data = TypedDataset::builder(NodeTypes::new([("user", 2), ("item", 3)])?)
//!     .relation(RelationEdges {
//!         name: "rates",
//!         src_type: "user",
//!         dst_type: "item",
//!         srcs: &[0, 1, 1],
//!         dsts: &[0, 0, 2],
//!         weights: None,
//!     })
//!     .features("user", vec![0.5, 1.0], 1)
//!     .labels("item", vec![0, 1, 1], 2)
//!     .split(&[0], &[1], &[2])
//!     .build()?;
//! let folder = tempfile::tempdir()?;
//! let ratings = folder.path().join("ratings");
//! typed::write(&data, &ratings)?;
//! assert_eq!(typed::open(&ratings)?.hash()?, data.hash()?);
//! assert_eq!(typed::verify(&ratings)?.n_edges, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attachment;
mod builder;
mod check;
mod convert;
mod dataset;
mod folder;
mod hash;
mod links_entry;
mod manifest;
mod writer;

use std::path::Path;

use kiln_graph::Relation;
use kiln_store::array_folder::{ElementType, FolderWriter};

use self::check::check_values;
use self::folder::Folder;
use self::manifest::Manifest;
use crate::format::manifest::{Kind, kind_of, path_in};
use crate::format::{VerifyReport, write_features, write_targets};
use crate::graph_folder::{FEATURES, numbered, write_link_targets};
use crate::{
    DatasetFormat, DatasetLocation, DatasetName, NodeNames, Result, detect_format, graphbolt, locate, ogb,
};

pub use self::builder::TypedDatasetBuilder;
pub use self::convert::{TypedConvertReport, convert, write_with_attachments};
pub use self::dataset::{TypedDataset, TypedTargets};
pub use self::writer::{RelationTypes, TargetWriters, TypedSetWriter};

/// Opens a heterogeneous set in the kiln format. The time does not depend on the number of nodes and edges: the manifest
/// and the headers of the arrays are read, and the arrays are mapped.
///
/// Element types, shapes and the files' lengths are checked; values are not. Samplers and feature stores check the
/// values that they use, [`TypedDataset::target_row_of`] checks the type of a node of the split, and [`verify`] checks all values
/// and the hashes.
///
/// # Errors
/// Returns [`Error::WrongKind`](crate::Error::WrongKind) for a homogeneous set, and otherwise the errors of
/// [`format::open`](crate::format::open).
pub fn open(folder: impl AsRef<Path>) -> Result<TypedDataset> {
    Folder::open(folder.as_ref())?.dataset()
}

/// Returns true if a name or path is a heterogeneous set, which [`TypedDataset::open`] opens and [`Dataset::open`](crate::Dataset::open) does not: a kiln
/// folder whose manifest has node types, or a GraphBolt or OGB folder with several node types or edge types. Only the
/// manifest or the metadata is read. Of the names of [`DatasetName`], `debian-archive` is one; see [`locate`].
///
/// # Errors
/// Returns the errors of [`detect_format`], and those of reading the metadata of a GraphBolt folder.
pub fn is_heterogeneous(name_or_path: impl AsRef<Path>) -> Result<bool> {
    let path = name_or_path.as_ref();
    if let DatasetLocation::Name(name) = locate(path) {
        return Ok(name == DatasetName::DebianArchive);
    }
    match detect_format(path)? {
        DatasetFormat::Kiln => Ok(kind_of(&path_in(path)) == Some(Kind::Heterogeneous)),
        DatasetFormat::GraphBolt => graphbolt::has_types(path),
        DatasetFormat::Ogb => Ok(ogb::has_types(path)),
        _ => Ok(false),
    }
}

/// Writes a set to a new folder, which appears atomically, as by [`format::write`](crate::format::write). The output is a
/// function of the set. [`TypedDataset::notes`] and [`attachment`]s are not written, and values are not checked.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the folder exists and is not empty, before anything is written;
/// [`kiln_store::Error::Inconsistent`] or [`Error::InPart`](crate::Error::InPart) if the parts of the set are
/// inconsistent; [`kiln_store::Error::Metadata`] if a count exceeds a limit of the format; [`Error::Feature`](crate::Error::Feature) if
/// rows cannot be read; and [`kiln_store::Error::Io`] if writing fails.
pub fn write(data: &TypedDataset, folder: impl AsRef<Path>) -> Result<()> {
    let folder = folder.as_ref();
    let manifest = manifest_of(data, folder)?;
    write_parts(data, manifest, FolderWriter::create(folder)?)
}

/// Returns the manifest of a set to be written to `folder`. The parts of the set are consistent.
fn manifest_of(data: &TypedDataset, folder: &Path) -> Result<Manifest> {
    data.check_parts()?;
    let manifest = Manifest::of(data);
    manifest.check_counts(&path_in(folder))?;
    Ok(manifest)
}

fn write_parts(data: &TypedDataset, manifest: Manifest, mut set: FolderWriter) -> Result<()> {
    for (position, relation) in data.graph.iter().enumerate() {
        write_relation(&mut set, position, relation)?;
    }
    for (node_type, features) in data.features.iter().enumerate() {
        if let Some(features) = features {
            write_features(&mut set, &FEATURES.of_type(node_type), &**features)?;
        }
    }
    for (node_type, names) in data.names.iter().enumerate() {
        write_names(&mut set, node_type, names)?;
    }
    if let Some(targets) = &data.targets {
        write_targets(&mut set, &targets.values, &targets.split)?;
    }
    if let Some(links) = &data.links {
        write_link_targets(&mut set, &links.targets)?;
    }
    manifest.commit(set)
}

fn write_relation(set: &mut FolderWriter, position: usize, relation: &Relation) -> Result<()> {
    let graph = &relation.graph;
    set.put(numbered("indptr.npy", position), ElementType::U64, graph.indptr())?;
    set.put(numbered("indices.npy", position), ElementType::U32, graph.indices())?;
    if let Some(weights) = graph.weights() {
        set.put(numbered("weights.npy", position), ElementType::F32, weights)?;
    }
    Ok(())
}

fn write_names(set: &mut FolderWriter, node_type: usize, names: &NodeNames) -> Result<()> {
    if !names.is_empty() {
        set.put(numbered("names_text.npy", node_type), ElementType::U8, names.text())?;
        set.put(numbered("names_ends.npy", node_type), ElementType::U32, names.ends())?;
    }
    Ok(())
}

/// Verifies a heterogeneous set in the kiln format: the SHA-256 of each file, then that offsets never decrease, that each
/// edge comes from a node of its relation's type, that labels, columns, the split and links are in range, that weights and
/// features are finite, and that names are UTF-8. The hashes of [`attachment`]s are compared, too. Each file is read twice, once for its hash and once for its values.
///
/// # Errors
/// Returns the errors of [`open`], [`kiln_store::Error::HashMismatch`] if a file has changed since the manifest was
/// written, and [`kiln_store::Error::BadValue`] with the file and the position of the first invalid value.
pub fn verify(folder: impl AsRef<Path>) -> Result<VerifyReport> {
    let set = Folder::open(folder.as_ref())?;
    set.arrays.verify_hashes()?;
    set.verify_attachments()?;
    let data = set.dataset()?;
    let notes = check_values(&data, Some(folder.as_ref()))?;
    let (n_nodes, n_edges, n_hashed) = (data.graph.n_nodes(), data.graph.n_edges(), set.n_files());
    Ok(VerifyReport { n_nodes, n_edges, n_hashed, notes })
}

/// Returns the SHA-256, in lower-case hexadecimal, of all training data of a heterogeneous set in the kiln format: node
/// types and relations with their names and order, topology, features, targets and split, but no names of nodes or classes. It is
/// computed from the manifest, which contains the hashes of the files, so the time does not depend on the size of the
/// set. The files are assumed to match the manifest; [`verify`] checks that. The hash differs from
/// [`TypedDataset::hash`] for the same set.
///
/// The hashed bytes are the line `kiln typed format 1`; a line `node_type N D NAME` for each type, with its number of
/// nodes, its number of feature columns (or `null`) and its name as a JSON string; a line `relation S D NAME` for each
/// relation, with the numbers of its types; the line `target_type T C` with the number of the type and the number of
/// classes, if there are targets; the line `links RELATION REVERSE` with the names of the relations as JSON strings (`null`
/// without a reverse), if there are links; and then a line `NAME TYPE LENGTHS SHA256` for each file, as for
/// [`format::hash`](crate::format::hash).
///
/// # Errors
/// Returns the errors of [`open`] for an invalid manifest.
pub fn hash(folder: impl AsRef<Path>) -> Result<String> {
    Ok(Manifest::read(folder.as_ref())?.hash())
}

/// Returns the content of a JSON file that was attached to a heterogeneous set in the kiln format, after its hash was
/// compared with the manifest; `None` if the set has no such file. [`TypedSetWriter::attach`]
/// writes it.
///
/// # Errors
/// Returns the errors of [`open`] for an invalid manifest, [`kiln_store::Error::HashMismatch`] if the file has
/// changed, [`kiln_store::Error::Metadata`] if it is larger than 256 MiB, and [`kiln_store::Error::Io`] if it cannot be read.
pub fn attachment(folder: impl AsRef<Path>, name: &str) -> Result<Option<Vec<u8>>> {
    let folder = folder.as_ref();
    let manifest = Manifest::read(folder)?;
    manifest.attachments.get(name).map(|hash| attachment::read(folder, name, hash)).transpose()
}
