//! The kiln format of a data set on disk: a folder of plain `.npy` arrays, which NumPy and
//! [`npy::open`](crate::npy::open) can read, and a small manifest, `kiln.json`, with the counts, the names of classes
//! and edge types, and the element type, shape and SHA-256 of each file. `docs/formats.md` specifies it.
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

use bytemuck::Pod;
use kiln_feature::{EdgeFeatures, FeatureArray, FeatureStore, Targets};
use kiln_graph::Csc;
use kiln_store::array_folder::{ElementType, Entries, FolderWriter};
use kiln_store::check_count;

use self::manifest::Manifest;
use self::set::Set;
use crate::arrays::{EDGE_FEATURES, RowsOf};
use crate::check::for_each_rows;
use crate::graph_folder::{
    FEATURES, RowFiles, TARGETS, class_names_to_write, push_rows, read_graph, row_element_type,
    write_link_targets,
};
use crate::{Dataset, Error, Result, Split};

pub(crate) use self::copy::copy;
pub use self::verify::{VerifyReport, verify};

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
/// [`Error::WrongKind`] for a graph without node data.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    Set::open(folder.as_ref())?.dataset()
}

/// Opens the topology of a set in the kiln format. The set may be a graph without node data, which
/// [`convert`](crate::convert::convert) writes for an edge list.
///
/// # Errors
/// Returns the errors of [`open`] except [`Error::WrongKind`].
pub fn open_graph(folder: impl AsRef<Path>) -> Result<Csc> {
    read_graph(&Set::open(folder.as_ref())?.arrays)
}

/// Returns the SHA-256, in lower-case hexadecimal, of all training data of a set in the kiln format, which may be a
/// graph without node data: topology, features of nodes and edges, labels and split, but no names. It is computed from the manifest,
/// which contains the hashes of the files, so the time does not depend on the size of the set.
///
/// The files are assumed to match the manifest; [`verify`] checks that. The hash differs from [`Dataset::hash`] for the
/// same set, since it also depends on the layout of the arrays in their files.
///
/// The hashed bytes are the line `kiln format 1`, then the line `dim D` and the line `n_classes C` if the manifest has
/// them, and then a line `NAME TYPE LENGTHS SHA256` for each file, in the order of their names, such as
/// `features.npy f32 34x2 9f86…`.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`], [`kiln_store::Error::Manifest`], [`kiln_store::Error::Format`],
/// [`kiln_store::Error::Metadata`] or [`kiln_store::Error::Io`] in the cases in which [`open`] does.
pub fn hash(folder: impl AsRef<Path>) -> Result<String> {
    Ok(Manifest::read(folder.as_ref())?.hash())
}

