use std::sync::Arc;

use kiln_feature::{EdgeFeatures, FeatureBuffer, FeatureStore, Preparation};
use kiln_graph::{EdgeId, RelationSchema};
use kiln_partition::{AnyPart, Cache, Part, PartOfRelation, PartitionBook, PartitionRow, TypedPart};

use crate::edges::Edges;
use crate::proto::{NodeType, Opened, Relation};
use crate::wanted::{EdgeOfRow, WantedRow};
use crate::{Error, Result, RuleRegistry};

/// A local partition, which answers requests of its own process and, through a server, of other processes.
#[derive(Debug, Clone)]
pub(crate) struct LocalPart {
    pub(crate) part: AnyPart,
    /// The edges of each relation; those of a homogeneous graph are its only relation.
    relations: Vec<Edges>,
    pub(crate) rules: RuleRegistry,
}

impl LocalPart {
    pub(crate) fn new(part: AnyPart, rules: RuleRegistry) -> Self {
        let relations = match &part {
            AnyPart::Homogeneous(part) => vec![Edges {
                graph: Arc::clone(&part.graph),
                nodes: part.old_ids.clone(),
                first_edges: part.first_edges.clone(),
            }],
            AnyPart::Heterogeneous(part) => {
                let relations = part.schema.relations().iter().zip(&part.relations);
                let edges = relations.map(|(relation, of_part)| Edges {
                    graph: Arc::clone(&of_part.graph),
                    nodes: part.types[relation.dst_type].old_ids.clone(),
                    first_edges: of_part.first_edges.clone(),
                });
                edges.collect()
            }
        };
        Self { part, relations, rules }
    }

    /// Returns the edges of a relation.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchPosition`] if there is no such relation.
    pub(crate) fn edges(&self, relation: usize) -> Result<&Edges> {
        let n_known = self.relations.len();
        self.relations.get(relation).ok_or(Error::NoSuchPosition {
            what: "relation",
            position: relation,
            n_known,
        })
    }

    /// Returns the features of the nodes of a type that the partition owns, by row.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchPosition`] if there is no such type, and [`Error::NoFeaturesOfType`] if it has no features.
    pub(crate) fn features(&self, node_type: usize) -> Result<&dyn FeatureStore> {
        let features = match &self.part {
            AnyPart::Homogeneous(part) => (node_type == 0).then_some(Some(&part.features)),
            AnyPart::Heterogeneous(part) => {
                part.types.get(node_type).map(|of_type| of_type.features.as_ref())
            }
        };
        let features = features.ok_or_else(|| self.no_such_type(node_type))?;
        Ok(&**features.ok_or(Error::NoFeaturesOfType { node_type })?)
    }

    /// Returns the keys of the nodes of a type that the partition owns, by row, 16 bytes each.
    ///
    /// # Errors
    /// Returns [`Error::NoKeysOfType`] if there is no such type, or if it has no keys.
    pub(crate) fn keys(&self, node_type: usize) -> Result<&[u8]> {
        let of_type = match &self.part {
            AnyPart::Homogeneous(_) => None,
            AnyPart::Heterogeneous(part) => part.types.get(node_type),
        };
        let keys = of_type.and_then(|of_type| of_type.keys.as_deref());
        keys.ok_or(Error::NoKeysOfType { node_type })
    }

    /// Returns the static cache of remote feature rows of a node type, if there is one.
    pub(crate) fn cache(&self, node_type: usize) -> Option<&Cache> {
        match &self.part {
            AnyPart::Homogeneous(part) => part.cache.as_ref().filter(|_| node_type == 0),
            AnyPart::Heterogeneous(part) => part.types.get(node_type)?.cache.as_ref(),
        }
    }

    /// Returns the partition book of the nodes of a type.
    ///
    /// # Errors
    /// Returns [`Error::NoSuchPosition`] if there is no such type.
    pub(crate) fn book(&self, node_type: usize) -> Result<&PartitionBook> {
        let book = match &self.part {
            AnyPart::Homogeneous(part) => (node_type == 0).then_some(&part.book),
            AnyPart::Heterogeneous(part) => {
                (node_type < part.types.len()).then(|| part.book.of_type(node_type))
            }
        };
        Ok(book.ok_or_else(|| self.no_such_type(node_type))?)
    }

