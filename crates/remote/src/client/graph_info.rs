use std::path::Path;

use kiln_data::format::TimesEntry;
use kiln_feature::{FeatureColumn, Preparation, TargetKind};
use kiln_graph::{EdgeColumns, GraphSchema, NodeTypes, RelationSchema, Relations};

use crate::wire::proto::{self, EdgeColumn, NodeType, Opened, Relation};
use crate::wire::row_format::RowFormat;
use crate::{Error, PartitionsInfo, Result, TargetsInfo};

/// The maximum number of node types: two for each relation, as in partitions on disk.
const MAX_TYPES: usize = 2 * Relations::MOST;

/// The properties of the whole graph that a partition describes.
#[derive(Debug)]
pub(crate) struct GraphInfo {
    /// The properties that programs read.
    pub(crate) of_graph: PartitionsInfo,
    /// The properties of each node type, `[n_types]`.
    pub(crate) types: Vec<TypeInfo>,
    /// The properties of each relation, `[n_relations]`.
    pub(crate) relations: Vec<RelationInfo>,
}

/// The properties of the nodes of a type.
#[derive(Debug)]
pub(crate) struct TypeInfo {
    /// The offsets of the partition book.
    pub(crate) offsets: Vec<u32>,
    /// The format of the feature rows; `None` without features.
    pub(crate) row_format: Option<RowFormat>,
    /// True if the partitions have the keys of the nodes.
    pub(crate) has_keys: bool,
    /// True if the nodes have times.
    pub(crate) has_times: bool,
}

/// The properties of the edges of a relation.
#[derive(Debug, Default)]
pub(crate) struct RelationInfo {
    pub(crate) has_weights: bool,
    pub(crate) has_edge_types: bool,
    /// The number of edge types; `None` without edge types, or if it is unknown.
    pub(crate) n_edge_types: Option<usize>,
    /// True if the edges have times.
    pub(crate) has_times: bool,
    /// The columns of the edges besides weights and types, with the formats of their rows.
    pub(crate) columns: Vec<(String, RowFormat)>,
}

impl GraphInfo {
    /// Reads and checks the description of a partition.
    ///
    /// # Errors
    /// Returns [`Error::BadParts`] for unsupported features, and for types, relations, targets or a preparation that are
    /// inconsistent.
    pub(crate) fn new(opened: &Opened) -> Result<Self> {
        let n_types = opened.node_types.len();
        if !(1..=MAX_TYPES).contains(&n_types) {
            return Err(invalid(format!("{n_types} node types, expected 1 to {MAX_TYPES}")));
        }
        let sizes = opened.node_types.iter().map(|node_type| (node_type.name.as_str(), n_nodes(node_type)));
        let schema = NodeTypes::new(sizes).and_then(|types| {
            GraphSchema::new(types, opened.relations.iter().map(relation_schema).collect())
        });
        let schema = schema.map_err(|error| invalid(error.to_string()))?;
        if !opened.is_heterogeneous && !schema.metagraph().is_homogeneous() {
            return Err(invalid(format!("{n_types} node types of a homogeneous graph")));
        }
        let types: Vec<_> = opened.node_types.iter().map(TypeInfo::new).collect::<Result<_>>()?;
        let relations: Vec<_> = opened.relations.iter().map(RelationInfo::new).collect::<Result<_>>()?;
        let edges = only(&relations);
        let of_graph = PartitionsInfo {
            name: opened.name.clone(),
            hash: opened.hash.clone(),
            n_parts: n_parts(&types[0].offsets),
            schema,
            is_heterogeneous: opened.is_heterogeneous,
            dims: types.iter().map(|of_type| of_type.row_format.map(|format| format.dim)).collect(),
            feature_columns: opened.node_types.iter().map(feature_columns).collect::<Result<_>>()?,
            targets: opened.targets.as_ref().map(|targets| targets_info(targets, n_types)).transpose()?,
            n_edge_types: edges.and_then(|edges| edges.n_edge_types),
            edge_type_names: match &opened.relations[..] {
                [relation] => relation.edge_type_names.clone(),
                _ => Vec::new(),
            },
            edge_dim: edges.and_then(|edges| edges.format_of(EdgeColumns::FEATURES)).map(|format| format.dim),
            edge_widths: relations
                .iter()
                .map(|relation: &RelationInfo| relation.format_of(EdgeColumns::FEATURES))
                .map(|format| format.map(|format| format.dim))
                .collect(),
            edge_columns: relations.iter().map(RelationInfo::names).collect(),
            preparation: preparation(opened)?,
            times: times(opened)?,
        };
        Ok(Self { of_graph, types, relations })
    }

    /// Returns the properties of the edges of a graph with one relation; `None` if it has several.
    pub(crate) fn only_relation(&self) -> Option<&RelationInfo> {
        only(&self.relations)
    }
}

