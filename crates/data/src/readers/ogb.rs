//! Readers of sets of the Open Graph Benchmark: [`open`] for sets for node tasks and for link prediction,
//! [`open_graphs`] for sets of graphs, in the folders that its Python library downloads: `ogbn_arxiv`, for example, which contains `raw`
//! and `split`.

mod heterogeneous;
mod heterogeneous_raw;
mod links;

use std::fs;
use std::path::{Path, PathBuf};

use kiln_feature::{Labels, Targets};
use kiln_graph::ItemId;
use kiln_store::Error as StoreError;
use kiln_store::paths::{find, is_there, required};
use kiln_store::text::TextTable;
use kiln_store::{Npz, check_count};

use crate::check::{Place, check_split};
use crate::ignored_files::{is_data, note_others, note_unread, note_unread_files};
use crate::limits::{MEMORY_BYTES, check_n_nodes};
use crate::readers::edge_means::EdgeMeans;
use crate::readers::stored::{Edges, Source, Stored};
use crate::readers::target_arrays::TargetTable;
use crate::readers::{classes, name_of};
use crate::{Dataset, Error, Note, Result, Split};

pub(crate) use self::heterogeneous::has_types;
pub use self::heterogeneous::{open_heterogeneous, open_heterogeneous_within};
pub(crate) use super::ogb_graphs::is_one as has_graphs;
pub use super::ogb_graphs::open_graphs;

/// The possible names of the text file of the edges. The next two constants are the names for features and labels.
pub(super) const EDGES: [&str; 2] = ["edge.csv.gz", "edge.csv"];
pub(super) const FEATURES: [&str; 2] = ["node-feat.csv.gz", "node-feat.csv"];
pub(super) const EDGE_FEATURES: [&str; 2] = ["edge-feat.csv.gz", "edge-feat.csv"];
const LABELS: [&str; 2] = ["node-label.csv.gz", "node-label.csv"];
pub(super) const NODE_COUNTS: [&str; 2] = ["num-node-list.csv.gz", "num-node-list.csv"];
pub(super) const EDGE_COUNTS: [&str; 2] = ["num-edge-list.csv.gz", "num-edge-list.csv"];
const ARCHIVE: &str = "data.npz";
const LABEL_ARCHIVE: &str = "node-label.npz";

/// Files that exist only in sets of several node or edge types.
const OF_SEVERAL_TYPES: [&str; 3] =
    ["triplet-type-list.csv.gz", "triplet-type-list.csv", "edge_index_dict.npz"];

/// The sets to which OGB's library adds reverse edges when it reads them (the row `add_inverse_edge` of its table of
/// sets, version 1.3.6). It does so only for sets of text files.
const REVERSED: [&str; 5] = ["products", "proteins", "ppa", "collab", "ddi"];

/// The sets whose edges OGB's library does not change.
const AS_GIVEN: [&str; 4] = ["arxiv", "papers100M", "mag", "citation2"];

/// Opens an OGB folder. One with several node types or edge types is a heterogeneous set, which
/// [`open_heterogeneous`] opens. In the others, the text files are `.csv.gz` or `.csv`:
///
/// | file | content |
/// |---|---|
/// | `raw/edge` | a line `src,dst` for each edge |
/// | `raw/num-node-list`, `raw/num-edge-list` | one line: the number of nodes or edges |
/// | `raw/node-feat` | a line of numbers for each node |
/// | `raw/edge-feat` | without `node-feat`, a line of numbers for each edge, whose means are the node features |
/// | `raw/node-label` | a line for each node: its class, `4` or `4.0`, or `nan` for none; or several numbers or `nan` |
/// | `split/SCHEME/{train,valid,test}` | a line for each node of the part |
/// | `split/SCHEME/{train,valid,test}.npz` | instead, for link prediction: the links of the part |
/// | `raw/data.npz`, `raw/node-label.npz` | the same data as arrays, instead of the text files in `raw` |
///
/// The archives of links have the arrays of OGB's split: `edge` `[n_links, 2]`, or `source_node` and `target_node`; and for
/// fixed negatives `target_node_neg` `[n_links, n_negatives]`, or `edge_neg` `[n_negatives, 2]`, which are dealt to the
/// links in their order. OGB downloads pickled files, which only Python can read; the error for them has a command that
/// converts them. The graph of such a set is the message graph, and no node has a label.
///
/// Everything is read into memory. The edges are not changed, except for `ogbn_products`: OGB's library adds the
/// reverse of each edge of that set, and so does this function, with a note. Self loops stay single, whereas OGB's
/// library doubles them. Several numbers per node are labels if all are 0 or 1, otherwise regression targets. The folder's name identifies the set; if it is not the name of an OGB set, a note states
/// that no edges were added. Other files of `raw`, such as years and weights of edges, and other arrays are not read, which a note
/// states, and edge features (`edge-feat.csv.gz`, or `edge_feat` of an
/// archive) only in place of node features, which a note states: a node's features are the means of its edges' (of both directions, if reverse edges are added).
///
/// # Errors
/// Returns [`Error::Unsupported`] for sets of several node or edge types or without features, [`kiln_store::Error::Missing`] if the folder lacks a file or has several split schemes
/// ([`open_with_split`] selects one), [`Error::EdgeListTooLarge`] if compressed edges would take more than 1 GiB
/// ([`open_within`](crate::open_within) sets another limit, and conversion has none), and other errors of
/// [`kiln_store`] for invalid files.
pub fn open(folder: impl AsRef<Path>) -> Result<Dataset> {
    open_within(folder.as_ref(), MEMORY_BYTES)
}

