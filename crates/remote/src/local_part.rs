use std::sync::Arc;

use kiln_feature::{EdgeFeatures, FeatureBuffer, FeatureStore, Preparation};
use kiln_graph::EdgeId;
use kiln_partition::{Part, PartitionRow};
use kiln_sample::{Frontier, HopRequest, Rule, Scratch};

use crate::edges::Edges;
use crate::proto::Opened;
use crate::wanted::{EdgeOfRow, WantedRow};
use crate::{Error, Result, RuleRegistry};

/// A local partition, which answers requests of its own process and, through a server, of other processes.
#[derive(Debug, Clone)]
pub(crate) struct LocalPart {
    pub(crate) part: Arc<Part>,
    pub(crate) edges: Edges,
    pub(crate) rules: RuleRegistry,
}

impl LocalPart {
    pub(crate) fn new(part: Arc<Part>, rules: RuleRegistry) -> Self {
        let edges = Edges {
            graph: Arc::clone(&part.graph),
            nodes: part.old_ids.clone(),
            first_edges: part.first_edges.clone(),
        };
        Self { part, edges, rules }
    }

    /// Returns the number of rows, one for each node of the partition.
    pub(crate) fn n_rows(&self) -> usize {
        self.edges.nodes.len()
    }

    /// Samples edges of rows; see [`Edges::sample`].
    pub(crate) fn sample(
        &self,
        rows: &[PartitionRow],
        rule: &Rule,
        request: &HopRequest,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        Ok(self.edges.sample(rows, rule, request, scratch, out)?)
    }

    /// Gathers the feature rows of `rows`.
    pub(crate) fn gather(&self, rows: &[PartitionRow], out: &mut FeatureBuffer) -> Result<()> {
        Ok(self.features().gather(PartitionRow::local_nodes(rows), out)?)
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
            rows[*position as usize] = self.part.edge_position(*row, *edge)?;
        }
        Ok(self.edge_features()?.gather(&rows, out)?)
    }

    /// Returns the features of the partition's edges, in the order of its graph.
    pub(crate) fn edge_features(&self) -> Result<&EdgeFeatures> {
        self.part.edge_features.as_ref().ok_or(Error::NoEdgeFeatures)
    }

    pub(crate) fn features(&self) -> &dyn FeatureStore {
        &*self.part.features
    }

    /// Returns the description of the partition for clients, without a lease.
    pub(crate) fn told(&self) -> Opened {
        let (part, graph, features) = (&self.part, &self.part.graph, self.features());
        Opened {
            lease: None,
            lease_ms: 0,
            partition_hash: part.partition_hash.clone(),
            hash: part.hash.clone(),
            name: part.name.clone(),
            part: part.index as u32,
            offsets: part.book.offsets().to_vec(),
            n_edges: part.n_edges,
            dim: features.dim() as u32,
            row_type: features.dtype().name().to_owned(),
            n_classes: part.labels.n_classes() as u64,
            class_names: part.class_names.clone(),
            has_weights: graph.weights().is_some(),
            has_edge_types: graph.edge_types().is_some(),
            rules: self.rules.names(),
            preparation: part.preparation.as_ref().map(preparation_to_json),
            n_edge_types: part.n_edge_types.map(|n_types| n_types as u32),
            edge_dim: part.edge_features.as_ref().map(|features| features.dim() as u32),
            edge_row_type: part
                .edge_features
                .as_ref()
                .map_or("", |features| features.dtype().name())
                .to_owned(),
        }
    }

    /// Checks that the partition has these rows.
    ///
    /// # Errors
    /// Returns a message with the first row that is out of range.
    pub(crate) fn check(&self, rows: &[PartitionRow]) -> std::result::Result<(), String> {
        let n_rows = self.n_rows();
        match rows.iter().find(|row| n_rows <= row.index()) {
            Some(row) => {
                Err(format!("partition {} has no row {}, it has {n_rows} rows", self.part.index, row.0))
            }
            None => Ok(()),
        }
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
