use kiln_graph::{GraphSchema, NodeTypes, RelationSchema, Relations};

use crate::proto::{NodeType, Opened, Relation};
use crate::row_format::RowFormat;
use crate::{Error, Result};

/// The maximum number of node types: two for each relation, as in partitions on disk.
const MAX_TYPES: usize = 2 * Relations::MOST;

/// The properties of the whole graph that a partition describes. A homogeneous graph has one node type and one relation.
#[derive(Debug)]
pub(crate) struct GraphInfo {
    pub(crate) is_heterogeneous: bool,
    pub(crate) schema: GraphSchema,
    /// The offsets of the partition book of each node type.
    pub(crate) offsets: Vec<Vec<u32>>,
    /// The format of the feature rows of each node type; `None` for a type without features.
    pub(crate) row_formats: Vec<Option<RowFormat>>,
    /// True for each relation whose edges have weights.
    pub(crate) has_weights: Vec<bool>,
    /// The type of the nodes that have labels.
    pub(crate) target_type: usize,
}

impl GraphInfo {
    /// Reads and checks the description of a partition.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] for unsupported features, and for types or relations that are inconsistent.
    pub(crate) fn of(told: &Opened) -> Result<Self> {
        if told.node_types.is_empty() {
            return Self::homogeneous(told);
        }
        let (n_types, target_type) = (told.node_types.len(), told.target_type as usize);
        if MAX_TYPES < n_types || n_types <= target_type {
            return Err(invalid(format!(
                "{n_types} node types, of which type {target_type} has labels, expected at most {MAX_TYPES}, with one of \
                 them"
            )));
        }
        let n_nodes = |node_type: &NodeType| node_type.offsets.last().map_or(0, |&end| end as usize);
        let types = told.node_types.iter().map(|node_type| (node_type.name.as_str(), n_nodes(node_type)));
        let schema = NodeTypes::new(types)
            .and_then(|types| GraphSchema::new(types, told.relations.iter().map(relation_schema).collect()));
        let format = |node_type: &NodeType| {
            let what = format!("features of node type `{}`", node_type.name);
            node_type.dim.map(|dim| RowFormat::new(&what, dim, &node_type.row_type)).transpose()
        };
        Ok(Self {
            is_heterogeneous: true,
            schema: schema.map_err(|error| invalid(error.to_string()))?,
            offsets: told.node_types.iter().map(|node_type| node_type.offsets.clone()).collect(),
            row_formats: told.node_types.iter().map(format).collect::<Result<_>>()?,
            has_weights: told.relations.iter().map(|relation| relation.has_weights).collect(),
            target_type,
        })
    }

    fn homogeneous(told: &Opened) -> Result<Self> {
        let n_nodes = told.offsets.last().map_or(0, |&end| end as usize);
        let schema = GraphSchema::homogeneous(n_nodes, told.n_edges);
        Ok(Self {
            is_heterogeneous: false,
            schema: schema.map_err(|error| invalid(error.to_string()))?,
            offsets: vec![told.offsets.clone()],
            row_formats: vec![Some(RowFormat::new("features", told.dim, &told.row_type)?)],
            has_weights: vec![told.has_weights],
            target_type: 0,
        })
    }
}

fn relation_schema(relation: &Relation) -> RelationSchema {
    RelationSchema {
        name: relation.name.clone(),
        src_type: relation.src_type as usize,
        dst_type: relation.dst_type as usize,
        n_edges: relation.n_edges,
    }
}

fn invalid(reason: String) -> Error {
    let reason = format!(
        "the description of the graph is invalid: {reason}: use the same version of kiln for clients and servers"
    );
    Error::BadParts { reason }
}

/// Returns the number of partitions that a partition describes; 0 if it describes none.
pub(crate) fn n_parts(told: &Opened) -> usize {
    let offsets = told.node_types.first().map_or(&told.offsets, |node_type| &node_type.offsets);
    offsets.len().saturating_sub(1)
}
