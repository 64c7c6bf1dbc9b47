use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{LinkNegatives, NodeId, Relation, Relations};

use super::LinkTargets;
use crate::Result;
use crate::error::LinkSplitError;

/// The links of one relation, their split, and the fixed negatives of the validation and the test, if there are any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedLinks {
    /// The position of the relation.
    pub relation: usize,
    /// The position of the relation that has the reverse of each link; `None` if there is none.
    pub reverse: Option<usize>,
    /// The links and their negatives, with node ids of the graph.
    pub targets: Arc<LinkTargets>,
}

/// Returns the node ids of the types of a relation's sources and destinations.
pub(super) fn ranges(graph: &Relations, relation: &Relation) -> [Range<u32>; 2] {
    [relation.src_type, relation.dst_type].map(|node_type| graph.types().range(node_type))
}

/// Checks that links and negatives have nodes of the types of their relation.
pub(crate) fn check_link_types(graph: &Relations, relation: usize, targets: &LinkTargets) -> Result<()> {
    let relation = graph.relation(relation);
    let [srcs, dsts] = ranges(graph, relation);
    let check = |what, nodes: &[NodeId], expected: &Range<u32>, node_type: usize| {
        let Some(position) = nodes.iter().position(|node| !expected.contains(&node.0)) else { return Ok(()) };
        let (node, name) = (nodes[position].0, graph.types().names()[node_type].clone());
        let Range { start, end } = *expected;
        Err(LinkSplitError::OtherType { what, position, node, name, start, end })
    };
    let links = targets.links();
    check("the source of link", links.srcs(), &srcs, relation.src_type)?;
    check("the destination of link", links.dsts(), &dsts, relation.dst_type)?;
    let of_part = |negatives: &LinkNegatives| {
        let of_links = negatives.srcs().map_or(&[][..], |nodes| nodes);
        check("the source of negative", of_links, &srcs, relation.src_type)?;
        check("the destination of negative", negatives.dsts(), &dsts, relation.dst_type)
    };
    [targets.val_negatives(), targets.test_negatives()].into_iter().flatten().try_for_each(of_part)?;
    Ok(())
}
