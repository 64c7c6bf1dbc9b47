//! Node classification sets of the Open Graph Benchmark, in the folders that its Python library leaves
//! after download: `ogbn_arxiv` with `raw` and `split` in it.

use std::fs;
use std::path::{Path, PathBuf};

use kiln_feature::Labels;
use kiln_graph::NodeId;
use kiln_store::Error as StoreError;
use kiln_store::paths::{find, is_there, required};
use kiln_store::text::TextTable;
use kiln_store::{Npz, check_count};

use crate::check::{Place, check_split};
use crate::limits::{MEMORY_BYTES, check_n_nodes};
use crate::readers::npy::note_others;
use crate::readers::stored::{Edges, Source, Stored};
use crate::readers::{classes, name_of};
use crate::{Dataset, Error, Note, Result, Split};

/// The names that each file may have.
const EDGES: [&str; 2] = ["edge.csv.gz", "edge.csv"];
const FEATURES: [&str; 2] = ["node-feat.csv.gz", "node-feat.csv"];
const LABELS: [&str; 2] = ["node-label.csv.gz", "node-label.csv"];
const ARCHIVE: &str = "data.npz";

/// What only sets of several node or edge types have.
const OF_SEVERAL_TYPES: [&str; 2] = ["triplet-type-list.csv.gz", "edge_index_dict.npz"];

/// The sets whose reverse edges OGB's library adds on reading (the row `add_inverse_edge` of its table of
/// sets, version 1.3.6). Only sets of text files have the row's effect there.
const REVERSED: [&str; 2] = ["products", "proteins"];

/// The sets whose edges it leaves as they are.
const AS_GIVEN: [&str; 3] = ["arxiv", "papers100M", "mag"];

/// Opens an OGB folder. The text files are `.csv.gz` or `.csv`:
///
/// | file | what |
/// |---|---|
/// | `raw/edge` | a line `src,dst` for each edge |
/// | `raw/num-node-list`, `raw/num-edge-list` | one line: how many there are |
/// | `raw/node-feat` | a line of numbers for each node |
/// | `raw/node-label` | a line for each node: its class, `4` or `4.0`, or `nan` for none |
/// | `split/SCHEME/{train,valid,test}` | a line for each node of the part |
/// | `raw/data.npz`, `raw/node-label.npz` | instead of those in `raw`: the same as arrays |
///
/// Everything is read into memory. The edges are as given, but for `ogbn_products`: OGB's library adds the
/// reverse of each edge of that set, and so does this function, with a note; a self loop stays single where
/// OGB's library doubles it. The set is told by the folder's name: a name that is none of OGB's gives a note that
/// nothing was added. Years, edge features and `mapping` are not read.
///
/// # Errors
/// [`Error::Unsupported`] for sets of several node or edge types, with several labels a node or without
/// features, [`kiln_store::Error::Missing`] for a folder that lacks a file or has several split schemes (then use
/// [`open_with_split`]), [`Error::EdgeListTooLarge`] for compressed edges that would take more than 1 GiB (then use
/// [`open_within`](crate::open_within), or convert the folder), and for all that the files may hold that cannot be.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    read(folder.as_ref())?.read_within(MEMORY_BYTES)
}

/// Opens an OGB folder with the split scheme of this name: a folder in `split`.
///
/// # Errors
/// As for [`open`].
pub fn open_with_split(folder: impl AsRef<Path>, scheme: &str) -> Result<Dataset> {
    let folder = folder.as_ref();
    read_with(folder, &folder.join("split").join(scheme))?.read_within(MEMORY_BYTES)
}

/// Reads what is small, and looks where the rest is.
pub(crate) fn read(folder: &Path) -> Result<Stored> {
    read_with(folder, &the_split(folder)?)
}

/// Whether a folder looks like one of OGB's.
pub(crate) fn is_one(folder: &Path) -> bool {
    let raw = folder.join("raw");
    [&EDGES[..], &OF_SEVERAL_TYPES, &[ARCHIVE]].iter().any(|names| find(&raw, names).is_some())
}

/// What stands in `raw`.
struct Raw {
    edges: Edges,
    features: Source,
    classes: Vec<i32>,
}

