use kiln_graph::{NodeId, Relations};

use super::random::retain_edges;
use super::{DatasetLinks, LinkSplit};
use crate::Result;

impl LinkSplit {
    /// Returns a split with given links on a graph that may have them as edges: the links for validation and test, and their
    /// reverses, leave the graph. All other edges stay in it with their columns, those without a target among them. This is the
    /// split of an edge task ([`LinkTargets::with_values`](crate::LinkTargets::with_values), with an example), and of links that
    /// are split by time or by hand.
    ///
    /// All edges from the source to the destination of such a link leave the relation, and all from the destination to the source
    /// leave the reverse relation. In a relation between nodes of one type, both directions leave both. A training link with the
    /// nodes of a link for validation or test, such as an earlier payment between them, therefore passes no messages, either.
    ///
    /// Reads both relations once; it takes 8 bytes per link for validation and test, and the memory of the remaining edges.
    ///
    /// # Errors
    /// Returns the errors of [`DatasetLinks::check`] and of [`LinkSplit::new`].
    pub fn hold_out(graph: &Relations, links: impl Into<DatasetLinks>) -> Result<Self> {
        let links = links.into();
        links.check(graph.schema())?;
        let held_out = Pairs::held_out(&links);
        let relation = graph.relation(links.relation);
        let has_one_type = relation.src_type == relation.dst_type;
        let is_link = |src, dst| held_out.contains(src, dst);
        let is_reverse = |src, dst| held_out.contains(dst, src);
        let kept = retain_edges(&graph.whole_graph(links.relation)?, |src, dst| {
            !(is_link(src, dst) || (has_one_type && is_reverse(src, dst)))
        })?;
        let mut message = graph.with_graph(links.relation, kept)?;
        if let Some(reverse) = links.reverse.filter(|reverse| *reverse != links.relation) {
            let kept = retain_edges(&graph.whole_graph(reverse)?, |src, dst| {
                !(is_reverse(src, dst) || (has_one_type && is_link(src, dst)))
            })?;
            message = message.with_graph(reverse, kept)?;
        }
        Self::new(&message, links)
    }
}

/// The pairs of nodes of some links.
struct Pairs {
    /// The source and the destination of each, ascending.
    keys: Vec<u64>,
}

impl Pairs {
    /// Returns the pairs of the links for validation and test.
    fn held_out(links: &DatasetLinks) -> Self {
        let [_, held_out @ ..] = links.targets.split().parts();
        let ids = held_out.into_iter().flat_map(|(_, ids)| ids.iter());
        let pairs = ids.map(|link| links.targets.links().pair(*link));
        let mut keys: Vec<u64> = pairs.map(|(src, dst)| key(src, dst)).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { keys }
    }

    fn contains(&self, src: NodeId, dst: NodeId) -> bool {
        self.keys.binary_search(&key(src, dst)).is_ok()
    }
}

fn key(src: NodeId, dst: NodeId) -> u64 {
    u64::from(src.0) << 32 | u64::from(dst.0)
}
