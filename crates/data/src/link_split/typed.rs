use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{Relation, Relations};

use super::random::retain_edges;
use super::typed_links::{TypedLinks, check_link_types};
use super::{LinkSplit, LinkSplitConfig, LinkTargets, has_edge};
use crate::error::LinkSplitError;
use crate::{Note, Result};

/// A split for link prediction on one relation of a heterogeneous graph: the relations that pass messages, and the links
/// for training, validation and test. Links and negatives have node ids of the graph. Cloning shares the arrays.
///
/// It is PyG's `RandomLinkSplit` with `edge_types` and `rev_edge_types`: the links for validation and test leave their
/// relation, and their reverses leave the reverse relation, if there is one. Other relations between the same nodes stay,
/// so a relation that tells the links (such as `rated` for `rated highly`) must be removed from the data.
///
/// ```
/// use kiln_data::{LinkSplitConfig, TypedLinkSplit};
/// use kiln_graph::{NodeTypes, RelationEdges, Relations};
/// let types = NodeTypes::new([("user", 4), ("item", 5)])?;
/// let (users, items) = ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
/// let of = |name, src_type, dst_type, srcs, dsts| RelationEdges { name, src_type, dst_type, srcs, dsts, weights: None };
/// let buys = of("buys", "user", "item", &users, &items);
/// let graph = Relations::from_edges(types, &[buys, of("bought by", "item", "user", &items, &users)])?;
/// let config = LinkSplitConfig { val: 0.1, test: 0.2, ..Default::default() };
/// let split = TypedLinkSplit::random(&graph, "buys", Some("bought by"), &config, 7)?;
/// assert_eq!(split.of_relation().split().parts().map(|(_, links)| links.len()), [7, 1, 2]);
/// assert_eq!([0, 1].map(|relation| split.message().relation(relation).graph.n_edges()), [7, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct TypedLinkSplit {
    message: Arc<Relations>,
    relation: usize,
    reverse: Option<usize>,
    /// The split of the relation as a graph of all nodes, whose arrays of edges are those of `message`.
    of_relation: LinkSplit,
}

impl TypedLinkSplit {
    /// Returns a random split of the edges of one relation, as [`LinkSplit::random`] does for a graph with these edges.
    /// `reverse` is the relation that has the reverse of each edge, if there is one. The reverse relation may be the
    /// relation itself, which changes nothing: [`LinkSplitConfig::direction`] determines how reverses are treated.
    ///
    /// # Errors
    /// Returns [`kiln_graph::Error::NoSuchRelation`] for the name of a relation that does not exist,
    /// [`LinkSplitError::NotReverse`] for a reverse relation between other types, and the errors of [`LinkSplit::random`].
    pub fn random(
        graph: &Relations,
        relation: &str,
        reverse: Option<&str>,
        config: &LinkSplitConfig,
        seed: u64,
    ) -> Result<Self> {
        let (relation, reverse) = positions(graph, relation, reverse)?;
        let edges = graph.whole_graph(relation)?;
        let of_relation = LinkSplit::random(&edges, config, seed)?;
        let mut message = graph.with_graph(relation, of_relation.message())?;
        if let Some(reverse) = reverse.filter(|reverse| *reverse != relation) {
            let edges = if edges.has_sorted_neighbors() { edges } else { edges.sort_neighbors()? };
            let has_left =
                |src, dst| has_edge(&edges, src, dst) && !has_edge(of_relation.message(), src, dst);
            let reverses = retain_edges(&graph.whole_graph(reverse)?, |src, dst| !has_left(dst, src))?;
            message = message.with_graph(reverse, &reverses)?;
        }
        Ok(Self { message: Arc::new(message), relation, reverse, of_relation })
    }

    /// Returns the split of the links of a set ([`TypedDataset::links`](crate::TypedDataset::links)), whose relations pass
    /// messages.
    ///
    /// # Errors
    /// Returns the errors of [`TypedLinks::check`] and [`TypedLinkSplit::new`].
    pub fn of_links(graph: &Relations, links: &TypedLinks) -> Result<Self> {
        links.check_relations(graph.schema())?;
        let name = |relation: usize| &*graph.relation(relation).name;
        let (relation, reverse) = (name(links.relation), links.reverse.map(name));
        Self::new(graph, relation, reverse, (*links.targets).clone())
    }

