//! A reader of the TU collection (Morris et al., "TUDataset: a collection of benchmark datasets for learning with
//! graphs", 2020).

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use kiln_feature::{DenseFeatures, Labels, TargetValues, Targets};
use kiln_graph::{CscBuilder, GraphId};
use kiln_store::Error as StoreError;
use kiln_store::check_count;
use kiln_store::text::{TextRow, TextTable};

use crate::ignored_files::note_unread_files;
use crate::limits::numbers;
use crate::readers::files::Files;
use crate::readers::relabel::{Relabelled, relabel};
use crate::readers::target_arrays::labels_of_integers;
use crate::{Error, GraphDataset, Note, Result};

/// Reads a folder of the TU collection. The set's name is that of the file `NAME_A.txt`, which must be the only one.
/// Each file may be compressed, as `NAME_A.txt.gz`:
///
/// | file | content of a line | read as |
/// |---|---|---|
/// | `NAME_A.txt` | an edge, `node, node`, numbered from 1 across all graphs | [`GraphDataset::graph`] |
/// | `NAME_graph_indicator.txt` | the graph of a node, from 1, sorted, without gaps | [`GraphDataset::node_offsets`] |
/// | `NAME_graph_labels.txt` | the label of a graph, or several: 1, 0, or -1 if missing | [`GraphDataset::targets`] |
/// | `NAME_node_labels.txt` | the label of a node (optional) | [`GraphDataset::node_labels`] |
/// | `NAME_edge_labels.txt` | the label of an edge, at most 256 different (optional) | the graph's edge types |
/// | `NAME_node_attributes.txt` | the features of a node (optional) | [`GraphDataset::features`] |
/// | `NAME_edge_attributes.txt` | the weight of an edge (optional; several are not read, with a note) | the weights |
/// | `NAME_graph_attributes.txt` | the regression targets of a graph, `nan` if missing | [`GraphDataset::targets`] without graph labels, otherwise not read, with a note |
///
/// An edge runs from the first node of its line to the second, as in PyG. The collection's files have a line for each
/// direction; a note is added if an edge lacks its reverse. Unlike in PyG, self loops and parallel edges are kept,
/// and node labels do not become features.
///
/// Labels may be any integers. They are mapped to classes `0..k` in ascending order and become the names of the
/// classes. If a line contains several labels of a node or an edge, the tuple of them is its label.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`] if the folder lacks one of the first three files, [`Error::WrongKind`] if
/// it contains several sets, [`kiln_store::Error::BadLine`] for an invalid line, [`kiln_store::Error::Inconsistent`] if a file has a wrong number of lines, and
/// [`kiln_store::Error::BadValue`] if there are too many different edge labels.
pub fn read(folder: impl AsRef<Path>) -> Result<GraphDataset> {
    let folder = folder.as_ref();
    let name = find_name(folder)?;
    load(Files::Folder(folder), &name)
}

/// Reads the set with this name.
pub(crate) fn load(files: Files<'_>, name: &str) -> Result<GraphDataset> {
    let files = TuFiles { files, name };
    let mut notes = Vec::new();
    let graph_of_node = files.read_indicator()?;
    let (n_nodes, n_graphs) =
        (graph_of_node.len(), graph_of_node.last().map_or(0, |&last| last as usize + 1));
    let (targets, class_names) = files.read_targets(n_graphs, &mut notes)?;
    let edges = files.read_edges(&graph_of_node)?;
    let n_edges = edges.srcs.len();
    let edge_types = files.read_edge_types(n_edges)?;
    let weights = files.read_weights(n_edges, &mut notes)?;
    let mut builder = CscBuilder::new(n_nodes);
    if let Some(EdgeTypes { types, .. }) = &edge_types {
        builder = builder.edge_types(types);
    }
    if let Some(weights) = &weights {
        builder = builder.weights(weights);
    }
    let graph = builder.build(&edges.srcs, &edges.dsts)?;
    let mut node_offsets: Vec<u32> = (0..n_nodes as u32)
        .filter(|&node| node == 0 || graph_of_node[node as usize - 1] != graph_of_node[node as usize])
        .collect();
    node_offsets.push(n_nodes as u32);
    let mut data = GraphDataset::new(name, graph, node_offsets, targets)?;
    data.class_names = class_names;
    data.edge_type_names = edge_types.map_or_else(Vec::new, |edge_types| edge_types.names);
    data.notes = notes;
    if let Some(labels) = files.integers("node_labels", n_nodes)? {
        let Relabelled { classes, names } = relabel(&labels.values, labels.dim)?;
        data = data.with_node_labels(Labels::new(classes, names.len()))?;
        data.node_label_names = names;
    }
    if let Some(attributes) = files.finite("node_attributes", n_nodes)? {
        data = data.with_features(Arc::new(DenseFeatures::from_f32(attributes.values, attributes.dim)?))?;
    }
    files.note_unread(&mut data.notes)?;
    data.note_asymmetry()
}

