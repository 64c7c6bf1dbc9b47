//! The files in the folder `raw` of an OGB folder with several node types: text files, or archives.

use std::path::{Path, PathBuf};

use kiln_feature::Targets;
use kiln_graph::{NodeTypes, Relations};
use kiln_store::paths::{find, is_there, required};
use kiln_store::text::{TextRow, TextTable};
use kiln_store::{Error as StoreError, Npz, check_count};

use super::links::check_n_lines;
use super::{
    EDGE_COUNTS, EDGE_FEATURES, EDGES, FEATURES, LABELS, count_of, of_classes, read_count, targets_of_table,
};
use crate::ignored_files::{is_data, note_unread_files};
use crate::limits::{MAX_TYPES, check_n_nodes};
use crate::readers::classes;
use crate::readers::relation_files::{RelationFiles, unique_names};
use crate::readers::stored::{Edges, Source};
use crate::readers::target_arrays::TargetTable;
use crate::{Error, Note, Result};

/// The archive of the edges, which identifies a folder of archives.
pub(super) const EDGE_ARCHIVE: &str = "edge_index_dict.npz";

const TYPE_COUNTS: [&str; 2] = ["num-node-dict.csv.gz", "num-node-dict.csv"];
const TRIPLETS: [&str; 2] = ["triplet-type-list.csv.gz", "triplet-type-list.csv"];
const HAS_LABEL: [&str; 2] = ["nodetype-has-label.csv.gz", "nodetype-has-label.csv"];

/// The folders of relations, features and labels.
const FOLDERS: [&str; 3] = ["relations", "node-feat", "node-label"];

/// The archives, the last of which has a note of its own.
const ARCHIVES: [&str; 6] = [
    "num_nodes_dict.npz",
    "num_edges_dict.npz",
    EDGE_ARCHIVE,
    "node_feat_dict.npz",
    "node-label.npz",
    "edge_feat_dict.npz",
];

/// The maximum length of the name of a node type or a relation, in bytes.
const MAX_NAME_BYTES: usize = 120;

const NAME: &str = "a name of 1 to 120 bytes without / and \\";

/// The content of the folder `raw`. The files of features and edges are not read yet.
#[derive(Debug)]
pub(super) struct RawTypes {
    /// The file that states the numbers of nodes.
    pub(super) stated_in: PathBuf,
    /// The node types, in the order of their names.
    pub(super) types: NodeTypes,
    /// The relations, in the order of their triplets.
    pub(super) relations: Vec<RelationFiles>,
    /// The location of the features of each type.
    pub(super) features: Vec<Option<Source>>,
    /// The targets; `None` if no type has labels.
    pub(super) labels: Option<LabelsOfType>,
}

/// The targets of the nodes of one type.
#[derive(Debug)]
pub(super) struct LabelsOfType {
    pub(super) node_type: usize,
    pub(super) values: Targets,
}

/// A relation: the names of the sources' type, the relation and the destinations' type.
type Triplet = [String; 3];

/// Reads the text files, and adds notes about those that are not read.
pub(super) fn read_text(raw: &Path, notes: &mut Vec<Note>) -> Result<RawTypes> {
    let stated_in = required(raw, &TYPE_COUNTS, "the number of nodes of each type")?;
    let types = types_of(&stated_in, read_node_counts(&stated_in)?)?;
    let path = required(raw, &TRIPLETS, "the relations")?;
    let mut triplets = Vec::<Triplet>::new();
    let mut table = TextTable::open(&path)?;
    while let Some(row) = table.next_row()? {
        const EXPECTED: &str = "SOURCE,RELATION,DESTINATION";
        if row.n_fields() != 3 {
            return Err(row.bad(3.min(row.n_fields()), EXPECTED).into());
        }
        triplets.push([name_in(&row, 0)?, name_in(&row, 1)?, name_in(&row, 2)?]);
        check_n_relations(&path, triplets.len())?;
    }
    let mut features = Vec::new();
    for (node_type, name) in types.names().iter().enumerate() {
        let folder = raw.join("node-feat").join(name);
        let found = find(&folder, &FEATURES);
        if let Some(path) = &found {
            check_n_lines(path, types.range(node_type).len())?;
            note_unread_files(&folder, |name| is_data(name) && !FEATURES.contains(&name), notes)?;
        }
        features.push(found.map(Source::Table));
    }
    let relations = relations_of(&path, &types, triplets, |triplet| {
        let folder = raw.join("relations").join(triplet.join("___"));
        if let Some(features) = find(&folder, &EDGE_FEATURES) {
            notes.push(not_read(&features.display().to_string()));
        }
        let edges = required(&folder, &EDGES, "the edges of the relation")?;
        let known = [EDGES, EDGE_COUNTS, EDGE_FEATURES].concat();
        note_unread_files(&folder, |name| is_data(name) && !known.contains(&name), notes)?;
        let n_stated = Some(read_count(&folder, EDGE_COUNTS)?);
        Ok(Edges { source: Source::Table(edges), n_stated, is_symmetrized: false, columns: Vec::new() })
    })?;
    let labels = read_labels(raw, &types)?;
    let known = [&TYPE_COUNTS[..], &TRIPLETS, &HAS_LABEL, &FOLDERS].concat();
    note_unread_files(raw, |name| (is_data(name) || !name.contains('.')) && !known.contains(&name), notes)?;
    Ok(RawTypes { stated_in, types, relations, features, labels })
}