fn only(relations: &[RelationInfo]) -> Option<&RelationInfo> {
    relations.first().filter(|_| relations.len() == 1)
}

impl TypeInfo {
    fn new(node_type: &NodeType) -> Result<Self> {
        let what = format!("features of node type `{}`", node_type.name);
        let row_format = node_type.dim.map(|dim| RowFormat::new(&what, dim, &node_type.row_type));
        Ok(Self {
            offsets: node_type.offsets.clone(),
            row_format: row_format.transpose()?,
            has_keys: node_type.has_keys,
            has_times: node_type.has_times,
        })
    }
}

impl RelationInfo {
    fn new(relation: &Relation) -> Result<Self> {
        let mut columns = Vec::with_capacity(relation.edge_columns.len());
        for EdgeColumn { name, width, row_type } in &relation.edge_columns {
            let what = match name.as_str() {
                EdgeColumns::FEATURES => "edge features".to_owned(),
                _ => "rows of an edge column".to_owned(),
            };
            let is_allowed = EdgeColumns::is_name(name) && kiln_feature::check_column_name(name).is_ok();
            if !is_allowed || columns.iter().any(|(other, _)| other == name) {
                let shown: String = name.chars().take(80).collect();
                return Err(invalid(format!(
                    "an edge column `{shown}` that is not allowed, or occurs twice"
                )));
            }
            columns.push((name.clone(), RowFormat::new(&what, *width, row_type)?));
        }
        Ok(Self {
            has_weights: relation.has_weights,
            has_edge_types: relation.has_edge_types,
            n_edge_types: relation.n_edge_types.map(|n_types| n_types as usize),
            has_times: relation.has_times,
            columns,
        })
    }

    /// Returns the names of all columns.
    fn names(&self) -> Vec<String> {
        let of_sampler =
            [(EdgeColumns::WEIGHTS, self.has_weights), (EdgeColumns::TYPES, self.has_edge_types)];
        let of_sampler = of_sampler.into_iter().filter_map(|(name, is_there)| is_there.then_some(name));
        of_sampler.chain(self.columns.iter().map(|(name, _)| name.as_str())).map(str::to_owned).collect()
    }

    /// Returns the format of the rows of a column; `None` if the edges do not have it.
    pub(crate) fn format_of(&self, name: &str) -> Option<RowFormat> {
        self.columns.iter().find(|(other, _)| other == name).map(|(_, format)| *format)
    }
}

/// Reads what the feature columns of a type mean.
fn feature_columns(node_type: &NodeType) -> Result<Vec<FeatureColumn>> {
    let NodeType { name, dim, feature_columns, .. } = node_type;
    if feature_columns.is_empty() {
        return Ok(Vec::new());
    }
    let columns: Vec<FeatureColumn> = serde_json::from_str(feature_columns).map_err(|error| {
        invalid(format!("feature columns of node type `{name}` that are not JSON: {error}"))
    })?;
    let expected = dim.unwrap_or(0) as usize;
    if let Err(width) = FeatureColumn::check_width(&columns, expected) {
        return Err(invalid(format!(
            "a width of {width} of the described feature columns of node type `{name}`, expected {expected} in columns of at least 1"
        )));
    }
    Ok(columns)
}

fn n_nodes(node_type: &NodeType) -> usize {
    node_type.offsets.last().map_or(0, |&end| end as usize)
}

fn relation_schema(relation: &Relation) -> RelationSchema {
    RelationSchema {
        name: relation.name.clone(),
        src_type: relation.src_type as usize,
        dst_type: relation.dst_type as usize,
        n_edges: relation.n_edges,
    }
}

fn targets_info(targets: &proto::Targets, n_types: usize) -> Result<TargetsInfo> {
    let node_type = targets.node_type as usize;
    if n_types <= node_type {
        return Err(invalid(format!("{n_types} node types, of which type {node_type} has targets")));
    }
    let kind = match proto::TargetKind::try_from(targets.kind) {
        Ok(proto::TargetKind::Classes) => TargetKind::Classes,
        Ok(proto::TargetKind::MultiLabel) => TargetKind::MultiLabel,
        Ok(proto::TargetKind::Regression) => TargetKind::Regression,
        Err(_) => return Err(invalid(format!("targets of kind {}", targets.kind))),
    };
    let class_names = targets.class_names.clone();
    Ok(TargetsInfo { node_type, kind, n_outputs: targets.n_outputs as usize, class_names })
}

fn preparation(opened: &Opened) -> Result<Option<Preparation>> {
    let invalid = |reason: String| Error::BadParts {
        reason: format!(
            "the preparation of the data is invalid: {reason}: use the same version of kiln for clients and servers"
        ),
    };
    let Some(json) = &opened.preparation else { return Ok(None) };
    let preparation: Preparation = serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?;
    let dim = opened.node_types.first().and_then(|node_type| node_type.dim).unwrap_or(0);
    preparation.check(dim as usize).map_err(|error| invalid(error.to_string()))?;
    Ok(Some(preparation))
}

