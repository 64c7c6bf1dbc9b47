//! kiln's own form of a data set on disk: a folder of plain `.npy` arrays, as [`npy::open`](crate::npy::open)
//! and NumPy read them too, and a small manifest, `kiln.json`, with the counts, the names of classes and
//! edge types, and each file's element type, shape and SHA-256. `docs/format.md` describes it.
//!
//! ```
//! use kiln_data::{format, synthetic};
//! let folder = tempfile::tempdir()?;
//! let ring = folder.path().join("ring");
//! format::write(&synthetic::ring(6)?, &ring)?;
//! assert_eq!(format::open(&ring)?.graph.n_edges(), 12);
//! assert_eq!(format::verify(&ring)?.n_hashed, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copy;
pub(crate) mod manifest;
mod set;
mod verify;

use std::path::Path;

use kiln_feature::{FeatureStore, Labels};
use kiln_graph::Csc;
use kiln_store::array_folder::{ElementType, Entries, FolderWriter};
use kiln_store::check_count;

use self::manifest::Manifest;
use self::set::Set;
use crate::check::for_each_rows;
use crate::graph_folder::{class_names_to_write, push_rows, read_graph, row_element_type};
use crate::{Dataset, Result, Split};

pub(crate) use self::copy::copy;
pub use self::verify::{VerifyReport, verify};

/// Opens a set in kiln's form, in a time that does not depend on its size: the manifest and the headers of
/// the arrays are read, the arrays are mapped.
///
/// Element types, shapes and the files' lengths are checked; values are not. Samplers and sources check
/// those that they meet, and [`verify`] reads all, and the hashes.
///
/// # Errors
/// [`kiln_store::Error::Missing`] for a folder without a manifest,
/// [`kiln_store::Error::Manifest`] for one that cannot be read,
/// [`kiln_store::Error::Format`] for one of another version,
/// [`kiln_store::Error::Metadata`] for one that contradicts itself or the files,
/// [`kiln_store::Error::Io`] and [`kiln_store::Error::Npy`] for files that are absent, cut off
/// or of another element type, [`Error::Graph`](crate::Error::Graph) and
/// [`Error::Feature`](crate::Error::Feature) for offsets that do not end where the edges do,
/// [`Error::WrongKind`](crate::Error::WrongKind) for a graph alone.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    Set::open(folder.as_ref())?.dataset()
}

/// Opens the topology of a set in kiln's form; also of one that has nothing else, as
/// [`convert`](crate::convert::convert) makes it of an edge list alone.
///
/// # Errors
/// As [`open`], but for [`Error::WrongKind`](crate::Error::WrongKind).
pub fn open_graph(folder: impl AsRef<Path>) -> Result<Csc> {
    read_graph(&Set::open(folder.as_ref())?.arrays)
}

/// A SHA-256, in lower-case hexadecimal, of all that training can see of a set in kiln's own form, or of a graph
/// alone: topology, features, labels and split, but no names. It is made of the manifest, which holds the
/// hashes of the files, so it takes a time that does not depend on the set's size.
///
/// The files are trusted to be those that the manifest was written for: [`verify`] reads them. It is another
/// number than [`Dataset::hash`] gives for the same set, since it also depends on how the arrays stand in
/// their files.
///
/// Hashed is the line `kiln format 1`, then the line `dim D` and the line `n_classes C` where the manifest has
/// them, and a line `NAME TYPE LENGTHS SHA256` for each file, in the order of their names, as
/// `features.npy f32 34x2 9f86…`.
///
/// # Errors
/// [`kiln_store::Error::Missing`], [`kiln_store::Error::Manifest`],
/// [`kiln_store::Error::Format`], [`kiln_store::Error::Metadata`] and
/// [`kiln_store::Error::Io`] as [`open`].
pub fn hash(folder: impl AsRef<Path>) -> Result<String> {
    Ok(Manifest::read(folder.as_ref())?.hash())
}

