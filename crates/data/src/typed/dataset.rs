use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_feature::{FeatureStore, Targets};
use kiln_graph::{NodeId, Relation, Relations, SharedArray};

use crate::dataset::{noun, training_nodes_of};
use crate::limits::MEMORY_BYTES;
use crate::{
    DatasetFormat, DatasetLocation, DatasetName, Error, NodeNames, Note, Result, Split, TypedLinks, builtin,
    detect_format, graphbolt, locate, note_on_name, ogb,
};

/// A heterogeneous data set for node tasks: nodes of several types, each with features of its own width and element type, a
/// graph per relation, and targets of one type. Cloning shares the arrays.
///
/// Node `i` of a type, as in DGL and PyG, is node `range.start + i` of the graph, where `range` is
/// [`NodeTypes::range`](kiln_graph::NodeTypes::range) of the type. Edges and the split have node ids of the graph, which
/// samplers take as seeds. Features, targets and names are indexed by `i`, because each type has its own;
/// [`TypedDataset::row_of`] converts an id.
#[derive(Debug, Clone)]
pub struct TypedDataset {
    /// The name of the set in messages and reports.
    pub name: String,
    /// The types of the nodes and the graph of each relation.
    pub graph: Arc<Relations>,
    /// The features of each node type, `[n_types]`: one row per node of the type, `[n_nodes_of_type, dim]`; `None` for a
    /// type without features.
    pub features: Vec<Option<Arc<dyn FeatureStore>>>,
    /// The targets and the split of one node type; `None` for a set without targets.
    pub targets: Option<TypedTargets>,
    /// The links of one relation with their split, for link prediction, whose graph is [`TypedDataset::graph`]; `None` for a
    /// set without links. [`TypedLinkSplit::of_links`](crate::TypedLinkSplit::of_links) returns their split.
    pub links: Option<TypedLinks>,
    /// The names of the nodes of each type, `[n_types]`; empty for a type whose nodes have no names.
    pub names: Vec<Arc<NodeNames>>,
    /// Notes about how the set was read: converted arrays and suspicious data.
    pub notes: Vec<Note>,
}

/// The targets of the nodes of one type, and their split.
#[derive(Debug, Clone)]
pub struct TypedTargets {
    /// The type of the nodes that have targets.
    pub node_type: usize,
    /// The class or the target values of each node of the type, by its position in the type; a node may have none.
    pub values: Targets,
    /// The nodes for training, validation and test, as node ids of the graph. All have a target.
    pub split: Split,
    /// The classes' names, by class; for several labels or regression targets, the columns' names.
    pub class_names: Vec<String>,
}

impl TypedDataset {
    /// Opens a heterogeneous set by name or path: the built-in set `debian-archive`, a folder in the kiln format, as
    /// [`typed::open`](crate::typed::open) does, a GraphBolt folder, as [`graphbolt::open_typed`] does, or an OGB folder,
    /// as [`ogb::open_typed`] does. A file or folder with the name of a set takes precedence, with a note; see
    /// [`locate`].
    ///
    /// # Errors
    /// Returns the errors of [`detect_format`] and of the format's reader, and [`Error::WrongKind`] for other formats.
    pub fn open(name_or_path: impl AsRef<Path>) -> Result<Self> {
        open_within(name_or_path.as_ref(), MEMORY_BYTES)
    }

