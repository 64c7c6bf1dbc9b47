use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use kiln_feature::{
    EdgeFeatures, FeatureColumn, FeatureStore, Labels, Preparation, TargetKind, TargetValues, Targets,
};
use kiln_graph::{Csc, EdgeColumn, EdgeColumns, NodeId, Relation, Relations, SharedArray};
use kiln_store::progress::{Progress, ProgressUnit};

use crate::check::{Place, check_links};
use crate::error::missing;
use crate::layout::Layout;
use crate::{
    DatasetLinks, DatasetTargets, DatasetTimes, Error, LinkTargets, NodeNames, NotHomogeneousError, Note,
    Result, Split, TaskTable,
};

/// A data set for tasks on nodes and links: a graph with features, targets and a split. Cloning shares the arrays.
///
/// The graph has nodes of one or several types, and one adjacency per relation. A *homogeneous* set has the node type `node`
/// and the relation `edge`; [`Dataset::csc`], [`Dataset::node_features`] and [`Dataset::labels`] return its arrays. In a
/// *heterogeneous* set, each type has features of its own width and element type, and one type has the targets.
///
/// Node `i` of a type, as in DGL and PyG, is node `range.start + i` of the graph, where `range` is
/// [`NodeTypes::range`](kiln_graph::NodeTypes::range) of the type. Edges and the split have node ids of the graph, which
/// samplers take as seeds. Features, targets and names are indexed by `i`, because each type has its own;
/// [`Dataset::row_of`] converts an id.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The name of the set in messages and reports.
    pub name: String,
    /// The types of the nodes, and the graph of each relation with the columns of its edges
    /// ([`Csc::columns`](kiln_graph::Csc::columns)).
    pub graph: Arc<Relations>,
    /// The features of each node type, `[n_types]`: one row per node of the type, `[n_nodes_of_type, dim]`; `None` for a
    /// type without features.
    pub features: Vec<Option<Arc<dyn FeatureStore>>>,
    /// What the feature columns of each node type mean, `[n_types]`; empty for a type whose columns have no names, such as
    /// those of a file of numbers. A trained model stores them and compares them with those of the data of predictions.
    pub feature_columns: Vec<Vec<FeatureColumn>>,
    /// The edge types' names, by type; empty for graphs without edge types.
    pub edge_type_names: Vec<String>,
    /// The targets and the split of one node type; `None` for a set without targets. A homogeneous set that was made without
    /// labels has targets with 0 classes; see [`Dataset::has_targets`].
    pub targets: Option<DatasetTargets>,
    /// The links of one relation with their split, for link prediction, whose graph is [`Dataset::graph`]; `None` for a set
    /// without links. [`LinkSplit::of_dataset`](crate::LinkSplit::of_dataset) then splits the edges.
    pub links: Option<DatasetLinks>,
    /// The task tables: targets of nodes at times, which a loader takes by name instead of [`Dataset::targets`]. Only heterogeneous
    /// sets are written with them.
    pub tasks: Vec<TaskTable>,
    /// The names of the nodes of each type, `[n_types]`; empty for a type whose nodes have no names.
    pub names: Vec<Arc<NodeNames>>,
    /// The first row of each node type that the last append has added, `[n_types]`, the number of its nodes if there is none;
    /// `None` for a set to which no rows were appended ([`Dataset::new_rows`]). Only heterogeneous sets are written with it.
    pub first_new: Option<Vec<u32>>,
    /// The times of the nodes, and the split by time.
    pub times: DatasetTimes,
    /// The steps that [`Dataset::standardize`], [`Dataset::row_normalize`], [`Dataset::symmetrize`] and
    /// [`Dataset::add_self_loops`] have applied. A trained model stores them and applies them to the data of predictions.
    pub preparation: Preparation,
    /// Notes about how the set was read: converted arrays and suspicious data.
    pub notes: Vec<Note>,
    /// The layout of the set in a folder; [`Layout::Numbered`] for a heterogeneous set.
    pub layout: Layout,
}

/// The split of a set without targets.
static NO_SPLIT: LazyLock<Split> = LazyLock::new(Split::default);

