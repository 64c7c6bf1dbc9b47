use std::collections::BTreeSet;
use std::path::Path;

use kiln_feature::MAX_DIM;
use kiln_graph::{EdgeColumns, Relations, did_you_mean, similar_name};

use super::check_files::{check_csv, check_files, check_rows};
use super::check_target::{MAX_COLUMNS, check_name, check_separator, check_target, check_zone};
use super::place::At;
use super::tasks::check_task;
use super::{
    ColumnSpec, ColumnTransform, ImportSpec, NodeTypeSpec, RelationSpec, SplitSpec, TimePart, TimeSpec,
    TimeUnit,
};
use crate::transform::MAX_CATEGORIES;
use crate::{BadRowKind, Result};

/// The maximum length of an n-gram.
const MAX_N: usize = 8;

/// The maximum number of columns of the edges of a relation. Each has a buffer and a file while edges are sorted.
const MAX_EDGE_COLUMNS: usize = 32;

impl ImportSpec {
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        let at = |key: &str| At { path, key: key.to_owned() };
        at("name").require(!self.name.is_empty(), "a name", "empty")?;
        at("nodes").count(self.nodes.len(), 2 * Relations::MOST)?;
        let mut names = BTreeSet::new();
        for (position, node_type) in self.nodes.iter().enumerate() {
            let at = at(&format!("nodes[{position}]"));
            check_name(&at.child("name"), &node_type.name, &mut names)?;
            check_node_type(&at, node_type)?;
        }
        let n_targets = self.nodes.iter().filter(|node_type| node_type.target.is_some()).count();
        at("nodes").require(n_targets <= 1, "at most one node type with a target", n_targets)?;
        let types = names;
        let mut names = BTreeSet::new();
        for (position, relation) in self.relations.iter().enumerate() {
            check_relation(&at(&format!("relations[{position}]")), relation, &types, &mut names)?;
        }
        let n_targets = self.relations.iter().filter(|relation| relation.target.is_some()).count();
        at("relations").require(n_targets <= 1, "at most one relation with a target", n_targets)?;
        let splits = self.nodes.iter().filter_map(|node_type| node_type.split.as_ref());
        let splits: Vec<_> = splits.chain(self.relations.iter().filter_map(|of| of.split.as_ref())).collect();
        let is_one = splits.len() <= 1 || splits.iter().all(|split| !matches!(split, SplitSpec::Time(_)));
        let expected = "one split if one is by time, because it cuts the messages of the whole set: import the tables as two sets";
        at("relations").require(is_one, expected, "a split of nodes and one of edges")?;
        at("relations").require(
            names.len() <= Relations::MOST,
            format!("at most {} with reverse relations", Relations::MOST),
            names.len(),
        )?;
        for (position, node_type) in self.nodes.iter().enumerate() {
            at(&format!("nodes[{position}].from")).require(
                node_type.from.is_none()
                    || self.relations.iter().any(|relation: &RelationSpec| {
                        [&relation.src, &relation.dst].iter().any(|end| end.node_type == node_type.name)
                    }),
                "a type that occurs in a relation",
                "no relation has it",
            )?;
        }
        let mut names = BTreeSet::new();
        for (position, task) in self.tasks.iter().enumerate() {
            check_task(&at(&format!("tasks[{position}]")), task, &self.nodes, &mut names)?;
        }
        check_time_kinds(self, path)
    }
}