    /// Returns the number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub fn dims(&self) -> Vec<Option<usize>> {
        self.features.iter().map(|features| features.as_ref().map(|features| features.dim())).collect()
    }

    /// Returns the position of a node in its type, which is the row of its features. `None` if there is no such node. For
    /// targets, see [`TypedDataset::target_row_of`].
    ///
    /// ```
    /// use kiln_data::TypedDataset;
    /// use kiln_graph::{NodeId, NodeTypes};
    /// let types = NodeTypes::new([("user", 2), ("item", 3)])?;
    /// let data = TypedDataset::builder(types).node_names("item", ["a", "b", "c"]).build()?;
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

    /// Returns the ids of the nodes whose type has targets; empty if the set has no targets.
    pub fn target_nodes(&self) -> Range<u32> {
        self.targets.as_ref().map_or(0..0, |targets| self.graph.types().range(targets.node_type))
    }

    /// Returns the nodes whose neighbourhoods training samples: for a set with links, the sources and the destinations of the
    /// training links, each once and ascending; otherwise the training nodes, of which a set without targets has none.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::training_nodes`](crate::Dataset::training_nodes).
    pub fn training_nodes(&self) -> Result<SharedArray<NodeId>> {
        let of_targets = |targets: &TypedTargets| targets.split.train.clone();
        match &self.links {
            Some(links) => training_nodes_of(&links.targets, self.graph.n_nodes(), &self.name),
            None => Ok(self.targets.as_ref().map(of_targets).unwrap_or_default()),
        }
    }

    /// Copies the graphs and the features into the process's memory if they are mapped, as
    /// [`Dataset::in_memory`](crate::Dataset::in_memory) does.
    pub fn in_memory(self) -> Self {
        let copied = |relation: &Relation| Relation {
            graph: Arc::new(relation.graph.in_memory()),
            ..relation.clone()
        };
        let graph = Relations::new(self.graph.types().clone(), self.graph.iter().map(copied).collect());
        let graph = Arc::new(graph.expect("the copies should have the names and lengths of the relations"));
        let in_memory = |store: Arc<dyn FeatureStore>| store.in_memory().unwrap_or(store);
        let features = self.features.into_iter().map(|store| store.map(in_memory)).collect();
        Self { graph, features, ..self }
    }

    /// Reads all data once and checks what opening a mapped set does not: that the parts have the lengths of the types, that
    /// edges come from nodes of their relations' types, that targets are in range, that weights and features are finite,
    /// and that the split's nodes are of the type with targets and have one. Returns notes, for example about splits
    /// that overlap. For a set on disk, [`typed::verify`](crate::typed::verify) performs these checks and names the files
    /// in its errors.
    ///
    /// # Errors
    /// Returns [`Error::InPart`] with the name of a node type, [`Error::Graph`]
    /// with the name of a relation, [`Error::Feature`] for invalid targets, and
    /// [`kiln_store::Error::Inconsistent`] or [`kiln_store::Error::BadValue`] for wrong lengths and an invalid split.
    pub fn validate(&self) -> Result<Vec<Note>> {
        self.check_parts()?;
        super::check::check_values(self, None)
    }
}

/// Opens a set as [`TypedDataset::open`] does, with another limit for compressed edges and for nodes without features.
pub(super) fn open_within(path: &Path, memory_bytes: u64) -> Result<TypedDataset> {
    let expected = "a heterogeneous set: a kiln folder, a GraphBolt folder or an OGB folder";
    match locate(path) {
        DatasetLocation::Name(DatasetName::DebianArchive) => return builtin::debian_archive(),
        DatasetLocation::Name(name) => return Err(name.wrong_kind(expected)),
        DatasetLocation::Path(_) => {}
    }
    let mut data = match detect_format(path)? {
        DatasetFormat::Kiln => super::open(path)?,
        DatasetFormat::GraphBolt => graphbolt::open_typed_within(path, memory_bytes)?,
        DatasetFormat::Ogb => ogb::open_typed_within(path, memory_bytes)?,
        format => {
            let (path, kind) = (path.to_owned(), format.to_string());
            return Err(Error::WrongKind { path, kind, expected });
        }
    };
    data.notes.extend(note_on_name(path));
    Ok(data)
}

impl fmt::Display for TypedDataset {
    /// Writes one line with the name and the sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (graph, types) = (&self.graph, self.graph.types());
        write!(
            f,
            "{}: {} nodes of {} types, {} edges of {} relations",
            self.name,
            graph.n_nodes(),
            types.n_types(),
            graph.n_edges(),
            graph.n_relations(),
        )?;
        if let Some(targets) = &self.targets {
            let [train, val, test] = targets.split.parts().map(|(_, nodes)| nodes.len());
            write!(
                f,
                ", {} {} of {}; {train} / {val} / {test} nodes to train, validate, test",
                targets.values.n_outputs(),
                noun(targets.values.kind()),
                types.names().get(targets.node_type).map_or("?", String::as_str),
            )?;
        }
        let Some(links) = &self.links else { return Ok(()) };
        let [train, val, test] = links.targets.split().parts().map(|(_, links)| links.len());
        write!(f, "; {train} / {val} / {test} links")
    }
}
