use std::path::Path;

use kiln_data::format::TimesEntry;
use kiln_data::graph_folder::{check_class_names, class_names_to_write};
use kiln_data::{Dataset, DatasetTargets, Layout, NodeNames, Split};
use kiln_feature::Labels;
use kiln_graph::{EdgeColumn, EdgeColumns, Relation};

use crate::balance::check_train;
use crate::manifest::{EdgeEntry, Manifest, RelationEntry, TypeEntry};
use crate::{Error, PartitionBooks, PartitionMeta, Result};

/// A data set that [`write_parts`](crate::write_parts) partitions.
#[derive(Debug)]
pub(crate) struct WholeSet<'a> {
    pub(crate) data: &'a Dataset,
    /// The targets and the split.
    pub(crate) targets: DatasetTargets,
}

impl<'a> WholeSet<'a> {
    /// Creates the set with its targets and its split. Those of a heterogeneous set with links and without targets are no
    /// class for each node of the first type, because each partition has targets.
    ///
    /// # Errors
    /// Returns [`Error::Data`] if the links are not those of the graph, and [`Error::BadParameter`] for a set with neither
    /// targets nor links.
    pub(crate) fn new(data: &'a Dataset) -> Result<Self> {
        if let Some(links) = data.links.as_ref().filter(|_| data.is_heterogeneous()) {
            links.check(data.graph.schema())?;
        }
        Ok(Self { data, targets: targets_of(data)? })
    }

    /// Returns the names of the nodes of a type without features, by which a model finds their trained rows; `None` if
    /// there are none.
    pub(crate) fn names_of_rows(&self, node_type: usize) -> Option<&NodeNames> {
        let names = self.data.names.get(node_type).filter(|names| !names.is_empty())?;
        self.data.features[node_type].is_none().then_some(names)
    }

    /// Checks that the parts of the set and the books are consistent.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`] or [`Error::Store`] for the first inconsistency.
    pub(crate) fn check(&self, books: &PartitionBooks, out: &Path) -> Result<()> {
        let types = self.data.graph.types();
        let n_types = types.n_types();
        require("the number of node types in the partition book", n_types, books.types().n_types())?;
        require("the number of node types with or without features", n_types, self.data.features.len())?;
        for (node_type, features) in self.data.features.iter().enumerate() {
            let n_nodes = types.range(node_type).len();
            let whats = [
                "the number of nodes in the partition book",
                "the number of nodes of a type in the partition book",
            ];
            self.require_nodes(whats, n_nodes, books.of_type(node_type).n_nodes())?;
            let n_rows = features.as_ref().map_or(n_nodes, |features| features.n_rows());
            let whats = ["the number of feature rows", "the number of feature rows of a node type"];
            self.require_nodes(whats, n_nodes, n_rows)?;
            let n_times = self.data.times.node_times(node_type).map_or(n_nodes, |times| times.len());
            self.require_nodes(
                ["the number of node times", "the number of node times of a type"],
                n_nodes,
                n_times,
            )?;
        }
        self.check_targets()?;
        let n_classes = self.targets.values.n_outputs();
        let names = class_names_to_write(&self.targets.class_names, n_classes);
        let dim = match self.data.layout {
            Layout::Plain => self.data.features[0].as_ref().map(|features| features.dim()),
            Layout::Numbered => None,
        };
        Ok(check_class_names(out, dim, n_classes, &names)?)
    }

    fn check_targets(&self) -> Result<()> {
        let targets = &self.targets;
        let types = self.data.graph.types();
        if types.n_types() <= targets.node_type {
            let expected = format!("below {}, the number of node types", types.n_types());
            let got = targets.node_type.to_string();
            return Err(Error::BadParameter { what: "the node type with targets", expected, got });
        }
        let nodes = types.range(targets.node_type);
        self.require_nodes(["the number of targets"; 2], nodes.len(), targets.values.len())?;
        if self.data.layout == Layout::Plain {
            check_train(nodes.len(), &targets.split.train)?;
        }
        let mut split = targets.split.parts().into_iter().flat_map(|(_, nodes)| nodes.iter());
        if let Some(node) = split.find(|node| !nodes.contains(&node.0)) {
            let expected = format!("a node of the type with targets, which are {nodes:?}");
            let got = node.0.to_string();
            return Err(Error::BadParameter { what: "a node of the split", expected, got });
        }
        Ok(())
    }

