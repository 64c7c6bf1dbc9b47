use std::path::Path;
use std::sync::Arc;

use kiln_data::graph_folder::{check_class_names, class_names_to_write};
use kiln_data::{Dataset, NodeNames, Split, TypedDataset, TypedTargets};
use kiln_feature::{EdgeFeatures, FeatureStore, Labels, Preparation, Targets};
use kiln_graph::{NodeId, Relation, Relations, SharedArray};

use crate::assign::check_train;
use crate::layout::PartLayout;
use crate::manifest::{EdgeEntry, Manifest, RelationEntry, TypeEntry};
use crate::{Error, PartitionBooks, PartitionMeta, Result};

/// A data set that [`write_parts`](crate::write_parts) partitions, as node types and relations.
#[derive(Debug)]
pub struct WholeSet<'a> {
    pub(crate) layout: PartLayout,
    name: &'a str,
    pub(crate) graph: Arc<Relations>,
    /// The features of each node type, `[n_types]`; `None` for a type without features.
    pub(crate) features: Vec<Option<Arc<dyn FeatureStore>>>,
    /// The features and types of the edges of each relation, `[n_relations]`.
    pub(crate) edges: Vec<WholeEdges<'a>>,
    /// The names of the nodes of each type; empty for types whose nodes have no names.
    names: &'a [Arc<NodeNames>],
    targets: Option<TypedTargets>,
    links: Option<ExcludedRelations>,
    preparation: Option<Preparation>,
    source: Source<'a>,
}

/// The data set itself.
#[derive(Debug)]
enum Source<'a> {
    Homogeneous(&'a Dataset),
    Heterogeneous(&'a TypedDataset),
}

/// The features of the edges of a relation, and the names of their types.
#[derive(Debug)]
pub(crate) struct WholeEdges<'a> {
    pub(crate) features: Option<&'a EdgeFeatures>,
    type_names: &'a [String],
}

/// The relations from which training steps exclude edges: that of the links and its reverse.
#[derive(Debug)]
struct ExcludedRelations {
    relation: usize,
    /// The reverse; `None` if a run may name any relation between the types of the links in the other order.
    reverse: Option<usize>,
}

impl<'a> TryFrom<&'a Dataset> for WholeSet<'a> {
    type Error = Error;

    /// Never fails.
    fn try_from(data: &'a Dataset) -> Result<Self> {
        let edges = WholeEdges { features: data.edge_features.as_ref(), type_names: &data.edge_type_names };
        let targets = TypedTargets {
            node_type: 0,
            values: data.targets(),
            split: data.split.clone(),
            class_names: data.class_names.clone(),
        };
        let links = ExcludedRelations { relation: 0, reverse: Some(0) };
        Ok(Self {
            layout: PartLayout::Plain,
            name: &data.name,
            graph: Arc::new(Relations::of_graph(Arc::clone(&data.graph))),
            features: vec![Some(data.features.clone())],
            edges: vec![edges],
            names: &[],
            targets: Some(targets),
            links: data.links.is_some().then_some(links),
            preparation: Some(data.preparation.clone()),
            source: Source::Homogeneous(data),
        })
    }
}

impl<'a> TryFrom<&'a TypedDataset> for WholeSet<'a> {
    type Error = Error;

    /// Returns [`Error::Data`] if the links are not those of the graph.
    fn try_from(data: &'a TypedDataset) -> Result<Self> {
        let mut links = None;
        if let Some(of_set) = &data.links {
            of_set.check(data.graph.schema())?;
            links = Some(ExcludedRelations { relation: of_set.relation, reverse: of_set.reverse });
        }
        let edges = data.graph.iter().map(|_| WholeEdges { features: None, type_names: &[] });
        Ok(Self {
            layout: PartLayout::Numbered,
            name: &data.name,
            graph: Arc::clone(&data.graph),
            features: data.features.clone(),
            edges: edges.collect(),
            names: &data.names,
            targets: data.targets.clone(),
            links,
            preparation: None,
            source: Source::Heterogeneous(data),
        })
    }
}