/// Opens a folder as [`open`] does, with another limit for edges in compressed text and for nodes without features.
pub(crate) fn open_within(folder: &Path, memory_bytes: u64) -> Result<Dataset> {
    match has_types(folder) {
        true => open_heterogeneous_within(folder, memory_bytes),
        false => read(folder)?.read_within(memory_bytes),
    }
}

/// Opens an OGB folder with the split in the folder `split/SCHEME`.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_with_split(folder: impl AsRef<Path>, scheme: &str) -> Result<Dataset> {
    let folder = folder.as_ref();
    read_with(folder, &folder.join("split").join(scheme))?.read_within(MEMORY_BYTES)
}

/// Reads the labels and the split, and locates the files of features and edges.
pub(crate) fn read(folder: &Path) -> Result<Stored> {
    read_with(folder, &the_split(folder, WITH_SPLIT)?)
}

/// Returns true if a folder contains a file that identifies an OGB folder.
pub(crate) fn is_one(folder: &Path) -> bool {
    let raw = folder.join("raw");
    [&EDGES[..], &OF_SEVERAL_TYPES, &[ARCHIVE]].iter().any(|names| find(&raw, names).is_some())
}

/// The content of the folder `raw`.
struct Raw {
    edges: Edges,
    features: Source,
    /// The targets of the nodes; without classes in a set of links.
    targets: Targets,
    /// The edge features, if there are any that are not read.
    unread: Option<String>,
}

fn read_with(folder: &Path, split_folder: &Path) -> Result<Stored> {
    let raw_folder = folder.join("raw");
    check_supported(folder, &raw_folder)?;
    let mut notes = Vec::new();
    let is_text = !is_there(&raw_folder.join(ARCHIVE));
    if !is_text {
        note_others(&raw_folder, &raw_folder.join(ARCHIVE), &EDGES, &mut notes);
    }
    let has_links = is_text && links::is_one(&raw_folder, split_folder);
    let mut raw =
        if is_text { read_text(&raw_folder, has_links)? } else { read_npz(&raw_folder, &mut notes)? };
    note_unread_raw(&raw_folder, is_text, &mut notes)?;
    let n_nodes = raw.targets.len();
    let name = name_of(folder);
    if is_text && REVERSED.contains(&set_name(&name)) {
        raw.edges.is_symmetrized = true;
        notes.push(Note::ReverseEdgesAdded { reason: format!("OGB's library does so for {name}") });
    } else if is_text && !AS_GIVEN.contains(&set_name(&name)) {
        notes.push(Note::ReverseEdgesNotAdded { name: name.clone() });
    }
    if let Source::EdgeMeans(means) = &mut raw.features {
        means.is_symmetrized = raw.edges.is_symmetrized;
        let path = means.features.display();
        notes.push(Note::Other(format!("node features are the means of the edge features in {path}")));
    }
    if let Some(unread) = &raw.unread {
        notes.push(Note::Other(format!(
            "the edge features in {unread} are not read: write edge_features.npy beside the edges in a folder of .npy \
             files to have them"
        )));
    }
    let Raw { targets, features, edges, .. } = raw;
    if has_links {
        let links = Some(links::read(split_folder, n_nodes, &mut notes)?);
        return Ok(Stored { name, targets, split: Split::default(), links, features, edges, notes });
    }
    let split = read_split(split_folder, n_nodes, &mut notes)?;
    check_split(Place::Set(split_folder), &split, &targets, &mut notes)?;
    Ok(Stored { name, targets, split, links: None, features, edges, notes })
}