/// Writes a set to a new folder, whose parents are made where they lack.
///
/// The folder appears whole or not at all: all files go to `FOLDER.unfinished-…` beside it, are seen to the
/// disk, the manifest last, and then the folder is renamed. On an error what was written is removed; after
/// a crash an unfinished folder is left, which can be deleted.
///
/// The same set gives the same bytes. Features are written some rows at a time, as they are stored: dense
/// ones as `f32`, `f16` or `bf16`, sparse ones as the arrays of a CSR matrix. [`Dataset::notes`] are not
/// part of a set. Values are not checked.
///
/// # Errors
/// [`kiln_store::Error::NotEmpty`] for a folder that exists and is not empty, before anything is
/// written; [`kiln_store::Error::Inconsistent`] for a set whose parts do not fit each other;
/// [`kiln_store::Error::Metadata`] for more names than classes;
/// [`Error::Feature`](crate::Error::Feature) for rows that cannot be read; [`kiln_store::Error::Io`].
pub fn write(data: &Dataset, folder: impl AsRef<Path>) -> Result<()> {
    let n_nodes = data.graph.n_nodes();
    check_count(&data.name, "the number of feature rows", n_nodes, data.features.n_rows())?;
    check_count(&data.name, "the number of labels", n_nodes, data.labels.len())?;
    if !data.names.is_empty() {
        check_count(&data.name, "the number of node names", n_nodes, data.names.len())?;
    }
    let manifest = Manifest {
        format: manifest::VERSION,
        name: data.name.clone(),
        n_nodes,
        n_edges: data.graph.n_edges() as usize,
        dim: Some(data.features.dim()),
        n_classes: Some(data.labels.n_classes()),
        class_names: class_names_to_write(&data.class_names, data.labels.n_classes()),
        edge_type_names: data.edge_type_names.clone(),
        files: Entries::new(),
    };
    manifest.check_counts(&manifest::path_in(folder.as_ref()))?;
    let mut set = FolderWriter::create(folder.as_ref())?;
    write_graph(&mut set, &data.graph)?;
    write_features(&mut set, &*data.features)?;
    write_labels(&mut set, &data.labels, &data.split)?;
    if !data.names.is_empty() {
        set.put("names_text.npy", ElementType::U8, data.names.text())?;
        set.put("names_ends.npy", ElementType::U32, data.names.ends())?;
    }
    manifest.commit(set)
}

fn write_graph(set: &mut FolderWriter, graph: &Csc) -> Result<()> {
    set.put("indptr.npy", ElementType::U64, graph.indptr())?;
    set.put("indices.npy", ElementType::U32, graph.indices())?;
    if let Some(weights) = graph.weights() {
        set.put("weights.npy", ElementType::F32, weights)?;
    }
    if let Some(types) = graph.edge_types() {
        set.put("edge_types.npy", ElementType::U8, types)?;
    }
    Ok(())
}

/// Writes the labels and the split.
pub(crate) fn write_labels(set: &mut FolderWriter, labels: &Labels, split: &Split) -> Result<()> {
    set.put("labels.npy", ElementType::I32, labels.as_slice())?;
    for ((_, nodes), file) in split.parts().into_iter().zip(["train.npy", "val.npy", "test.npy"]) {
        set.put(file, ElementType::U32, nodes)?;
    }
    Ok(())
}

fn write_features(set: &mut FolderWriter, features: &dyn FeatureStore) -> Result<()> {
    if let Some(sparse) = features.as_sparse() {
        set.put("features_indptr.npy", ElementType::U64, sparse.indptr())?;
        set.put("features_indices.npy", ElementType::U32, sparse.columns())?;
        set.put("features_data.npy", ElementType::F32, sparse.values())?;
        return Ok(());
    }
    let dtype = row_element_type(features.dtype())?;
    let mut array = set.rows("features.npy", dtype, features.dim())?;
    for_each_rows(features, |_, rows| push_rows(&mut array, rows))?;
    Ok(set.add(array)?)
}