fn not_read(features: &str) -> Note {
    Note::Other(format!("the edge features in {features} are not read"))
}

/// Reads a line of names and a line of values, and returns both.
fn read_dict(path: &Path, expected: &str) -> Result<Vec<(String, String)>> {
    let mut table = TextTable::open(path)?;
    let Some(row) = table.next_row()? else {
        let (path, found) = (path.to_owned(), String::new());
        let expected = "a line with the names of node types".to_owned();
        return Err(StoreError::BadLine { path, line: 1, expected, found }.into());
    };
    if MAX_TYPES < row.n_fields() {
        return Err(row.bad(MAX_TYPES, &format!("at most {MAX_TYPES} node types")).into());
    }
    let names = (0..row.n_fields()).map(|field| name_in(&row, field)).collect::<Result<Vec<String>>>()?;
    let Some(row) = table.next_row()? else {
        let (path, found) = (path.to_owned(), String::new());
        let expected = format!("a second line with {expected}");
        return Err(StoreError::BadLine { path, line: 2, expected, found }.into());
    };
    let values = (0..names.len()).map(|field| Ok(row.parse(field, expected)?));
    let values = values.collect::<Result<Vec<String>>>()?;
    match table.next_row()? {
        Some(row) => Err(row.bad(0, "two lines: the set has one graph").into()),
        None => Ok(names.into_iter().zip(values).collect()),
    }
}

fn read_node_counts(path: &Path) -> Result<Vec<(String, u64)>> {
    const EXPECTED: &str = "the number of nodes of each type";
    let mut counts = Vec::new();
    for (name, value) in read_dict(path, EXPECTED)? {
        let bad = |_| {
            let (path, found) = (path.to_owned(), value.chars().take(60).collect());
            StoreError::BadLine { path, line: 2, expected: EXPECTED.into(), found }
        };
        counts.push((name, value.parse().map_err(bad)?));
    }
    Ok(counts)
}

/// Returns the types for which a file with a line of names and a line of `True` or `False` states `True`.
pub(super) fn flagged_types(path: &Path, types: &NodeTypes) -> Result<Vec<usize>> {
    const EXPECTED: &str = "True or False for each node type";
    let mut flagged = Vec::new();
    for (name, value) in read_dict(path, EXPECTED)? {
        let bad = |line, expected: &str, found: &str| {
            let (path, expected, found) =
                (path.to_owned(), expected.into(), found.chars().take(60).collect());
            StoreError::BadLine { path, line, expected, found }
        };
        let node_type = types.position(&name).ok_or_else(|| bad(1, "the names of node types", &name))?;
        match &*value {
            "True" if !flagged.contains(&node_type) => flagged.push(node_type),
            "False" => {}
            _ => return Err(bad(2, EXPECTED, &value).into()),
        }
    }
    flagged.sort_unstable();
    Ok(flagged)
}

/// Returns a field of a line that is the name of a node type or a relation.
fn name_in(row: &TextRow<'_>, field: usize) -> Result<String> {
    let name: String = row.parse(field, NAME)?;
    if is_name(&name) { Ok(name) } else { Err(row.bad(field, NAME).into()) }
}

