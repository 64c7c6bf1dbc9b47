use std::borrow::Cow;

use crate::layout::Layout;

/// The rows, the sources and the file names of a graph that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CscRows {
    /// The number of destinations, which is the number of rows.
    pub(crate) n_dsts: usize,
    /// The number of sources. Edge lists number them from 0.
    pub(crate) n_srcs: usize,
    /// The node id of source 0: the first node of its type.
    pub(crate) first_src: u32,
    /// The number of the relation, which the names of its files contain; `None` for a homogeneous graph.
    pub(crate) relation: Option<usize>,
}

impl CscRows {
    /// Returns the rows of a homogeneous graph.
    pub(crate) fn of_nodes(n_nodes: usize) -> Self {
        Self { n_dsts: n_nodes, n_srcs: n_nodes, first_src: 0, relation: None }
    }

    /// Returns the layout of the files.
    pub(crate) fn layout(&self) -> Layout {
        match self.relation {
            None => Layout::Plain,
            Some(_) => Layout::Numbered,
        }
    }

    /// Returns the name of a file of the graph.
    pub(crate) fn file(&self, name: &'static str) -> Cow<'static, str> {
        self.layout().file(name, self.relation.unwrap_or(0))
    }
}