fn read_with(folder: &Path, split_folder: &Path) -> Result<Stored> {
    let raw_folder = folder.join("raw");
    check_supported(folder, &raw_folder)?;
    let mut notes = Vec::new();
    let is_text = !is_there(&raw_folder.join(ARCHIVE));
    if !is_text {
        note_others(&raw_folder, &raw_folder.join(ARCHIVE), &EDGES, &mut notes);
    }
    let mut raw = if is_text { read_text(&raw_folder)? } else { read_npz(&raw_folder)? };
    let n_nodes = raw.classes.len();
    let name = name_of(folder);
    if is_text && REVERSED.contains(&set_name(&name)) {
        raw.edges.is_symmetrized = true;
        notes.push(Note::ReverseEdgesAdded { reason: format!("OGB's own library does so for {name}") });
    } else if is_text && !AS_GIVEN.contains(&set_name(&name)) {
        notes.push(Note::ReverseEdgesNotAdded { name: name.clone() });
    }
    let n_classes = classes::n_classes(&raw.classes);
    let labels = Labels::new(raw.classes, n_classes);
    let split = read_split(split_folder, n_nodes, &mut notes)?;
    check_split(Place::Set(split_folder), &split, &labels, &mut notes)?;
    Ok(Stored { name, labels, split, features: raw.features, edges: raw.edges, notes })
}

/// The folder of the only split scheme.
fn the_split(folder: &Path) -> Result<PathBuf> {
    let all = folder.join("split");
    let missing = |expected: String| StoreError::Missing { folder: all.clone(), expected };
    let entries = fs::read_dir(&all).map_err(|source| StoreError::Io { path: all.clone(), source })?;
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut schemes: Vec<PathBuf> = folders.collect();
    schemes.sort();
    match &schemes[..] {
        [] => Err(missing("folder of a split scheme with train.csv.gz in it".into()).into()),
        [scheme] => Ok(scheme.clone()),
        _ => {
            let names: Vec<String> = schemes.iter().map(|scheme| name_of(scheme)).collect();
            let names = names.join(", ");
            Err(missing(format!("single split scheme but {names}: choose one with ogb::open_with_split"))
                .into())
        }
    }
}

fn check_supported(folder: &Path, raw: &Path) -> Result<()> {
    if let Some(path) = find(raw, &OF_SEVERAL_TYPES) {
        let what = "a graph of several node or edge types".into();
        let instead = "take the set's nodes and edges of one type, saved as a folder of .npy files".into();
        return Err(Error::Unsupported { path, what, instead });
    }
    let graph_labels = ["graph-label.csv.gz", "graph-label.npz"];
    if find(raw, &graph_labels).is_some() {
        return Err(Error::WrongKind {
            path: folder.to_owned(),
            kind: "an OGB folder (graph classification)".into(),
            expected: "a node classification set",
        });
    }
    Ok(())
}

