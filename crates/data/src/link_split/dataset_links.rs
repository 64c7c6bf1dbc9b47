use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{GraphSchema, LinkNegatives, NodeId, RelationSchema};

use super::LinkTargets;
use crate::Result;
use crate::error::{LinkSplitError, require};

/// The links of one relation of a graph, their split, and the fixed negatives of the validation and the test, if there are
/// any. [`LinkTargets`] converts to the links of the only relation of a homogeneous graph. Cloning shares the arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetLinks {
    /// The position of the relation.
    pub relation: usize,
    /// The position of the relation that has the reverse of each link; `None` if there is none.
    pub reverse: Option<usize>,
    /// The links and their negatives, with node ids of the graph.
    pub targets: Arc<LinkTargets>,
}

impl From<LinkTargets> for DatasetLinks {
    fn from(targets: LinkTargets) -> Self {
        Arc::new(targets).into()
    }
}

impl From<Arc<LinkTargets>> for DatasetLinks {
    fn from(targets: Arc<LinkTargets>) -> Self {
        Self { relation: 0, reverse: None, targets }
    }
}

impl DatasetLinks {
    /// Creates the links of a named relation. `reverse` is the relation that has the reverse of each link, if there is one.
    /// Links and negatives have node ids of the graph; [`DatasetLinks::check`] checks them.
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] for the name of a relation that does not exist, and
    /// [`LinkSplitError::NotReverse`] for a reverse relation between other types.
    pub fn new(
        schema: &GraphSchema,
        relation: &str,
        reverse: Option<&str>,
        targets: LinkTargets,
    ) -> Result<Self> {
        let (relation, reverse) = positions(schema, relation, reverse)?;
        Ok(Self { relation, reverse, targets: Arc::new(targets) })
    }

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

/// Returns the positions of a relation and its reverse, which has the types of the relation in the other order.
pub(super) fn positions(
    schema: &GraphSchema,
    name: &str,
    reverse: Option<&str>,
) -> Result<(usize, Option<usize>)> {
    let position = schema.require(name)?;
    let Some(reverse) = reverse else { return Ok((position, None)) };
    let reverse_position = schema.require(reverse)?;
    let RelationSchema { src_type, dst_type, .. } = schema.relations()[position];
    let found = &schema.relations()[reverse_position];
    if (found.src_type, found.dst_type) != (dst_type, src_type) {
        let type_name = |node_type: usize| schema.types().names()[node_type].clone();
        return Err(LinkSplitError::NotReverse {
            relation: name.to_owned(),
            reverse: reverse.to_owned(),
            src_type: type_name(dst_type),
            dst_type: type_name(src_type),
        }
        .into());
    }
    Ok((position, Some(reverse_position)))
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
