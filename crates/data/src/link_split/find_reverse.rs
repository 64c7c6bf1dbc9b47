use kiln_graph::{Csc, NodeId, Relation, Relations};

use crate::{LinkSplit, Result};

impl LinkSplit {
    /// Finds the relation that has the reverse of each edge of a relation. Without the name of that relation, a split leaves the
    /// reverses of the links in the graph, from which a model reads them. Of several such relations, the one with the fewest edges
    /// is returned.
    ///
    /// Each edge takes a binary search in each relation between the same types with at least as many edges.
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
        let edges = graph.whole_graph(position)?;
        let mut found: Option<&Relation> = None;
        for (other, candidate) in graph.iter().enumerate() {
            let n_others = candidate.graph.n_edges();
            let is_reversed =
                [candidate.src_type, candidate.dst_type] == [of_links.dst_type, of_links.src_type];
            let is_smaller = found.is_none_or(|found| n_others < found.graph.n_edges());
            if other == position || !is_reversed || n_edges == 0 || n_others < n_edges || !is_smaller {
                continue;
            }
            if has_all_reversed(&edges, &sorted(graph, other)?) {
                found = Some(candidate);
            }
        }
        Ok(found.map(|relation| relation.name.as_str()))
    }
}

/// Returns a relation with the node ids of the graph, whose neighbours ascend.
fn sorted(graph: &Relations, position: usize) -> Result<Csc> {
    let graph = graph.whole_graph(position)?;
    Ok(if graph.has_sorted_neighbors() { graph } else { graph.sort_neighbors()? })
}

/// Returns true if another graph has the reverse of each edge. Its neighbours ascend.
fn has_all_reversed(graph: &Csc, other: &Csc) -> bool {
    (0..graph.n_nodes() as u32).map(NodeId).all(|dst| {
        graph.in_neighbors(dst).iter().all(|src| other.in_neighbors(*src).binary_search(&dst).is_ok())
    })
}