fn times(opened: &Opened) -> Result<TimesEntry> {
    if opened.times.is_empty() {
        return Ok(TimesEntry::default());
    }
    let times: TimesEntry = serde_json::from_str(&opened.times)
        .map_err(|error| invalid(format!("times that are not JSON: {error}")))?;
    times.check(Path::new(&opened.name)).map_err(|error| invalid(error.to_string()))?;
    Ok(times)
}

fn invalid(reason: String) -> Error {
    let reason = format!(
        "the description of the graph is invalid: {reason}: use the same version of kiln for clients and servers"
    );
    Error::BadParts { reason }
}

/// Returns the number of partitions by the offsets of a partition book; 0 if there are none.
pub(crate) fn n_parts(offsets: &[u32]) -> usize {
    offsets.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Opened {
        let node_type = |name: &str, end, dim| NodeType {
            name: name.to_owned(),
            offsets: vec![0, 1, end],
            dim,
            row_type: dim.map_or("", |_| "f16").to_owned(),
            has_keys: dim.is_none(),
            has_times: false,
            feature_columns: String::new(),
        };
        let relation = |name: &str, src_type, dst_type| Relation {
            name: name.to_owned(),
            src_type,
            dst_type,
            n_edges: 5,
            has_weights: name == "rates",
            ..Relation::default()
        };
        Opened {
            node_types: vec![node_type("user", 4, None), node_type("item", 3, Some(2))],
            relations: vec![relation("rates", 0, 1), relation("rated by", 1, 0)],
            targets: Some(proto::Targets { node_type: 1, n_outputs: 3, ..proto::Targets::default() }),
            is_heterogeneous: true,
            ..Opened::default()
        }
    }

    #[test]
    fn types_and_relations_of_a_server_are_those_of_the_graph() {
        let info = GraphInfo::new(&opened()).unwrap();
        let of_graph = &info.of_graph;
        assert_eq!((of_graph.schema.n_nodes(), of_graph.schema.n_edges()), (7, 10));
        assert_eq!(of_graph.schema.types().range(1), 4..7);
        assert_eq!(of_graph.dims, [None, Some(2)]);
        assert_eq!(info.types.iter().map(|of_type| of_type.has_keys).collect::<Vec<_>>(), [true, false]);
        assert_eq!(info.relations.iter().map(|edges| edges.has_weights).collect::<Vec<_>>(), [true, false]);
        assert_eq!((of_graph.n_parts, of_graph.is_heterogeneous), (2, true));
        let targets = of_graph.targets.as_ref().unwrap();
        assert_eq!((targets.node_type, targets.kind, targets.n_outputs), (1, TargetKind::Classes, 3));
    }

    #[test]
    fn inconsistent_descriptions_are_errors() {
        let check = |change: fn(&mut Opened), expected: &str| {
            let mut opened = opened();
            change(&mut opened);
            let error = GraphInfo::new(&opened).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}\n    expected {expected}");
        };
        check(|opened| opened.node_types.clear(), "0 node types, expected 1 to 512");
        check(|opened| opened.is_heterogeneous = false, "2 node types of a homogeneous graph");
        check(
            |opened| opened.targets.as_mut().unwrap().node_type = 2,
            "2 node types, of which type 2 has targets",
        );
        check(|opened| opened.targets.as_mut().unwrap().kind = 3, "targets of kind 3");
        check(|opened| opened.preparation = Some("[7]".into()), "the preparation of the data is invalid");
        check(
            |opened| opened.node_types = vec![opened.node_types[0].clone(); 513],
            "513 node types, expected 1 to 512",
        );
        check(
            |opened| opened.node_types[1].name = "user".into(),
            "invalid node type `user`: it occurs twice",
        );
        check(|opened| opened.node_types[0].offsets = vec![0, u32::MAX], "nodes do not fit");
        check(|opened| opened.node_types[1].dim = Some(0), "the features of node type `item` have 0 columns");
        check(|opened| opened.node_types[1].row_type = "i8".into(), "features of node type `item` of i8");
        check(
            |opened| {
                opened.relations[1].edge_columns =
                    vec![EdgeColumn { name: "features".into(), width: 0, row_type: "f32".into() }];
            },
            "the edge features have 0 columns",
        );
        check(|opened| opened.relations[1].name = String::new(), "invalid relation ``: it is empty");
        check(|opened| opened.relations[1].dst_type = u32::MAX, "there is no node type `4294967295`");
        check(|opened| opened.relations = vec![opened.relations[0].clone(); 257], "257 relations do not fit");
        // Numbers of edges that overflow are not an error: edges are read when they are sampled.
        let mut many = opened();
        many.relations[0].n_edges = u64::MAX;
        assert_eq!(GraphInfo::new(&many).unwrap().of_graph.schema.n_edges(), u64::MAX);
    }
}
