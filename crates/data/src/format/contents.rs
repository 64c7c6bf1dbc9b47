use kiln_feature::{FeatureColumn, Preparation};

/// What a manifest states about a set beside its graph and its files, whatever its layout.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) name: String,
    /// The number of feature columns of each node type; `None` for a type without features.
    pub(super) dims: Vec<Option<usize>>,
    /// What the feature columns of each node type mean; empty for a type whose columns have no names.
    pub(super) feature_columns: Vec<Vec<FeatureColumn>>,
    /// `None` for a set without targets.
    pub(super) targets: Option<TargetContents>,
    /// The relation of the links, and its reverse; `None` for a set without links.
    pub(super) links: Option<(usize, Option<usize>)>,
    pub(super) edge_type_names: Vec<String>,
    /// The first new row of each node type; `None` for a set without appended rows.
    pub(super) first_new: Option<Vec<u32>>,
    pub(super) preparation: Preparation,
}

/// The targets of a set.
#[derive(Debug)]
pub(super) struct TargetContents {
    pub(super) node_type: usize,
    /// The number of classes, or of columns of target values.
    pub(super) n_outputs: usize,
    /// The names of the classes or columns; empty if they have no names.
    pub(super) class_names: Vec<String>,
}
