//! A builder of datasets from arrays that a program holds in memory or has mapped.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_feature::{
    DenseFeatures, EdgeFeatures, FeatureArray, FeatureStore, Labels, PreparationStep, TargetValues, Targets,
};
use kiln_graph::{
    ColumnError, Csc, CscBuilder, Duplicates, EdgeColumn, EdgeColumns, NodeId, NodeTypes, Relation,
    RelationEdges, Relations, SharedArray, symmetrize,
};

use crate::dataset::{Dataset, DatasetTargets};
use crate::error::{BuildError, Error, Result, missing};
use crate::node_names::NodeNames;
use crate::split::Split;

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
/// assert_eq!((data.graph.n_edges(), data.dims()), (6, vec![Some(2)]));
/// # Ok::<(), kiln_data::Error>(())
/// ```
///
/// A heterogeneous set starts with its node types. [`DatasetBuilder::nodes`] selects the type that the next calls describe.
/// All ids that the builder takes count from 0 within their type, as in DGL and PyG.
///
/// ```
/// use kiln_data::Dataset;
/// use kiln_graph::{NodeTypes, RelationEdges};
/// let data = Dataset::builder_with_types(NodeTypes::new([("author", 2), ("paper", 3)])?)
///     .relation(RelationEdges {
///         name: "writes",
///         src_type: "author",
///         dst_type: "paper",
///         srcs: &[0, 0, 1],
///         dsts: &[0, 1, 2],
///         weights: None,
///         columns: None,
///     })
///     .nodes("paper")
///     .features(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 2)
///     .labels(vec![0, 1, 1], 2)
///     .split(vec![0], vec![1], vec![2])
///     .build()?;
/// assert_eq!(data.to_string(), "dataset: 5 nodes of 2 types, 3 edges of 1 relations, 2 classes of paper; \
///     1 / 1 / 1 nodes to train, validate, test");
/// // Paper 0 is node 2 of the graph.
/// assert_eq!(data.split().train[0].0, 2);
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "call .build() to get the dataset"]
pub struct DatasetBuilder<'a> {
    nodes: Nodes,
    name: String,
    /// The edges of a homogeneous set, and what belongs to them.
    edges: Option<Edges<'a>>,
    edge_weights: Option<&'a [f32]>,
    edge_types: Option<&'a [u8]>,
    edge_features: Option<(FeatureArray, usize)>,
    /// The other columns of the edges.
    edge_columns: Vec<(String, EdgeColumn)>,
    symmetrize: bool,
    edge_type_names: Vec<String>,
    /// The relations of a heterogeneous set: those that are already built, and the others.
    built: Vec<Relation>,
    relations: Vec<RelationEdges<'a>>,
    /// The features and the names of the nodes, by the name of the type.
    of_type: BTreeMap<String, OfType>,
    /// The name of the type that calls describe.
    selected: Option<String>,
    /// The targets, with the name of their type.
    targets: Option<(String, GivenTargets)>,
    split: Option<Split>,
    class_names: Vec<String>,
    /// The first call that has no effect on this set, as an error.
    misplaced: Option<BuildError>,
}

/// The nodes of the set.
#[derive(Debug, Clone)]
enum Nodes {
    /// The number of nodes of a homogeneous set.
    OneType(usize),
    /// The types of a heterogeneous set.
    Types(Arc<NodeTypes>),
}

/// What was set for a node type.
#[derive(Debug, Clone, Default)]
struct OfType {
    features: Option<Features>,
    names: NodeNames,
}

/// The topology as it was passed to the builder.
#[derive(Debug, Clone)]
enum Edges<'a> {
    List { srcs: &'a [u32], dsts: &'a [u32] },
    Graph(Arc<Csc>),
}

/// The feature rows as they were passed to the builder.
#[derive(Debug, Clone)]
enum Features {
    Rows { rows: FeatureArray, dim: usize },
    Source(Arc<dyn FeatureStore>),
}

/// The targets as they were passed to the builder, with their number of columns.
#[derive(Debug, Clone)]
enum GivenTargets {
    Classes(Labels),
    MultiLabel(SharedArray<u8>, usize),
    Regression(SharedArray<f32>, usize),
}

/// The node type of a homogeneous set.
const NODE: &str = "node";

