//! The reader of OGB's sets of many graphs (`ogbg_molhiv`, `ogbg_molpcba`, `ogbg_molesol`, …), in the text files that its
//! Python library downloads.

use std::path::Path;
use std::sync::Arc;

use kiln_feature::{DenseFeatures, Targets};
use kiln_graph::{CscBuilder, GraphId};
use kiln_store::Error as StoreError;
use kiln_store::check_count;
use kiln_store::paths::{find, required};
use kiln_store::text::TextTable;

use crate::ignored_files::{is_data, note_unread_files};
use crate::readers::name_of;
use crate::readers::ogb::{
    EDGE_COUNTS, EDGE_FEATURES, EDGES, FEATURES, NODE_COUNTS, WITH_SPLIT, read_split, the_split,
};
use crate::readers::stored::for_each_row;
use crate::readers::target_arrays::TargetTable;
use crate::{Error, GraphDataset, Note, Result, Split};

/// The files of the graphs' labels, which only sets of graphs have.
const LABELS: [&str; 2] = ["graph-label.csv.gz", "graph-label.csv"];
const LABEL_ARCHIVE: &str = "graph-label.npz";

/// The beginnings of the names of sets whose edges are listed once, so that OGB's library adds the reverse of each (the
/// row `add_inverse_edge` of its table of sets, version 1.3.6).
const LISTED_ONCE: [&str; 2] = ["mol", "ppa"];

/// Opens an OGB folder of many graphs, with its split. The text files are `.csv.gz` or `.csv`:
///
/// | file | content |
/// |---|---|
/// | `raw/num-node-list`, `raw/num-edge-list` | a line for each graph: its number of nodes or edges |
/// | `raw/edge` | a line `src,dst` for each edge, graph by graph; nodes are numbered from 0 in each graph |
/// | `raw/node-feat` | a line of numbers for each node (optional) |
/// | `raw/graph-label` | a line for each graph: one or several numbers, or `nan` |
/// | `split/SCHEME/{train,valid,test}` | a line for each graph of the part |
///
/// Labels of which all are 0, 1 or missing are several labels per graph, also in a single column (as in `ogbg_molhiv`).
/// Other whole numbers in a single column are classes, and everything else is regression targets. The reverse of each
/// edge is added to sets whose name starts with `mol` or `ppa`, as by OGB's library, with a note. Edge features are not
/// read, with a note.
///
/// # Errors
/// Returns [`kiln_store::Error::Missing`] if the folder lacks a file or has several split schemes,
/// [`kiln_store::Error::BadLine`] for an invalid line, [`kiln_store::Error::Inconsistent`] if a file has a wrong number of
/// lines, [`kiln_store::Error::BadValue`] if a graph of the split has no target, and [`Error::Unsupported`] for archives.
pub fn open_graphs(folder: impl AsRef<Path>) -> Result<(GraphDataset, Split<GraphId>)> {
    let folder = folder.as_ref();
    let (raw, name, mut notes) = (folder.join("raw"), name_of(folder), Vec::new());
    if let Some(path) = find(&raw, &[LABEL_ARCHIVE]) {
        let (what, instead) = ("a set of graphs in archives", "save it in OGB's text files");
        return Err(Error::Unsupported { path, what: what.into(), instead: instead.into() });
    }
    let n_nodes = Counts::read(&raw, NODE_COUNTS, u32::MAX.into())?;
    let n_edges = Counts::read(&raw, EDGE_COUNTS, u64::MAX)?;
    let n_graphs = n_nodes.counts.len();
    check_count(folder, "the number of lines of num-edge-list", n_graphs, n_edges.counts.len())?;
    let path = required(&raw, &LABELS, "the labels of each graph")?;
    // The labels are read before anything is allocated for the stated numbers of nodes and edges.
    let table = TargetTable::read(&path, n_graphs)?;
    check_count(&path, "the number of lines", n_graphs, table.n_rows())?;
    let targets: Targets<GraphId> = table.targets_or_classes()?;
    let edges = read_edges(&raw, &n_nodes, &n_edges)?;
    // Arrays of one entry per node are allocated only for numbers of nodes that the files' lines confirm.
    let features = match find(&raw, &FEATURES) {
        Some(path) => Some(read_features(&path, n_nodes.sum as usize)?),
        None => {
            check_ends(folder, n_nodes.sum, edges.srcs.len() as u64, n_graphs as u64)?;
            None
        }
    };
    let mut builder = CscBuilder::new(n_nodes.sum as usize);
    if LISTED_ONCE.iter().any(|start| set_name(&name).starts_with(start)) {
        builder = builder.symmetrize();
        notes.push(Note::ReverseEdgesAdded { reason: format!("OGB's library does so for {name}") });
    }
    let graph = builder.build(&edges.srcs, &edges.dsts)?;
    let mut data = GraphDataset::new(name, graph, n_nodes.offsets(), targets)?;
    if let Some(features) = features {
        data = data.with_features(Arc::new(features))?;
    }
    if let Some(path) = find(&raw, &EDGE_FEATURES) {
        notes.push(Note::Other(format!("{} is not read: edges have no features", path.display())));
    }
    let known = [EDGES, FEATURES, EDGE_FEATURES, LABELS, NODE_COUNTS, EDGE_COUNTS].concat();
    note_unread_files(&raw, |name| is_data(name) && !known.contains(&name), &mut notes)?;
    let split_folder = the_split(folder, WITH_SPLIT)?;
    let split = read_split(&split_folder, n_graphs, &mut notes)?;
    check_targets(&split_folder, &split, &data.targets())?;
    data.notes = notes;
    Ok((data, split))
}

