//! Items that are the rows of a task table.

use std::fmt::Write as _;
use std::sync::Arc;

use kiln_graph::NodeId;
use kiln_kernels::GraphMode;
use kiln_store::csv::quoted;
use kiln_train::ItemColumns;

use crate::{EvalMode, ItemTimesError, Messages, NeighborLoader, Result};

impl NeighborLoader {
    /// Makes the rows of a task table of the data the items, instead of the nodes that have targets
    /// ([`TaskTable`](kiln_data::TaskTable)). Each row is sampled at its own time: messages are [`Messages::AtItemTime`], whose limits
    /// [`NeighborLoader::messages`] sets after this call. The rows are PyG's `input_nodes` with `input_time`.
    ///
    /// ```
    /// # use kiln::prelude::*;
    /// use kiln::data::{DatasetTargets, Split, TaskTable};
    /// use kiln::feature::Labels;
    /// let split = Split { train: vec![NodeId(0), NodeId(1)].into(), ..Split::default() };
    /// let table = TaskTable {
    ///     name: "churn".to_owned(),
    ///     nodes: vec![NodeId(7), NodeId(7)].into(),
    ///     times: vec![10, 20].into(),
    ///     targets: DatasetTargets::new(0, Labels::new(vec![0, 1], 2).into(), split),
    /// };
    /// let data = kiln::data::synthetic::ring(100)?.with_task_table(table)?;
    /// let loader = NeighborLoader::new(&data, [10, 10]).task_table("churn")?;
    /// # let _ = loader;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`TaskTableError::NoSuchTable`](kiln_data::TaskTableError::NoSuchTable) if the data has no table of this name, and
    /// [`Error::NeedsWholeGraph`](crate::Error::NeedsWholeGraph) for a partitioned graph. Training then returns
    /// [`ItemTimesError`] for settings that need one graph for all rows.
    pub fn task_table(self, name: &str) -> Result<Self> {
        let table = self.source.task_table(name)?;
        Ok(Self {
            targets: Arc::new(table.targets.clone()),
            table: Some(Arc::new(table)),
            messages: Messages::AT_ITEM_TIME,
            ..self
        })
    }

    /// Checks that no setting needs nodes as items, or one graph for all rows of a task table.
    pub(super) fn check_task_table(&self) -> Result<()> {
        let Some(table) = &self.table else { return Ok(()) };
        if self.item_time_limits().is_none() {
            return Err(ItemTimesError::TaskTableNeedsTimes { table: table.name.clone() }.into());
        }
        let (what, reason, fix) = match (self.evaluation, self.graph_mode) {
            (EvalMode::Exact { .. }, _) => (
                "exact evaluation of a task table",
                "it has one output per node, and a node is in several rows",
                "use sampled evaluation",
            ),
            (_, GraphMode::Device | GraphMode::ZeroCopy) => {
                ("sampling a task table on a device", "its seeds are nodes", "keep the graph on the host")
            }
            _ => return Ok(()),
        };
        Err(ItemTimesError::NotPossible { what, reason, fix }.into())
    }

    /// Returns the columns of the rows of a task table in `test_predictions.csv`: the number of the node within its type, its name
    /// if nodes have names, and the time. `None` if the items are nodes.
    pub(super) fn columns_of_rows(&self) -> Option<ItemColumns> {
        let table = Arc::clone(self.table.as_ref()?);
        let first = self.target_nodes().start;
        let names = self.source.names_of_nodes().get(self.targets.node_type).cloned();
        let names = names.filter(|names| !names.is_empty());
        let kind = self.source.time_kind();
        let header = if names.is_some() { "node,name,time" } else { "node,time" };
        Some(ItemColumns::new(header, move |csv, row| {
            let row = row as usize;
            let node = NodeId(table.nodes[row].0 - first);
            let _ = write!(csv, "{}", node.0);
            if let Some(names) = &names {
                let _ = write!(csv, ",{}", quoted(names.get(node).unwrap_or_default()));
            }
            let _ = write!(csv, ",{}", kind.text(table.times[row]));
        }))
    }
}
