//! A builder of datasets from arrays that a program holds in memory or has mapped.

use std::sync::Arc;

use kiln_feature::{
    DenseFeatures, EdgeFeatures, FeatureArray, FeatureStore, Labels, Preparation, PreparationStep,
    TargetValues, Targets,
};
use kiln_graph::{Csc, CscBuilder, Duplicates, ItemId, NodeId, SharedArray, symmetrize};

use crate::dataset::{Dataset, Split};
use crate::edge_features::in_csc_order;
use crate::error::{BuildError, Result};
use crate::node_names::NodeNames;

/// Builds a [`Dataset`] from a program's own arrays.
///
/// Features, labels and split are moved into the dataset and not copied; each of them may also be a range of a mapped
/// file. An edge list is borrowed, and the dataset's graph is built from it.
///
/// ```
/// use kiln_data::Dataset;
/// let (srcs, dsts) = (vec![0, 1, 2], vec![1, 2, 3]);
/// let data = Dataset::builder(4)
///     .edges(&srcs, &dsts)
///     .symmetrize()
///     .features(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5], 2)
///     .labels(vec![0, 1, 0, 1], 2)
///     .split(vec![0, 1], vec![2], vec![3])
///     .build()?;
/// assert_eq!((data.graph.n_edges(), data.features.dim()), (6, 2));
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "call .build() to get the dataset"]
pub struct DatasetBuilder<'a> {
    n_nodes: usize,
    name: String,
    edges: Option<Edges<'a>>,
    edge_weights: Option<&'a [f32]>,
    edge_types: Option<&'a [u8]>,
    edge_features: Option<(FeatureArray, usize)>,
    symmetrize: bool,
    features: Option<Features>,
    targets: Option<GivenTargets>,
    split: Option<Split>,
    node_names: NodeNames,
    class_names: Vec<String>,
    edge_type_names: Vec<String>,
}

/// The topology as it was passed to the builder.
#[derive(Debug, Clone)]
enum Edges<'a> {
    List { srcs: &'a [u32], dsts: &'a [u32] },
    Graph(Arc<Csc>),
}

/// The feature rows as they were passed to the builder.
#[derive(Debug, Clone)]
pub(crate) enum Features {
    Rows { rows: FeatureArray, dim: usize },
    Source(Arc<dyn FeatureStore>),
}

/// The targets as they were passed to the builder, with their number of columns.
#[derive(Debug, Clone)]
pub(crate) enum GivenTargets {
    Classes(Labels),
    MultiLabel(SharedArray<u8>, usize),
    Regression(SharedArray<f32>, usize),
}

impl Features {
    /// Returns the features of `n_nodes` nodes.
    pub(crate) fn build(self, n_nodes: usize) -> Result<Arc<dyn FeatureStore>> {
        let features = match self {
            Self::Rows { rows, dim } => Arc::new(DenseFeatures::new(rows, dim)?),
            Self::Source(source) => source,
        };
        check_length("feature rows", "node", n_nodes, features.n_rows())?;
        Ok(features)
    }
}

impl GivenTargets {
    /// Returns the targets of `n_nodes` nodes.
    pub(crate) fn build(self, n_nodes: usize) -> Result<Targets> {
        let targets: Targets = match self {
            Self::Classes(labels) => labels.into(),
            Self::MultiLabel(labels, n) => TargetValues::multi_label(labels, n)?.into(),
            Self::Regression(values, n) => TargetValues::regression(values, n)?.into(),
        };
        check_length("labels", "node", n_nodes, targets.len())?;
        if targets.n_outputs() == 0 {
            return Err(BuildError::NoClasses.into());
        }
        targets.validate()?;
        Ok(targets)
    }
}