/// Returns true if a folder contains the labels of graphs.
pub(crate) fn is_one(folder: &Path) -> bool {
    find(&folder.join("raw"), &[LABELS[0], LABELS[1], LABEL_ARCHIVE]).is_some()
}

/// Returns OGB's name of the set: `molhiv` for `ogbg_molhiv`, `ogbg-molhiv` and `ogbg_molhiv_pyg`.
fn set_name(name: &str) -> &str {
    name.strip_prefix("ogbg").map_or(name, |rest| rest.trim_start_matches(['_', '-']))
}

/// A number per graph, and the sum.
struct Counts {
    counts: Vec<u64>,
    sum: u64,
}

impl Counts {
    /// Reads a file with one number per line, whose sum is at most `max`.
    fn read(raw: &Path, names: [&str; 2], max: u64) -> Result<Self> {
        let mut table = TextTable::open(required(raw, &names, "a number for each graph")?)?;
        let (mut counts, mut sum) = (Vec::new(), 0_u64);
        while let Some(row) = table.next_row()? {
            let expected = format!("a number, with a sum of at most {max} in all lines");
            let n: u64 = row.parse(0, &expected)?;
            let next = sum.checked_add(n).filter(|sum| *sum <= max && row.n_fields() == 1);
            sum = next.ok_or_else(|| row.bad(0, &expected))?;
            counts.push(n);
        }
        Ok(Self { counts, sum })
    }

    /// Returns the start of each graph's range, followed by the sum, which fits 32 bits.
    fn offsets(&self) -> Vec<u32> {
        let mut end = 0;
        let ends = self.counts.iter().map(|&n| {
            end += n as u32;
            end
        });
        [0].into_iter().chain(ends).collect()
    }
}

/// The edges of all graphs, in ids of the block-diagonal graph.
#[derive(Default)]
struct Edges {
    srcs: Vec<u32>,
    dsts: Vec<u32>,
}

fn read_edges(raw: &Path, n_nodes: &Counts, n_edges: &Counts) -> Result<Edges> {
    let path = required(raw, &EDGES, "the edges of all graphs")?;
    let mut table = TextTable::open(&path)?;
    let (mut edges, mut first_node, mut n_read) = (Edges::default(), 0_u32, 0_u64);
    for (&n_nodes, &n_edges) in n_nodes.counts.iter().zip(&n_edges.counts) {
        for _ in 0..n_edges {
            let Some(row) = table.next_row()? else { break };
            let expected = format!("two nodes of the graph, below {n_nodes}");
            if row.n_fields() != 2 {
                return Err(row.bad(row.n_fields().min(2), &expected).into());
            }
            let node = |field| -> Result<u32> {
                let node: u32 = row.parse(field, &expected)?;
                match u64::from(node) < n_nodes {
                    true => Ok(first_node + node),
                    false => Err(row.bad(field, &expected).into()),
                }
            };
            edges.srcs.push(node(0)?);
            edges.dsts.push(node(1)?);
            n_read += 1;
        }
        first_node += n_nodes as u32;
    }
    if let Some(row) = table.next_row()? {
        return Err(row.bad(0, &format!("no more than {} lines", n_edges.sum)).into());
    }
    check_count(&path, "the number of edges", n_edges.sum as usize, n_read as usize)?;
    Ok(edges)
}

fn read_features(path: &Path, n_nodes: usize) -> Result<DenseFeatures> {
    let mut values = Vec::new();
    let dim = for_each_row(path, n_nodes, |row| {
        values.extend_from_slice(row);
        Ok(())
    })?;
    Ok(DenseFeatures::from_f32(values, dim)?)
}

/// Checks that graphs without node features have no more nodes than ends of edges, and one more for each graph.
fn check_ends(folder: &Path, n_nodes: u64, n_edges: u64, n_graphs: u64) -> Result<()> {
    let most = 2 * n_edges + n_graphs;
    match n_nodes <= most {
        true => Ok(()),
        false => Err(StoreError::Inconsistent {
            file: folder.join("raw"),
            what: "the number of nodes without features and edges",
            expected: most,
            got: n_nodes,
        }
        .into()),
    }
}

/// Checks that each graph of the split has a target.
fn check_targets(folder: &Path, split: &Split<GraphId>, targets: &Targets<GraphId>) -> Result<()> {
    for (part, graphs) in split.parts() {
        if let Some(position) = graphs.iter().position(|&graph| !targets.has_any(graph)) {
            return Err(StoreError::BadValue {
                path: folder.to_owned(),
                what: if part == "train" { "train split entry" } else { "evaluation split entry" },
                position: position as u64,
                expected: "a graph that has a target".into(),
                found: format!("graph {} in {part}", graphs[position].0),
            }
            .into());
        }
    }
    Ok(())
}