    /// Checks a number of nodes. `whats` names it for a graph with one node type, and for one with several.
    fn require_nodes(&self, whats: [&'static str; 2], n_nodes: usize, got: usize) -> Result<()> {
        let (what, expected) = match self.data.layout {
            Layout::Plain => (whats[0], format!("{n_nodes}, the number of nodes in the graph")),
            Layout::Numbered => (whats[1], n_nodes.to_string()),
        };
        match n_nodes == got {
            true => Ok(()),
            false => Err(Error::BadParameter { what, expected, got: got.to_string() }),
        }
    }

    /// Returns the name of a type of nodes in messages: that of the set, with the type if it is heterogeneous.
    pub(crate) fn name_of_type(&self, node_type: usize) -> String {
        let name = &self.data.name;
        match self.data.layout {
            Layout::Plain => name.clone(),
            Layout::Numbered => format!("{name}: node type `{}`", self.data.graph.types().names()[node_type]),
        }
    }

    /// Reads the graph and the columns of the edges once and checks their values. Features are checked while they are written.
    pub(crate) fn validate(&self) -> Result<()> {
        match self.data.layout {
            Layout::Plain => self.data.graph.relation(0).graph.validate()?,
            Layout::Numbered => self.data.graph.validate()?,
        }
        Ok(self.data.check_edge_columns()?)
    }

    /// Checks that the neighbours ascend in the relations from which training steps exclude edges.
    ///
    /// # Errors
    /// Returns [`Error::UnsortedNeighbors`] if they do not.
    pub(crate) fn check_sorted(&self) -> Result<()> {
        let Some(links) = &self.data.links else { return Ok(()) };
        // The reverse of a link of the only relation is an edge of it.
        let reverse = if self.data.is_heterogeneous() { links.reverse } else { Some(links.relation) };
        let of_links = self.data.graph.relation(links.relation);
        let is_excluded = |position: usize, relation: &Relation| {
            let may_be_reverse =
                (relation.src_type, relation.dst_type) == (of_links.dst_type, of_links.src_type);
            position == links.relation || reverse.map_or(may_be_reverse, |reverse| position == reverse)
        };
        for (position, relation) in self.data.graph.iter().enumerate() {
            if is_excluded(position, relation) && !relation.graph.has_sorted_neighbors() {
                return Err(Error::UnsortedNeighbors);
            }
        }
        Ok(())
    }

    /// Returns the manifest of the first partition, without files. Reads all edge types.
    pub(crate) fn manifest(&self, books: &PartitionBooks, meta: &PartitionMeta) -> Manifest {
        let mut node_types = Vec::with_capacity(self.data.features.len());
        for (position, name) in self.data.graph.types().names().iter().enumerate() {
            let book = books.of_type(position);
            node_types.push(TypeEntry {
                name: name.clone(),
                n_nodes: book.n_nodes(),
                dim: self.data.features[position].as_ref().map(|features| features.dim()),
                feature_columns: self.data.feature_columns[position].clone(),
                offsets: book.offsets().to_vec(),
            });
        }
        let mut relations = Vec::with_capacity(self.data.graph.n_relations());
        for relation in self.data.graph.iter() {
            relations.push(RelationEntry {
                name: relation.name.clone(),
                src_type: relation.src_type,
                dst_type: relation.dst_type,
                n_edges: relation.graph.n_edges(),
                edges: self.edge_entry(relation),
            });
        }
        let n_classes = self.targets.values.n_outputs();
        Manifest {
            layout: self.data.layout,
            name: self.data.name.clone(),
            hash: meta.hash.clone(),
            node_types,
            relations,
            target_type: self.targets.node_type,
            n_classes,
            class_names: class_names_to_write(&self.targets.class_names, n_classes),
            times: TimesEntry::of(&self.data.times),
            preparation: (!self.data.is_heterogeneous()).then(|| self.data.preparation.clone()),
            method: meta.method,
            n_cut_edges: meta.n_cut_edges,
            part: 0,
            files: Default::default(),
        }
    }

    fn edge_entry(&self, relation: &Relation) -> EdgeEntry {
        let type_names = &self.data.edge_type_names;
        let n_types = relation.graph.n_edge_types();
        EdgeEntry {
            type_names: type_names.clone(),
            n_types: n_types.map(|n_types| n_types.max(type_names.len())),
            dim: relation.graph.columns().get(EdgeColumns::FEATURES).map(EdgeColumn::width),
        }
    }
}

/// Returns the targets of a set and its split. See [`WholeSet::new`].
fn targets_of(data: &Dataset) -> Result<DatasetTargets> {
    if let Some(targets) = &data.targets {
        return Ok(targets.clone());
    }
    if data.links.is_none() || !data.is_heterogeneous() {
        let expected =
            "class labels, several labels, numbers or links: train on the whole graph instead".to_owned();
        return Err(Error::BadParameter { what: "the kind of targets", expected, got: "none".to_owned() });
    }
    let n_nodes = data.graph.types().range(0).len();
    Ok(DatasetTargets::new(0, Labels::new(vec![-1; n_nodes], 0).into(), Split::default()))
}

fn require(what: &'static str, expected: usize, got: usize) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(Error::BadParameter { what, expected: expected.to_string(), got: got.to_string() }),
    }
}
