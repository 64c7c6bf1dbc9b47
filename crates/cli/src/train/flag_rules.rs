//! The runs of `kiln train` to which a flag applies, and the flags that the result of a run depends on.

use std::collections::BTreeMap;

use clap::ValueEnum;
use kiln::train::are_equal_settings;
use kiln_usage::{FlagGroups, bail};

use crate::flags::links::LinkArgs;
use crate::flags::partitions::PartitionArgs;
use crate::flags::ranks::LaunchArgs;
use crate::flags::{GivenFlags, list_names};

/// The learning task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Node classification.
    Node,
    /// Graph classification.
    Graph,
    /// Link prediction.
    Link,
    /// Classification or regression of edges.
    Edge,
}

/// The runs to which a flag applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Runs that read `--data`: all but those on the nodes of partitions.
    Data,
    /// Runs on the nodes or the links of a whole graph.
    WholeGraph,
    /// Runs on the nodes of a whole graph.
    WholeNodes,
    /// Runs on the nodes or the links of a graph.
    OneGraph,
    /// Runs on partitions.
    Partitions,
    /// Runs on links or edges.
    Links,
    /// Runs on links with negatives.
    Negatives,
    /// Runs on sets of graphs.
    Graphs,
    /// Runs without cross-validation.
    OneModel,
}

/// Flags, separated by spaces, with the runs to which they apply, and true if the result depends on them. It depends on flags
/// that no group names, which apply to all runs. The data is identified by its hash, and ranks and batch size by their product.
const GROUPS: [(&str, Scope, bool); 11] = [
    (
        "ranks batch-size threads-per-rank deadline workers epochs log-format checkpoint-every out resume continue like",
        Scope::All,
        false,
    ),
    ("data", Scope::Data, false),
    (
        "standardize row-normalize symmetrize val-batches time-encoding time-frequencies",
        Scope::WholeGraph,
        true,
    ),
    ("in-memory verify memory feature-cache hot-by", Scope::WholeGraph, false),
    (
        "input-dropout residual weight-init edge-input edge-weighting heads output-heads attention-dropout bases fanouts rule eval messages until time-window",
        Scope::OneGraph,
        true,
    ),
    ("task-table", Scope::WholeNodes, true),
    ("graph-mode", Scope::OneGraph, false),
    ("node-features folds", Scope::Graphs, true),
    (
        "decoder negatives negative-sampler reject-edges eval-negatives link-split link-type link-direction disjoint-train",
        Scope::Negatives,
        true,
    ),
    ("metric init-from", Scope::OneModel, true),
    ("loss-every tensorboard", Scope::OneModel, false),
];

/// Returns [`GROUPS`] and the flags of partitions, processes and links.
fn flag_groups() -> FlagGroups<Scope> {
    FlagGroups::new(GROUPS)
        .with_group(list_names::<LinkArgs>(), Scope::Links, true)
        .with_group(list_names::<LaunchArgs>(), Scope::All, false)
        .with_group(list_names::<PartitionArgs>(), Scope::Partitions, false)
}

/// What a run trains on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Training {
    pub(super) task: Task,
    /// True for the nodes or links of a partitioned graph.
    pub(super) is_partitioned: bool,
    pub(super) has_folds: bool,
}

impl Training {
    /// Checks that the flags of a command line apply to this run.
    pub(super) fn check_flags(self, flags: &GivenFlags) -> anyhow::Result<()> {
        match flag_groups().find_outside(&flags.on_command_line, |scope| self.is_within(scope)) {
            Some(flag) => bail!("--{flag} does not apply to training on {}: remove it", self.describe()),
            None => Ok(()),
        }
    }

    fn is_within(self, scope: Scope) -> bool {
        let is_of_graphs = self.task == Task::Graph;
        match scope {
            Scope::All => true,
            Scope::Data => self.task != Task::Node || !self.is_partitioned,
            Scope::WholeGraph => !is_of_graphs && !self.is_partitioned,
            Scope::WholeNodes => self.task == Task::Node && !self.is_partitioned,
            Scope::OneGraph => !is_of_graphs,
            Scope::Partitions => self.is_partitioned,
            Scope::Links => matches!(self.task, Task::Link | Task::Edge),
            Scope::Negatives => self.task == Task::Link,
            Scope::Graphs => is_of_graphs,
            Scope::OneModel => !self.has_folds,
        }
    }

    fn describe(self) -> &'static str {
        match (self.task, self.is_partitioned) {
            (Task::Graph, _) => "graphs",
            (Task::Node, true) => "nodes of a partitioned graph",
            (Task::Node, false) => "nodes of a whole graph",
            (Task::Link, true) => "links of a partitioned graph",
            (Task::Link, false) => "links of a whole graph",
            (Task::Edge, true) => "edges of a partitioned graph",
            (Task::Edge, false) => "edges of a whole graph",
        }
    }
}

/// Returns the differences between the flags of a run and those with which it is resumed, of flags that the result depends on.
pub(super) fn compare_flags(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    flag_groups().compare(then, now, are_equal_settings)
}

#[cfg(test)]
#[path = "../../tests/train/flag_rules.rs"]
mod tests;
