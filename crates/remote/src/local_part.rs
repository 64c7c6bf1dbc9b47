use std::sync::Arc;

use kiln_data::DatasetTargets;
use kiln_data::format::TimesEntry;
use kiln_feature::{EdgeFeatures, FeatureBuffer, FeatureStore, TargetKind};
use kiln_graph::{EdgeColumns, RelationSchema};
use kiln_partition::{Cache, Part, PartOfRelation, PartOfType, PartitionBook, PartitionRow};

use crate::cuts::Cuts;
use crate::edges::Edges;
use crate::lazy_edges::LazyEdges;
use crate::wire::proto::{self, EdgeColumn, NodeType, Opened, Relation};
use crate::wire::wanted::{EdgeOfRow, MessageEdges};
use crate::{ContentError, Error, Result, RuleRegistry};

/// A local partition, which answers requests of its own process and, through a server, of other processes.
#[derive(Debug)]
pub(crate) struct LocalPart {
    pub(crate) part: Arc<Part>,
    /// The edges of each relation.
    relations: Vec<Arc<Edges>>,
    cuts: Cuts,
    /// The edges of each relation, ordered by time.
    by_time: LazyEdges,
    pub(crate) rules: RuleRegistry,
}

impl LocalPart {
    pub(crate) fn new(part: Arc<Part>, rules: RuleRegistry) -> Self {
        let mut relations = Vec::with_capacity(part.relations.len());
        for (relation, of_part) in part.schema.relations().iter().zip(&part.relations) {
            relations.push(Arc::new(Edges {
                graph: Arc::clone(&of_part.graph),
                nodes: part.types[relation.dst_type].old_ids.clone(),
                first_edges: of_part.first_edges.clone(),
                positions: None,
            }));
        }
        let by_time = LazyEdges::new(relations.len());
        Self { part, relations, cuts: Cuts::default(), by_time, rules }
    }

    /// Returns the edges of a relation.
    ///
    /// # Errors
    /// Returns [`ContentError::NoSuchPosition`] if there is no such relation.
    pub(crate) fn edges(&self, relation: usize) -> Result<&Arc<Edges>> {
        self.relations.get(relation).ok_or_else(|| self.no_such_relation(relation))
    }

    /// Returns the edges of a relation over which messages pass. Those of a time and the order by time are made when they are
    /// first requested, and kept.
    ///
    /// # Errors
    /// Returns the errors of [`LocalPart::edges`], and [`Error::Partition`] if the partition is damaged.
    pub(crate) fn message_edges(&self, relation: usize, edges: MessageEdges) -> Result<Arc<Edges>> {
        let all = self.edges(relation)?;
        match edges {
            MessageEdges::All => Ok(Arc::clone(all)),
            MessageEdges::Before(time) => self.cuts.get_or_make(&self.part, relation, all, time),
            MessageEdges::ByTime => self.by_time.get_or_make(relation, || {
                let ordered = self.part.edges_by_time(relation)?;
                Ok(ordered.map_or_else(|| Arc::clone(all), |graph| Arc::new(all.with_graph(graph))))
            }),
        }
    }

    fn of_type(&self, node_type: usize) -> Result<&PartOfType> {
        self.part.types.get(node_type).ok_or_else(|| self.no_such_type(node_type))
    }

    /// Returns the features of the nodes of a type that the partition owns, by row.
    ///
    /// # Errors
    /// Returns [`Error::Content`] if there is no such type, or if it has no features.
    pub(crate) fn features(&self, node_type: usize) -> Result<&dyn FeatureStore> {
        let features = self.of_type(node_type)?.features.as_deref();
        features.ok_or(Error::Content(ContentError::NoFeaturesOfType { node_type }))
    }

    /// Returns the keys of the nodes of a type that the partition owns, by row, 16 bytes each.
    ///
    /// # Errors
    /// Returns [`ContentError::NoKeysOfType`] if there is no such type, or if it has no keys.
    pub(crate) fn keys(&self, node_type: usize) -> Result<&[u8]> {
        let keys = self.part.types.get(node_type).and_then(|of_type| of_type.keys.as_deref());
        keys.ok_or(Error::Content(ContentError::NoKeysOfType { node_type }))
    }

