use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{GraphSchema, LinkNegatives, NodeId};

use super::LinkTargets;
use crate::Result;
use crate::error::{LinkSplitError, require};

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

impl TypedLinks {
    /// Checks that the links belong to a graph with these types and relations: that their relations exist and have the same
    /// types in opposite order, that the split and the negatives are those of the links, and that all nodes have the types of
    /// the relation. The links of a set in the kiln format are not checked before.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) for other relations, [`LinkSplitError::OtherType`] for a node of
    /// another type, and the errors of [`LinkTargets::check`].
    pub fn check(&self, schema: &GraphSchema) -> Result<()> {
        self.check_relations(schema)?;
        self.targets.check(schema.n_nodes())?;
        check_link_types(schema, self.relation, &self.targets)
    }

    /// Checks that the relations exist, and that the types of the reverse are those of the links in the other order.
    pub(crate) fn check_relations(&self, schema: &GraphSchema) -> Result<()> {
        let relations = schema.relations();
        for position in [Some(self.relation), self.reverse].into_iter().flatten() {
            let (what, expected) = ("the relation of the links", "the position of a relation");
            require(position < relations.len(), what, expected, position)?;
        }
        let Some(reverse) = self.reverse.map(|position| &relations[position]) else { return Ok(()) };
        let of_links = &relations[self.relation];
        let is_reverse = (reverse.src_type, reverse.dst_type) == (of_links.dst_type, of_links.src_type);
        let expected = "a relation between the types of the links in the other order";
        require(is_reverse, "the reverse relation of the links", expected, &reverse.name)
    }
}

/// Checks that links and negatives have nodes of the types of their relation.
pub(crate) fn check_link_types(schema: &GraphSchema, relation: usize, targets: &LinkTargets) -> Result<()> {
    let [srcs, dsts] = schema.node_ranges(relation);
    let relation = &schema.relations()[relation];
    let check = |what, nodes: &[NodeId], expected: &Range<u32>, node_type: usize| {
        let Some(position) = nodes.iter().position(|node| !expected.contains(&node.0)) else { return Ok(()) };
        let (node, name) = (nodes[position].0, schema.types().names()[node_type].clone());
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
