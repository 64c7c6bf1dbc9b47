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
            return match told.relations.is_empty() {
                true => Self::homogeneous(told),
                false => Err(invalid("it has relations, but no node types".to_owned())),
            };
        }
        if told.dim != 0 || told.edge_dim.is_some() || !told.offsets.is_empty() {
            return Err(invalid("it has node types, and features of a homogeneous graph".to_owned()));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Opened {
        let node_type = |name: &str, end, dim| NodeType {
            name: name.to_owned(),
            offsets: vec![0, 1, end],
            dim,
            row_type: dim.map_or("", |_| "f16").to_owned(),
            has_keys: dim.is_none(),
        };
        let relation = |name: &str, src_type, dst_type| Relation {
            name: name.to_owned(),
            src_type,
            dst_type,
            n_edges: 5,
            has_weights: name == "rates",
        };
        Opened {
            node_types: vec![node_type("user", 4, None), node_type("item", 3, Some(2))],
            relations: vec![relation("rates", 0, 1), relation("rated by", 1, 0)],
            target_type: 1,
            ..Opened::default()
        }
    }

    #[test]
    fn types_and_relations_of_a_server_are_those_of_the_graph() {
        let info = GraphInfo::of(&told()).unwrap();
        assert!(info.is_heterogeneous);
        assert_eq!((info.schema.n_nodes(), info.schema.n_edges(), n_parts(&told())), (7, 10, 2));
        assert_eq!(info.schema.types().range(1), 4..7);
        assert_eq!(
            info.row_formats.iter().map(|rows| rows.map(|rows| rows.dim)).collect::<Vec<_>>(),
            [None, Some(2)]
        );
        assert_eq!((info.has_weights, info.target_type), (vec![true, false], 1));
        let graph =
            Opened { offsets: vec![0, 4], n_edges: 9, dim: 3, row_type: "f32".into(), ..Opened::default() };
        let info = GraphInfo::of(&graph).unwrap();
        assert!(!info.is_heterogeneous && info.schema.metagraph().is_homogeneous());
        assert_eq!((info.schema.n_nodes(), info.schema.n_edges(), n_parts(&graph)), (4, 9, 1));
    }

    #[test]
    fn inconsistent_descriptions_are_errors() {
        let check = |change: fn(&mut Opened), expected: &str| {
            let mut told = told();
            change(&mut told);
            let error = GraphInfo::of(&told).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\n    expected {expected}");
        };
        check(|told| told.node_types.clear(), "it has relations, but no node types");
        check(|told| told.edge_dim = Some(4), "it has node types, and features of a homogeneous graph");
        check(|told| told.target_type = 2, "2 node types, of which type 2 has labels");
        check(|told| told.node_types = vec![told.node_types[0].clone(); 513], "expected at most 512");
        check(|told| told.node_types[1].name = "user".into(), "invalid node type `user`: it occurs twice");
        check(|told| told.node_types[0].offsets = vec![0, u32::MAX], "nodes do not fit");
        check(|told| told.node_types[1].dim = Some(0), "the features of node type `item` have 0 columns");
        check(|told| told.node_types[1].row_type = "i8".into(), "features of node type `item` of i8");
        check(|told| told.relations[1].name = String::new(), "invalid relation ``: it is empty");
        check(|told| told.relations[1].dst_type = u32::MAX, "there is no node type `4294967295`");
        check(|told| told.relations = vec![told.relations[0].clone(); 257], "257 relations do not fit");
        // Numbers of edges that overflow are not an error: edges are read when they are sampled.
        let mut many = told();
        many.relations[0].n_edges = u64::MAX;
        assert_eq!(GraphInfo::of(&many).unwrap().schema.n_edges(), u64::MAX);
    }
}
