use std::fmt;
use std::path::Path;

use kiln_store::array_folder::FolderWriter;

use super::manifest::Manifest;
use super::{attachment, dataset, manifest_of, verify, write_parts};
use crate::format::manifest::{Kind, kind_of, path_in};
use crate::{DatasetFormat, Note, Result, TypedDataset, detect_format};

/// The report of the conversion of a heterogeneous set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedConvertReport {
    /// The number of node types.
    pub n_types: usize,
    /// The number of nodes of all types.
    pub n_nodes: usize,
    /// The number of relations.
    pub n_relations: usize,
    /// The number of edges of all relations.
    pub n_edges: u64,
    /// Notes about the input.
    pub notes: Vec<Note>,
}

/// Formats one line with the numbers.
impl fmt::Display for TypedConvertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_types, n_nodes, n_relations, n_edges, .. } = self;
        write!(f, "{n_nodes} nodes of {n_types} types, {n_edges} edges of {n_relations} relations")
    }
}

/// Writes a set as [`write()`](super::write()) does, with the [`attachment`](super::attachment())s of the set that it was made
/// of, if `source` is a folder with a heterogeneous set in the kiln format.
///
/// # Errors
/// Returns the errors of [`write()`](super::write()), and those of [`attachment`](super::attachment()).
pub fn write_with_attachments(
    data: &TypedDataset,
    folder: impl AsRef<Path>,
    source: impl AsRef<Path>,
) -> Result<()> {
    let (folder, source) = (folder.as_ref(), source.as_ref());
    let mut manifest = manifest_of(data, folder)?;
    let set = FolderWriter::create(folder)?;
    if matches!(kind_of(&path_in(source)), Some(Kind::Heterogeneous)) {
        manifest.attachments = Manifest::read(source)?.attachments;
        attachment::copy(source, set.folder(), &manifest.attachments)?;
    }
    write_parts(data, manifest, set)
}

/// Converts a heterogeneous set, of a name or path that [`TypedDataset::open`](crate::TypedDataset::open) opens, to a new
/// folder in the kiln format. A folder in the kiln format is copied after [`verify`] accepted it, with its
/// [`attachment`](super::attachment())s.
///
/// The edges of one relation at a time are read into memory, and all graphs are in memory until they are written; features
/// stay mapped if their element type allows it. `memory_bytes` is the limit for compressed edges and for nodes without
/// features of [`graphbolt::open_typed_within`](crate::graphbolt::open_typed_within) and
/// [`ogb::open_typed_within`](crate::ogb::open_typed_within). The output is identical to that of [`write()`](super::write())
/// for the opened set, except for attachments, which [`write()`](super::write()) does not have.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the output exists and is not an empty folder, before any work, and the
/// errors of [`TypedDataset::open`](crate::TypedDataset::open), [`verify`] and [`write()`](super::write()). An error leaves
/// no output behind.
pub fn convert(
    input: impl AsRef<Path>,
    out: impl AsRef<Path>,
    memory_bytes: u64,
) -> Result<TypedConvertReport> {
    let (input, out) = (input.as_ref(), out.as_ref());
    // An output that is not empty is an error before any work.
    drop(FolderWriter::create(out)?);
    if matches!(detect_format(input), Ok(DatasetFormat::Kiln)) {
        verify(input)?;
    }
    let data = dataset::open_within(input, memory_bytes)?;
    write_with_attachments(&data, out, input)?;
    let (graph, mut notes) = (&data.graph, data.notes);
    // A note about a copy in memory recommends a conversion.
    notes.retain(|note| !matches!(note, Note::Converted { .. }));
    Ok(TypedConvertReport {
        n_types: graph.types().n_types(),
        n_nodes: graph.n_nodes(),
        n_relations: graph.n_relations(),
        n_edges: graph.n_edges(),
        notes,
    })
}
