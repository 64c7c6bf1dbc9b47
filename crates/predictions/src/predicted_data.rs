use std::ops::Range;
use std::sync::Arc;

use kiln_data::{Dataset, DatasetLinks, DatasetTargets, NodeNames, Split};
use kiln_feature::Labels;
use kiln_graph::{GraphSchema, NodeId, Relations};
use kiln_train::{NamedTargets, SavedModel};

use crate::{ItemSelectionError, PredictedEdges, Result};

/// What predictions read of data besides its graph: targets, links, names, and new rows. Of partitions, only targets are known.
/// Cloning shares the arrays.
#[derive(Debug, Clone)]
pub struct PredictedData {
    schema: GraphSchema,
    targets: Option<DatasetTargets>,
    links: Option<DatasetLinks>,
    graph: Option<Arc<Relations>>,
    /// The names of the nodes of each type, `[n_types]`; empty for nodes without names, and no entries for partitions.
    names: Vec<Arc<NodeNames>>,
    /// The first new row of each node type; `None` for data without appended rows, and for partitions.
    first_new: Option<Vec<u32>>,
}

impl PredictedData {
    /// Returns what is known of a partitioned graph: its types of nodes and its targets, if it has some.
    pub fn from_partitions(schema: GraphSchema, targets: Option<DatasetTargets>) -> Self {
        Self { schema, targets, links: None, graph: None, names: Vec::new(), first_new: None }
    }

    /// Returns the edges of a relation, with their targets if the data has some.
    ///
    /// # Errors
    /// Returns [`ItemSelectionError::NoEdgesOfPartitions`] for partitions, and [`crate::Error::Data`] if the data is damaged.
    pub fn edges(&self, relation: usize) -> Result<PredictedEdges> {
        let graph = self.graph.as_ref().ok_or(ItemSelectionError::NoEdgesOfPartitions)?;
        PredictedEdges::new(graph, self.links.as_ref(), relation)
    }

    /// Returns the links of a relation; `None` for data without them, and for partitions.
    pub fn links(&self, relation: usize) -> Option<&DatasetLinks> {
        self.links.as_ref().filter(|links| links.relation == relation)
    }

    /// Returns the names of the nodes of a type; `None` for nodes without names, and for partitions.
    pub fn names(&self, node_type: usize) -> Option<Arc<NodeNames>> {
        self.names.get(node_type).filter(|names| !names.is_empty()).cloned()
    }

    /// Returns the rows of a type that were appended to the data; `None` for data without appended rows, and for partitions.
    pub fn new_rows(&self, node_type: usize) -> Option<Range<u32>> {
        let first = *self.first_new.as_ref()?.get(node_type)?;
        Some(first..self.schema.types().range(node_type).len() as u32)
    }

    /// Returns the targets of the data if they are those of a type; `None` for a model of the rows of a task table, whose targets
    /// are others.
    pub fn targets(&self, model: &SavedModel, node_type: usize) -> Option<&DatasetTargets> {
        let is_of_nodes = model.info().inputs.task_table().is_none();
        self.targets.as_ref().filter(|targets| is_of_nodes && targets.node_type == node_type)
    }

    /// Returns the targets of the nodes of a type, in the numbering of the classes or columns of a model, and their split, numbered
    /// within the type; none if the targets of the data are those of another type.
    ///
    /// # Errors
    /// Returns the errors of [`SavedModel::targets_by_name`].
    pub fn named_targets(
        &self,
        model: &SavedModel,
        node_type: usize,
    ) -> kiln_train::Result<(NamedTargets<NodeId>, Split)> {
        let Some(targets) = self.targets(model, node_type) else {
            let targets = Labels::new(Vec::<i32>::new(), 0).into();
            return Ok((NamedTargets { targets, notes: Vec::new() }, Split::default()));
        };
        let first = self.schema.types().range(node_type).start;
        // Predictions reject a node of another type, which damaged partitions may have.
        let [train, val, test] = targets
            .split
            .parts()
            .map(|(_, nodes)| nodes.iter().map(|node| NodeId(node.0.wrapping_sub(first))).collect());
        let named = model.targets_by_name(&targets.values, &targets.class_names)?;
        Ok((named, Split { train, val, test }))
    }
}

/// Shares the arrays of a dataset.
///
/// ```
/// use kiln_data::synthetic;
/// use kiln_predictions::PredictedData;
/// let data = PredictedData::from(&synthetic::ring(10)?);
/// assert_eq!(data.edges(0)?.links().len(), 20);
/// assert!(data.names(0).is_none() && data.new_rows(0).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<&Dataset> for PredictedData {
    fn from(data: &Dataset) -> Self {
        Self {
            schema: data.graph.schema().clone(),
            targets: data.targets.clone(),
            links: data.links.clone(),
            graph: Some(Arc::clone(&data.graph)),
            names: data.names.clone(),
            first_new: data.first_new.clone(),
        }
    }
}