/// Adds a note about the files in the folder `raw` that are not read, such as the years of nodes.
fn note_unread_raw(raw: &Path, is_text: bool, notes: &mut Vec<Note>) -> Result<()> {
    let known = match is_text {
        true => [EDGES, FEATURES, EDGE_FEATURES, LABELS, NODE_COUNTS, EDGE_COUNTS].concat(),
        false => [&EDGES[..], &[ARCHIVE, LABEL_ARCHIVE]].concat(),
    };
    note_unread_files(raw, |name| is_data(name) && !known.contains(&name), notes)
}

/// Adds a note about the arrays of an archive that are not read.
pub(super) fn note_unread_arrays(archive: &Npz, known: &[&str], notes: &mut Vec<Note>) {
    let mut names = archive.names();
    names.retain(|name| !known.contains(&name.as_str()));
    note_unread(&format!("arrays of {}", archive.path().display()), &names, notes);
}

/// The way to choose a split scheme.
pub(super) const WITH_SPLIT: &str = "with ogb::open_with_split";

/// Returns the folder of the only split scheme. `how` is the way to choose one of several, for the error.
pub(super) fn the_split(folder: &Path, how: &str) -> Result<PathBuf> {
    let all = folder.join("split");
    let missing = |expected: String| StoreError::Missing { folder: all.clone(), expected };
    let entries = fs::read_dir(&all).map_err(|source| StoreError::Io { path: all.clone(), source })?;
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let mut schemes: Vec<PathBuf> = folders.collect();
    schemes.sort();
    match &schemes[..] {
        [] => Err(missing("subfolder with train.csv.gz, one per split scheme".into()).into()),
        [scheme] => Ok(scheme.clone()),
        _ => {
            let names: Vec<String> = schemes.iter().map(|scheme| name_of(scheme)).collect();
            let names = names.join(", ");
            Err(missing(format!("unique split scheme: choose one of {names} {how}")).into())
        }
    }
}

