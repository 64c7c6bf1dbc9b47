use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_feature::{FeatureArray, FeatureStore, Labels, Targets};
use kiln_graph::{NodeId, NodeTypes, Relation, RelationEdges, Relations, SharedArray};

use crate::builder::{Features, GivenTargets, check_length, check_split, missing};
use crate::{NodeNames, Result, Split, TypedDataset, TypedTargets};

/// Builds a [`TypedDataset`] from a program's own arrays. All ids that it takes count from 0 within their type, as in DGL
/// and PyG.
///
/// Features and targets are moved into the set and not copied; each of them may also be a range of a mapped file. Edge
/// lists are borrowed, and the graphs are built from them.
///
/// ```
/// use kiln_data::TypedDataset;
/// use kiln_graph::{NodeTypes, RelationEdges};
/// let types = NodeTypes::new([("author", 2), ("paper", 3)])?;
/// let data = TypedDataset::builder(types)
///     .relation(RelationEdges {
///         name: "writes",
///         src_type: "author",
///         dst_type: "paper",
///         srcs: &[0, 0, 1],
///         dsts: &[0, 1, 2],
///         weights: None,
///     })
///     .features("paper", vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5], 2)
///     .labels("paper", vec![0, 1, 1], 2)
///     .split(&[0], &[1], &[2])
///     .build()?;
/// assert_eq!(data.to_string(), "dataset: 5 nodes of 2 types, 3 edges of 1 relations, 2 classes of paper; \
///     1 / 1 / 1 nodes to train, validate, test");
/// // Paper 0 is node 2 of the graph.
/// assert_eq!(data.targets.map(|targets| targets.split.train[0].0), Some(2));
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "call .build() to get the set"]
pub struct TypedDatasetBuilder<'a> {
    types: Arc<NodeTypes>,
    name: String,
    /// The relations that are already built.
    relations: Vec<Relation>,
    edges: Vec<RelationEdges<'a>>,
    /// The features and the node names, by the name of the type.
    features: BTreeMap<String, Features>,
    node_names: BTreeMap<String, NodeNames>,
    /// The targets, with the name of their type.
    targets: Option<(String, GivenTargets)>,
    split: Option<[&'a [u32]; 3]>,
    class_names: Vec<String>,
}

impl TypedDataset {
    /// Starts a heterogeneous set with nodes of these types.
    pub fn builder<'a>(types: impl Into<Arc<NodeTypes>>) -> TypedDatasetBuilder<'a> {
        TypedDatasetBuilder {
            types: types.into(),
            name: "dataset".to_owned(),
            relations: Vec::new(),
            edges: Vec::new(),
            features: BTreeMap::new(),
            node_names: BTreeMap::new(),
            targets: None,
            split: None,
            class_names: Vec::new(),
        }
    }

    /// Starts a heterogeneous set with a graph that is already built or mapped.
    pub fn builder_with_graph<'a>(graph: &Relations) -> TypedDatasetBuilder<'a> {
        TypedDatasetBuilder {
            relations: graph.iter().cloned().collect(),
            ..Self::builder(graph.types().clone())
        }
    }
}

impl<'a> TypedDatasetBuilder<'a> {
    /// Adds a relation with its edges `srcs[i] -> dsts[i]`. Messages flow from source to destination. The relations of the
    /// graph are in the order in which they were added.
    pub fn relation(mut self, edges: RelationEdges<'a>) -> Self {
        self.edges.push(edges);
        self
    }

    /// Sets the features of a node type, `[n_nodes_of_type, dim]`, row-major. `rows` is a `Vec` of `f32`, `f16` or `bf16`,
    /// or a range of a mapped file.
    pub fn features(mut self, node_type: &str, rows: impl Into<FeatureArray>, dim: usize) -> Self {
        self.features.insert(node_type.to_owned(), Features::Rows { rows: rows.into(), dim });
        self
    }

    /// Sets a feature store for a node type, for features that are not one dense array, such as sparse ones.
    pub fn feature_store(mut self, node_type: &str, features: Arc<dyn FeatureStore>) -> Self {
        self.features.insert(node_type.to_owned(), Features::Source(features));
        self
    }

    /// Sets the class of each node of a type, 0 to `n_classes - 1`; a negative number marks a node without a label.
    pub fn labels(self, node_type: &str, classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        self.targets(node_type, GivenTargets::Classes(Labels::new(classes, n_classes)))
    }

    /// Sets several labels per node of a type instead of a class, `[n_nodes_of_type, n_labels]`, row-major: 1 if the node
    /// has the label, 0 if not, and [`TargetValues::MISSING`](kiln_feature::TargetValues::MISSING) if it is unknown.
    pub fn multi_label(self, node_type: &str, labels: impl Into<SharedArray<u8>>, n_labels: usize) -> Self {
        self.targets(node_type, GivenTargets::MultiLabel(labels.into(), n_labels))
    }

