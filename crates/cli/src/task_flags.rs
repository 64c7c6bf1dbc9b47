//! The flags of `kiln train` that apply to some tasks only.

use crate::link::LinkArgs;
use crate::model::ModelArgs;
use crate::train::Task;

/// The flags for the access to a partitioned graph.
const OF_PARTITIONS: &str =
    "mode parts servers host no-static-cache cache-size worker-concurrency channel-size";

/// Returns the flags that do not apply to a task, separated by spaces.
pub(crate) fn flags_of_other_tasks(task: Task, is_partitioned: bool, has_folds: bool) -> String {
    let (of_whole, of_graphs) =
        ("standardize row-normalize symmetrize in-memory verify", "node-features folds");
    let (of_links, of_whole_runs) = (LinkArgs::FLAGS, "memory val-batches feature-cache hot-by");
    match (task, is_partitioned) {
        (Task::Graph, _) => {
            let of_models = ModelArgs::FLAGS_OF_NODES;
            let of_nodes = "fanouts rule eval memory val-batches graph-mode feature-cache hot-by";
            let of_runs = if has_folds { "loss-every metric tensorboard" } else { "" };
            format!("{of_whole} {of_models} {of_nodes} {OF_PARTITIONS} {of_runs} {of_links}")
        }
        (Task::Node, true) => format!("data {of_whole} {of_graphs} {of_whole_runs} {of_links}"),
        (Task::Node, false) => format!("{of_graphs} {OF_PARTITIONS} {of_links}"),
        (Task::Link, true) => format!("{of_whole} {of_graphs} {of_whole_runs}"),
        (Task::Link, false) => format!("{of_graphs} {OF_PARTITIONS}"),
    }
}