/// Returns true if a text may be the name of a node type or a relation. Names are parts of paths.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.contains(['/', '\\', '\0'])
        && !matches!(name, "." | "..")
}

/// Returns the node types in the order of their names. `path` is the file that states them.
fn types_of(path: &Path, mut counts: Vec<(String, u64)>) -> Result<NodeTypes> {
    counts.sort();
    let mut types = Vec::new();
    for (name, n_nodes) in counts {
        types.push((name, check_n_nodes(path, n_nodes)?));
    }
    let found = format!("{} types", types.len());
    let bad = |error| StoreError::Metadata {
        path: path.to_owned(),
        key: "the list of node types".into(),
        expected: format!("types with different names, at most 2^32 - 1 nodes in all ({error})"),
        found,
    };
    Ok(NodeTypes::new(types).map_err(bad)?)
}

fn check_n_relations(path: &Path, n_relations: usize) -> Result<()> {
    match n_relations <= Relations::MOST {
        true => Ok(()),
        false => Err(bad_relations(path, format!("at most {} relations", Relations::MOST), "more".into())),
    }
}

fn bad_relations(path: &Path, expected: String, found: String) -> Error {
    let (path, key) = (path.to_owned(), "the list of relations".into());
    StoreError::Metadata { path, key, expected, found }.into()
}

/// Returns the relations in the order of their triplets. `path` is the file that states them, and `edges` returns the
/// location of the edges of a triplet.
fn relations_of(
    path: &Path,
    types: &NodeTypes,
    mut triplets: Vec<Triplet>,
    mut edges: impl FnMut(&Triplet) -> Result<Edges>,
) -> Result<Vec<RelationFiles>> {
    triplets.sort();
    let whole: Vec<String> = triplets.iter().map(|triplet| triplet.join(":")).collect();
    let names = triplets.iter().zip(&whole).map(|([_, name, _], whole)| (name.as_str(), whole.as_str()));
    let names = unique_names(names).map_err(|name| {
        bad_relations(path, "relations with different names".into(), format!("`{name:.60}` twice"))
    })?;
    let position = |name: &String| {
        let bad = || {
            bad_relations(path, "relations between the node types".into(), format!("the type `{name:.60}`"))
        };
        types.position(name).ok_or_else(bad)
    };
    let mut relations = Vec::new();
    for (triplet, name) in triplets.iter().zip(names) {
        let [src, _, dst] = triplet;
        let (src_type, dst_type) = (position(src)?, position(dst)?);
        relations.push(RelationFiles { name, src_type, dst_type, edges: edges(triplet)? });
    }
    Ok(relations)
}

/// Reads the labels of the only node type that has any; `None` for a folder without labels.
fn read_labels(raw: &Path, types: &NodeTypes) -> Result<Option<LabelsOfType>> {
    let folder = raw.join("node-label");
    if find(raw, &HAS_LABEL).is_none() && !is_there(&folder) {
        return Ok(None);
    }
    let path = required(raw, &HAS_LABEL, "the node types with labels")?;
    let Some(node_type) = only_labelled(&path, &flagged_types(&path, types)?)? else { return Ok(None) };
    let n_nodes = types.range(node_type).len();
    let path = required(&folder.join(&types.names()[node_type]), &LABELS, "the class of each node")?;
    let values = targets_of_table(&path, n_nodes)?;
    check_count(&path, "the number of lines", n_nodes, values.len())?;
    Ok(Some(LabelsOfType { node_type, values }))
}

/// Returns the only type with labels, if there is one.
fn only_labelled(path: &Path, labelled: &[usize]) -> Result<Option<usize>> {
    match *labelled {
        [] => Ok(None),
        [node_type] => Ok(Some(node_type)),
        _ => Err(Error::Unsupported {
            path: path.to_owned(),
            what: format!("labels of {} node types", labelled.len()),
            instead: "keep the labels of one node type".into(),
        }),
    }
}