    /// Returns the times of the nodes of a type.
    ///
    /// # Errors
    /// Returns [`ContentError::NoTimesOfType`] if there is no such type, or if its nodes have no times.
    pub(crate) fn node_times(&self, node_type: usize) -> Result<&[i64]> {
        let times = self.part.times.node_times(node_type);
        Ok(times.ok_or(ContentError::NoTimesOfType { node_type })?)
    }

    /// Returns the static cache of remote feature rows of a node type, if there is one.
    pub(crate) fn cache(&self, node_type: usize) -> Option<&Cache> {
        self.part.types.get(node_type)?.cache.as_ref()
    }

    /// Returns the partition book of the nodes of a type.
    ///
    /// # Errors
    /// Returns [`ContentError::NoSuchPosition`] if there is no such type.
    pub(crate) fn book(&self, node_type: usize) -> Result<&PartitionBook> {
        match node_type < self.part.types.len() {
            true => Ok(self.part.books.of_type(node_type)),
            false => Err(self.no_such_type(node_type)),
        }
    }

    fn no_such_type(&self, node_type: usize) -> Error {
        let n_known = self.part.types.len();
        Error::Content(ContentError::NoSuchPosition { what: "node type", position: node_type, n_known })
    }

    fn no_such_relation(&self, relation: usize) -> Error {
        let n_known = self.relations.len();
        Error::Content(ContentError::NoSuchPosition { what: "relation", position: relation, n_known })
    }

    /// Gathers the feature rows of the nodes of a type.
    pub(crate) fn gather(
        &self,
        node_type: usize,
        rows: &[PartitionRow],
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        Ok(self.features(node_type)?.gather(PartitionRow::local_nodes(rows), out)?)
    }

    /// Gathers the rows of edges of a relation in a column.
    pub(crate) fn gather_edges(
        &self,
        relation: usize,
        column: &str,
        edges: impl ExactSizeIterator<Item = EdgeOfRow>,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        if edges.len() == 0 {
            return Ok(());
        }
        let rows = self.edge_column(relation, column)?;
        let mut positions = Vec::with_capacity(edges.len());
        for (row, edge) in edges {
            positions.push(self.part.edge_position(relation, row, edge)?);
        }
        Ok(rows.gather(&positions, out)?)
    }

    /// Returns the rows of the partition's edges of a relation in a column, in the order of its graph.
    ///
    /// # Errors
    /// Returns [`Error::Content`] if there is no such relation, or if its edges do not have the column.
    pub(crate) fn edge_column(&self, relation: usize, name: &str) -> Result<EdgeFeatures> {
        let of_part = self.part.relations.get(relation).ok_or_else(|| self.no_such_relation(relation))?;
        kiln_feature::check_column_name(name)?;
        let column = of_part.graph.columns().get(name).ok_or_else(|| ContentError::no_column(name))?;
        Ok(EdgeFeatures::try_from(column)?)
    }

    /// Returns the description of the partition for clients, without a lease.
    pub(crate) fn describe(&self) -> Opened {
        let part = &self.part;
        let names = part.schema.types().names().iter().enumerate();
        let relations = part.schema.relations().iter().zip(&part.relations);
        Opened {
            partition_hash: part.partition_hash.clone(),
            hash: part.hash.clone(),
            name: part.name.clone(),
            part: part.index as u32,
            rules: self.rules.names(),
            preparation: part.preparation.as_ref().map(|preparation| {
                serde_json::to_string(preparation).expect("a preparation should serialise to JSON")
            }),
            node_types: names.map(|(node_type, name)| describe_type(part, node_type, name)).collect(),
            relations: relations.map(|(schema, of_part)| describe_relation(schema, of_part)).collect(),
            is_heterogeneous: part.is_heterogeneous(),
            targets: part.targets.as_ref().map(describe_targets),
            times: serde_json::json!(TimesEntry::of(&part.times)).to_string(),
            ..Opened::default()
        }
    }

