use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use kiln_store::array_folder::FolderWriter;

use super::manifest::Manifest;
use super::{attachment, dataset, manifest_of, verify, write_parts};
use crate::{DatasetFormat, Note, Result, detect_format};

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
    let set = FolderWriter::create(out)?;
    let mut attachments = BTreeMap::new();
    if matches!(detect_format(input), Ok(DatasetFormat::Kiln)) {
        verify(input)?;
        attachments = Manifest::read(input)?.attachments;
    }
    let data = dataset::open_within(input, memory_bytes)?;
    attachment::copy(input, set.folder(), &attachments)?;
    let mut manifest = manifest_of(&data, out)?;
    manifest.attachments = attachments;
    write_parts(&data, manifest, set)?;
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