/// What OGB calls the set in a folder of this name: `products` for `ogbn_products`, and for `ogbn_products_pyg`
/// and `ogbn_products_dgl`, which older versions of its library made.
fn set_name(name: &str) -> &str {
    let name = name.strip_prefix("ogbn").map_or(name, |rest| rest.trim_start_matches(['_', '-']));
    ["_pyg", "_dgl"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn read_text(raw: &Path) -> Result<Raw> {
    let edges = required(
        raw,
        &EDGES,
        "or data.npz: the edges; what OGB's library makes of them in `processed` is for Python only",
    )?;
    let (nodes_path, n_nodes) = read_count(raw, ["num-node-list.csv.gz", "num-node-list.csv"])?;
    let n_nodes = check_n_nodes(&nodes_path, n_nodes)?;
    // They show that there are as many nodes, before arrays are made for so many.
    let labels = required(raw, &LABELS, "the class of each node: only node property sets have one")?;
    let classes = classes::from_table(&labels, n_nodes)?;
    check_count(&labels, "the number of lines", n_nodes, classes.len())?;
    let Some(features) = find(raw, &FEATURES) else {
        return Err(no_features(raw, "node-feat.csv.gz, a line for each node"));
    };
    let n_stated = Some(read_count(raw, ["num-edge-list.csv.gz", "num-edge-list.csv"])?);
    let edges = Edges { source: Source::Table(edges), n_stated, is_symmetrized: false };
    Ok(Raw { edges, features: Source::Table(features), classes })
}

/// The number in a file of one line, and the file.
fn read_count(raw: &Path, names: [&str; 2]) -> Result<(PathBuf, u64)> {
    const EXPECTED: &str = "one line with a number: the set has one graph";
    let path = required(raw, &names, "how many there are")?;
    let mut table = TextTable::open(&path)?;
    let Some(row) = table.next_row()? else {
        let (expected, found) = (EXPECTED.to_owned(), String::new());
        return Err(StoreError::BadLine { path, line: 1, expected, found }.into());
    };
    let n = row.parse(0, EXPECTED)?;
    match table.next_row()? {
        Some(row) => Err(row.bad(0, EXPECTED).into()),
        None => Ok((path, n)),
    }
}

fn read_npz(raw: &Path) -> Result<Raw> {
    let mut archive = Npz::open(raw.join(ARCHIVE))?;
    let n_nodes = count_of(&mut archive, "num_nodes_list")?;
    let n_nodes = check_n_nodes(archive.path(), n_nodes)?;
    let labels = required(raw, &["node-label.npz"], "the class of each node")?;
    let labels = Npz::open(labels)?.array("node_label")?;
    let classes = classes::from_array(&labels)?;
    check_count(labels.path(), "the number of labels", n_nodes, classes.len())?;
    if !archive.has("node_feat") {
        return Err(no_features(archive.path(), "node_feat"));
    }
    let n_edges = count_of(&mut archive, "num_edges_list")?;
    let path = archive.path().to_owned();
    let member = |name| Source::Member { archive: path.clone(), name };
    let edges = Edges {
        source: member("edge_index"),
        n_stated: Some((path.clone(), n_edges)),
        is_symmetrized: false,
    };
    Ok(Raw { edges, features: member("node_feat"), classes })
}

/// The number in an array of one.
fn count_of(archive: &mut Npz, name: &str) -> Result<u64> {
    let array = archive.array(name)?;
    check_count(array.path(), "the number of graphs", 1, array.n_values())?;
    let mut count = 0;
    array.for_each_integer(|position, value| -> Result<()> {
        let bad = |_| array.bad_value("entry", position, "a number of nodes or edges", value);
        count = u64::try_from(value).map_err(bad)?;
        Ok(())
    })?;
    Ok(count)
}

fn no_features(path: &Path, name: &str) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what: "a graph without node features".into(),
        instead: format!("add {name}"),
    }
}

fn read_split(folder: &Path, n_nodes: usize, notes: &mut Vec<Note>) -> Result<Split> {
    let has_tables = find(folder, &["train.csv.gz", "train.csv"]).is_some();
    let pickled = folder.join("split_dict.pt");
    if is_there(&pickled) && !has_tables {
        let what = "a split that only Python reads".into();
        let instead = "save its parts as train.csv.gz, valid.csv.gz and test.csv.gz, a line a node".into();
        return Err(Error::Unsupported { path: pickled, what, instead });
    }
    if is_there(&pickled) {
        notes.push(Note::Other(format!(
            "{}: the text files next to it were read; OGB's library would take this one",
            pickled.display()
        )));
    }
    let part = |name: &str| -> Result<Vec<NodeId>> {
        let names = [format!("{name}.csv.gz"), format!("{name}.csv")];
        let path = required(folder, &names.each_ref().map(|name| &**name), "the nodes of one part")?;
        let mut table = TextTable::open(path)?;
        let expected = format!("a node, 0 to {n_nodes} - 1");
        let mut nodes = Vec::new();
        while let Some(row) = table.next_row()? {
            let node: u32 = row.parse(0, &expected)?;
            if node as usize >= n_nodes || row.n_fields() > 1 {
                return Err(row.bad(if row.n_fields() > 1 { row.n_fields() } else { 0 }, &expected).into());
            }
            nodes.push(NodeId(node));
        }
        nodes.shrink_to_fit();
        Ok(nodes)
    };
    Ok(Split { train: part("train")?.into(), val: part("valid")?.into(), test: part("test")?.into() })
}