/// Writes a set to a new folder. Missing parent folders are created.
///
/// The folder appears atomically: all files are written to `FOLDER.unfinished-…` beside it and synced to disk, the
/// manifest last, and then that folder is renamed. An error removes the written files; a crash leaves an unfinished
/// folder, which can be deleted.
///
/// The output is a function of the set. Features are written in chunks of rows with their stored element type: dense
/// ones as `f32`, `f16` or `bf16`, sparse ones as the arrays of a CSR matrix. [`Dataset::notes`] are not written.
/// Values are not checked.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the folder exists and is not empty, before anything is written;
/// [`kiln_store::Error::Inconsistent`] if the parts of the set are inconsistent; [`kiln_store::Error::Metadata`] if
/// the number of class names differs from the number of classes; [`Error::Feature`] if rows
/// cannot be read; and [`kiln_store::Error::Io`] if writing fails.
pub fn write(data: &Dataset, folder: impl AsRef<Path>) -> Result<()> {
    let n_nodes = data.graph.n_nodes();
    check_count(&data.name, RowsOf::Nodes.count(), n_nodes, data.features.n_rows())?;
    if let Some(features) = &data.edge_features {
        let (n_edges, n_rows) = (data.graph.n_edges() as usize, features.n_edges() as usize);
        check_count(&data.name, RowsOf::Edges.count(), n_edges, n_rows)?;
    }
    let targets = data.targets();
    check_count(&data.name, "the number of labels", n_nodes, targets.len())?;
    if !data.names.is_empty() {
        check_count(&data.name, "the number of node names", n_nodes, data.names.len())?;
    }
    let manifest = Manifest {
        format: manifest::VERSION,
        name: data.name.clone(),
        n_nodes,
        n_edges: data.graph.n_edges() as usize,
        dim: Some(data.features.dim()),
        n_classes: Some(targets.n_outputs()),
        class_names: class_names_to_write(&data.class_names, targets.n_outputs()),
        edge_type_names: data.edge_type_names.clone(),
        preparation: data.preparation.clone(),
        files: Entries::new(),
    };
    manifest.check_counts(&manifest::path_in(folder.as_ref()))?;
    let mut set = FolderWriter::create(folder.as_ref())?;
    write_graph(&mut set, &data.graph)?;
    if let Some(features) = &data.edge_features {
        write_edge_features(&mut set, features)?;
    }
    write_features(&mut set, &FEATURES, &*data.features)?;
    write_targets(&mut set, &targets, &data.split)?;
    if let Some(links) = &data.links {
        write_link_targets(&mut set, links)?;
    }
    if !data.names.is_empty() {
        set.put("names_text.npy", ElementType::U8, data.names.text())?;
        set.put("names_ends.npy", ElementType::U32, data.names.ends())?;
    }
    manifest.commit(set)
}

pub(crate) fn write_graph(set: &mut FolderWriter, graph: &Csc) -> Result<()> {
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

fn write_edge_features(set: &mut FolderWriter, features: &EdgeFeatures) -> Result<()> {
    let mut rows = set.rows(EDGE_FEATURES, row_element_type(features.dtype())?, features.dim())?;
    match features.rows() {
        FeatureArray::F32(values) => rows.push(values)?,
        FeatureArray::F16(values) => rows.push(values)?,
        FeatureArray::BF16(values) => rows.push(values)?,
        other => return Err(Error::unknown_row_type(other.dtype())),
    }
    Ok(set.add(rows)?)
}

/// Writes the file of classes or of target values, and the split.
pub(crate) fn write_targets(set: &mut FolderWriter, targets: &Targets, split: &Split) -> Result<()> {
    match targets {
        Targets::Classes(labels) => set.put("labels.npy", ElementType::I32, labels.as_slice())?,
        Targets::Values(values) => match (values.as_labels(), values.as_numbers()) {
            (Some(labels), _) => put_rows(set, ElementType::U8, values.n_columns(), labels)?,
            (None, numbers) => {
                put_rows(set, ElementType::F32, values.n_columns(), numbers.unwrap_or_default())?;
            }
        },
    }
    for ((_, nodes), file) in split.parts().into_iter().zip(["train.npy", "val.npy", "test.npy"]) {
        set.put(file, ElementType::U32, nodes)?;
    }
    Ok(())
}

/// Writes the file of target values.
fn put_rows<T: Pod>(
    set: &mut FolderWriter,
    dtype: ElementType,
    n_columns: usize,
    values: &[T],
) -> Result<()> {
    let mut rows = set.rows(TARGETS, dtype, n_columns)?;
    rows.push(values)?;
    Ok(set.add(rows)?)
}

/// Writes the files of feature rows: those of a CSR matrix for sparse features.
pub(crate) fn write_features(
    set: &mut FolderWriter,
    files: &RowFiles,
    features: &dyn FeatureStore,
) -> Result<()> {
    if let Some(sparse) = features.as_sparse() {
        let [indptr, columns, values] = files.sparse.clone();
        set.put(indptr, ElementType::U64, sparse.indptr())?;
        set.put(columns, ElementType::U32, sparse.columns())?;
        set.put(values, ElementType::F32, sparse.values())?;
        return Ok(());
    }
    let dtype = row_element_type(features.dtype())?;
    let mut array = set.rows(files.dense.clone(), dtype, features.dim())?;
    for_each_rows(features, |_, rows| push_rows(&mut array, rows))?;
    Ok(set.add(array)?)
}
