//! A builder of datasets from arrays that a program holds in memory or has mapped.

mod build;
mod times;

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_feature::{FeatureArray, FeatureStore, Labels};
use kiln_graph::{Csc, EdgeColumn, NodeId, NodeTypes, Relation, RelationEdges, Relations, SharedArray};

use crate::dataset::Dataset;
use crate::error::BuildError;
use crate::node_names::NodeNames;
use crate::split::Split;
use crate::{TimeKind, TimeSplit};

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
    time_split: Option<TimeSplit>,
    time_kind: TimeKind,
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
    times: Option<SharedArray<i64>>,
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

impl Dataset {
    /// Starts a homogeneous dataset of `n_nodes` nodes, whose ids are `0..n_nodes`.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// // Nodes 0 to 3.
    /// let data = Dataset::builder(4).edges(&[0, 1, 2], &[1, 2, 3]).features(vec![0.0; 8], 2).build()?;
    /// assert_eq!((data.graph.n_nodes(), data.dims()), (4, vec![Some(2)]));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn builder<'a>(n_nodes: usize) -> DatasetBuilder<'a> {
        DatasetBuilder::new(Nodes::OneType(n_nodes), Some(NODE.to_owned()))
    }

    /// Starts a heterogeneous dataset with nodes of these types.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::{NodeTypes, RelationEdges};
    /// // User 1 bought item 2.
    /// let buys = RelationEdges::new("buys", "user", "item", &[1], &[2]);
    /// let data = Dataset::builder_with_types(NodeTypes::new([("user", 2), ("item", 3)])?).relation(buys).build()?;
    /// assert_eq!((data.graph.n_nodes(), data.graph.n_relations()), (5, 1));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
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
            time_split: None,
            time_kind: TimeKind::default(),
            class_names: Vec::new(),
            misplaced: None,
        }
    }

    /// Sets the edges `srcs[i] -> dsts[i]` of a homogeneous set. Messages flow from source to destination.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::NodeId;
    /// let data = Dataset::builder(3).edges(&[0, 1], &[2, 2]).features(vec![0.0; 3], 1).build()?;
    /// // Node 2 receives messages from the nodes 0 and 1.
    /// assert_eq!(data.csc()?.in_neighbors(NodeId(2)), [NodeId(0), NodeId(1)]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edges(self, srcs: &'a [u32], dsts: &'a [u32]) -> Self {
        Self { edges: Some(Edges::List { srcs, dsts }), ..self.homogeneous(".edges(&srcs, &dsts)") }
    }

    /// Sets a graph of a homogeneous set that is already built or mapped, instead of an edge list.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// # let ring = kiln_data::synthetic::ring(6)?;
    /// // A second dataset on the graph of `ring`, which is not copied.
    /// let graph = ring.csc()?.clone();
    /// let data = Dataset::builder(6).graph(graph).features(vec![1.0; 12], 2).build()?;
    /// assert_eq!(data.graph.n_edges(), ring.graph.n_edges());
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn graph(self, graph: impl Into<Arc<Csc>>) -> Self {
        Self { edges: Some(Edges::Graph(graph.into())), ..self.homogeneous(".graph(graph)") }
    }

    /// Sets a weight per edge of the edge list.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(3)
    ///     .edges(&[1, 0], &[2, 2])
    ///     .edge_weights(&[0.25, 4.0])
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// // In CSC order, the edge from node 0 is the first one into node 2.
    /// assert_eq!(data.csc()?.weights(), Some(&[4.0, 0.25][..]));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edge_weights(self, weights: &'a [f32]) -> Self {
        Self { edge_weights: Some(weights), ..self.homogeneous(".edge_weights(&weights)") }
    }

    /// Sets a type per edge of the edge list.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_types(&[0, 3])
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// // The number of relations of an R-GCN is one more than the largest type.
    /// assert_eq!(data.n_edge_types(), Some(4));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let build = |edges: [&[u32]; 2]| {
    ///     Dataset::builder(3).edges(edges[0], edges[1]).symmetrize().features(vec![0.0; 3], 1).build()
    /// };
    /// // The second list has both directions of an edge already.
    /// assert_eq!(build([&[0, 1], &[1, 2]])?.graph.n_edges(), 4);
    /// assert_eq!(build([&[0, 1, 1], &[1, 0, 2]])?.graph.n_edges(), 4);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn symmetrize(self) -> Self {
        Self { symmetrize: true, ..self.homogeneous(".symmetrize()") }
    }

    /// Sets the edge types' names, one per type.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[2, 2])
    ///     .edge_types(&[0, 1])
    ///     .edge_type_names(["cites", "extends"])
    ///     .features(vec![0.0; 3], 1)
    ///     .build()?;
    /// assert_eq!(data.edge_type_names, ["cites", "extends"]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn edge_type_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let edge_type_names = names.into_iter().map(Into::into).collect();
        Self { edge_type_names, ..self.homogeneous(".edge_type_names(names)") }
    }

    /// Adds a relation of a heterogeneous set with its edges `srcs[i] -> dsts[i]`. Messages flow from source to destination.
    /// The relations of the graph are in the order in which they were added.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::{NodeTypes, RelationEdges};
    /// let users = [0, 0, 1];
    /// let items = [0, 2, 1];
    /// let data = Dataset::builder_with_types(NodeTypes::new([("user", 2), ("item", 3)])?)
    ///     .relation(RelationEdges::new("buys", "user", "item", &users, &items))
    ///     .relation(RelationEdges::new("bought by", "item", "user", &items, &users))
    ///     .build()?;
    /// assert_eq!(data.graph.position("bought by"), Some(1));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::NodeTypes;
    /// let data = Dataset::builder_with_types(NodeTypes::new([("user", 2), ("item", 3)])?)
    ///     .nodes("user").node_names(["ann", "bob"])
    ///     .nodes("item").features(vec![0.0; 12], 4)
    ///     .build()?;
    /// assert_eq!(data.dims(), [None, Some(4)]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn nodes(self, node_type: &str) -> Self {
        Self { selected: Some(node_type.to_owned()), ..self }
    }

    /// Sets the features of the selected node type, `[n_nodes_of_type, dim]`, row-major. `rows` is a `Vec` of `f32`, `f16` or
    /// `bf16`, or a range of a mapped file.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use half::f16;
    /// // Three nodes with two columns each, in half precision.
    /// let rows: Vec<f16> = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0].map(f16::from_f32).to_vec();
    /// let data = Dataset::builder(3).edges(&[0, 1], &[1, 2]).features(rows, 2).build()?;
    /// assert_eq!(data.node_features()?.row(kiln_graph::NodeId(2))?, [2.5, 3.0]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn features(self, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        self.describe(".features(x, dim)", |of_type| {
            of_type.features = Some(Features::Rows { rows: rows.into(), dim });
        })
    }

    /// Sets a feature store for the selected node type, for features that are not one dense array, such as sparse ones.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use std::sync::Arc;
    /// use kiln_feature::SparseFeatures;
    /// // Of 1,000 columns, node 0 has the value 1.0 in columns 7 and 900, and node 1 in column 7.
    /// let rows = SparseFeatures::new(vec![0, 2, 3].into(), vec![7, 900, 7].into(), vec![1.0; 3].into(), 1_000)?;
    /// let data = Dataset::builder(2).edges(&[0], &[1]).feature_store(Arc::new(rows)).build()?;
    /// assert_eq!(data.dims(), [Some(1_000)]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn feature_store(self, features: Arc<dyn FeatureStore>) -> Self {
        self.describe(".feature_store(features)", |of_type| {
            of_type.features = Some(Features::Source(features))
        })
    }

    /// Sets the names of the nodes of the selected type, one per node.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::NodeId;
    /// let data = Dataset::builder(2).edges(&[0], &[1]).features(vec![0.0; 2], 1).node_names(["ann", "bob"]).build()?;
    /// assert_eq!(data.node_name(NodeId(1)), Some("bob"));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn node_names<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.describe(".node_names(names)", |of_type| of_type.names = NodeNames::new(names))
    }

    /// Sets the class of each node of the selected type, 0 to `n_classes - 1`; a negative number marks a node without a label.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_graph::NodeId;
    /// // Node 3 has no label.
    /// let graph = Dataset::builder(4).edges(&[0, 1, 2], &[1, 2, 3]).features(vec![0.0; 4], 1);
    /// let data = graph.labels(vec![0, 4, 2, -1], 5).split(vec![0], vec![1], vec![2]).build()?;
    /// assert_eq!([0, 1, 2, 3].map(|node| data.labels().get(NodeId(node))), [Some(0), Some(4), Some(2), None]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn labels(self, classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        self.targets(".labels(y, n_classes)", GivenTargets::Classes(Labels::new(classes, n_classes)))
    }

    /// Sets several labels per node of the selected type instead of a class, `[n_nodes_of_type, n_labels]`, row-major: 1 if the
    /// node has the label, 0 if not, and [`MISSING`](kiln_feature::TargetValues::MISSING) if it is unknown.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// use kiln_feature::TargetValues;
    /// // Node 0 has both labels, node 1 has none; whether node 2 has the second label is unknown.
    /// let labels = vec![1, 1, 0, 0, 1, TargetValues::<kiln_graph::NodeId>::MISSING];
    /// let graph = Dataset::builder(3).edges(&[0, 1], &[1, 2]).features(vec![0.0; 3], 1);
    /// let data = graph.multi_label(labels, 2).split(vec![0], vec![1], vec![2]).build()?;
    /// assert_eq!(data.target_values().map(|values| values.n_columns()), Some(2));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn multi_label(self, labels: impl Into<SharedArray<u8>>, n_labels: usize) -> Self {
        self.targets(".multi_label(y, n_labels)", GivenTargets::MultiLabel(labels.into(), n_labels))
    }

    /// Sets regression targets of the nodes of the selected type instead of classes, `[n_nodes_of_type, n_columns]`, row-major;
    /// NaN marks a missing target.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// // Two numbers for each node; the second one of node 1 is missing.
    /// let values = vec![0.5, -2.0, 1.5, f32::NAN, 0.0, 1.0];
    /// let graph = Dataset::builder(3).edges(&[0, 1], &[1, 2]).features(vec![0.0; 3], 1);
    /// let data = graph.regression(values, 2).split(vec![0], vec![1], vec![2]).build()?;
    /// assert_eq!(data.target_values().map(|values| values.n_columns()), Some(2));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
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
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(4)
    ///     .edges(&[0, 1, 2], &[1, 2, 3])
    ///     .features(vec![0.0; 4], 1)
    ///     .labels(vec![0, 1, 0, 1], 2)
    ///     .split(vec![0, 1], vec![2], vec![3])
    ///     .build()?;
    /// assert_eq!(data.split().train.len(), 2);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn split(
        self,
        train: impl Into<SharedArray<NodeId>>,
        val: impl Into<SharedArray<NodeId>>,
        test: impl Into<SharedArray<NodeId>>,
    ) -> Self {
        Self { split: Some(Split { train: train.into(), val: val.into(), test: test.into() }), ..self }
    }

    /// Sets the dataset's name in reports; `dataset` by default.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(2).name("payments").edges(&[0], &[1]).features(vec![0.0; 2], 1).build()?;
    /// assert!(data.to_string().starts_with("payments: 2 nodes"));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the classes' names, one per class; for several labels or regression targets, the columns' names.
    ///
    /// ```
    /// # use kiln_data::Dataset;
    /// let data = Dataset::builder(3)
    ///     .edges(&[0, 1], &[1, 2])
    ///     .features(vec![0.0; 3], 1)
    ///     .labels(vec![0, 1, 0], 2)
    ///     .class_names(["legitimate", "fraud"])
    ///     .split(vec![0], vec![1], vec![2])
    ///     .build()?;
    /// assert_eq!(data.class_names(), ["legitimate", "fraud"]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
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
}