impl Dataset {
    /// Returns a homogeneous set without names and notes. The parts are not compared with each other.
    pub(crate) fn homogeneous(
        name: String,
        graph: impl Into<Arc<Csc>>,
        features: Arc<dyn FeatureStore>,
        targets: DatasetTargets,
    ) -> Self {
        Self {
            name,
            graph: Arc::new(Relations::of_graph(graph)),
            features: vec![Some(features)],
            feature_columns: vec![Vec::new()],
            edge_type_names: Vec::new(),
            targets: Some(targets),
            links: None,
            tasks: Vec::new(),
            names: vec![Arc::default()],
            first_new: None,
            times: DatasetTimes::default(),
            preparation: Preparation::default(),
            notes: Vec::new(),
            layout: Layout::Plain,
        }
    }

    /// Returns a heterogeneous set without targets, links, names and notes.
    pub(crate) fn heterogeneous(
        name: String,
        graph: Arc<Relations>,
        features: Vec<Option<Arc<dyn FeatureStore>>>,
    ) -> Self {
        Self {
            name,
            names: vec![Arc::default(); graph.types().n_types()],
            feature_columns: vec![Vec::new(); graph.types().n_types()],
            graph,
            features,
            edge_type_names: Vec::new(),
            targets: None,
            links: None,
            tasks: Vec::new(),
            first_new: None,
            times: DatasetTimes::default(),
            preparation: Preparation::default(),
            notes: Vec::new(),
            layout: Layout::Numbered,
        }
    }

    /// Returns true for a set with several node types, or with names of its types and relations.
    pub fn is_heterogeneous(&self) -> bool {
        self.layout == Layout::Numbered
    }

    /// Returns the adjacency of a graph with one node type and one relation: row `i` has the edges into node `i`.
    ///
    /// ```
    /// use kiln_graph::NodeId;
    /// let ring = kiln_data::synthetic::ring(6)?;
    /// assert_eq!(ring.csc()?.in_neighbors(NodeId(0)), [NodeId(1), NodeId(5)]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`NotHomogeneousError::SeveralTypes`] for another graph; [`Relations::relation`] has the adjacency of each
    /// relation.
    pub fn csc(&self) -> Result<&Arc<Csc>> {
        self.require_one_type("the adjacency as one matrix")?;
        Ok(&self.graph.relation(0).graph)
    }

    /// Returns the features of the nodes of a graph with one node type and one relation, `[n_nodes, dim]`.
    ///
    /// ```
    /// let ring = kiln_data::synthetic::ring(6)?;
    /// assert_eq!(ring.node_features()?.dim(), 1);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`NotHomogeneousError::SeveralTypes`] for another graph, whose features are in [`Dataset::features`] by
    /// type, and [`BuildError::Missing`](crate::BuildError::Missing) if the nodes have no features.
    pub fn node_features(&self) -> Result<&Arc<dyn FeatureStore>> {
        self.require_one_type("the features as one matrix")?;
        let missing = || missing("features", ".features(x, dim)").into();
        self.features.first().and_then(Option::as_ref).ok_or_else(missing)
    }

    /// Checks that the graph has one node type and one relation.
    pub(crate) fn require_one_type(&self, what: &'static str) -> Result<()> {
        if (self.graph.types().n_types(), self.graph.n_relations()) == (1, 1) {
            return Ok(());
        }
        let relations = self.graph.iter().map(|relation| &*relation.name).collect::<Vec<_>>().join(", ");
        Err(Error::NotHomogeneous(NotHomogeneousError::SeveralTypes {
            name: self.name.clone(),
            what,
            types: self.graph.types().names().join(", "),
            relations,
        }))
    }

    /// Returns the features of the edges of a graph with one relation, `[n_edges, dim]`, in CSC order; `None` if edges have no
    /// features, and for another graph, whose relations have columns of their own.
    ///
    /// # Errors
    /// Returns [`Error::Feature`] for rows of more values than [`MAX_DIM`](kiln_feature::MAX_DIM).
    pub fn edge_features(&self) -> Result<Option<EdgeFeatures>> {
        let Ok(graph) = self.csc() else { return Ok(None) };
        let column = graph.columns().get(EdgeColumns::FEATURES);
        Ok(column.map(EdgeFeatures::try_from).transpose()?)
    }