    /// Creates a split from relations that pass messages and from links. The relation may contain any of the links;
    /// [`TypedLinkSplit::find_leaks`] finds those of the validation and the test. The neighbours in the relation and its
    /// reverse are sorted if they do not ascend, as by [`LinkSplit::new`].
    ///
    /// # Errors
    /// Returns [`LinkSplitError::OtherType`] for a link or a negative with a node of another type than the relation's, and
    /// the errors of [`TypedLinkSplit::random`] and [`LinkSplit::new`].
    pub fn new(
        message: &Relations,
        relation: &str,
        reverse: Option<&str>,
        targets: LinkTargets,
    ) -> Result<Self> {
        let (relation, reverse) = positions(message, relation, reverse)?;
        check_link_types(message.schema(), relation, &targets)?;
        let of_relation = LinkSplit::new(Arc::new(message.whole_graph(relation)?), targets)?;
        let mut message = message.with_graph(relation, of_relation.message())?;
        if let Some(reverse) = reverse {
            let reverses = message.whole_graph(reverse)?;
            if !reverses.has_sorted_neighbors() {
                message = message.with_graph(reverse, &reverses.sort_neighbors()?)?;
            }
        }
        Ok(Self { message: Arc::new(message), relation, reverse, of_relation })
    }

    /// Returns the relations that pass messages.
    pub fn message(&self) -> &Arc<Relations> {
        &self.message
    }

    /// Returns the position of the relation whose edges are the links.
    pub fn relation(&self) -> usize {
        self.relation
    }

    /// Returns the position of the relation that has the reverses of the links; `None` if none was given.
    pub fn reverse(&self) -> Option<usize> {
        self.reverse
    }

    /// Returns the split of the relation as a graph of all nodes: its links, and the edges that pass messages.
    pub fn of_relation(&self) -> &LinkSplit {
        &self.of_relation
    }

    /// Returns the links with their relations, for [`TypedDataset::links`](crate::TypedDataset::links) of a set with the
    /// relations of [`TypedLinkSplit::message`].
    pub fn links(&self) -> TypedLinks {
        let targets = Arc::new(self.of_relation.targets().clone());
        TypedLinks { relation: self.relation, reverse: self.reverse, targets }
    }

    /// Returns the ids of the nodes of the sources' type and of the destinations' type.
    pub fn node_ranges(&self) -> [Range<u32>; 2] {
        self.message.schema().node_ranges(self.relation)
    }

    /// Finds the links for validation and test that are edges of the relation that passes messages, or whose reverse is an
    /// edge of the reverse relation; without one, of the relation. See [`LinkSplit::find_leaks`]. Also finds those whose reverse
    /// is an edge of another relation ([`Note::LinksInRelation`]), training links among them, because a training step leaves out
    /// the reverses of its links only if their relation is named.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a relation is damaged.
    pub fn find_leaks(&self) -> Result<Vec<Note>> {
        let mut notes = match self.reverse {
            Some(reverse) => self.of_relation.find_leaks_in(&self.message.whole_graph(reverse)?),
            None => self.of_relation.find_leaks(),
        };
        let links = self.message.relation(self.relation);
        for (position, other) in self.message.iter().enumerate() {
            let is_reversed = (other.src_type, other.dst_type) == (links.dst_type, links.src_type);
            if !is_reversed || position == self.relation || Some(position) == self.reverse {
                continue;
            }
            let graph = self.message.whole_graph(position)?;
            let counts = self.of_relation.count_links(|src, dst| has_edge(&graph, dst, src));
            let counts = counts.into_iter().filter(|(_, n_reversed)| *n_reversed != 0);
            notes.extend(counts.map(|(part, n_reversed)| Note::LinksInRelation {
                part,
                relation: other.name.clone(),
                n_reversed,
            }));
        }
        Ok(notes)
    }
}

/// Returns the positions of a relation and its reverse, which has the types of the relation in the other order.
fn positions(graph: &Relations, name: &str, reverse: Option<&str>) -> Result<(usize, Option<usize>)> {
    let position = graph.require(name)?;
    let Some(reverse) = reverse else { return Ok((position, None)) };
    let of_reverse = graph.require(reverse)?;
    let Relation { src_type, dst_type, .. } = *graph.relation(position);
    let found = graph.relation(of_reverse);
    if (found.src_type, found.dst_type) != (dst_type, src_type) {
        let name_of = |node_type: usize| graph.types().names()[node_type].clone();
        return Err(LinkSplitError::NotReverse {
            relation: name.to_owned(),
            reverse: reverse.to_owned(),
            src_type: name_of(dst_type),
            dst_type: name_of(src_type),
        }
        .into());
    }
    Ok((position, Some(of_reverse)))
}
