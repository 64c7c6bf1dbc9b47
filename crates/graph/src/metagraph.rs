use crate::{Error, Result, SchemaError};

/// The maximum number of relations: an edge's type in a block has 8 bits.
pub(crate) const MAX_RELATIONS: usize = 256;

/// The types of a heterogeneous graph without its nodes and edges: the number of node types and, for each relation, the
/// types of its sources and destinations. A model of heterogeneous graphs is created for a metagraph.
///
/// ```
/// use kiln_graph::Metagraph;
/// // Users (type 0) rate items (type 1), and items are bought together.
/// let metagraph = Metagraph::new(2, vec![[0, 1], [1, 1]])?;
/// assert_eq!(metagraph.relations_into(1).collect::<Vec<_>>(), [0, 1]);
/// assert_eq!(metagraph.relations_into(0).count(), 0);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metagraph {
    n_types: usize,
    relations: Vec<[usize; 2]>,
}

impl Metagraph {
    /// Creates a metagraph. `relations` are the types of the sources and destinations of each relation.
    ///
    /// # Errors
    /// Returns [`SchemaError::NoTypes`] without types, [`Error::TooMany`] for more than
    /// [`Relations::MOST`](crate::Relations::MOST) relations, and [`SchemaError::TypeOutOfRange`] for a relation between
    /// other types.
    pub fn new(n_types: usize, relations: Vec<[usize; 2]>) -> Result<Self> {
        if n_types == 0 {
            return Err(SchemaError::NoTypes.into());
        }
        check_relation_count(relations.len())?;
        for (relation, &[src_type, dst_type]) in relations.iter().enumerate() {
            if n_types <= src_type.max(dst_type) {
                return Err(SchemaError::TypeOutOfRange {
                    relation,
                    node_type: src_type.max(dst_type),
                    n_types,
                }
                .into());
            }
        }
        Ok(Self { n_types, relations })
    }

    /// Creates a metagraph whose relations are valid.
    pub(crate) fn of(n_types: usize, relations: Vec<[usize; 2]>) -> Self {
        Self { n_types, relations }
    }

    /// Returns the metagraph with one type of nodes and one relation, which is that of a homogeneous graph.
    pub fn homogeneous() -> Self {
        Self { n_types: 1, relations: vec![[0, 0]] }
    }

    /// Returns true if there is one type of nodes and one relation.
    pub fn is_homogeneous(&self) -> bool {
        self.n_types == 1 && self.relations.len() == 1
    }

    /// Returns the number of node types.
    pub fn n_types(&self) -> usize {
        self.n_types
    }

    /// Returns the number of relations.
    pub fn n_relations(&self) -> usize {
        self.relations.len()
    }

    /// Returns the types of the sources and destinations of each relation.
    pub fn relations(&self) -> &[[usize; 2]] {
        &self.relations
    }

    /// Returns the relations into the nodes of a type, ascending. There are none for a type that does not exist.
    pub fn relations_into(&self, dst_type: usize) -> impl Iterator<Item = usize> {
        let relations = self.relations.iter().enumerate();
        relations.filter(move |(_, types)| types[1] == dst_type).map(|(relation, _)| relation)
    }
}

/// Returns an error for more than [`MAX_RELATIONS`] relations.
pub(crate) fn check_relation_count(n_relations: usize) -> Result<()> {
    if MAX_RELATIONS < n_relations {
        let n = n_relations as u64;
        return Err(Error::TooMany { what: "relations", n, max: MAX_RELATIONS as u64 });
    }
    Ok(())
}