fn check_node_type(at: &At<'_>, spec: &NodeTypeSpec) -> Result<()> {
    let NodeTypeSpec { files, csv, rows, from, key, columns, target, split, missing, drop, time, .. } = spec;
    if from.is_some() {
        let only = "none: a type from relations has keys only";
        at.child("files").require(files.is_empty(), only, "a list of files")?;
        at.child("key").require(key.is_none(), only, "a column")?;
        at.child("columns").require(columns.is_empty(), only, "a list of columns")?;
        at.child("target").require(target.is_none(), only, "a target")?;
        let of_relations = "none: the relations of the type have it";
        at.child("missing").require(missing.is_empty(), of_relations, "a list of texts")?;
        at.child("drop").require(drop.is_empty(), of_relations, "a list of kinds")?;
        at.child("csv").require(csv.is_none(), of_relations, "the form of files")?;
        at.child("where").require(rows.is_empty(), of_relations, "columns with values")?;
        at.child("time").require(time.is_none(), only, "a column")?;
        return at.child("split").require(split.is_none(), only, "a split");
    }
    let dangling = "kinds of bad rows of nodes: `dangling` is one of relations";
    at.child("drop").require(!drop.contains(&BadRowKind::Dangling), dangling, "dangling")?;
    let files_at = at.child("files");
    files_at.require(!files.is_empty(), "files with a key, or `from: relations`", "missing")?;
    check_files(&files_at, files)?;
    check_csv(&at.child("csv"), csv.as_ref())?;
    check_rows(&at.child("where"), rows)?;
    at.child("key").require(key.is_some(), "the column of the keys", "missing")?;
    if let Some(time) = time {
        check_zone(&at.child("time"), time.zone.as_deref())?;
    }
    check_columns(at, columns)?;
    check_target(at, target.as_ref(), split.as_ref())
}

fn check_columns(at: &At<'_>, columns: &[ColumnSpec]) -> Result<()> {
    let n_columns = "at most 4096 columns";
    at.child("columns").require(columns.len() <= MAX_COLUMNS, n_columns, columns.len())?;
    for (position, column) in columns.iter().enumerate() {
        let at = At { path: at.path, key: format!("{}.columns[{position}].transform", at.key) };
        check_transform(&at, &column.transform)?;
    }
    Ok(())
}

fn check_transform(at: &At<'_>, transform: &ColumnTransform) -> Result<()> {
    match transform {
        ColumnTransform::Numeric | ColumnTransform::Standardize | ColumnTransform::Quantile => Ok(()),
        ColumnTransform::OneHot { max_categories } => {
            at.child("one_hot.max_categories").count(*max_categories, MAX_CATEGORIES)
        }
        ColumnTransform::Ordinal { max_categories } => {
            at.child("ordinal.max_categories").count(*max_categories, MAX_CATEGORIES)
        }
        ColumnTransform::Hash { columns } => at.child("hash.columns").count(*columns, MAX_DIM),
        ColumnTransform::MultiHot { max_categories, separator } => {
            at.child("multi_hot.max_categories").count(*max_categories, MAX_CATEGORIES)?;
            check_separator(&at.child("multi_hot.separator"), separator.as_deref())
        }
        ColumnTransform::Time { parts, unit } => {
            at.child("time.parts").count(parts.len(), MAX_COLUMNS)?;
            let n_trends = parts.iter().filter(|part| **part == TimePart::Trend).count();
            at.child("time.parts").require(n_trends <= 1, "`trend` once", n_trends)?;
            let expected = "a unit of dates";
            at.child("time.unit").require(*unit != TimeUnit::Integer, expected, "integer")
        }
        ColumnTransform::Text { columns, min_n, max_n, .. } => {
            at.child("text.columns").count(*columns, MAX_DIM)?;
            at.child("text.min_n").count(*min_n, MAX_N)?;
            let expected = format!("min_n to {MAX_N}");
            at.child("text.max_n").require((*min_n..=MAX_N).contains(max_n), expected, max_n)
        }
        ColumnTransform::Vector { columns, separator } => {
            at.child("vector.columns").count(*columns, MAX_DIM)?;
            check_separator(&at.child("vector.separator"), separator.as_deref())
        }
    }
}

/// Checks that all times of a spec are dates, or that all are integers.
fn check_time_kinds(spec: &ImportSpec, path: &Path) -> Result<()> {
    let Some(kind) = spec.time_kind() else { return Ok(()) };
    let of_nodes = spec.nodes.iter().enumerate().flat_map(|(position, of)| {
        let units = time_units(of.time.as_ref(), of.split.as_ref());
        units.map(move |(key, unit)| (format!("nodes[{position}].{key}.unit"), unit))
    });
    let of_edges = spec.relations.iter().enumerate().flat_map(|(position, of)| {
        let units = time_units(of.time.as_ref(), of.split.as_ref());
        units.map(move |(key, unit)| (format!("relations[{position}].{key}.unit"), unit))
    });
    let of_tasks = spec.tasks.iter().enumerate().flat_map(|(position, of)| {
        let units = time_units(Some(&of.time), of.split.as_ref());
        units.map(move |(key, unit)| (format!("tasks[{position}].{key}.unit"), unit))
    });
    for (key, unit) in of_nodes.chain(of_edges).chain(of_tasks) {
        let at = At { path, key };
        let expected = "times of one kind: all dates, or all integers";
        at.require(unit.kind() == kind, expected, "of the other kind")?;
    }
    Ok(())
}