impl WholeSet<'_> {
    /// Returns the nodes whose neighbourhoods training samples.
    pub(crate) fn training_nodes(&self) -> Result<SharedArray<NodeId>> {
        Ok(match self.source {
            Source::Homogeneous(data) => data.training_nodes()?,
            Source::Heterogeneous(data) => data.training_nodes()?,
        })
    }

    /// Returns the class labels and the split. Those of a set with links and other targets, or none, are no class for each
    /// node of the first type, because each partition has labels.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] for a set with neither class labels nor links.
    pub(crate) fn labels(&self) -> Result<TypedTargets> {
        let kind = match &self.targets {
            Some(targets @ TypedTargets { values: Targets::Classes(_), .. }) => return Ok(targets.clone()),
            Some(targets) => targets.values.kind().to_string(),
            None => "none".to_owned(),
        };
        if self.links.is_none() || self.layout == PartLayout::Plain {
            let expected = "class labels: train on the whole graph instead".to_owned();
            return Err(Error::BadParameter { what: "the kind of targets", expected, got: kind });
        }
        let n_nodes = self.graph.types().range(0).len();
        let labels = Labels::new(vec![-1; n_nodes], 0);
        Ok(TypedTargets {
            node_type: 0,
            values: labels.into(),
            split: Split::default(),
            class_names: Vec::new(),
        })
    }

    /// Returns the names of the nodes of a type without features, by which a model finds their trained rows; `None` if
    /// there are none.
    pub(crate) fn names_of_rows(&self, node_type: usize) -> Option<&NodeNames> {
        let names = self.names.get(node_type).filter(|names| !names.is_empty())?;
        self.features[node_type].is_none().then_some(names)
    }

    /// Checks that the parts of the set and the books are consistent.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] or [`Error::Store`] for the first inconsistency.
    pub(crate) fn check(&self, targets: &TypedTargets, books: &PartitionBooks, out: &Path) -> Result<()> {
        let types = self.graph.types();
        let n_types = types.n_types();
        require("the number of node types in the partition book", n_types, books.types().n_types())?;
        require("the number of node types with or without features", n_types, self.features.len())?;
        for (relation, edges) in self.graph.iter().zip(&self.edges) {
            let n_edges = relation.graph.n_edges();
            let n_rows = edges.features.map_or(n_edges, EdgeFeatures::n_edges);
            if n_rows != n_edges {
                let expected = format!("{n_edges}, the number of edges in the graph");
                let what = "the number of edge feature rows";
                return Err(Error::BadParameter { what, expected, got: n_rows.to_string() });
            }
        }
        for (node_type, features) in self.features.iter().enumerate() {
            let n_nodes = types.range(node_type).len();
            let whats = [
                "the number of nodes in the partition book",
                "the number of nodes of a type in the partition book",
            ];
            self.require_nodes(whats, n_nodes, books.of_type(node_type).n_nodes())?;
            let n_rows = features.as_ref().map_or(n_nodes, |features| features.n_rows());
            let whats = ["the number of feature rows", "the number of feature rows of a node type"];
            self.require_nodes(whats, n_nodes, n_rows)?;
        }
        self.check_targets(targets)?;
        let n_classes = targets.values.n_outputs();
        let names = class_names_to_write(&targets.class_names, n_classes);
        let dim = match self.layout {
            PartLayout::Plain => self.features[0].as_ref().map(|features| features.dim()),
            PartLayout::Numbered => None,
        };
        Ok(check_class_names(out, dim, n_classes, &names)?)
    }

    fn check_targets(&self, targets: &TypedTargets) -> Result<()> {
        let types = self.graph.types();
        if types.n_types() <= targets.node_type {
            let expected = format!("below {}, the number of node types", types.n_types());
            let got = targets.node_type.to_string();
            return Err(Error::BadParameter { what: "the node type with labels", expected, got });
        }
        let nodes = types.range(targets.node_type);
        self.require_nodes(["the number of labels"; 2], nodes.len(), targets.values.len())?;
        if self.layout == PartLayout::Plain {
            check_train(nodes.len(), &targets.split.train)?;
        }
        let mut split = targets.split.parts().into_iter().flat_map(|(_, nodes)| nodes.iter());
        if let Some(node) = split.find(|node| !nodes.contains(&node.0)) {
            let expected = format!("a node of the type with labels, which are {nodes:?}");
            let got = node.0.to_string();
            return Err(Error::BadParameter { what: "a node of the split", expected, got });
        }
        Ok(())
    }

    /// Checks a number of nodes. `whats` names it for a graph with one node type, and for one with several.
    fn require_nodes(&self, whats: [&'static str; 2], n_nodes: usize, got: usize) -> Result<()> {
        let (what, expected) = match self.layout {
            PartLayout::Plain => (whats[0], format!("{n_nodes}, the number of nodes in the graph")),
            PartLayout::Numbered => (whats[1], n_nodes.to_string()),
        };
        match n_nodes == got {
            true => Ok(()),
            false => Err(Error::BadParameter { what, expected, got: got.to_string() }),
        }
    }

    /// Reads the graph and checks its values.
    pub(crate) fn validate(&self) -> Result<()> {
        match self.layout {
            PartLayout::Plain => self.graph.relation(0).graph.validate()?,
            PartLayout::Numbered => self.graph.validate()?,
        }
        Ok(())
    }

    /// Checks that the neighbours ascend in the relations from which training steps exclude edges.
    ///
    /// # Errors
    /// Returns [`Error::UnsortedNeighbors`] if they do not.
    pub(crate) fn check_sorted(&self) -> Result<()> {
        let Some(links) = &self.links else { return Ok(()) };
        let of_links = self.graph.relation(links.relation);
        let is_excluded = |position: usize, relation: &Relation| {
            let may_be_reverse =
                (relation.src_type, relation.dst_type) == (of_links.dst_type, of_links.src_type);
            position == links.relation || links.reverse.map_or(may_be_reverse, |reverse| position == reverse)
        };
        for (position, relation) in self.graph.iter().enumerate() {
            if is_excluded(position, relation) && !relation.graph.has_sorted_neighbors() {
                return Err(Error::UnsortedNeighbors);
            }
        }
        Ok(())
    }

    /// Returns the manifest of the first partition, without files. Reads all edge types.
    pub(crate) fn manifest(
        &self,
        targets: &TypedTargets,
        books: &PartitionBooks,
        meta: &PartitionMeta,
    ) -> Manifest {
        let mut node_types = Vec::with_capacity(self.features.len());
        for (position, name) in self.graph.types().names().iter().enumerate() {
            let book = books.of_type(position);
            node_types.push(TypeEntry {
                name: name.clone(),
                n_nodes: book.n_nodes(),
                dim: self.features[position].as_ref().map(|features| features.dim()),
                offsets: book.offsets().to_vec(),
            });
        }
        let mut relations = Vec::with_capacity(self.edges.len());
        for (relation, edges) in self.graph.iter().zip(&self.edges) {
            relations.push(RelationEntry {
                name: relation.name.clone(),
                src_type: relation.src_type,
                dst_type: relation.dst_type,
                n_edges: relation.graph.n_edges(),
                edges: edges.entry(relation),
            });
        }
        let n_classes = targets.values.n_outputs();
        Manifest {
            layout: self.layout,
            name: self.name.to_owned(),
            hash: meta.hash.clone(),
            node_types,
            relations,
            target_type: targets.node_type,
            n_classes,
            class_names: class_names_to_write(&targets.class_names, n_classes),
            preparation: self.preparation.clone(),
            method: meta.method,
            n_cut_edges: meta.n_cut_edges,
            part: 0,
            files: Default::default(),
        }
    }
}

impl WholeEdges<'_> {
    fn entry(&self, relation: &Relation) -> EdgeEntry {
        let n_types = relation.graph.n_edge_types();
        EdgeEntry {
            type_names: self.type_names.to_vec(),
            n_types: n_types.map(|n_types| n_types.max(self.type_names.len())),
            dim: self.features.map(EdgeFeatures::dim),
        }
    }
}

fn require(what: &'static str, expected: usize, got: usize) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(Error::BadParameter { what, expected: expected.to_string(), got: got.to_string() }),
    }
}