    /// Returns the set with one more column of the edges of a relation, `[n_edges, width]`, in the order of its adjacency, or
    /// with another one of this name.
    ///
    /// ```
    /// use kiln_graph::EdgeColumn;
    /// let ring = kiln_data::synthetic::ring(6)?;
    /// let ring = ring.with_edge_column(0, "amount", EdgeColumn::new(vec![0.5_f32; 12], 1)?)?;
    /// assert_eq!(ring.csc()?.columns().names().collect::<Vec<_>>(), ["amount"]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`] unless the column has one row per edge, and for a name or values that are not allowed.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    pub fn with_edge_column(self, relation: usize, name: &str, column: EdgeColumn) -> Result<Self> {
        let graph = Csc::clone(&self.graph.relation(relation).graph).with_column(name, column)?;
        self.with_relation(relation, graph)
    }

    /// Returns the set with the graph of a relation that has the same nodes.
    fn with_relation(self, relation: usize, graph: Csc) -> Result<Self> {
        let mut relations: Vec<Relation> = self.graph.iter().cloned().collect();
        relations[relation].graph = Arc::new(graph);
        let graph = Relations::new(self.graph.types().clone(), relations)?;
        Ok(Self { graph: Arc::new(graph), ..self })
    }

    /// Returns the set whose edges have weights and types and no other columns, so that self loops may be added.
    ///
    /// # Errors
    /// Returns no error for a set whose columns have a row per edge.
    pub fn without_edge_rows(self) -> Result<Self> {
        self.without_edge_columns(|name| !matches!(name, EdgeColumns::WEIGHTS | EdgeColumns::TYPES))
    }

    /// Returns the set whose edges do not have the column of a name.
    ///
    /// # Errors
    /// Returns no error for a set whose columns have a row per edge.
    pub fn without_edge_column(self, name: &str) -> Result<Self> {
        self.without_edge_columns(|other| other == name)
    }

    fn without_edge_columns(mut self, is_removed: impl Fn(&str) -> bool) -> Result<Self> {
        for relation in 0..self.graph.n_relations() {
            let graph = Csc::clone(&self.graph.relation(relation).graph);
            let columns = graph.columns().clone();
            let removed: Vec<String> =
                columns.names().filter(|name| is_removed(name)).map(str::to_owned).collect();
            if !removed.is_empty() {
                let kept = removed.iter().fold(columns, |columns, name| columns.without(name));
                self = self.with_relation(relation, graph.with_columns(&kept)?)?;
            }
        }
        Ok(self)
    }

    /// Returns the number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub fn dims(&self) -> Vec<Option<usize>> {
        self.features.iter().map(|features| features.as_ref().map(|features| features.dim())).collect()
    }

    /// Returns true if the nodes of a type have classes or target values.
    pub fn has_targets(&self) -> bool {
        self.targets.as_ref().is_some_and(|targets| targets.values.n_outputs() != 0)
    }

    /// Returns the nodes for training, validation and test, as node ids of the graph; empty for a set without targets.
    pub fn split(&self) -> &Split {
        self.targets.as_ref().map_or(&NO_SPLIT, |targets| &targets.split)
    }

    /// Returns the set with another split of the nodes with targets, which are node ids of the graph. The split is not compared
    /// with the graph; [`Dataset::check_split`] does that. Messages are no longer cut by the times of an earlier split.
    ///
    /// ```
    /// use kiln_data::{Split, synthetic};
    /// use kiln_graph::NodeId;
    /// let ring = synthetic::ring(6)?;
    /// let all = Split { train: (0..6).map(NodeId).collect(), ..Split::default() };
    /// assert_eq!(ring.with_split(all)?.training_nodes()?.len(), 6);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`BuildError::Missing`](crate::BuildError::Missing) for a set without targets.
    pub fn with_split(mut self, split: Split) -> Result<Self> {
        let targets =
            self.targets.as_mut().ok_or_else(|| missing("targets", ".labels(classes, n_classes)"))?;
        targets.split = split;
        self.times.split = None;
        Ok(self)
    }

    /// Returns the class of each node of the type with targets, by its position in the type. Empty, without classes, for a set
    /// without targets or with target values.
    pub fn labels(&self) -> Arc<Labels> {
        match self.targets.as_ref().map(|targets| &targets.values) {
            Some(Targets::Classes(labels)) => labels.clone(),
            _ => Arc::new(Labels::new(Vec::new(), 0)),
        }
    }

    /// Returns the target values of the nodes of the type with targets, for several labels per node and for regression; `None`
    /// for class labels.
    pub fn target_values(&self) -> Option<&Arc<TargetValues>> {
        match self.targets.as_ref().map(|targets| &targets.values) {
            Some(Targets::Values(values)) => Some(values),
            _ => None,
        }
    }

    /// Returns the names of the classes, or of the columns of target values; empty for a set without targets.
    pub fn class_names(&self) -> &[String] {
        self.targets.as_ref().map_or(&[], |targets| &targets.class_names)
    }

    /// Returns the number of edge types: one more than the largest, or the number of names if it is larger. `None` if edges
    /// have no types, and for a heterogeneous set, whose relations take their place. It reads all types.
    pub fn n_edge_types(&self) -> Option<usize> {
        let graph = self.csc().ok()?;
        Some(graph.n_edge_types()?.max(self.edge_type_names.len()))
    }

    /// Returns the position of a node in its type, which is the row of its features. `None` if there is no such node. For
    /// targets, see [`Dataset::target_row_of`].
    ///
    /// ```
    /// use kiln_data::Dataset;
    /// use kiln_graph::{NodeId, NodeTypes};
    /// let types = NodeTypes::new([("user", 2), ("item", 3)])?;
    /// let data = Dataset::builder_with_types(types).nodes("item").node_names(["a", "b", "c"]).build()?;
    /// assert_eq!(data.row_of(NodeId(3)), Some(NodeId(1)));
    /// assert_eq!(data.target_row_of(NodeId(3)), None);
    /// assert_eq!(data.node_name(NodeId(3)), Some("b"));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn row_of(&self, node: NodeId) -> Option<NodeId> {
        let types = self.graph.types();
        let node_type = types.type_of(node)?;
        Some(NodeId(node.0 - types.range(node_type).start))
    }

    /// Returns the row of a node's target, and `None` if the node does not have the type with targets: a node of another type
    /// in the split of a damaged set, whose position in its own type would be the row of another node.
    pub fn target_row_of(&self, node: NodeId) -> Option<NodeId> {
        let nodes = self.target_nodes();
        nodes.contains(&node.0).then(|| NodeId(node.0 - nodes.start))
    }

    /// Returns the name of a node; `None` if the node does not exist or its type has no names.
    pub fn node_name(&self, node: NodeId) -> Option<&str> {
        let node_type = self.graph.types().type_of(node)?;
        self.names.get(node_type)?.get(self.row_of(node)?)
    }

    /// Returns the rows of a node type that the last append has added; empty for a type without new nodes. `None` for a set to
    /// which no rows were appended, and if there is no such type.
    ///
    /// ```
    /// use kiln_data::synthetic;
    /// let mut ring = synthetic::ring(6)?;
    /// assert_eq!(ring.new_rows(0), None);
    /// ring.first_new = Some(vec![4]);
    /// assert_eq!(ring.new_rows(0), Some(4..6));
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    pub fn new_rows(&self, node_type: usize) -> Option<Range<u32>> {
        let first = *self.first_new.as_ref()?.get(node_type)?;
        Some(first..self.graph.types().range(node_type).len() as u32)
    }

    /// Returns the ids of the nodes whose type has targets; empty if the set has no targets.
    pub fn target_nodes(&self) -> Range<u32> {
        self.targets.as_ref().map_or(0..0, |targets| self.graph.types().range(targets.node_type))
    }

    /// Returns the nodes whose neighbourhoods training samples: for a set with links, the sources and the destinations of
    /// the training links, each once and ascending (negatives are drawn later); otherwise the training nodes, of which a set
    /// without targets has none.
    ///
    /// # Errors
    /// Returns [`LinkSplitError::LinkOutOfRange`](crate::LinkSplitError::LinkOutOfRange) or
    /// [`kiln_store::Error::BadValue`] if a training link is not in the list of links, or a node of one not in the graph.
    pub fn training_nodes(&self) -> Result<SharedArray<NodeId>> {
        match &self.links {
            Some(links) => training_nodes_of(&links.targets, self.graph.n_nodes(), &self.name),
            None => Ok(self.split().train.clone()),
        }
    }

    /// Copies the graphs, with the columns of their edges, and the features of nodes into the process's memory if they are mapped. This takes time and
    /// memory in proportion to the size of the set. With an allocator that uses huge pages, random reads are faster than in the
    /// mapped set, since they cause fewer TLB misses.
    pub fn in_memory(self) -> Self {
        let mut relations: Vec<Relation> = self.graph.iter().cloned().collect();
        let n_edges = self.graph.n_edges();
        let progress = Progress::start("reading edges to memory", ProgressUnit::Edges, n_edges);
        for relation in &mut relations {
            relation.graph = Arc::new(relation.graph.in_memory());
            progress.advance(relation.graph.n_edges());
        }
        drop(progress);
        let graph = Relations::new(self.graph.types().clone(), relations);
        let graph = Arc::new(graph.expect("the copies should have the names and lengths of the relations"));
        let mut features = Vec::with_capacity(self.features.len());
        let n_rows: usize = self.features.iter().flatten().map(|store| store.n_rows()).sum();
        let progress = Progress::start("reading features to memory", ProgressUnit::Rows, n_rows as u64);
        for store in self.features {
            let n_rows = store.as_ref().map_or(0, |store| store.n_rows());
            features.push(store.map(|store: Arc<dyn FeatureStore>| store.in_memory().unwrap_or(store)));
            progress.advance(n_rows as u64);
        }
        let orders = self.times.orders.in_memory(&self.graph, &graph, &self.times);
        let times = DatasetTimes { orders, ..self.times };
        Self { graph, features, times, ..self }
    }
}