/// The files of a set, `NAME_A.txt` and so on.
const PARTS: [&str; 8] = [
    "A",
    "graph_indicator",
    "graph_labels",
    "graph_attributes",
    "node_labels",
    "node_attributes",
    "edge_labels",
    "edge_attributes",
];

/// Returns the `NAME` of the only file `NAME_A.txt`.
fn find_name(folder: &Path) -> Result<String> {
    let io = |source| StoreError::Io { path: folder.into(), source };
    let mut names = BTreeSet::new();
    for entry in folder.read_dir().map_err(io)? {
        let file = entry.map_err(io)?.file_name();
        let Some(file) = file.to_str() else { continue };
        if let Some(name) = file.strip_suffix(".gz").unwrap_or(file).strip_suffix("_A.txt") {
            names.insert(name.to_owned());
        }
    }
    match names.len() {
        0 => Err(StoreError::Missing {
            folder: folder.into(),
            expected: "NAME_A.txt (the edges of a set of the TU collection)".into(),
        }
        .into()),
        1 => Ok(names.into_iter().collect()),
        n => Err(Error::WrongKind {
            path: folder.into(),
            kind: format!("a folder of {n} sets ({})", Vec::from_iter(names).join(", ")),
            expected: "a folder of one set: move each set to a separate folder",
        }),
    }
}

/// The files of the set `name`.
struct TuFiles<'a> {
    files: Files<'a>,
    name: &'a str,
}

/// The edges of all graphs, as node indices from 0.
struct Edges {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
}

/// The type of each edge, in the order of the file, and the names of the types.
struct EdgeTypes {
    types: Vec<u8>,
    names: Vec<String>,
}

/// The numbers in a file with one or more columns, row-major.
struct Columns<T> {
    table: TextTable,
    values: Vec<T>,
    /// The number of columns, at least 1.
    dim: usize,
}