impl Dataset {
    /// Starts a dataset of `n_nodes` nodes, whose ids are `0..n_nodes`.
    pub fn builder<'a>(n_nodes: usize) -> DatasetBuilder<'a> {
        DatasetBuilder {
            n_nodes,
            name: "dataset".to_owned(),
            edges: None,
            edge_weights: None,
            edge_types: None,
            edge_features: None,
            symmetrize: false,
            features: None,
            targets: None,
            split: None,
            node_names: NodeNames::default(),
            class_names: Vec::new(),
            edge_type_names: Vec::new(),
        }
    }
}

impl<'a> DatasetBuilder<'a> {
    /// Sets the edges `srcs[i] -> dsts[i]`. Messages flow from source to destination.
    pub fn edges(self, srcs: &'a [u32], dsts: &'a [u32]) -> Self {
        Self { edges: Some(Edges::List { srcs, dsts }), ..self }
    }

    /// Sets a graph that is already built or mapped, instead of an edge list.
    pub fn graph(self, graph: impl Into<Arc<Csc>>) -> Self {
        Self { edges: Some(Edges::Graph(graph.into())), ..self }
    }

    /// Sets a weight per edge of the edge list.
    pub fn edge_weights(self, weights: &'a [f32]) -> Self {
        Self { edge_weights: Some(weights), ..self }
    }

    /// Sets a type per edge of the edge list.
    pub fn edge_types(self, types: &'a [u8]) -> Self {
        Self { edge_types: Some(types), ..self }
    }

