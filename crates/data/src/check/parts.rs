use std::path::Path;

use kiln_graph::{Error as GraphError, SchemaError};
use kiln_store::check_count;

use super::{Place, check_columns, check_rows, check_set, check_split_from};
use crate::arrays::RowsOf;
use crate::error::require;
use crate::layout::Layout;
use crate::{Dataset, Note, Result};

impl Dataset {
    /// Reads all data once and checks what opening a mapped set does not: that the parts have the lengths of the node types,
    /// that edges come from nodes of their relations' types, that targets are in range, that features and the columns of edges are
    /// finite, and that the split's nodes exist and have targets. Returns notes,
    /// for example about splits that overlap. For a set on disk, [`format::verify`](crate::format::verify) performs these
    /// checks and names the files in its errors.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) or [`Error::Feature`](crate::Error::Feature) if edges, labels or rows are invalid, [`Error::InPart`](crate::Error::InPart) with the name of a
    /// node type or relation of a heterogeneous set, and [`kiln_store::Error::Inconsistent`] or
    /// [`kiln_store::Error::BadValue`] for wrong lengths and for a value that is not finite or a type, name or split that is
    /// invalid.
    pub fn validate(&self) -> Result<Vec<Note>> {
        self.check_parts()?;
        check_set(self, Place::Set(self.name.as_ref()))
    }

    /// Checks that the features are finite, as [`Dataset::validate`] does, which reads them once: a mapped set is not checked when
    /// it is opened.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadValue`] with the first other value.
    pub fn check_features(&self) -> Result<()> {
        check_rows(self, Place::Set(self.name.as_ref()))
    }

    /// Checks that the columns of edges are finite and that edge types have names, as [`Dataset::validate`] does.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadValue`] with the first other value.
    pub fn check_edge_columns(&self) -> Result<()> {
        check_columns(self, Place::Set(self.name.as_ref()))
    }

    /// Checks that the split's nodes exist and have a target, and returns notes about parts that overlap. It is part of
    /// [`Dataset::validate`], and cheap enough to call before every run.
    ///
    /// # Errors
    /// Returns [`kiln_store::Error::BadValue`] for the first node that does not exist or has no target.
    pub fn check_split(&self) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        if let Some(targets) = &self.targets {
            let place = Place::Set(Path::new(&self.name));
            check_split_from(self.target_nodes().start, place, &targets.split, &targets.values, &mut notes)?;
        }
        Ok(notes)
    }

    /// Checks that there are features and names for each type, that they and the targets have one entry per node, and that
    /// only a homogeneous set has edge types.
    pub(crate) fn check_parts(&self) -> Result<()> {
        let types = self.graph.types();
        check_count(&self.name, "the number of features", types.n_types(), self.features.len())?;
        check_count(&self.name, "the number of lists of node names", types.n_types(), self.names.len())?;
        let n_described = self.feature_columns.len();
        check_count(&self.name, "the number of lists of feature columns", types.n_types(), n_described)?;
        for (node_type, name) in types.names().iter().enumerate() {
            self.check_type(node_type).map_err(|error| match self.layout {
                Layout::Plain => error,
                Layout::Numbered => error.in_type(name),
            })?;
        }
        if let Some(split) = &self.times.split {
            split.check()?;
        }
        self.check_edges()?;
        if let Some(links) = &self.links {
            links.check_relations(self.graph.schema())?;
        }
        self.tasks.iter().try_for_each(|table| table.check_lengths(self))?;
        let Some(targets) = &self.targets else { return Ok(()) };
        if types.n_types() <= targets.node_type {
            let (name, known) = (targets.node_type.to_string(), types.names().to_vec());
            return Err(GraphError::Schema(SchemaError::NoSuchType { name, known }).into());
        }
        let n_nodes = types.range(targets.node_type).len();
        check_count(&self.name, "the number of labels", n_nodes, targets.values.len())?;
        match (self.layout, targets.class_names.len()) {
            // The manifest of a homogeneous set has the error for another number of names.
            (Layout::Plain, _) | (Layout::Numbered, 0) => Ok(()),
            (Layout::Numbered, n_names) => {
                Ok(check_count(&self.name, "the number of class names", targets.values.n_outputs(), n_names)?)
            }
        }
    }

    fn check_type(&self, node_type: usize) -> Result<()> {
        let n_nodes = self.graph.types().range(node_type).len();
        if let Some(features) = &self.features[node_type] {
            check_count(&self.name, RowsOf::Nodes.count(), n_nodes, features.n_rows())?;
        }
        if let Some(times) = self.times.node_times(node_type) {
            check_count(&self.name, "the number of node times", n_nodes, times.len())?;
        }
        let columns = &self.feature_columns[node_type];
        if !columns.is_empty() {
            let dim = self.features[node_type].as_ref().map_or(0, |features| features.dim());
            let width = columns.iter().map(|column| column.width).sum();
            check_count(&self.name, "the width of the named feature columns", dim, width)?;
        }
        match self.names[node_type].len() {
            0 => Ok(()),
            n_names => Ok(check_count(&self.name, "the number of node names", n_nodes, n_names)?),
        }
    }

    fn check_edges(&self) -> Result<()> {
        if let Layout::Plain = self.layout {
            return self.require_one_type("a homogeneous set");
        }
        for relation in self.graph.iter() {
            let expected = "none: the position of the relation is the type of its edges";
            let is_untyped = relation.graph.edge_types().is_none();
            require(is_untyped, "the edge types of a relation's graph", expected, &relation.name)?;
        }
        Ok(())
    }
}
