use std::collections::HashSet;
use std::ops::Range;

use crate::csc::check_node_count;
use crate::{Error, NodeId, Result, SchemaError};

/// The types of a graph's nodes: each type is a range of node ids. Node `i` of a type, as in DGL's and PyG's
/// heterogeneous graphs, is node `range(type).start + i` of the graph.
///
/// | type | name | nodes |
/// |---|---|---|
/// | 0 | `names[0]` | `offsets[0]..offsets[1]` |
/// | 1 | `names[1]` | `offsets[1]..offsets[2]` |
///
/// ```
/// use kiln_graph::{NodeId, NodeTypes};
/// let types = NodeTypes::new([("user", 3), ("item", 2)])?;
/// assert_eq!(types.n_nodes(), 5);
/// assert_eq!(types.position("item"), Some(1));
/// assert_eq!(types.range(1), 3..5);
/// assert_eq!(types.type_of(NodeId(3)), Some(1));
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTypes {
    names: Vec<String>,
    /// The first node of each type, and the number of nodes; 0 is the first.
    offsets: Vec<u32>,
}

impl NodeTypes {
    /// Creates the types from their names and numbers of nodes, in the order of their ids.
    ///
    /// # Errors
    /// Returns [`SchemaError::NoTypes`] without types, [`SchemaError::BadName`] for a name that is empty or occurs twice, and
    /// [`Error::TooMany`] for more than 2^32 - 1 nodes.
    pub fn new(types: impl IntoIterator<Item = (impl Into<String>, usize)>) -> Result<Self> {
        let mut names = Vec::new();
        let mut offsets = vec![0];
        let mut n_nodes = 0_usize;
        for (name, n_of_type) in types {
            names.push(name.into());
            n_nodes = n_nodes.saturating_add(n_of_type);
            check_node_count(n_nodes)?;
            offsets.push(n_nodes as u32);
        }
        if names.is_empty() {
            return Err(SchemaError::NoTypes.into());
        }
        check_names("node type", names.iter().map(String::as_str))?;
        Ok(Self { names, offsets })
    }

    /// Returns the number of types.
    pub fn n_types(&self) -> usize {
        self.names.len()
    }

    /// Returns the number of nodes of all types.
    pub fn n_nodes(&self) -> usize {
        self.offsets[self.names.len()] as usize
    }

    /// Returns the names of the types.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the first node of each type, and the number of nodes of all types, `[n_types + 1]`.
    pub fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Returns the type of this name; `None` if there is none.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    /// Returns the type of this name.
    ///
    /// # Errors
    /// Returns [`SchemaError::NoSuchType`] with the names of all types if there is none.
    pub fn require(&self, name: &str) -> Result<usize> {
        self.position(name).ok_or_else(|| {
            Error::Schema(SchemaError::NoSuchType { name: name.to_owned(), known: self.names.clone() })
        })
    }

    /// Returns the node ids of a type.
    ///
    /// # Panics
    /// Panics if there is no such type.
    pub fn range(&self, node_type: usize) -> Range<u32> {
        self.offsets[node_type]..self.offsets[node_type + 1]
    }

    /// Returns the type of a node; `None` if there is no such node.
    #[inline]
    pub fn type_of(&self, node: NodeId) -> Option<usize> {
        let n_before = self.offsets[1..].partition_point(|&end| end <= node.0);
        (n_before < self.n_types()).then_some(n_before)
    }

    /// Returns the type of a node and its number within the type, from 0; `None` if there is no such node.
    #[inline]
    pub fn locate(&self, node: NodeId) -> Option<(usize, NodeId)> {
        let node_type = self.type_of(node)?;
        Some((node_type, NodeId(node.0 - self.offsets[node_type])))
    }
}

/// Checks that names are not empty and differ. `what` is the noun for the named, for the message.
pub(crate) fn check_names<'a>(what: &'static str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut found = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(SchemaError::BadName { what, name: name.to_owned(), reason: "it is empty" }.into());
        }
        if !found.insert(name) {
            return Err(
                SchemaError::BadName { what, name: name.to_owned(), reason: "it occurs twice" }.into()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_the_type_whose_range_contains_it() {
        let types = NodeTypes::new([("none", 0), ("a", 2), ("also none", 0), ("b", 3)]).unwrap();
        let found: Vec<_> = (0..6).map(|node| types.type_of(NodeId(node))).collect();
        assert_eq!(found, [Some(1), Some(1), Some(3), Some(3), Some(3), None]);
        assert_eq!((types.range(0), types.range(3)), (0..0, 2..5));
        assert_eq!((types.n_types(), types.n_nodes()), (4, 5));
        assert_eq!((types.position("b"), types.position("c")), (Some(3), None));
    }

    #[test]
    fn wrong_types_are_errors() {
        assert!(matches!(
            NodeTypes::new(Vec::<(String, usize)>::new()),
            Err(Error::Schema(SchemaError::NoTypes))
        ));
        let twice = NodeTypes::new([("a", 1), ("a", 1)]).unwrap_err();
        assert_eq!(twice.to_string(), "invalid node type `a`: it occurs twice");
        let empty = NodeTypes::new([("", 1)]).unwrap_err();
        assert!(matches!(empty, Error::Schema(SchemaError::BadName { reason: "it is empty", .. })));
        let many = NodeTypes::new([("a", u32::MAX as usize), ("b", 1)]).unwrap_err();
        assert!(matches!(many, Error::TooMany { what: "nodes", .. }));
        assert!(matches!(NodeTypes::new([("a", usize::MAX), ("b", 5)]), Err(Error::TooMany { .. })));
    }
}
