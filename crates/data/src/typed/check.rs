//! Checks of heterogeneous sets: that their parts have the lengths of their types, and all values.

use std::path::Path;

use kiln_graph::Error as GraphError;
use kiln_store::check_count;

use crate::arrays::RowsOf;
use crate::check::{Place, check_edge_data, check_features, check_links, check_names, check_split_from};
use crate::error::require;
use crate::link_split::check_link_types;
use crate::{Error, Note, Result, TypedDataset, TypedLinks};

impl TypedDataset {
    /// Checks that there are features and names for each type, that they and the targets have one entry per node, and that
    /// the graphs of relations have no edge types.
    pub(crate) fn check_parts(&self) -> Result<()> {
        let types = self.graph.types();
        check_count(&self.name, "the number of features", types.n_types(), self.features.len())?;
        check_count(&self.name, "the number of lists of node names", types.n_types(), self.names.len())?;
        for (node_type, name) in types.names().iter().enumerate() {
            self.check_type(node_type).map_err(|error| error.in_type(name))?;
        }
        for relation in self.graph.iter() {
            let expected = "none: the position of the relation is the type of its edges";
            let is_untyped = relation.graph.edge_types().is_none();
            require(is_untyped, "the edge types of a relation's graph", expected, &relation.name)?;
        }
        if let Some(links) = &self.links {
            links.check_relations(self.graph.schema())?;
        }
        let Some(targets) = &self.targets else { return Ok(()) };
        if types.n_types() <= targets.node_type {
            let (name, known) = (targets.node_type.to_string(), types.names().to_vec());
            return Err(GraphError::NoSuchType { name, known }.into());
        }
        let (n_nodes, n_names) = (types.range(targets.node_type).len(), targets.class_names.len());
        check_count(&self.name, "the number of labels", n_nodes, targets.values.len())?;
        match n_names {
            0 => Ok(()),
            _ => {
                Ok(check_count(&self.name, "the number of class names", targets.values.n_outputs(), n_names)?)
            }
        }
    }

    fn check_type(&self, node_type: usize) -> Result<()> {
        let n_nodes = self.graph.types().range(node_type).len();
        if let Some(features) = &self.features[node_type] {
            check_count(&self.name, RowsOf::Nodes.count(), n_nodes, features.n_rows())?;
        }
        match self.names[node_type].len() {
            0 => Ok(()),
            n_names => Ok(check_count(&self.name, "the number of node names", n_nodes, n_names)?),
        }
    }
}

/// Checks all values of a set whose parts have the right lengths, and returns notes about its split. Messages contain the
/// paths of the arrays in `folder`, or, for a set in memory, the names of the set and of the part.
pub(super) fn check_values(data: &TypedDataset, folder: Option<&Path>) -> Result<Vec<Note>> {
    let set = Place::Set(data.name.as_ref());
    let (whole, number) = (folder.map_or(set, Place::Folder), |number| match folder {
        Some(folder) => Place::Numbered(folder, number),
        None => set,
    });
    data.graph.validate().map_err(|error| match error {
        GraphError::InRelation { name, source } if folder.is_some() => {
            number(data.graph.position(&name).unwrap_or(0)).located(Error::Graph(*source))
        }
        other => other.into(),
    })?;
    for (position, relation) in data.graph.iter().enumerate() {
        let in_relation = |error| match folder {
            Some(_) => error,
            None => Error::InPart { part: format!("relation `{}`", relation.name), source: Box::new(error) },
        };
        check_edge_data(&relation.graph, &[], number(position)).map_err(in_relation)?;
    }
    for (node_type, name) in data.graph.types().names().iter().enumerate() {
        let in_type = |error: Error| if folder.is_some() { error } else { error.in_type(name) };
        if let Some(features) = &data.features[node_type] {
            check_features(&**features, number(node_type)).map_err(in_type)?;
        }
        check_names(&data.names[node_type], number(node_type)).map_err(in_type)?;
    }
    let mut notes = Vec::new();
    if let Some(targets) = &data.targets {
        targets.values.validate().map_err(|error| whole.located(error.into()))?;
        let first = data.target_nodes().start;
        check_split_from(first, whole, &targets.split, &targets.values, &mut notes)?;
    }
    if let Some(TypedLinks { relation, targets, .. }) = &data.links {
        check_links(targets, data.graph.n_nodes(), whole)?;
        check_link_types(data.graph.schema(), *relation, targets).map_err(|error| whole.located(error))?;
    }
    Ok(notes)
}