impl Features {
    /// Returns the features of `n_nodes` nodes.
    fn build(self, n_nodes: usize) -> Result<Arc<dyn FeatureStore>> {
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
    fn build(self, n_nodes: usize) -> Result<Targets> {
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
    /// Starts a homogeneous dataset of `n_nodes` nodes, whose ids are `0..n_nodes`.
    pub fn builder<'a>(n_nodes: usize) -> DatasetBuilder<'a> {
        DatasetBuilder::new(Nodes::OneType(n_nodes), Some(NODE.to_owned()))
    }

    /// Starts a heterogeneous dataset with nodes of these types.
    pub fn builder_with_types<'a>(types: impl Into<Arc<NodeTypes>>) -> DatasetBuilder<'a> {
        DatasetBuilder::new(Nodes::Types(types.into()), None)
    }

    /// Starts a heterogeneous dataset with a graph that is already built or mapped.
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// let graph = kiln_data::debian_archive()?.graph;
    /// let data = Dataset::builder_with_relations(&graph).name("topology").build()?;
    /// assert_eq!(data.graph.n_relations(), 10);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn builder_with_relations<'a>(graph: &Relations) -> DatasetBuilder<'a> {
        let builder = Self::builder_with_types(graph.types().clone());
        DatasetBuilder { built: graph.iter().cloned().collect(), ..builder }
    }
}

impl<'a> DatasetBuilder<'a> {
    fn new(nodes: Nodes, selected: Option<String>) -> Self {
        Self {
            nodes,
            name: "dataset".to_owned(),
            edges: None,
            edge_weights: None,
            edge_types: None,
            edge_features: None,
            edge_columns: Vec::new(),
            symmetrize: false,
            edge_type_names: Vec::new(),
            built: Vec::new(),
            relations: Vec::new(),
            of_type: BTreeMap::new(),
            selected,
            targets: None,
            split: None,
            class_names: Vec::new(),
            misplaced: None,
        }
    }

    /// Sets the edges `srcs[i] -> dsts[i]` of a homogeneous set. Messages flow from source to destination.
    pub fn edges(self, srcs: &'a [u32], dsts: &'a [u32]) -> Self {
        Self { edges: Some(Edges::List { srcs, dsts }), ..self.homogeneous(".edges(&srcs, &dsts)") }
    }

    /// Sets a graph of a homogeneous set that is already built or mapped, instead of an edge list.
    pub fn graph(self, graph: impl Into<Arc<Csc>>) -> Self {
        Self { edges: Some(Edges::Graph(graph.into())), ..self.homogeneous(".graph(graph)") }
    }

    /// Sets a weight per edge of the edge list.
    pub fn edge_weights(self, weights: &'a [f32]) -> Self {
        Self { edge_weights: Some(weights), ..self.homogeneous(".edge_weights(&weights)") }
    }

    /// Sets a type per edge of the edge list.
    pub fn edge_types(self, types: &'a [u8]) -> Self {
        Self { edge_types: Some(types), ..self.homogeneous(".edge_types(&types)") }
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
    /// let features = data.edge_features()?.unwrap();
    /// assert!(matches!(features.rows(), FeatureArray::F32(rows) if rows[..] == [1.5, 0.5]));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edge_features(self, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        Self { edge_features: Some((rows.into(), dim)), ..self.homogeneous(".edge_features(rows, dim)") }
    }

    /// Sets a further column of the edges by its name, `[n_edges, width]`, in the order of the edge list; in the set it is
    /// in CSC order. Programs read it from the graph ([`Csc::columns`]) or from batches. For a relation of a heterogeneous set,
    /// see [`RelationEdges::columns`].
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_graph::EdgeColumn;
    /// let data = Dataset::builder(3)
    ///     .edges(&[2, 0], &[1, 1])
    ///     .edge_column("amount", EdgeColumn::new(vec![0.5_f32, 1.5], 1)?)
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// // The edge from node 0 is the first one into node 1.
    /// assert_eq!(data.csc()?.columns().get("amount").unwrap().value(0), 1.5);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edge_column(mut self, name: impl Into<String>, column: EdgeColumn) -> Self {
        self.edge_columns.push((name.into(), column));
        self.homogeneous(".edge_column(name, column)")
    }

