use std::fmt;
use std::path::Path;

use kiln_store::array_folder::check_new;

use crate::format::{verify, write, write_with_attachments};
use crate::open::open_location;
use crate::{Dataset, DatasetFormat, Note, Result, detect_format};

/// The report of the conversion of a heterogeneous set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeterogeneousReport {
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
impl fmt::Display for HeterogeneousReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_types, n_nodes, n_relations, n_edges, .. } = self;
        write!(f, "{n_nodes} nodes of {n_types} types, {n_edges} edges of {n_relations} relations")
    }
}

/// Converts a heterogeneous set, of a name or path that [`Dataset::open`](crate::Dataset::open) opens, to a new
/// folder in the kiln format. A folder in the kiln format is copied after [`format::verify`](crate::format::verify()) accepted it, with its
/// [`attachment`](crate::format::attachment())s.
///
/// The edges of one relation at a time are read into memory, and all graphs are in memory until they are written; features
/// stay mapped if their element type allows it. `memory_bytes` is the limit for compressed edges and for nodes without
/// features of [`graphbolt::open_heterogeneous_within`](crate::graphbolt::open_heterogeneous_within) and
/// [`ogb::open_heterogeneous_within`](crate::ogb::open_heterogeneous_within). The output is identical to that of [`format::write`](crate::format::write())
/// for the opened set, except for attachments, which [`format::write`](crate::format::write()) does not have.
///
/// # Errors
/// Returns [`kiln_store::Error::NotEmpty`] if the output exists and is not an empty folder, before any work, and the
/// errors of [`Dataset::open`](crate::Dataset::open), [`format::verify`](crate::format::verify()) and [`format::write`](crate::format::write()). An error leaves
/// no output behind.
pub fn convert_heterogeneous(
    input: impl AsRef<Path>,
    out: impl AsRef<Path>,
    memory_bytes: u64,
) -> Result<HeterogeneousReport> {
    let input = input.as_ref();
    let out = out.as_ref();
    let data = open_verified(input, out, memory_bytes)?;
    write_with_attachments(&data, out, input)?;
    let graph = &data.graph;
    Ok(HeterogeneousReport {
        n_types: graph.types().n_types(),
        n_nodes: graph.n_nodes(),
        n_relations: graph.n_relations(),
        n_edges: graph.n_edges(),
        notes: data.notes,
    })
}

/// Converts a heterogeneous set with one node type to the homogeneous set of [`Dataset::to_homogeneous`] in a new folder in the
/// kiln format, without attachments, and returns that set with notes about the input. The names of the nodes are kept. Otherwise it
/// is [`convert_heterogeneous`]; joining several relations takes up to 20 bytes per edge more, besides the columns.
///
/// # Errors
/// Returns the errors of [`convert_heterogeneous`] and [`Dataset::to_homogeneous`].
pub fn convert_to_homogeneous(
    input: impl AsRef<Path>,
    out: impl AsRef<Path>,
    memory_bytes: u64,
) -> Result<Dataset> {
    let input = input.as_ref();
    // A set in the kiln format opens at once; it is checked before the minutes of its verification.
    if matches!(detect_format(input), Ok(DatasetFormat::Kiln)) {
        open_location(input, memory_bytes)?.require_one_node_type()?;
    }
    let data = open_verified(input, out.as_ref(), memory_bytes)?.to_homogeneous()?;
    write(&data, out)?;
    Ok(data)
}

/// Opens a set for its conversion, with all notes; a folder in the kiln format after its verification.
fn open_verified(input: &Path, out: &Path, memory_bytes: u64) -> Result<Dataset> {
    // An output that is not empty is an error before any work.
    check_new(out)?;
    let mut notes = Vec::new();
    if matches!(detect_format(input), Ok(DatasetFormat::Kiln)) {
        notes.extend(verify(input)?.notes);
    }
    let mut data = open_location(input, memory_bytes)?;
    for note in std::mem::take(&mut data.notes) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    // A note about a copy in memory recommends a conversion.
    notes.retain(|note| !matches!(note, Note::Converted { .. }));
    Ok(Dataset { notes, ..data })
}