/// Returns the units of the times of a table and of its split, with their keys.
fn time_units(
    time: Option<&TimeSpec>,
    split: Option<&SplitSpec>,
) -> impl Iterator<Item = (&'static str, TimeUnit)> {
    let of_split = match split {
        Some(SplitSpec::Time(split)) => Some(("split.time", split.unit)),
        _ => None,
    };
    time.map(|time| ("time", time.unit)).into_iter().chain(of_split)
}

/// Checks that an undirected relation has the reverse of each edge, and in itself only.
fn check_undirected(at: &At<'_>, relation: &RelationSpec) -> Result<()> {
    let RelationSpec { src, dst, reverse, undirected, .. } = relation;
    let at = at.child("undirected");
    let found = format!("true, from {:?} to {:?}", src.node_type, dst.node_type);
    let expected = "false between two node types: name a relation of the reverse edges in `reverse`";
    at.require(!undirected || src.node_type == dst.node_type, expected, found)?;
    let expected = "false beside `reverse`: the reverse edges of an undirected relation are its own";
    at.require(!undirected || reverse.is_none(), expected, "true")
}

fn check_relation<'n>(
    at: &At<'_>,
    relation: &'n RelationSpec,
    types: &BTreeSet<&str>,
    names: &mut BTreeSet<&'n str>,
) -> Result<()> {
    check_name(&at.child("name"), &relation.name, names)?;
    if let Some(reverse) = &relation.reverse {
        check_name(&at.child("reverse"), reverse, names)?;
    }
    check_files(&at.child("files"), &relation.files)?;
    check_csv(&at.child("csv"), relation.csv.as_ref())?;
    check_rows(&at.child("where"), &relation.rows)?;
    let duplicate = "kinds of bad rows of relations: `duplicate` is one of nodes, and equal edges are kept";
    at.child("drop").require(!relation.drop.contains(&BadRowKind::Duplicate), duplicate, "duplicate")?;
    for (key, end) in [("src.type", &relation.src), ("dst.type", &relation.dst)] {
        let name = end.node_type.as_str();
        let known: Vec<&str> = types.iter().copied().take(20).collect();
        let similar = did_you_mean(similar_name(name, types.iter().copied()));
        let expected = format!("the name of a node type: {}{similar}", known.join(", "));
        at.child(key).require(types.contains(name), expected, format!("{name:?}"))?;
    }
    check_undirected(at, relation)?;
    check_columns(at, &relation.columns)?;
    check_target(at, relation.target.as_ref(), relation.split.as_ref())?;
    if let Some(time) = &relation.time {
        check_zone(&at.child("time"), time.zone.as_deref())?;
    }
    at.child("edge_columns").require(
        relation.edge_columns.len() <= MAX_EDGE_COLUMNS,
        format!("at most {MAX_EDGE_COLUMNS} columns"),
        relation.edge_columns.len(),
    )?;
    let mut names = BTreeSet::from([EdgeColumns::WEIGHTS, EdgeColumns::TYPES, EdgeColumns::TIMES]);
    for (position, spec) in relation.edge_columns.iter().enumerate() {
        let name = spec.name();
        let expected = "a name of small letters, digits and underscores that occurs once, other than `weights`, `types` and `times`";
        let at = at.child(format_args!("edge_columns[{position}].name"));
        at.require(EdgeColumns::is_name(name) && names.insert(name), expected, format!("{name:?}"))?;
        let is_free = name != EdgeColumns::FEATURES || relation.columns.is_empty();
        at.require(is_free, "another name, because `columns` are the features", format!("{name:?}"))?;
    }
    Ok(())
}
