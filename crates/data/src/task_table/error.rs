/// An error in a task table, or in the choice of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskTableError {
    /// A set has no task table of a name.
    #[error("{data} has no task table `{name}`: {known}")]
    NoSuchTable {
        /// The name of the set.
        data: String,
        /// The name of the table.
        name: String,
        /// The names of the tables of the set.
        known: String,
    },
    /// Two task tables of a set have the same name.
    #[error("two task tables have the name `{table}`: give each a name of its own")]
    Twice {
        /// The name of the table.
        table: String,
    },
    /// The type of the nodes of a table does not exist.
    #[error("task table `{table}`: the graph has no node type {node_type}")]
    NodeType {
        /// The name of the table.
        table: String,
        /// The position of the type.
        node_type: usize,
    },
    /// A row has a node of another type.
    #[error("task table `{table}`, row {row}: node {node} is no node of the type `{node_type}`")]
    Node {
        /// The name of the table.
        table: String,
        /// The position of the row.
        row: usize,
        /// The node id in the graph.
        node: u32,
        /// The type of the nodes of the table.
        node_type: String,
    },
    /// A row has no time.
    #[error(
        "task table `{table}`, row {row}: it has no time, at which the neighbours of its node would be sampled"
    )]
    Time {
        /// The name of the table.
        table: String,
        /// The position of the row.
        row: usize,
    },
    /// A part of the split has a row that does not exist or has no target.
    #[error(
        "task table `{table}`: entry {position} of the {part} split is row {row}, expected a row that has a target"
    )]
    Split {
        /// The name of the table.
        table: String,
        /// The name of the part.
        part: &'static str,
        /// The position within the part.
        position: usize,
        /// The row.
        row: u32,
    },
    /// A set with task tables was written in the layout of homogeneous sets, which has none.
    #[error(
        "{data} has task tables, which a homogeneous set in the kiln format cannot have: keep it heterogeneous, or remove them"
    )]
    NotStored {
        /// The name of the set.
        data: String,
    },
}