impl TuFiles<'_> {
    /// Adds a note about the other text files of the set.
    fn note_unread(&self, notes: &mut Vec<Note>) -> Result<()> {
        let Files::Folder(folder) = self.files else { return Ok(()) };
        note_unread_files(folder, |name| self.is_unknown(name), notes)
    }

    /// Returns true for a text file of the set whose name is none of [`PARTS`].
    fn is_unknown(&self, file: &str) -> bool {
        let name = file.strip_suffix(".gz").unwrap_or(file).strip_suffix(".txt");
        let part = name.and_then(|name| name.strip_prefix(self.name)?.strip_prefix('_'));
        part.is_some_and(|part| !PARTS.contains(&part))
    }

    /// Reads the graph of each node. Graphs are numbered from 0.
    fn read_indicator(&self) -> Result<Vec<u32>> {
        let mut table = self.required("graph_indicator", "the graph of each node")?;
        let mut graphs: Vec<u32> = Vec::new();
        while let Some(row) = table.next_row()? {
            check_fields(row, 1, "one number, the node's graph")?;
            let graph: u32 = row.parse(0, "the node's graph, from 1, below 2^32")?;
            let last = graphs.last().map_or(0, |&last| last + 1);
            if graph == 0 || graph.wrapping_sub(last) > 1 {
                let expected = match last {
                    0 => "1, the first graph".to_owned(),
                    _ => format!("graph {last} or the next: sort the nodes by graph and leave no gaps"),
                };
                return Err(row.bad(0, &expected).into());
            }
            if graphs.len() == u32::MAX as usize {
                return Err(row.bad(0, "fewer than 2^32 nodes").into());
            }
            graphs.push(graph - 1);
        }
        not_empty(&table, graphs.len(), "the graph of the first node")?;
        Ok(graphs)
    }

    /// Reads the targets of the graphs and the names of the classes or columns.
    fn read_targets(
        &self,
        n_graphs: usize,
        notes: &mut Vec<Note>,
    ) -> Result<(Targets<GraphId>, Vec<String>)> {
        let Some(labels) = self.integers("graph_labels", n_graphs)? else {
            let is_number = |value: &f32| !value.is_infinite();
            let expected = "a number, or nan for a missing target";
            let Some(Columns { values, dim, .. }) =
                self.columns("graph_attributes", n_graphs, expected, is_number)?
            else {
                return Err(self.missing("graph_labels", "the class of each graph"));
            };
            return Ok((TargetValues::regression(values, dim)?.into(), numbers(dim)));
        };
        if let Some(attributes) = self.table("graph_attributes")? {
            notes.push(not_read(&attributes, "its numbers are regression targets"));
        }
        if labels.dim > 1 {
            let targets = labels_of_integers(labels.table.path(), &labels.values, labels.dim)?;
            return Ok((targets, numbers(labels.dim)));
        }
        let Relabelled { classes, names } = relabel(&labels.values, 1)?;
        Ok((Labels::new(classes, names.len()).into(), names))
    }

    fn read_edges(&self, graph_of_node: &[u32]) -> Result<Edges> {
        let mut table = self.required("A", "the edges")?;
        let mut edges = Edges { srcs: Vec::new(), dsts: Vec::new() };
        while let Some(row) = table.next_row()? {
            check_fields(row, 2, "two numbers, the nodes of an edge")?;
            let node = |field| -> Result<u32> {
                const EXPECTED: &str = "a node, counted from 1";
                let node: u64 = row.parse(field, EXPECTED)?;
                if !(1..=graph_of_node.len() as u64).contains(&node) {
                    return Err(row.bad(field, &format!("{EXPECTED}: 1 to {}", graph_of_node.len())).into());
                }
                Ok((node - 1) as u32)
            };
            let (src, dst) = (node(0)?, node(1)?);
            let [src_graph, dst_graph] = [src, dst].map(|node| graph_of_node[node as usize] + 1);
            if src_graph != dst_graph {
                let expected = format!("a node of graph {src_graph}, the graph of node {}", src + 1);
                return Err(row.bad(1, &expected).into());
            }
            edges.srcs.push(src);
            edges.dsts.push(dst);
        }
        not_empty(&table, edges.srcs.len(), "an edge, two nodes")?;
        Ok(edges)
    }

    fn read_edge_types(&self, n_edges: usize) -> Result<Option<EdgeTypes>> {
        let Some(labels) = self.integers("edge_labels", n_edges)? else { return Ok(None) };
        let Relabelled { classes, names } = relabel(&labels.values, labels.dim)?;
        let mut types = Vec::with_capacity(classes.len());
        for (position, &class) in classes.iter().enumerate() {
            types.push(u8::try_from(class).map_err(|_| StoreError::BadValue {
                path: labels.table.path().into(),
                what: "the label of edge",
                position: position as u64,
                expected: format!(
                    "one of 256 different labels, since an edge type is a byte; the file has {}",
                    names.len()
                ),
                found: names[class as usize].clone(),
            })?);
        }
        Ok(Some(EdgeTypes { types, names }))
    }

    fn read_weights(&self, n_edges: usize, notes: &mut Vec<Note>) -> Result<Option<Vec<f32>>> {
        let Some(attributes) = self.finite("edge_attributes", n_edges)? else { return Ok(None) };
        if attributes.dim > 1 {
            let why = format!("an edge has one weight, but the lines have {} numbers", attributes.dim);
            notes.push(not_read(&attributes.table, &why));
            return Ok(None);
        }
        Ok(Some(attributes.values))
    }

    fn integers(&self, what: &str, n_lines: usize) -> Result<Option<Columns<i64>>> {
        self.columns(what, n_lines, "an integer", |_| true)
    }

    fn finite(&self, what: &str, n_lines: usize) -> Result<Option<Columns<f32>>> {
        self.columns(what, n_lines, "a finite number", |value: &f32| value.is_finite())
    }

    fn columns<T: FromStr>(
        &self,
        what: &str,
        n_lines: usize,
        expected: &str,
        is_valid: fn(&T) -> bool,
    ) -> Result<Option<Columns<T>>> {
        let Some(mut table) = self.table(what)? else { return Ok(None) };
        let (mut values, mut n_read, mut dim) = (Vec::new(), 0, 1);
        while let Some(row) = table.next_row()? {
            if n_read == n_lines {
                return Err(row.bad(0, &format!("no more than {n_lines} lines")).into());
            }
            dim = row.n_fields();
            for field in 0..dim {
                let value = row.parse(field, expected)?;
                if !is_valid(&value) {
                    return Err(row.bad(field, expected).into());
                }
                values.push(value);
            }
            n_read += 1;
        }
        check_count(table.path(), "the number of lines", n_lines, n_read)?;
        Ok(Some(Columns { table, values, dim }))
    }

    fn table(&self, what: &str) -> Result<Option<TextTable>> {
        Ok(self.files.table(&format!("{}_{what}.txt", self.name))?)
    }

    fn required(&self, what: &str, why: &str) -> Result<TextTable> {
        self.table(what)?.ok_or_else(|| self.missing(what, why))
    }

    fn missing(&self, what: &str, why: &str) -> Error {
        let folder = match self.files {
            Files::Folder(folder) => folder.into(),
            Files::Embedded(_) => self.name.into(),
        };
        StoreError::Missing { folder, expected: format!("{}_{what}.txt ({why})", self.name) }.into()
    }
}

fn check_fields(row: TextRow<'_>, n_fields: usize, expected: &str) -> Result<()> {
    match row.n_fields() {
        n if n == n_fields => Ok(()),
        n => Err(row.bad(n_fields.min(n - 1), expected).into()),
    }
}

fn not_empty(table: &TextTable, n_rows: usize, expected: &str) -> Result<()> {
    if n_rows > 0 {
        return Ok(());
    }
    let (path, found) = (table.path().into(), "the end of the file".to_owned());
    Err(StoreError::BadLine { path, line: 1, expected: expected.to_owned(), found }.into())
}

fn not_read(table: &TextTable, why: &str) -> Note {
    Note::Other(format!("{} is not read: {why}", table.path().display()))
}
