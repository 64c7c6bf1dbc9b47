//! Writes a set and its parts to a folder in the kiln format.

use std::path::Path;

use kiln_feature::FeatureStore;
use kiln_graph::Csc;
use kiln_store::array_folder::{ElementType, FolderWriter};

use super::attachment;
use super::location::path_in;
use super::manifest::Manifest;
use super::numbered_manifest::NumberedManifest;
use crate::check::{Place, check_chunk, check_columns, check_features, for_each_rows, name_type};
use crate::graph_folder::{
    FEATURES, NODE_TIMES, RowFiles, TaskFiles, push_rows, row_element_type, write_columns,
    write_link_targets, write_link_values, write_targets,
};
use crate::layout::Layout;
use crate::{Dataset, Result};

/// Writes a set as [`write()`](super::write()) documents.
pub(super) fn write_set(data: &Dataset, folder: &Path) -> Result<()> {
    let manifest = describe(data, folder)?;
    write_arrays(data, manifest, FolderWriter::create(folder)?)
}

/// Writes a set with the attachments of the heterogeneous set of `source`, which is a folder in the kiln format.
pub(super) fn write_attached(
    data: &Dataset,
    folder: &Path,
    source: &NumberedManifest,
    from: &Path,
) -> Result<()> {
    let mut manifest = describe(data, folder)?;
    let set = FolderWriter::create(folder)?;
    if let Manifest::Numbered(manifest) = &mut manifest {
        manifest.attachments = source.attachments.clone();
        attachment::copy(from, set.folder(), &manifest.attachments)?;
    }
    write_arrays(data, manifest, set)
}

/// Returns the manifest of a set, after its parts were compared with each other.
fn describe(data: &Dataset, folder: &Path) -> Result<Manifest> {
    data.check_parts()?;
    check_columns(data, Place::Set(data.name.as_ref()))?;
    let manifest = Manifest::describe(data)?;
    manifest.check_counts(&path_in(folder))?;
    Ok(manifest)
}

fn write_arrays(data: &Dataset, manifest: Manifest, mut set: FolderWriter) -> Result<()> {
    for (position, relation) in data.graph.iter().enumerate() {
        write_relation(&mut set, data.layout, position, &relation.graph)?;
    }
    for (node_type, features) in data.features.iter().enumerate() {
        if let Some(features) = features {
            write_features(&mut set, &data.layout.rows(&FEATURES, node_type), &**features, &data.name)
                .map_err(|error| name_type(data, Place::Set(data.name.as_ref()), node_type, error))?;
        }
    }
    if let Some(targets) = &data.targets {
        write_targets(&mut set, &targets.values, &targets.split)?;
    }
    if let Some(links) = &data.links {
        write_link_targets(&mut set, &links.targets)?;
        write_link_values(&mut set, &links.targets)?;
    }
    for (position, table) in data.tasks.iter().enumerate() {
        TaskFiles::new(position).write(&mut set, table)?;
    }
    for (node_type, names) in data.names.iter().enumerate().filter(|(_, names)| !names.is_empty()) {
        set.put(data.layout.file("names_text.npy", node_type), ElementType::U8, names.text())?;
        set.put(data.layout.file("names_ends.npy", node_type), ElementType::U32, names.ends())?;
    }
    for (node_type, times) in data.times.nodes.iter().enumerate() {
        if let Some(times) = times {
            set.put(data.layout.file(NODE_TIMES, node_type), ElementType::I64, times)?;
        }
    }
    manifest.commit(set)
}

fn write_relation(set: &mut FolderWriter, layout: Layout, position: usize, graph: &Csc) -> Result<()> {
    set.put(layout.file("indptr.npy", position), ElementType::U64, graph.indptr())?;
    set.put(layout.file("indices.npy", position), ElementType::U32, graph.indices())?;
    write_columns(set, layout, position, graph.columns())
}

/// Writes the files of feature rows, those of a CSR matrix for sparse features, and checks that the values are finite. `name` is
/// that of the set in messages.
fn write_features(
    set: &mut FolderWriter,
    files: &RowFiles,
    features: &dyn FeatureStore,
    name: &str,
) -> Result<()> {
    let place = Place::Set(name.as_ref());
    if let Some(sparse) = features.as_sparse() {
        check_features(features, place)?;
        let [indptr, columns, values] = files.sparse.clone();
        set.put(indptr, ElementType::U64, sparse.indptr())?;
        set.put(columns, ElementType::U32, sparse.columns())?;
        set.put(values, ElementType::F32, sparse.values())?;
        return Ok(());
    }
    let dtype = row_element_type(features.dtype())?;
    let mut array = set.rows(files.dense.clone(), dtype, features.dim())?;
    for_each_rows("writing features", features, |first_row, rows| {
        check_chunk(rows, features.dim(), |row| first_row + row, place)?;
        push_rows(&mut array, rows)
    })?;
    Ok(set.add(array)?)
}