fn check_supported(folder: &Path, raw: &Path) -> Result<()> {
    if let Some(path) = find(raw, &OF_SEVERAL_TYPES) {
        let what = "a graph of several node or edge types".into();
        let instead = "open it with ogb::open or Dataset::open".into();
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

/// Returns OGB's name of the set in a folder: `products` for `ogbn_products`, and for `ogbn_products_pyg` and
/// `ogbn_products_dgl`, which older versions of OGB's library create.
fn set_name(name: &str) -> &str {
    let prefix = ["ogbn", "ogbl"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let name = prefix.map_or(name, |rest| rest.trim_start_matches(['_', '-']));
    ["_pyg", "_dgl"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

fn read_text(raw: &Path, has_links: bool) -> Result<Raw> {
    let edges = required(
        raw,
        &EDGES,
        "the edges, unless data.npz contains them; the files in `processed` are readable only by OGB's library",
    )?;
    let (nodes_path, n_nodes) = read_count(raw, NODE_COUNTS)?;
    let n_nodes = check_n_nodes(&nodes_path, n_nodes)?;
    // The number of nodes is compared with the number of labels before arrays of that length are allocated.
    let targets = match has_links {
        true => {
            links::check_n_nodes(raw, n_nodes)?;
            of_classes(vec![-1; n_nodes])
        }
        false => {
            let labels = required(raw, &LABELS, "the class of each node: only node property sets have one")?;
            let targets = targets_of_table(&labels, n_nodes)?;
            check_count(&labels, "the number of lines", n_nodes, targets.len())?;
            targets
        }
    };
    let (features, unread) = match (find(raw, &FEATURES), find(raw, &EDGE_FEATURES)) {
        (Some(features), unread) => (Source::Table(features), unread),
        (None, Some(features)) => {
            (Source::EdgeMeans(EdgeMeans { edges: edges.clone(), features, is_symmetrized: false }), None)
        }
        (None, None) => return Err(no_features(raw, "node-feat.csv.gz, a line for each node")),
    };
    let n_stated = Some(read_count(raw, EDGE_COUNTS)?);
    let edges = Edges { source: Source::Table(edges), n_stated, is_symmetrized: false, columns: Vec::new() };
    let unread = unread.map(|path| path.display().to_string());
    Ok(Raw { edges, features, targets, unread })
}

/// Reads the labels: one class per line, or several numbers per line.
fn targets_of_table(path: &Path, n_nodes: usize) -> Result<Targets> {
    let mut table = TextTable::open(path)?;
    if table.next_row()?.is_some_and(|row| row.n_fields() > 1) {
        return TargetTable::read(path, n_nodes)?.targets();
    }
    Ok(of_classes(classes::from_table(path, n_nodes)?))
}

fn of_classes(classes: Vec<i32>) -> Targets {
    let n_classes = classes::n_classes(&classes);
    Labels::new(classes, n_classes).into()
}

/// Returns the path of a file that contains one line with a number, and the number.
fn read_count(raw: &Path, names: [&str; 2]) -> Result<(PathBuf, u64)> {
    const EXPECTED: &str = "one line with a number: the set has one graph";
    let path = required(raw, &names, "the number of nodes or edges")?;
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

/// The arrays of the archive, the last of which has a note of its own.
const ARRAYS: [&str; 5] = ["num_nodes_list", "num_edges_list", "edge_index", "node_feat", "edge_feat"];

fn read_npz(raw: &Path, notes: &mut Vec<Note>) -> Result<Raw> {
    let mut archive = Npz::open(raw.join(ARCHIVE))?;
    note_unread_arrays(&archive, &ARRAYS, notes);
    let n_nodes = count_of(&mut archive, "num_nodes_list")?;
    let n_nodes = check_n_nodes(archive.path(), n_nodes)?;
    let labels = required(raw, &[LABEL_ARCHIVE], "the class of each node")?;
    let labels = Npz::open(labels)?.array("node_label")?;
    let targets = match labels.shape().get(1) {
        Some(2..) => TargetTable::of_array(&labels)?.targets()?,
        _ => of_classes(classes::from_array(&labels)?),
    };
    check_count(labels.path(), "the number of labels", n_nodes, targets.len())?;
    if !archive.has("node_feat") {
        return Err(no_features(archive.path(), "node_feat"));
    }
    let n_edges = count_of(&mut archive, "num_edges_list")?;
    let path = archive.path().to_owned();
    let member = |name: &str| Source::Member { archive: path.clone(), name: name.to_owned() };
    let edges = Edges {
        source: member("edge_index"),
        n_stated: Some((path.clone(), n_edges)),
        is_symmetrized: false,
        columns: Vec::new(),
    };
    let unread = archive.has("edge_feat").then(|| format!("edge_feat of {}", path.display()));
    Ok(Raw { edges, features: member("node_feat"), targets, unread })
}

/// Returns the number in an array of one element.
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

pub(super) fn read_split<I: ItemId>(
    folder: &Path,
    n_items: usize,
    notes: &mut Vec<Note>,
) -> Result<Split<I>> {
    let has_tables = find(folder, &["train.csv.gz", "train.csv"]).is_some();
    let pickled = folder.join("split_dict.pt");
    if is_there(&pickled) && !has_tables {
        let what = "a pickled split, which only Python can read,".into();
        let instead =
            "save its parts as train.csv.gz, valid.csv.gz and test.csv.gz, one node per line".into();
        return Err(Error::Unsupported { path: pickled, what, instead });
    }
    if is_there(&pickled) {
        notes.push(Note::Other(format!(
            "{} is ignored: the text files beside it are read, whereas OGB's library would read this file",
            pickled.display()
        )));
    }
    let noun = I::NAME;
    let part = |name: &str| -> Result<Vec<I>> {
        let names = [format!("{name}.csv.gz"), format!("{name}.csv")];
        let path =
            required(folder, &names.each_ref().map(|name| &**name), &format!("the {noun}s of one part"))?;
        let mut table = TextTable::open(path)?;
        let expected = format!("a {noun} id below {n_items}");
        let mut items = Vec::new();
        while let Some(row) = table.next_row()? {
            let item: u32 = row.parse(0, &expected)?;
            if item as usize >= n_items || row.n_fields() > 1 {
                return Err(row.bad(if row.n_fields() > 1 { row.n_fields() } else { 0 }, &expected).into());
            }
            items.push(I::new(item));
        }
        items.shrink_to_fit();
        Ok(items)
    };
    Ok(Split { train: part("train")?.into(), val: part("valid")?.into(), test: part("test")?.into() })
}