    /// Checks that the partition has these rows, of the `n_rows` nodes that it owns.
    ///
    /// # Errors
    /// Returns a message with the first row that is out of range.
    pub(crate) fn check(&self, rows: &[PartitionRow], n_rows: usize) -> std::result::Result<(), String> {
        match rows.iter().find(|row| n_rows <= row.index()) {
            Some(row) => {
                let index = self.part.index;
                Err(format!("partition {index} has no row {}, it has {n_rows} rows", row.0))
            }
            None => Ok(()),
        }
    }
}

fn describe_type(part: &Part, node_type: usize, name: &str) -> NodeType {
    let of_type = &part.types[node_type];
    let features = of_type.features.as_ref();
    NodeType {
        name: name.to_owned(),
        offsets: part.books.of_type(node_type).offsets().to_vec(),
        dim: features.map(|features| features.dim() as u32),
        row_type: features.map_or("", |features| features.dtype().name()).to_owned(),
        has_keys: of_type.keys.is_some(),
        has_times: part.times.node_times(node_type).is_some(),
        feature_columns: match &of_type.feature_columns[..] {
            [] => String::new(),
            columns => serde_json::to_string(columns).unwrap_or_default(),
        },
    }
}

fn describe_relation(schema: &RelationSchema, of_part: &PartOfRelation) -> Relation {
    let mut edge_columns = Vec::new();
    // Batches have no times.
    let rows = of_part.graph.columns().rows().without(EdgeColumns::TIMES);
    for (name, column) in rows.iter() {
        let row_type = column.element_type().to_owned();
        edge_columns.push(EdgeColumn { name: name.to_owned(), width: column.width() as u32, row_type });
    }
    Relation {
        name: schema.name.clone(),
        src_type: schema.src_type as u32,
        dst_type: schema.dst_type as u32,
        n_edges: schema.n_edges,
        has_weights: of_part.graph.weights().is_some(),
        has_edge_types: of_part.graph.edge_types().is_some(),
        n_edge_types: of_part.n_edge_types.map(|n_types| n_types as u32),
        edge_columns,
        edge_type_names: of_part.edge_type_names.clone(),
        has_times: of_part.graph.columns().get(EdgeColumns::TIMES).is_some(),
    }
}

fn describe_targets(targets: &DatasetTargets) -> proto::Targets {
    let kind = match targets.values.kind() {
        TargetKind::MultiLabel => proto::TargetKind::MultiLabel,
        TargetKind::Regression => proto::TargetKind::Regression,
        TargetKind::Classes | TargetKind::Links => proto::TargetKind::Classes,
    };
    proto::Targets {
        node_type: targets.node_type as u32,
        kind: kind.into(),
        n_outputs: targets.values.n_outputs() as u64,
        class_names: targets.class_names.clone(),
    }
}

impl From<Error> for kiln_sample::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Sample(error) => error,
            other => Self::Elsewhere(Box::new(other)),
        }
    }
}

impl From<Error> for kiln_feature::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Feature(error) => error,
            other => Self::Elsewhere(Box::new(other)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
pub(crate) mod testing {
    use std::sync::Arc;

    use kiln_data::Dataset;
    use kiln_partition::{Method, Part, PartitionBook, PartitionMeta, part_dir, write_parts};

    /// Writes a data set as a single partition and opens it. The mapped files outlive the removed folder.
    pub(crate) fn only_part(data: &Dataset) -> Arc<Part> {
        let book = PartitionBook::from_parts(&vec![0; data.graph.n_nodes()], 1).unwrap();
        let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
        let root = tempfile::tempdir().unwrap();
        let parts = root.path().join("parts");
        write_parts(data, &book, &meta, None, &parts).unwrap();
        Arc::new(Part::open(part_dir(&parts, 0)).unwrap())
    }
}