    /// Sets the features of the edges, `[n_edges, dim]`, row-major, with a row per edge of the edge list; in the set they
    /// are in CSC order. For a graph that is already built ([`DatasetBuilder::graph`]), the rows are in its CSC order and
    /// are moved into the set. The element types are those of [`DatasetBuilder::features`].
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_feature::FeatureArray;
    /// let (srcs, dsts) = (vec![2, 0], vec![1, 1]);
    /// let data = Dataset::builder(3)
    ///     .edges(&srcs, &dsts)
    ///     .edge_features(vec![0.5, 1.5], 1)
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// // The edge from node 0 is the first one into node 1.
    /// let rows = data.edge_features.map(|features| features.rows().clone());
    /// assert!(matches!(rows, Some(FeatureArray::F32(rows)) if rows[..] == [1.5, 0.5]));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edge_features(self, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        Self { edge_features: Some((rows.into(), dim)), ..self }
    }

    /// Adds the reverse of each edge, with its weight, type and features, and removes duplicates: the graph becomes
    /// undirected. Of the edges between two nodes, also in opposite directions, the first one in the list determines the
    /// weight, type and features of both directions.
    pub fn symmetrize(self) -> Self {
        Self { symmetrize: true, ..self }
    }

    /// Sets the features `[n_nodes, dim]`, row-major. `rows` is a `Vec` of `f32`, `f16` or `bf16`, or a range of a
    /// mapped file.
    pub fn features(self, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        Self { features: Some(Features::Rows { rows: rows.into(), dim }), ..self }
    }

    /// Sets a feature store, for features that are not one dense array, such as sparse ones.
    pub fn feature_store(self, features: Arc<dyn FeatureStore>) -> Self {
        Self { features: Some(Features::Source(features)), ..self }
    }

    /// Sets the class of each node, 0 to `n_classes - 1`; a negative number marks a node without a label.
    pub fn labels(self, classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        Self { targets: Some(GivenTargets::Classes(Labels::new(classes, n_classes))), ..self }
    }

    /// Sets several labels per node instead of a class, `[n_nodes, n_labels]`, row-major: 1 if the node has the label,
    /// 0 if not, and [`TargetValues::MISSING`] if it is unknown.
    pub fn multi_label(self, labels: impl Into<SharedArray<u8>>, n_labels: usize) -> Self {
        Self { targets: Some(GivenTargets::MultiLabel(labels.into(), n_labels)), ..self }
    }

    /// Sets regression targets instead of classes, `[n_nodes, n_columns]`, row-major; NaN marks a missing target.
    pub fn regression(self, values: impl Into<SharedArray<f32>>, n_columns: usize) -> Self {
        Self { targets: Some(GivenTargets::Regression(values.into(), n_columns)), ..self }
    }

    /// Sets the nodes of the training, validation and test split. Each of these nodes must have a label or at least one
    /// target value, and no node may be in two of the splits.
    pub fn split(
        self,
        train: impl Into<SharedArray<NodeId>>,
        val: impl Into<SharedArray<NodeId>>,
        test: impl Into<SharedArray<NodeId>>,
    ) -> Self {
        Self { split: Some(Split { train: train.into(), val: val.into(), test: test.into() }), ..self }
    }

    /// Sets the dataset's name in reports; `dataset` by default.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the nodes' names, one per node.
    pub fn node_names<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self { node_names: NodeNames::new(names), ..self }
    }

    /// Sets the classes' names, one per class; for several labels or regression targets, the columns' names.
    pub fn class_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { class_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Sets the edge types' names, one per type.
    pub fn edge_type_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { edge_type_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Builds the graph, checks that all parts are consistent, and returns the dataset. Labels and split may both be
    /// omitted, for link prediction: no node then has a label. Labels and split are read,
    /// features are not: [`Dataset::validate`] also finds features that are not finite.
    ///
    /// # Errors
    /// Returns [`Error::Build`](crate::Error::Build) if a part is missing or inconsistent with the others,
    /// [`Error::Graph`](crate::Error::Graph) if the edge arrays differ in length or contain a node out of range, and
    /// [`Error::Feature`](crate::Error::Feature) if the features are not a whole number of rows or a label is out of
    /// range.
    pub fn build(mut self) -> Result<Dataset> {
        let (graph, edge_features) = self.build_graph()?;
        let features = self.features.take().ok_or(missing("features", ".features(x, dim)"))?;
        let features = features.build(self.n_nodes)?;
        let (targets, split) = self.targets_and_split()?;
        if !self.node_names.is_empty() {
            check_length("node names", "node", self.n_nodes, self.node_names.len())?;
        }
        if !self.class_names.is_empty() {
            check_length("class names", "class", targets.n_outputs(), self.class_names.len())?;
        }
        let steps = self.symmetrize.then_some(PreparationStep::Symmetrize).into_iter().collect();
        let (labels, target_values) = labels_and_values(targets);
        Ok(Dataset {
            preparation: Preparation { steps },
            name: self.name,
            graph,
            features,
            edge_features,
            labels,
            target_values,
            links: None,
            split,
            names: Arc::new(self.node_names),
            class_names: self.class_names,
            edge_type_names: self.edge_type_names,
            notes: Vec::new(),
        })
    }

    /// Returns the targets and the split of the nodes; no labels and an empty split if neither was set.
    fn targets_and_split(&mut self) -> Result<(Targets, Split)> {
        let (targets, split) = match (self.targets.take(), self.split.take()) {
            (None, None) => {
                return Ok((Labels::new(vec![-1; self.n_nodes], 0).into(), Split::default()));
            }
            (targets, split) => (
                targets.ok_or(missing("labels", ".labels(y, n_classes)"))?,
                split.ok_or(missing("split", ".split(train, val, test)"))?,
            ),
        };
        let targets = targets.build(self.n_nodes)?;
        check_split(&split, &targets)?;
        Ok((targets, split))
    }

    /// Returns the graph and the edge features in its order.
    fn build_graph(&mut self) -> Result<(Arc<Csc>, Option<EdgeFeatures>)> {
        let n_types = self.edge_type_names.len();
        let rows = self.edge_features.take().map(|(rows, dim)| EdgeFeatures::new(rows, dim)).transpose()?;
        let (graph, rows) = match self.edges.as_ref().ok_or(missing("edges", ".edges(&srcs, &dsts)"))? {
            Edges::List { srcs, dsts } => match rows {
                None => (Arc::new(self.csc_builder().build(srcs, dsts)?), None),
                Some(rows) => {
                    check_edge_rows(&rows, srcs.len() as u64)?;
                    let traced = self.csc_builder().build_with_origins(srcs, dsts)?;
                    let rows = in_csc_order(&rows, &traced)?;
                    (Arc::new(traced.graph), Some(rows))
                }
            },
            Edges::Graph(graph) => {
                let edge_data = [
                    ("edge weights", self.edge_weights.is_some()),
                    ("edge types", self.edge_types.is_some()),
                ];
                if let Some((what, _)) = edge_data.into_iter().find(|(_, is_given)| *is_given) {
                    return Err(BuildError::EdgeDataOfGraph { what }.into());
                }
                check_length("nodes of the graph", "node of the dataset", self.n_nodes, graph.n_nodes())?;
                if let Some(rows) = &rows {
                    check_edge_rows(rows, graph.n_edges())?;
                }
                match self.symmetrize {
                    true if rows.is_some() => return Err(BuildError::SymmetrizedEdgeFeatures.into()),
                    true => (Arc::new(symmetrize(graph)?), None),
                    false => (graph.clone(), rows),
                }
            }
        };
        let largest_type = graph.edge_types().and_then(|types| types.iter().max());
        match largest_type {
            Some(&largest) if n_types > 0 && n_types <= usize::from(largest) => {
                let (what, per) = ("edge type names", "type");
                Err(BuildError::Length { what, per, expected: usize::from(largest) + 1, got: n_types }.into())
            }
            _ => Ok((graph, rows)),
        }
    }

    fn csc_builder(&self) -> CscBuilder<'a> {
        let mut builder = CscBuilder::new(self.n_nodes);
        if self.symmetrize {
            builder = builder.symmetrize().duplicates(Duplicates::Remove);
        }
        if let Some(weights) = self.edge_weights {
            builder = builder.weights(weights);
        }
        if let Some(types) = self.edge_types {
            builder = builder.edge_types(types);
        }
        builder
    }
}

