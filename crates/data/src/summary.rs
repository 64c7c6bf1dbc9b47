//! A summary of a data set: its node types, relations, degrees, features, targets and split.

use std::fmt;
use std::ops::Range;

use kiln_feature::{FeatureDType, FeatureStore, TargetKind, Targets};
use kiln_graph::{Csc, NodeId};
use kiln_store::counted;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::dataset::noun;
use crate::{Dataset, Split};

/// The node types, relations, targets and split of a data set, with their sizes. A homogeneous set has the node type
/// `node` and the relation `edge`.
///
/// [`Dataset::summary`] computes it, and its [`Display`](fmt::Display) prints it as tables.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DatasetSummary {
    /// The name of the set.
    pub name: String,
    /// The node types, in the order of their ids.
    pub types: Vec<TypeSummary>,
    /// The relations, in the order of their edge ids.
    pub relations: Vec<RelationSummary>,
    /// The types of the edges of a homogeneous set; empty if its edges have no types.
    pub edge_types: Vec<RelationSummary>,
    /// The numbers of links for training, validation and test; `None` without links.
    pub n_links: Option<[usize; 3]>,
    /// The targets; `None` for a set without targets.
    pub targets: Option<TargetSummary>,
}

/// A node type of a [`DatasetSummary`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeSummary {
    /// The name of the type.
    pub name: String,
    /// The number of nodes.
    pub n_nodes: usize,
    /// The number of nodes that were appended last; `None` for a set without appended rows.
    pub n_new: Option<usize>,
    /// The features; `None` for a type without features.
    pub features: Option<FeatureSummary>,
    /// True if the nodes have names.
    pub is_named: bool,
}

/// The features of a node type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureSummary {
    /// The number of columns.
    pub dim: usize,
    /// The element type.
    pub dtype: FeatureDType,
    /// True if the rows are stored as a sparse matrix.
    pub is_sparse: bool,
}

/// A relation of a [`DatasetSummary`], or a type of edges.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelationSummary {
    /// The name of the relation.
    pub name: String,
    /// The name of the sources' type.
    pub src_type: String,
    /// The name of the destinations' type.
    pub dst_type: String,
    /// The number of edges.
    pub n_edges: u64,
    /// True if the edges have weights.
    pub has_weights: bool,
    /// The names of the other columns of the edges, besides their types, and the widths of their rows.
    pub edge_columns: Vec<(String, usize)>,
    /// The in-degrees of the destinations' type; `None` if it has no nodes.
    pub in_degrees: Option<DegreeSummary>,
}

/// The in-degrees of the nodes of a type in a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DegreeSummary {
    /// The smallest in-degree.
    pub min: u64,
    /// The median; the lower one of an even number of nodes.
    pub median: u64,
    /// The largest in-degree.
    pub max: u64,
}

/// The targets and the split of a [`DatasetSummary`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetSummary {
    /// The name of the type of the nodes with targets.
    pub node_type: String,
    /// The kind of the targets.
    pub kind: TargetKind,
    /// The number of classes, or of columns of target values.
    pub n_outputs: usize,
    /// The number of nodes of the type.
    pub n_nodes: usize,
    /// The number of nodes that have a class or a target value.
    pub n_labelled: usize,
    /// The numbers of nodes for training, validation and test.
    pub n_split: [usize; 3],
}

impl Dataset {
    /// Returns the types, relations, targets and split with their sizes. It reads all offsets, edge types and targets, and
    /// neither edges nor features.
    pub fn summary(&self) -> DatasetSummary {
        let names = self.graph.types().names();
        let mut types = Vec::new();
        for (position, name) in names.iter().enumerate() {
            types.push(TypeSummary {
                name: name.clone(),
                n_nodes: self.graph.types().range(position).len(),
                n_new: self.new_rows(position).map(|rows| rows.len()),
                features: self.features.get(position).and_then(Option::as_deref).map(summarize_features),
                is_named: self.names.get(position).is_some_and(|names| !names.is_empty()),
            });
        }
        let mut relations = Vec::new();
        let n_edges = self.graph.n_edges();
        let progress = Progress::start("counting degrees", ProgressUnit::Edges, n_edges);
        for relation in self.graph.iter() {
            let rows = relation.graph.columns().rows();
            relations.push(RelationSummary {
                name: relation.name.clone(),
                src_type: names[relation.src_type].clone(),
                dst_type: names[relation.dst_type].clone(),
                n_edges: relation.graph.n_edges(),
                has_weights: relation.graph.weights().is_some(),
                edge_columns: rows.iter().map(|(name, column)| (name.to_owned(), column.width())).collect(),
                in_degrees: DegreeSummary::of(degrees(&relation.graph)),
            });
            progress.advance(relation.graph.n_edges());
        }
        let targets = self.targets.as_ref().filter(|_| self.has_targets());
        let split = self.links.as_ref().map(|links| links.targets.split());
        DatasetSummary {
            name: self.name.clone(),
            types,
            edge_types: self.summarize_edge_types(&relations),
            relations,
            n_links: split.map(|split| split.parts().map(|(_, part)| part.len())),
            targets: targets.map(|targets| {
                let name = names.get(targets.node_type).map_or("?", String::as_str);
                TargetSummary::new(name, &targets.values, &targets.split)
            }),
        }
    }

    /// Returns the types of the edges of a graph with one relation.
    fn summarize_edge_types(&self, relations: &[RelationSummary]) -> Vec<RelationSummary> {
        let (Ok(graph), [relation]) = (self.csc(), relations) else { return Vec::new() };
        let mut edge_types = Vec::new();
        for ty in 0..self.n_edge_types().unwrap_or(0) {
            let degrees = degrees_of_type(graph, ty);
            edge_types.push(RelationSummary {
                name: self.edge_type_names.get(ty).cloned().unwrap_or_else(|| ty.to_string()),
                n_edges: degrees.iter().map(|&degree| u64::from(degree)).sum(),
                in_degrees: DegreeSummary::of(degrees),
                ..relation.clone()
            });
        }
        edge_types
    }
}

