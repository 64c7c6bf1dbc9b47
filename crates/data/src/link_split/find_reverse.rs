use kiln_graph::{Csc, EdgeColumns, NodeId, Relation, Relations};

use crate::{LinkSplit, Result};

impl LinkSplit {
    /// Finds the relation that has the reverse of each edge of a relation, and few other edges: at most a tenth of its own. Edges may
    /// be repeated in both. A relation with many other edges has the reverses by chance or by its meaning. Without the name of that relation, a split leaves the reverses of the links in the graph, from which a model reads them. Of several
    /// such relations, the one with the fewest edges is returned; a relation that has its own reverses needs no other one.
    ///
    /// Each edge takes a binary search in each relation between the same types.
    ///
    /// ```
    /// use kiln_data::LinkSplit;
    /// use kiln_graph::{NodeTypes, RelationEdges, Relations};
    /// let types = NodeTypes::new([("user", 2), ("item", 1)])?;
    /// let relations = [
    ///     RelationEdges::new("rates", "user", "item", &[0, 1], &[0, 0]),
    ///     RelationEdges::new("rated by", "item", "user", &[0, 0], &[0, 1]),
    /// ];
    /// let graph = Relations::from_edges(types, &relations)?;
    /// assert_eq!(LinkSplit::find_reverse(&graph, "rates")?, Some("rated by"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if there is no such relation, or if a relation is damaged.
    pub fn find_reverse<'a>(graph: &'a Relations, relation: &str) -> Result<Option<&'a str>> {
        let position = graph.require(relation)?;
        let of_links = graph.relation(position);
        let n_edges = of_links.graph.n_edges();
        if n_edges == 0 {
            return Ok(None);
        }
        let edges = sorted(graph, position)?;
        if of_links.src_type == of_links.dst_type && has_all_reversed(&edges, &edges) {
            return Ok(None);
        }
        let mut found: Option<&Relation> = None;
        for (other, candidate) in graph.iter().enumerate() {
            let n_others = candidate.graph.n_edges();
            let is_reversed =
                [candidate.src_type, candidate.dst_type] == [of_links.dst_type, of_links.src_type];
            let is_smaller = found.is_none_or(|found| n_others < found.graph.n_edges());
            if other == position || !is_reversed || !is_smaller {
                continue;
            }
            let others = sorted(graph, other)?;
            let n_reverses = count_reversed(&others, &edges);
            if has_all_reversed(&edges, &others) && n_others - n_reverses <= n_others / MOST_OTHERS {
                found = Some(candidate);
            }
        }
        Ok(found.map(|relation| relation.name.as_str()))
    }
}

/// Returns a relation with the node ids of the graph, whose neighbours ascend, without its columns.
fn sorted(graph: &Relations, position: usize) -> Result<Csc> {
    let graph = graph.whole_graph(position)?.with_columns(&EdgeColumns::default())?;
    Ok(if graph.has_sorted_neighbors() { graph } else { graph.sort_neighbors()? })
}

/// The part of the edges of a reverse relation, one of so many, that may be the reverse of no edge.
const MOST_OTHERS: u64 = 10;

/// Returns the number of edges of which another graph has the reverse. Its neighbours ascend.
fn count_reversed(graph: &Csc, other: &Csc) -> u64 {
    let mut n_found = 0;
    for dst in (0..graph.n_nodes() as u32).map(NodeId) {
        for src in graph.in_neighbors(dst) {
            n_found += u64::from(other.in_neighbors(*src).binary_search(&dst).is_ok());
        }
    }
    n_found
}

/// Returns true if another graph has the reverse of each edge. Its neighbours ascend.
fn has_all_reversed(graph: &Csc, other: &Csc) -> bool {
    (0..graph.n_nodes() as u32).map(NodeId).all(|dst| {
        graph.in_neighbors(dst).iter().all(|src| other.in_neighbors(*src).binary_search(&dst).is_ok())
    })
}
