use kiln_data::format::TimesEntry;
use kiln_feature::{FeatureColumn, Preparation, TargetKind};
use kiln_graph::GraphSchema;

/// Properties of a partitioned graph that are known before ranks join it.
#[derive(Debug, Clone, PartialEq)]
pub struct PartitionsInfo {
    /// The name of the data set.
    pub name: String,
    /// The hash of the whole data set.
    pub hash: String,
    /// The number of partitions.
    pub n_parts: usize,
    /// The node types and relations. A homogeneous graph has one of each, named `node` and `edge`.
    pub schema: GraphSchema,
    /// True if the graph is heterogeneous: it has several types of nodes, or named relations.
    pub is_heterogeneous: bool,
    /// The number of feature columns of each node type, `[n_types]`; `None` for a type without features.
    pub dims: Vec<Option<usize>>,
    /// What the feature columns of each node type mean, `[n_types]`; empty for a type whose columns have no names.
    pub feature_columns: Vec<Vec<FeatureColumn>>,
    /// The targets of the nodes of one type; `None` if the partitions have none.
    pub targets: Option<TargetsInfo>,
    /// The number of edge types: one more than the largest, or the number of names if it is larger. `None` if edges have
    /// no types, if there are several relations, or if it is unknown because an older version of kiln wrote the
    /// partitions.
    pub n_edge_types: Option<usize>,
    /// The name of each edge type; empty if the types have no names, or if there are several relations.
    pub edge_type_names: Vec<String>,
    /// The number of columns of the edge features; `None` if edges have no features, or if there are several relations.
    pub edge_dim: Option<usize>,
    /// The number of columns of the edge features of each relation, `[n_relations]`; `None` for a relation without features.
    pub edge_widths: Vec<Option<usize>>,
    /// The names of the columns of the edges of each relation, of which weights are `weights` and types `types`.
    pub edge_columns: Vec<Vec<String>>,
    /// The meaning of the times of nodes and edges, and the split by time, if there is one.
    pub times: TimesEntry,
    /// The steps that prepared the data set before it was partitioned; `None` if they are unknown.
    pub preparation: Option<Preparation>,
}

/// The targets of the nodes of one type, without their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetsInfo {
    /// The type of the nodes that have targets.
    pub node_type: usize,
    /// The kind of the targets.
    pub kind: TargetKind,
    /// The number of outputs of a model for these targets: the number of classes or of columns.
    pub n_outputs: usize,
    /// The name of each class or column.
    pub class_names: Vec<String>,
}

impl TargetsInfo {
    /// Returns the size of the targets of a node in bytes.
    pub(crate) fn node_bytes(&self) -> usize {
        match self.kind {
            TargetKind::MultiLabel => self.n_outputs,
            TargetKind::Regression => self.n_outputs.saturating_mul(size_of::<f32>()),
            TargetKind::Classes | TargetKind::Links => size_of::<i32>(),
        }
    }
}
