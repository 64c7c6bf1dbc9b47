use kiln_graph::GraphSchema;

use crate::LinkExclusion;

/// The relation of a heterogeneous graph whose edges are the links, by its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRelation {
    /// The position of the relation.
    pub position: usize,
    /// The relation that has the reverse of each link; `None` if there is none.
    pub reverse: Option<usize>,
}

impl LinkRelation {
    /// Returns the relations from which the links of a training step are excluded.
    pub fn excluded(self) -> Vec<usize> {
        [self.position].into_iter().chain(self.reverse).collect()
    }

    /// Returns the edges that a training step leaves out of its messages by default.
    pub fn exclusion(self, schema: &GraphSchema) -> LinkExclusion {
        let [srcs, dsts] = schema.node_ranges(self.position);
        // The reverse of a link between two types is an edge of the reverse relation only.
        match self.reverse.is_some() || srcs == dsts {
            true => LinkExclusion::WithReverses,
            false => LinkExclusion::Directed,
        }
    }
}
