use kiln_feature::TargetKind;
use kiln_graph::NodeId;

use crate::step::task::custom_loss_error::CustomLossError;

/// A difference between the data and what the model, the task or the ranks expect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The ranks were started with different data.
    #[error(
        "rank {rank} has other data than rank {first}: the {what} is {got} instead of {expected}: give all ranks the same data (copies of the same version of all files, or one shared folder)"
    )]
    DataDiffers {
        /// The hash that was compared.
        what: &'static str,
        /// The rank with the expected hash.
        first: usize,
        /// The lowest rank whose hash differs.
        rank: usize,
        /// The hash of rank `first`.
        expected: String,
        /// The hash of `rank`.
        got: String,
    },
    /// A split has no items.
    #[error("the {split} split has no items, expected at least 1: check the dataset's split")]
    EmptySplit {
        /// The name of the split: `training`, `validation` or `test`.
        split: &'static str,
    },
    /// The training split has fewer items than one step takes, and incomplete steps are dropped.
    #[error(
        "a step takes {per_step} training items, but the split has {n_items}: lower the batch size, or keep the short last step"
    )]
    NoStep {
        /// The number of training items of all ranks.
        n_items: usize,
        /// The number of items that all ranks together take in a step.
        per_step: usize,
    },
    /// The graph has no nodes.
    #[error("the graph has no nodes, expected at least 1")]
    NoNodes,
    /// A layer's input width differs from the width of the rows that it receives.
    #[error(
        "layer {layer} takes rows of {expected} values, but receives rows of {got}: build the model for these features"
    )]
    LayerWidth {
        /// The layer, from 0, input layer first.
        layer: usize,
        /// The layer's input width.
        expected: usize,
        /// The width of the features, or of the previous layer's outputs.
        got: usize,
    },
    /// There are fewer feature rows than nodes.
    #[error("the features have {n_rows} rows, expected {n_nodes}, one for every node of the graph")]
    TooFewRows {
        /// The number of feature rows.
        n_rows: usize,
        /// The number of nodes of the graph.
        n_nodes: usize,
    },
    /// There is not one row of features per edge.
    #[error(
        "the edge features have {n_rows} rows, expected one for each of the {n_edges} edges of the graph"
    )]
    EdgeFeatureRows {
        /// The number of feature rows.
        n_rows: u64,
        /// The number of edges of the graph.
        n_edges: u64,
    },
    /// Links do not have one time each.
    #[error("got {n_times} times for {n_links} links, expected one for each")]
    LinkTimes {
        /// The number of times.
        n_times: usize,
        /// The number of links.
        n_links: usize,
    },
    /// A label is not below the number of the model's outputs.
    #[error(
        "node {} has class {label}, but the model has {n_outputs} outputs: build the model with one output per class",
        node.0
    )]
    ClassOutOfRange {
        /// The node with the label.
        node: NodeId,
        /// The class that the label names.
        label: i32,
        /// The number of the model's outputs.
        n_outputs: usize,
    },
    /// The data's targets are of another kind than those that the task learns.
    #[error(
        "the task learns {expected}, but the data has {got}: set the objective that suits the data (--loss)"
    )]
    OtherTargets {
        /// The kind of targets of the task.
        expected: TargetKind,
        /// The kind of targets of the data.
        got: TargetKind,
    },
    /// The loss of a regression is the binary cross entropy.
    #[error(
        "the binary cross entropy is a loss of labels: use the squared, absolute or Huber loss for regression"
    )]
    BinaryLoss,
    /// A loss of one's own has no name, or does not return one loss per item.
    #[error(transparent)]
    CustomLoss(#[from] CustomLossError),
    /// A scale of targets is set, and the targets are no numbers.
    #[error(
        "a scale of targets needs regression targets, but the data has {got}: remove it (--target-scale)"
    )]
    ScaleOfOtherTargets {
        /// The kind of targets of the data.
        got: TargetKind,
    },
    /// The model's number of outputs differs from the number of target columns.
    #[error("the model has {n_outputs} outputs, expected {n_columns}, one for each target column")]
    OutputCount {
        /// The number of the model's outputs.
        n_outputs: usize,
        /// The number of columns of the targets.
        n_columns: usize,
    },
}