/// Reads the archives, and adds notes about those that are not read.
pub(super) fn read_npz(raw: &Path, notes: &mut Vec<Note>) -> Result<RawTypes> {
    let mut node_counts =
        Npz::open(required(raw, &["num_nodes_dict.npz"], "the number of nodes of each type")?)?;
    let stated_in = node_counts.path().to_owned();
    let mut counts = Vec::new();
    for name in names_of(&node_counts, MAX_TYPES)? {
        if !is_name(&name) {
            return Err(bad_member(&stated_in, &name, NAME));
        }
        let n_nodes = count_of(&mut node_counts, &name)?;
        counts.push((name, n_nodes));
    }
    let types = types_of(&stated_in, counts)?;

    let path = raw.join(EDGE_ARCHIVE);
    let mut edge_counts =
        Npz::open(required(raw, &["num_edges_dict.npz"], "the number of edges of each relation")?)?;
    let mut triplets = Vec::new();
    for name in names_of(&edge_counts, Relations::MOST)? {
        let parts: Vec<String> = name.split("___").map(str::to_owned).collect();
        let triplet =
            Triplet::try_from(parts).ok().filter(|triplet| triplet.iter().all(|name| is_name(name)));
        let expected = "SOURCE___RELATION___DESTINATION";
        triplets.push(triplet.ok_or_else(|| bad_member(edge_counts.path(), &name, expected))?);
    }
    let stated = edge_counts.path().to_owned();
    let relations = relations_of(&stated, &types, triplets, |triplet| {
        let name = triplet.join("___");
        let n_edges = count_of(&mut edge_counts, &name)?;
        let source = Source::Member { archive: path.clone(), name };
        Ok(Edges {
            source,
            n_stated: Some((stated.clone(), n_edges)),
            is_symmetrized: false,
            columns: Vec::new(),
        })
    })?;

    let mut features = vec![None; types.n_types()];
    if let Some(archive) = find(raw, &["node_feat_dict.npz"]) {
        for name in names_of(&Npz::open(&archive)?, MAX_TYPES)? {
            let node_type = known_type(&archive, &types, &name)?;
            features[node_type] = Some((archive.clone(), name));
        }
    }
    let member = |(archive, name)| Source::Member { archive, name };
    let features = features.into_iter().map(|found| found.map(member)).collect();
    if let Some(features) = find(raw, &["edge_feat_dict.npz"]) {
        notes.push(not_read(&features.display().to_string()));
    }
    let labels = match find(raw, &["node-label.npz"]) {
        Some(path) => read_label_archive(Npz::open(path)?, &types)?,
        None => None,
    };
    note_unread_files(raw, |name| is_data(name) && !ARCHIVES.contains(&name), notes)?;
    Ok(RawTypes { stated_in, types, relations, features, labels })
}

fn read_label_archive(mut archive: Npz, types: &NodeTypes) -> Result<Option<LabelsOfType>> {
    let path = archive.path().to_owned();
    let mut labelled = Vec::new();
    for name in names_of(&archive, MAX_TYPES)? {
        labelled.push(known_type(&path, types, &name)?);
    }
    let Some(node_type) = only_labelled(&path, &labelled)? else { return Ok(None) };
    let labels = archive.array(&types.names()[node_type])?;
    let values = match labels.shape().get(1) {
        Some(2..) => TargetTable::of_array(&labels)?.targets()?,
        _ => of_classes(classes::from_array(&labels)?),
    };
    check_count(labels.path(), "the number of labels", types.range(node_type).len(), values.len())?;
    Ok(Some(LabelsOfType { node_type, values }))
}

/// Returns the names of the arrays of an archive, of which there may be at most `most`.
fn names_of(archive: &Npz, most: usize) -> Result<Vec<String>> {
    let names = archive.names();
    match names.len() <= most {
        true => Ok(names),
        false => Err(StoreError::Metadata {
            path: archive.path().to_owned(),
            key: "the number of arrays".into(),
            expected: format!("at most {most}"),
            found: names.len().to_string(),
        }
        .into()),
    }
}

fn known_type(path: &Path, types: &NodeTypes, name: &str) -> Result<usize> {
    types.position(name).ok_or_else(|| bad_member(path, name, "the name of a node type"))
}

fn bad_member(path: &Path, name: &str, expected: &str) -> Error {
    let (path, key, expected) = (path.to_owned(), "the name of an array".into(), expected.to_owned());
    StoreError::Metadata { path, key, expected, found: name.chars().take(60).collect() }.into()
}