    /// Sets regression targets of the nodes of a type instead of classes, `[n_nodes_of_type, n_columns]`, row-major; NaN
    /// marks a missing target.
    pub fn regression(self, node_type: &str, values: impl Into<SharedArray<f32>>, n_columns: usize) -> Self {
        self.targets(node_type, GivenTargets::Regression(values.into(), n_columns))
    }

    fn targets(self, node_type: &str, targets: GivenTargets) -> Self {
        Self { targets: Some((node_type.to_owned(), targets)), ..self }
    }

    /// Sets the nodes of the training, validation and test split, as ids within the type that has targets. Each of these
    /// nodes must have a label or at least one target value, and no node may be in two of the splits. The set has their
    /// node ids of the graph.
    pub fn split(self, train: &'a [u32], val: &'a [u32], test: &'a [u32]) -> Self {
        Self { split: Some([train, val, test]), ..self }
    }

    /// Sets the set's name in reports; `dataset` by default.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the names of the nodes of a type, one per node.
    pub fn node_names<'n>(mut self, node_type: &str, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.node_names.insert(node_type.to_owned(), NodeNames::new(names));
        self
    }

    /// Sets the classes' names, one per class; for several labels or regression targets, the columns' names.
    pub fn class_names(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { class_names: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Builds the graph, checks that all parts are consistent, and returns the set. Features and names may be omitted for
    /// any type, and targets and split may both be omitted. Targets and split are read, features are not:
    /// [`TypedDataset::validate`] also finds features that are not finite.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) for an invalid relation or the name of a type that does not exist,
    /// [`Error::InPart`](crate::Error::InPart) with the name of the type if features, targets or names have another length
    /// or are invalid, and [`Error::Build`](crate::Error::Build) or [`kiln_store::Error::Inconsistent`] if targets or the
    /// split are missing, or if class names have another length.
    pub fn build(mut self) -> Result<TypedDataset> {
        let types = self.types.clone();
        let named = self.features.keys().chain(self.node_names.keys());
        for name in named.chain(self.targets.as_ref().map(|(name, _)| name)) {
            types.require(name)?;
        }
        let graph = Arc::new(self.build_graph()?);
        let (mut features, mut names) = (Vec::new(), Vec::new());
        for (node_type, name) in types.names().iter().enumerate() {
            let n_nodes = types.range(node_type).len();
            let store = self.features.remove(name).map(|features| features.build(n_nodes)).transpose();
            features.push(store.map_err(|error| error.in_type(name))?);
            names.push(Arc::new(self.node_names.remove(name).unwrap_or_default()));
        }
        let targets = self.build_targets()?;
        let (name, links, notes) = (self.name, None, Vec::new());
        let data = TypedDataset { name, graph, features, targets, links, names, notes };
        data.check_parts()?;
        Ok(data)
    }

    fn build_graph(&mut self) -> Result<Relations> {
        let mut relations = std::mem::take(&mut self.relations);
        let built = Relations::from_edges(self.types.clone(), &self.edges)?;
        relations.extend(built.iter().cloned());
        Ok(Relations::new(self.types.clone(), relations)?)
    }

    fn build_targets(&mut self) -> Result<Option<TypedTargets>> {
        let class_names = std::mem::take(&mut self.class_names);
        let (name, targets, split) = match (self.targets.take(), self.split) {
            (None, None) => {
                check_length("class names", "class", 0, class_names.len())?;
                return Ok(None);
            }
            (Some((name, targets)), Some(split)) => (name, targets, split),
            (None, Some(_)) => return Err(missing("labels", ".labels(node_type, y, n_classes)").into()),
            (Some(_), None) => return Err(missing("split", ".split(train, val, test)").into()),
        };
        let node_type = self.types.require(&name)?;
        let nodes = self.types.range(node_type);
        let built = targets_and_split(targets, split, nodes.start, nodes.len());
        let (values, split) = built.map_err(|error| error.in_type(&name))?;
        Ok(Some(TypedTargets { node_type, values, split, class_names }))
    }
}

/// Returns the targets of `n_nodes` nodes, the first of which is the node `first` of the graph, and the split in node ids of
/// the graph.
fn targets_and_split(
    targets: GivenTargets,
    split: [&[u32]; 3],
    first: u32,
    n_nodes: usize,
) -> Result<(Targets, Split)> {
    let targets = targets.build(n_nodes)?;
    let split_from = |first: u32| {
        let [train, val, test] =
            split.map(|rows| rows.iter().map(|row| NodeId(first + row)).collect::<SharedArray<_>>());
        Split { train, val, test }
    };
    // The rows are checked first, so that the sum cannot overflow.
    check_split(&split_from(0), &targets)?;
    Ok((targets, split_from(first)))
}