    fn no_such_type(&self, node_type: usize) -> Error {
        let n_known = match &self.part {
            AnyPart::Homogeneous(_) => 1,
            AnyPart::Heterogeneous(part) => part.types.len(),
        };
        Error::NoSuchPosition { what: "node type", position: node_type, n_known }
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

    /// Returns the partition if it is one of a homogeneous graph.
    pub(crate) fn homogeneous(&self) -> Option<&Arc<Part>> {
        match &self.part {
            AnyPart::Homogeneous(part) => Some(part),
            AnyPart::Heterogeneous(_) => None,
        }
    }

    /// Returns the position of an edge in [`LocalPart::edge_features`]; see [`Part::edge_position`].
    pub(crate) fn edge_position(&self, row: PartitionRow, edge: EdgeId) -> Result<EdgeId> {
        Ok(self.homogeneous().ok_or(Error::NoEdgeFeatures)?.edge_position(row, edge)?)
    }

    /// Gathers the feature rows of edges to their positions among `n_rows` rows. The other rows have any values.
    pub(crate) fn gather_edges(
        &self,
        edges: &[WantedRow<EdgeOfRow>],
        n_rows: usize,
        out: &mut FeatureBuffer,
    ) -> Result<()> {
        let mut rows = vec![EdgeId(0); n_rows];
        for ((row, edge), position) in edges {
            rows[*position as usize] = self.edge_position(*row, *edge)?;
        }
        Ok(self.edge_features()?.gather(&rows, out)?)
    }

    /// Returns the features of the partition's edges, in the order of its graph.
    pub(crate) fn edge_features(&self) -> Result<&EdgeFeatures> {
        let part = self.homogeneous();
        part.and_then(|part| part.edge_features.as_ref()).ok_or(Error::NoEdgeFeatures)
    }

    /// Returns the description of the partition for clients, without a lease.
    pub(crate) fn told(&self) -> Opened {
        let part = &self.part;
        let of_both = Opened {
            partition_hash: part.partition_hash().to_owned(),
            hash: part.hash().to_owned(),
            name: part.name().to_owned(),
            part: part.index() as u32,
            n_classes: part.labels().n_classes() as u64,
            class_names: part.class_names().to_vec(),
            rules: self.rules.names(),
            ..Opened::default()
        };
        match part {
            AnyPart::Homogeneous(part) => told_of_graph(part, of_both),
            AnyPart::Heterogeneous(part) => told_of_types(part, of_both),
        }
    }

    /// Checks that the partition has these rows, of the `n_rows` nodes that it owns.
    ///
    /// # Errors
    /// Returns a message with the first row that is out of range.
    pub(crate) fn check(&self, rows: &[PartitionRow], n_rows: usize) -> std::result::Result<(), String> {
        match rows.iter().find(|row| n_rows <= row.index()) {
            Some(row) => {
                let index = self.part.index();
                Err(format!("partition {index} has no row {}, it has {n_rows} rows", row.0))
            }
            None => Ok(()),
        }
    }
}

/// Adds the properties of a homogeneous graph.
fn told_of_graph(part: &Part, of_both: Opened) -> Opened {
    let edge_features = part.edge_features.as_ref();
    Opened {
        offsets: part.book.offsets().to_vec(),
        n_edges: part.n_edges,
        dim: part.features.dim() as u32,
        row_type: part.features.dtype().name().to_owned(),
        has_weights: part.graph.weights().is_some(),
        has_edge_types: part.graph.edge_types().is_some(),
        preparation: part.preparation.as_ref().map(preparation_to_json),
        n_edge_types: part.n_edge_types.map(|n_types| n_types as u32),
        edge_dim: edge_features.map(|features| features.dim() as u32),
        edge_row_type: edge_features.map_or("", |features| features.dtype().name()).to_owned(),
        ..of_both
    }
}

/// Adds the node types and relations of a heterogeneous graph.
fn told_of_types(part: &TypedPart, of_both: Opened) -> Opened {
    let of_type = |(node_type, name): (usize, &String)| {
        let features = part.types[node_type].features.as_ref();
        NodeType {
            name: name.clone(),
            offsets: part.book.of_type(node_type).offsets().to_vec(),
            dim: features.map(|features| features.dim() as u32),
            row_type: features.map_or("", |features| features.dtype().name()).to_owned(),
            has_keys: part.types[node_type].keys.is_some(),
        }
    };
    let relations = part.schema.relations().iter().zip(&part.relations);
    let of_relation = |(relation, of_part): (&RelationSchema, &PartOfRelation)| Relation {
        name: relation.name.clone(),
        src_type: relation.src_type as u32,
        dst_type: relation.dst_type as u32,
        n_edges: relation.n_edges,
        has_weights: of_part.graph.weights().is_some(),
    };
    Opened {
        n_edges: part.schema.n_edges(),
        node_types: part.schema.types().names().iter().enumerate().map(of_type).collect(),
        relations: relations.map(of_relation).collect(),
        target_type: part.target_type as u32,
        ..of_both
    }
}

fn preparation_to_json(preparation: &Preparation) -> String {
    serde_json::to_string(preparation).expect("a preparation should serialise to JSON")
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
    use kiln_partition::{
        Method, Part, PartitionBook, PartitionMeta, TypedPart, TypedPartitionBook, part_dir, write_parts,
        write_typed_parts,
    };

    /// Writes a data set as a single partition and opens it. The mapped files outlive the removed folder.
    pub(crate) fn only_part(data: &Dataset) -> Arc<Part> {
        let book = PartitionBook::from_parts(&vec![0; data.graph.n_nodes()], 1).unwrap();
        let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
        let root = tempfile::tempdir().unwrap();
        let parts = root.path().join("parts");
        write_parts(data, &book, &meta, None, &parts).unwrap();
        Arc::new(Part::open(part_dir(&parts, 0)).unwrap())
    }

    /// Writes a heterogeneous data set as a single partition and opens it.
    pub(crate) fn only_typed_part(data: &Dataset) -> Arc<TypedPart> {
        let owners = vec![0; data.graph.n_nodes()];
        let book = TypedPartitionBook::from_parts(data.graph.types().clone(), &owners, 1).unwrap();
        let meta = PartitionMeta { hash: data.hash().unwrap(), method: Method::Random, n_cut_edges: 0 };
        let root = tempfile::tempdir().unwrap();
        let parts = root.path().join("parts");
        write_typed_parts(data, &book, &meta, None, &parts).unwrap();
        Arc::new(TypedPart::open(part_dir(&parts, 0)).unwrap())
    }
}