pub(crate) fn missing(what: &'static str, call: &'static str) -> BuildError {
    BuildError::Missing { what, call }
}

pub(crate) fn check_length(what: &'static str, per: &'static str, expected: usize, got: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(BuildError::Length { what, per, expected, got }.into()),
    }
}

fn check_edge_rows(rows: &EdgeFeatures, n_edges: u64) -> Result<()> {
    check_length("edge feature rows", "edge", n_edges as usize, rows.n_edges() as usize)
}

/// Returns the fields of a set for these targets: the classes, empty for target values, and the values.
pub(crate) fn labels_and_values<I: ItemId>(
    targets: Targets<I>,
) -> (Arc<Labels<I>>, Option<Arc<TargetValues<I>>>) {
    match targets {
        Targets::Classes(labels) => (labels, None),
        Targets::Values(values) => (Arc::new(Labels::new(Vec::new(), 0)), Some(values)),
    }
}

/// Checks that each node of the split exists, has a target and is in only one part. A node may occur several times in
/// the same part.
pub(crate) fn check_split(split: &Split, targets: &Targets) -> Result<()> {
    const NONE: u8 = u8::MAX;
    let parts = split.parts();
    let mut part_of = vec![NONE; targets.len()];
    for (index, (part, nodes)) in parts.iter().enumerate() {
        for (position, &node) in nodes.iter().enumerate() {
            let Some(first) = part_of.get_mut(node.index()) else {
                let (node, n_nodes) = (node.0, targets.len());
                return Err(BuildError::SplitOutOfRange { part, position, node, n_nodes }.into());
            };
            if !targets.has_any(node) {
                return Err(BuildError::Unlabelled { part, position, node: node.0 }.into());
            }
            if *first != NONE && usize::from(*first) != index {
                let first = parts[usize::from(*first)].0;
                return Err(BuildError::SplitsOverlap { node: node.0, first, second: part }.into());
            }
            *first = index as u8;
        }
    }
    Ok(())
}
