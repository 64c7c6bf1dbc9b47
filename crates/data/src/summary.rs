//! A summary of a data set: its node types, relations, degrees, features, targets and split.

mod columns;
mod outputs;
mod show;

use std::ops::Range;

use kiln_feature::{FeatureDType, FeatureStore, TargetKind, Targets};
use kiln_graph::{Csc, EdgeColumns, ItemId, NodeId};
use kiln_store::progress::{Progress, ProgressUnit};

use self::columns::summarize_columns;
use self::outputs::summarize_outputs;
use crate::times::range_of;
use crate::{Dataset, DatasetTargets, Split, TaskTable, TimeKind, TimeSplit};

pub use self::columns::ColumnSummary;
pub use self::outputs::OutputSummary;

/// The node types, relations, targets and split of a data set, with their sizes. A homogeneous set has the node type
/// `node` and the relation `edge`.
///
/// [`Dataset::summary`] computes it, and its [`Display`](std::fmt::Display) prints it as tables.
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
    /// The targets of the links; `None` without links, and for links without targets.
    pub link_targets: Option<TargetSummary>,
    /// The task tables.
    pub tasks: Vec<TaskSummary>,
    /// The meaning of the times, the first and the last time of each node type and relation that has times, and the split by
    /// time.
    pub times: TimesSummary,
    /// The targets; `None` for a set without targets.
    pub targets: Option<TargetSummary>,
}

/// A task table of a [`DatasetSummary`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TaskSummary {
    /// The name of the table.
    pub name: String,
    /// The first and the last time of the rows; `None` for a table without rows.
    pub times: Option<[i64; 2]>,
    /// The targets of the rows, and their split. Its name is that of the type of the nodes.
    pub targets: TargetSummary,
}

/// The times of a set and its split by time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimesSummary {
    /// The meaning of the times.
    pub kind: TimeKind,
    /// The name of each node type with times, and the first and the last time of its nodes.
    pub types: Vec<(String, [i64; 2])>,
    /// The name of each relation with times, and the first and the last time of its edges.
    pub relations: Vec<(String, [i64; 2])>,
    /// The split by time; `None` for another split.
    pub split: Option<TimeSplit>,
    /// True if the folder of the set stores the order of the edges by time.
    pub has_stored_order: bool,
}

/// A node type of a [`DatasetSummary`].
#[derive(Debug, Clone, PartialEq)]
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
    /// The columns of the features, in their order; empty for a type without features. Feature columns without names are one entry.
    pub columns: Vec<ColumnSummary>,
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

/// The targets and the split of a [`DatasetSummary`], of nodes or of links.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TargetSummary {
    /// The name of the type of the nodes with targets, or of the relation of the links.
    pub name: String,
    /// The plural noun for the items: `nodes`, `links` or `rows`.
    pub items: &'static str,
    /// The kind of the targets.
    pub kind: TargetKind,
    /// The number of classes, or of columns of target values.
    pub n_outputs: usize,
    /// The number of nodes of the type, or of links.
    pub n_items: usize,
    /// The number of items that have a class or a target value.
    pub n_labelled: usize,
    /// The numbers of items for training, validation and test.
    pub n_split: [usize; 3],
    /// The classes, labels or columns of numbers, by number.
    pub outputs: Vec<OutputSummary>,
}

impl Dataset {
    /// Returns the types, relations, columns, targets and split with their sizes. It reads all offsets, edge types and targets, all
    /// features once, and no edges.
    ///
    /// ```
    /// let summary = kiln_data::synthetic::ring(60)?.summary();
    /// assert_eq!(summary.types[0].n_nodes, 60);
    /// assert_eq!(summary.targets.unwrap().outputs.len(), 2);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn summary(&self) -> DatasetSummary {
        let names = self.graph.types().names();
        let mut types = Vec::new();
        for (position, name) in names.iter().enumerate() {
            let features = self.features.get(position).and_then(Option::as_deref);
            let columns = self.feature_columns.get(position).map_or(&[][..], Vec::as_slice);
            types.push(TypeSummary {
                name: name.clone(),
                n_nodes: self.graph.types().range(position).len(),
                n_new: self.new_rows(position).map(|rows| rows.len()),
                features: features.map(summarize_features),
                columns: features.map_or_else(Vec::new, |features| summarize_columns(features, columns)),
                is_named: self.names.get(position).is_some_and(|names| !names.is_empty()),
            });
        }
        let mut relations = Vec::new();
        let n_edges = self.graph.n_edges();
        let progress = Progress::start("counting degrees", ProgressUnit::Edges, n_edges);
        for relation in self.graph.iter() {
            let rows = relation.graph.columns().rows().without(EdgeColumns::TIMES);
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
        let links = self.links.as_ref();
        let split = links.map(|links| links.targets.split());
        DatasetSummary {
            name: self.name.clone(),
            types,
            edge_types: self.summarize_edge_types(&relations),
            relations,
            times: self.summarize_times(),
            tasks: self.tasks.iter().map(|table| self.summarize_task(table)).collect(),
            n_links: split.map(|split| split.parts().map(|(_, part)| part.len())),
            link_targets: links.and_then(|links| {
                let values = links.targets.values()?;
                let name = self.graph.schema().relations().get(links.relation);
                let name = name.map_or("?", |relation| relation.name.as_str());
                let n_links = values.len() as u32;
                let outputs = summarize_outputs(values, split?, links.targets.class_names(), 0..n_links);
                Some(TargetSummary::new(name, "links", values, split?, outputs))
            }),
            targets: targets.map(|targets| {
                let DatasetTargets { node_type, values, split, class_names } = targets;
                let name = names.get(*node_type).map_or("?", String::as_str);
                let nodes = self.graph.types().range(*node_type);
                let outputs = summarize_outputs(values, split, class_names, nodes);
                TargetSummary::new(name, "nodes", values, split, outputs)
            }),
        }
    }

    fn summarize_task(&self, table: &TaskTable) -> TaskSummary {
        let DatasetTargets { node_type, values, split, class_names } = &table.targets;
        let name = self.graph.types().names().get(*node_type).map_or("?", String::as_str);
        let outputs = summarize_outputs(values, split, class_names, 0..table.n_rows() as u32);
        let targets = TargetSummary::new(name, "rows", values, split, outputs);
        TaskSummary { name: table.name.clone(), times: range_of(&table.times), targets }
    }

    fn summarize_times(&self) -> TimesSummary {
        let mut summary =
            TimesSummary { kind: self.times.kind, split: self.times.split, ..TimesSummary::default() };
        for (node_type, name) in self.graph.types().names().iter().enumerate() {
            summary.types.extend(self.node_time_range(node_type).map(|range| (name.clone(), range)));
        }
        summary.has_stored_order = self.times.orders.has_any();
        for (position, relation) in self.graph.iter().enumerate() {
            let range = self.edge_time_range(position);
            summary.relations.extend(range.map(|range| (relation.name.clone(), range)));
        }
        summary
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
    fn new<I: ItemId>(
        name: &str,
        items: &'static str,
        values: &Targets<I>,
        split: &Split<I>,
        outputs: Vec<OutputSummary>,
    ) -> Self {
        let n_items = values.len();
        let labelled = (0..n_items as u32).filter(|&item| values.has_any(I::new(item)));
        Self {
            name: name.to_owned(),
            items,
            kind: values.kind(),
            n_outputs: values.n_outputs(),
            n_items,
            n_labelled: labelled.count(),
            n_split: split.parts().map(|(_, items)| items.len()),
            outputs,
        }
    }
}
