use std::ops::Range;

use kiln_graph::NodeId;

use crate::{NegativeSampler, NodeRng, PositiveLink};

/// Uniform negatives of the links of one relation of a heterogeneous graph: the nodes are drawn from the relation's types,
/// each of which is a range of node ids ([`NodeTypes::range`](kiln_graph::NodeTypes::range)). For a type that begins with
/// node 0, they are those of [`UniformNegatives`](crate::UniformNegatives) and
/// [`UniformPairNegatives`](crate::UniformPairNegatives).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedUniformNegatives {
    /// The nodes that replace the source; `None` to keep it.
    srcs: Option<Range<u32>>,
    dsts: Range<u32>,
}

impl TypedUniformNegatives {
    /// Creates negatives that replace the destination by one of these nodes, those of the destinations' type.
    pub fn of_dsts(dsts: Range<u32>) -> Self {
        Self { srcs: None, dsts }
    }

    /// Creates negatives that replace the source by one of the nodes `srcs` of the sources' type, and the destination by one
    /// of `dsts`.
    pub fn of_pairs(srcs: Range<u32>, dsts: Range<u32>) -> Self {
        Self { srcs: Some(srcs), dsts }
    }
}

impl NegativeSampler for TypedUniformNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let src = self.srcs.as_ref().map_or(link.src, |srcs| draw_node(srcs, rng));
        (src, draw_node(&self.dsts, rng))
    }

    fn name(&self) -> &str {
        if self.srcs.is_some() { "uniform-pairs" } else { "uniform" }
    }

    fn reads_step(&self) -> bool {
        false
    }
}

fn draw_node(nodes: &Range<u32>, rng: &mut NodeRng) -> NodeId {
    NodeId(nodes.start + rng.below(nodes.end.saturating_sub(nodes.start)))
}