impl fmt::Display for Dataset {
    /// Writes one line with the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = &self.graph;
        let types = graph.types();
        write!(f, "{}: {} nodes", self.name, graph.n_nodes())?;
        match self.layout {
            Layout::Plain => write!(f, ", {} edges", graph.n_edges())?,
            Layout::Numbered => {
                let (n_types, n_relations) = (types.n_types(), graph.n_relations());
                write!(f, " of {n_types} types, {} edges of {n_relations} relations", graph.n_edges())?;
            }
        }
        if let (Layout::Plain, [Some(features)]) = (self.layout, &self.features[..]) {
            write!(f, ", {} features", features.dim())?;
        }
        if let Some(targets) = &self.targets {
            write!(f, ", {} {}", targets.values.n_outputs(), noun(targets.values.kind()))?;
            if self.is_heterogeneous() {
                write!(f, " of {}", types.names().get(targets.node_type).map_or("?", String::as_str))?;
            }
            let [train, val, test] = targets.split.parts().map(|(_, nodes)| nodes.len());
            write!(f, "; {train} / {val} / {test} nodes to train, validate, test")?;
        }
        if !self.tasks.is_empty() {
            let names: Vec<&str> = self.tasks.iter().map(|table| table.name.as_str()).collect();
            write!(f, "; task tables {}", names.join(", "))?;
        }
        let Some(links) = &self.links else { return Ok(()) };
        let [train, val, test] = links.targets.split().parts().map(|(_, links)| links.len());
        write!(f, "; {train} / {val} / {test} links")
    }
}

/// Returns the noun for the outputs of a model for targets of this kind.
pub(crate) fn noun(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Classes => "classes",
        TargetKind::MultiLabel => "labels",
        TargetKind::Regression => "target columns",
        TargetKind::Links => "links",
    }
}

/// Returns the nodes of the training links of a set with this name, each once and ascending.
fn training_nodes_of(targets: &LinkTargets, n_nodes: usize, name: &str) -> Result<SharedArray<NodeId>> {
    let links = targets.links();
    let train = &targets.split().train;
    let has_nodes = |(src, dst): (NodeId, NodeId)| src.max(dst).index() < n_nodes;
    // The links of a mapped set may not have been validated.
    if !train.iter().all(|link| link.index() < links.len() && has_nodes(links.pair(*link))) {
        let folder = train.path().and_then(Path::parent);
        let place = folder.map_or(Place::Set(Path::new(name)), Place::Folder);
        check_links(targets, n_nodes, place)?;
    }
    let mut nodes: Vec<NodeId> =
        train.iter().flat_map(|link| <[NodeId; 2]>::from(links.pair(*link))).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes.into())
}