fn summarize_features(features: &dyn FeatureStore) -> FeatureSummary {
    let (dim, dtype) = (features.dim(), features.dtype());
    FeatureSummary { dim, dtype, is_sparse: features.as_sparse().is_some() }
}

/// Returns the in-degree of each row, at most 2^32 - 1.
fn degrees(graph: &Csc) -> Vec<u32> {
    let degree = |node| u32::try_from(graph.in_degree(NodeId(node))).unwrap_or(u32::MAX);
    (0..graph.n_nodes() as u32).map(degree).collect()
}

/// Returns the number of edges of a type into each node.
fn degrees_of_type(graph: &Csc, ty: usize) -> Vec<u32> {
    let types = graph.edge_types().unwrap_or_default();
    let edges_into = |ends: &[u64]| -> Range<usize> { ends[0] as usize..ends[1] as usize };
    let count = |ends: &[u64]| {
        let edges = types.get(edges_into(ends)).unwrap_or_default();
        edges.iter().filter(|&&other| usize::from(other) == ty).count() as u32
    };
    graph.indptr().windows(2).map(count).collect()
}

impl DegreeSummary {
    fn of(mut degrees: Vec<u32>) -> Option<Self> {
        let middle = degrees.len().checked_sub(1)? / 2;
        let (&min, &max) = (degrees.iter().min()?, degrees.iter().max()?);
        let (_, &mut median, _) = degrees.select_nth_unstable(middle);
        Some(Self { min: min.into(), median: median.into(), max: max.into() })
    }
}

impl TargetSummary {
    fn new(node_type: &str, targets: &Targets, split: &Split) -> Self {
        let n_nodes = targets.len();
        let labelled = (0..n_nodes as u32).filter(|&node| targets.has_any(NodeId(node)));
        Self {
            node_type: node_type.to_owned(),
            kind: targets.kind(),
            n_outputs: targets.n_outputs(),
            n_nodes,
            n_labelled: labelled.count(),
            n_split: split.parts().map(|(_, nodes)| nodes.len()),
        }
    }
}

impl fmt::Display for FeatureSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, dtype, is_sparse } = self;
        write!(f, "{dim} columns, {dtype}{}", if *is_sparse { ", sparse" } else { "" })
    }
}

impl fmt::Display for DatasetSummary {
    /// Writes tables of the node types and of the relations, and lines about the targets and the split.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_nodes: usize = self.types.iter().map(|node_type| node_type.n_nodes).sum();
        let n_edges: u64 = self.relations.iter().map(|relation| relation.n_edges).sum();
        writeln!(f, "{}: {n_nodes} nodes, {n_edges} edges\n", self.name)?;
        let types = self.types.iter().map(|node_type| {
            let features = node_type.features.map_or_else(|| "none".to_owned(), |found| found.to_string());
            let names = if node_type.is_named { "yes" } else { "no" };
            let new = node_type.n_new.map_or_else(String::new, |n_new| format!(", {n_new} new"));
            [node_type.name.clone(), format!("{}{new}", node_type.n_nodes), features, names.to_owned()]
        });
        write_table(f, ["node type", "nodes", "features", "names"], types)?;
        writeln!(f)?;
        const HEADER: [&str; 5] = ["relation", "from", "to", "edges", "in-degree: min, median, max"];
        write_table(f, HEADER, self.relations.iter().map(RelationSummary::fields))?;
        if !self.edge_types.is_empty() {
            writeln!(f)?;
            let header = ["edge type", "from", "to", "edges", HEADER[4]];
            write_table(f, header, self.edge_types.iter().map(RelationSummary::fields))?;
        }
        writeln!(f)?;
        for relation in &self.relations {
            for (name, width) in &relation.edge_columns {
                let width = counted(*width as u64, "value");
                writeln!(f, "edge column `{name}` of {}: {width} per edge", relation.name)?;
            }
        }
        if let Some([train, val, test]) = self.n_links {
            writeln!(f, "links: {train} to train, {val} to validate, {test} to test")?;
        }
        let Some(targets) = &self.targets else { return write!(f, "targets: none") };
        let TargetSummary { node_type, kind, n_outputs, n_nodes, n_labelled, n_split: [train, val, test] } =
            targets;
        writeln!(
            f,
            "targets: {n_outputs} {} of {node_type}, known for {n_labelled} of {n_nodes} nodes",
            noun(*kind)
        )?;
        write!(f, "split: {train} / {val} / {test} nodes to train, validate, test")
    }
}

impl RelationSummary {
    fn fields(&self) -> [String; 5] {
        let edges = format!("{}{}", self.n_edges, if self.has_weights { ", weighted" } else { "" });
        let degrees = self.in_degrees.map_or_else(
            || "none".to_owned(),
            |DegreeSummary { min, median, max }| format!("{min}, {median}, {max}"),
        );
        [self.name.clone(), self.src_type.clone(), self.dst_type.clone(), edges, degrees]
    }
}

/// Writes lines of left-aligned columns, separated by two spaces.
fn write_table<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> fmt::Result {
    let rows: Vec<[String; N]> = [header.map(str::to_owned)].into_iter().chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = field.chars().count().max(*width);
        }
    }
    for row in &rows {
        let mut line = String::new();
        for (field, &width) in row.iter().zip(&widths) {
            line += &format!("{field:<width$}  ");
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
