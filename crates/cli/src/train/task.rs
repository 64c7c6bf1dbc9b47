//! The learning tasks of `kiln train`.

use clap::ValueEnum;

/// The learning task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Task {
    /// Node classification.
    Node,
    /// Graph classification.
    Graph,
    /// Link prediction.
    Link,
}