    /// Adds the reverse of each edge, with its weight, type and features, and removes duplicates: the graph becomes
    /// undirected. Of the edges between two nodes, also in opposite directions, the first one in the list determines the
    /// weight, type and features of both directions.
    pub fn symmetrize(self) -> Self {
        Self { symmetrize: true, ..self.homogeneous(".symmetrize()") }
    }

    /// Sets the edge types' names, one per type.
    pub fn edge_type_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let edge_type_names = names.into_iter().map(Into::into).collect();
        Self { edge_type_names, ..self.homogeneous(".edge_type_names(names)") }
    }

    /// Adds a relation of a heterogeneous set with its edges `srcs[i] -> dsts[i]`. Messages flow from source to destination.
    /// The relations of the graph are in the order in which they were added.
    pub fn relation(mut self, edges: RelationEdges<'a>) -> Self {
        if let Nodes::OneType(_) = self.nodes {
            let instead = "start the set with its node types (Dataset::builder_with_types), or call .edges(&srcs, &dsts)";
            self.misplace(".relation(edges)", instead);
        }
        self.relations.push(edges);
        self
    }

    /// Selects the node type that the next calls of `features`, `feature_store`, `node_names`, `labels`, `multi_label` and
    /// `regression` describe. A homogeneous set has the type `node`, which is selected.
    pub fn nodes(self, node_type: &str) -> Self {
        Self { selected: Some(node_type.to_owned()), ..self }
    }

    /// Sets the features of the selected node type, `[n_nodes_of_type, dim]`, row-major. `rows` is a `Vec` of `f32`, `f16` or
    /// `bf16`, or a range of a mapped file.
    pub fn features(self, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        self.describe(".features(x, dim)", |of_type| {
            of_type.features = Some(Features::Rows { rows: rows.into(), dim });
        })
    }

    /// Sets a feature store for the selected node type, for features that are not one dense array, such as sparse ones.
    pub fn feature_store(self, features: Arc<dyn FeatureStore>) -> Self {
        self.describe(".feature_store(features)", |of_type| {
            of_type.features = Some(Features::Source(features))
        })
    }

    /// Sets the names of the nodes of the selected type, one per node.
    pub fn node_names<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.describe(".node_names(names)", |of_type| of_type.names = NodeNames::new(names))
    }

    /// Sets the class of each node of the selected type, 0 to `n_classes - 1`; a negative number marks a node without a label.
    pub fn labels(self, classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        self.targets(".labels(y, n_classes)", GivenTargets::Classes(Labels::new(classes, n_classes)))
    }

    /// Sets several labels per node of the selected type instead of a class, `[n_nodes_of_type, n_labels]`, row-major: 1 if the
    /// node has the label, 0 if not, and [`TargetValues::MISSING`] if it is unknown.
    pub fn multi_label(self, labels: impl Into<SharedArray<u8>>, n_labels: usize) -> Self {
        self.targets(".multi_label(y, n_labels)", GivenTargets::MultiLabel(labels.into(), n_labels))
    }

    /// Sets regression targets of the nodes of the selected type instead of classes, `[n_nodes_of_type, n_columns]`, row-major;
    /// NaN marks a missing target.
    pub fn regression(self, values: impl Into<SharedArray<f32>>, n_columns: usize) -> Self {
        self.targets(".regression(y, n_columns)", GivenTargets::Regression(values.into(), n_columns))
    }

    fn targets(mut self, call: &'static str, targets: GivenTargets) -> Self {
        match &self.selected {
            Some(node_type) => self.targets = Some((node_type.clone(), targets)),
            None => self.misplaced = self.misplaced.or(Some(BuildError::NoNodeType { call })),
        }
        self
    }

    /// Sets the nodes of the training, validation and test split, as ids within the type that has targets. Each of these
    /// nodes must have a label or at least one target value, and no node may be in two of the splits. The set has their node
    /// ids of the graph.
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

    /// Sets the classes' names, one per class; for several labels or regression targets, the columns' names.
    pub fn class_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { class_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    fn describe(mut self, call: &'static str, set: impl FnOnce(&mut OfType)) -> Self {
        match &self.selected {
            Some(node_type) => set(self.of_type.entry(node_type.clone()).or_default()),
            None => self.misplaced = self.misplaced.or(Some(BuildError::NoNodeType { call })),
        }
        self
    }

    /// Records an error if the set is heterogeneous.
    fn homogeneous(mut self, call: &'static str) -> Self {
        if let Nodes::Types(_) = self.nodes {
            self.misplace(
                call,
                "the edges of a heterogeneous set are those of its relations (.relation(edges))",
            );
        }
        self
    }

    fn misplace(&mut self, call: &'static str, instead: &'static str) {
        self.misplaced.get_or_insert(BuildError::NotApplicable { call, instead });
    }

    /// Builds the graph, checks that all parts are consistent, and returns the dataset. Labels and split may both be
    /// omitted, for link prediction: no node then has a label. Features may be omitted for any type of a heterogeneous set.
    /// Labels and split are read, features are not: [`Dataset::validate`] also finds features that are not finite.
    ///
    /// # Errors
    /// Returns [`Error::Build`] if a part is missing or inconsistent with the others, or if a call does not apply to the set;
    /// [`Error::Graph`] if the edge arrays differ in length or contain a node out of range, for an invalid relation, and for the
    /// name of a type that does not exist; and [`Error::Feature`] if the features are not a whole number of rows or a label is
    /// out of range. For a heterogeneous set, the last and those of a type's lengths are within [`Error::InPart`] with the name
    /// of the type.
    pub fn build(mut self) -> Result<Dataset> {
        if let Some(error) = self.misplaced.take() {
            return Err(error.into());
        }
        match self.nodes.clone() {
            Nodes::OneType(n_nodes) => self.build_homogeneous(n_nodes),
            Nodes::Types(types) => self.build_heterogeneous(types),
        }
    }

    fn build_homogeneous(mut self, n_nodes: usize) -> Result<Dataset> {
        if self.selected.as_deref() != Some(NODE) || self.of_type.keys().any(|name| name != NODE) {
            let instead = "a homogeneous set has only the type `node`, which is selected: remove the call, or start the \
                           set with its node types (Dataset::builder_with_types)";
            return Err(BuildError::NotApplicable { call: ".nodes(type_name)", instead }.into());
        }
        let graph = self.build_graph(n_nodes)?;
        let OfType { features, names } = self.of_type.remove(NODE).unwrap_or_default();
        let features = features.ok_or(missing("features", ".features(x, dim)"))?.build(n_nodes)?;
        let (values, split) = match (self.targets.take(), self.split.take()) {
            (None, None) => (Labels::new(vec![-1; n_nodes], 0).into(), Split::default()),
            (targets, split) => {
                let (_, targets) = targets.ok_or(missing("labels", ".labels(y, n_classes)"))?;
                let split = split.ok_or(missing("split", ".split(train, val, test)"))?;
                let targets = targets.build(n_nodes)?;
                check_split(&split, &targets)?;
                (targets, split)
            }
        };
        if !names.is_empty() {
            check_length("node names", "node", n_nodes, names.len())?;
        }
        if !self.class_names.is_empty() {
            check_length("class names", "class", values.n_outputs(), self.class_names.len())?;
        }
        let targets = DatasetTargets { node_type: 0, values, split, class_names: self.class_names };
        let mut data = Dataset::homogeneous(self.name, graph, features, targets);
        data.preparation.steps.extend(self.symmetrize.then_some(PreparationStep::Symmetrize));
        data.edge_type_names = self.edge_type_names;
        data.names = vec![Arc::new(names)];
        Ok(data)
    }

    fn build_heterogeneous(mut self, types: Arc<NodeTypes>) -> Result<Dataset> {
        for name in self.of_type.keys().chain(self.targets.as_ref().map(|(name, _)| name)) {
            types.require(name)?;
        }
        let built = Relations::from_edges(types.clone(), &self.relations)?;
        self.built.extend(built.iter().cloned());
        let graph = Arc::new(Relations::new(types.clone(), std::mem::take(&mut self.built))?);
        let mut features = Vec::new();
        let mut names = Vec::new();
        for (node_type, name) in types.names().iter().enumerate() {
            let of_type = self.of_type.remove(name).unwrap_or_default();
            let n_nodes = types.range(node_type).len();
            let store = of_type.features.map(|features| features.build(n_nodes)).transpose();
            features.push(store.map_err(|error| error.in_type(name))?);
            names.push(Arc::new(of_type.names));
        }
        let targets = self.targets_of_type(&types)?;
        let data = Dataset { targets, names, ..Dataset::heterogeneous(self.name, graph, features) };
        data.check_parts()?;
        Ok(data)
    }

    fn targets_of_type(&mut self, types: &NodeTypes) -> Result<Option<DatasetTargets>> {
        let class_names = std::mem::take(&mut self.class_names);
        let (name, targets, split) = match (self.targets.take(), self.split.take()) {
            (None, None) => {
                check_length("class names", "class", 0, class_names.len())?;
                return Ok(None);
            }
            (Some((name, targets)), Some(split)) => (name, targets, split),
            (None, Some(_)) => return Err(missing("labels", ".labels(y, n_classes)").into()),
            (Some(_), None) => return Err(missing("split", ".split(train, val, test)").into()),
        };
        let node_type = types.require(&name)?;
        let nodes = types.range(node_type);
        let in_type = |error: Error| error.in_type(&name);
        let values = targets.build(nodes.len()).map_err(in_type)?;
        // The rows are checked first, so that the sum cannot overflow.
        check_split(&split, &values).map_err(in_type)?;
        let split = split.shifted(nodes.start);
        Ok(Some(DatasetTargets { node_type, values, split, class_names }))
    }

    /// Returns the graph of a homogeneous set.
    fn build_graph(&mut self, n_nodes: usize) -> Result<Arc<Csc>> {
        let n_types = self.edge_type_names.len();
        let graph = match self.edges.take().ok_or(missing("edges", ".edges(&srcs, &dsts)"))? {
            Edges::List { srcs, dsts } => {
                let columns = self.columns(srcs.len())?;
                Arc::new(self.csc_builder(n_nodes).columns(columns).build(srcs, dsts)?)
            }
            Edges::Graph(graph) => {
                let edge_data = [
                    ("edge weights", self.edge_weights.is_some()),
                    ("edge types", self.edge_types.is_some()),
                ];
                if let Some((what, _)) = edge_data.into_iter().find(|(_, is_given)| *is_given) {
                    return Err(BuildError::EdgeDataOfGraph { what }.into());
                }
                check_length("nodes of the graph", "node of the dataset", n_nodes, graph.n_nodes())?;
                let mut with_columns = graph;
                for (name, column) in self.columns(with_columns.n_edges() as usize)?.iter() {
                    with_columns = Arc::new(Csc::clone(&with_columns).with_column(name, column.clone())?);
                }
                match self.symmetrize {
                    true => Arc::new(symmetrize(&with_columns)?),
                    false => with_columns,
                }
            }
        };
        let largest_type = graph.edge_types().and_then(|types| types.iter().max());
        match largest_type {
            Some(&largest) if n_types > 0 && n_types <= usize::from(largest) => {
                let (what, per) = ("edge type names", "type");
                Err(BuildError::Length { what, per, expected: usize::from(largest) + 1, got: n_types }.into())
            }
            _ => Ok(graph),
        }
    }

    /// Returns the features and the other columns of the edges, in the order in which they were given.
    fn columns(&mut self, n_edges: usize) -> Result<EdgeColumns> {
        let mut columns = EdgeColumns::default();
        if let Some((rows, dim)) = self.edge_features.take() {
            let rows = EdgeFeatures::new(rows, dim)?;
            check_length("edge feature rows", "edge", n_edges, rows.n_edges() as usize)?;
            columns = columns.with(EdgeColumns::FEATURES, rows.to_column())?;
        }
        for (name, column) in std::mem::take(&mut self.edge_columns) {
            if columns.get(&name).is_some() {
                return Err(kiln_graph::Error::from(ColumnError::Repeated { name }).into());
            }
            columns = columns.with(name, column)?;
        }
        Ok(columns)
    }

    fn csc_builder(&self, n_nodes: usize) -> CscBuilder<'a> {
        let mut builder = CscBuilder::new(n_nodes);
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

fn check_length(what: &'static str, per: &'static str, expected: usize, got: usize) -> Result<()> {
    match got == expected {
        true => Ok(()),
        false => Err(BuildError::Length { what, per, expected, got }.into()),
    }
}

/// Checks that each node of the split exists, has a target and is in only one part. A node may occur several times in
/// the same part.
fn check_split(split: &Split, targets: &Targets) -> Result<()> {
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
