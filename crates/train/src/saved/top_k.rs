//! The best destinations of a source.

use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{Csc, NodeId};

use crate::error::Result;

/// A pair of nodes with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoredLink {
    /// The source.
    pub src: NodeId,
    /// The destination.
    pub dst: NodeId,
    /// The score, a logit for a model that was trained with the binary cross entropy.
    pub score: f32,
}

/// The settings of a search for the best destinations of a source.
#[derive(Debug, Clone)]
pub struct TopKConfig {
    /// The number of destinations of each source.
    pub k: usize,
    /// A graph whose edges are left out of the results, with sorted neighbours.
    excluded: Option<Arc<Csc>>,
    /// The ids of the destinations; `None` for all nodes.
    dsts: Option<Range<u32>>,
}

impl TopKConfig {
    /// Returns the settings for `k` destinations of each source. A source is never its own destination.
    ///
    /// ```
    /// # use kiln_train::TopKConfig;
    /// // The ten best destinations of each source, among all nodes.
    /// let config = TopKConfig::new(10);
    /// assert_eq!(config.k, 10);
    /// ```
    pub fn new(k: usize) -> Self {
        Self { k, excluded: None, dsts: None }
    }

    /// Leaves the edges of a graph out of the results, such as the links that are already known. If the neighbours of a
    /// node do not ascend, this sorts a copy of the graph.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use kiln_graph::CscBuilder;
    /// use kiln_train::TopKConfig;
    /// // Node 0 has a link to node 1 already, which is no recommendation.
    /// let known = Arc::new(CscBuilder::new(4).build(&[0], &[1])?);
    /// let config = TopKConfig::new(2).excluding(known)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if the graph is damaged.
    pub fn excluding(self, graph: Arc<Csc>) -> Result<Self> {
        let graph = if graph.has_sorted_neighbors() { graph } else { Arc::new(graph.sort_neighbors()?) };
        Ok(Self { excluded: Some(graph), ..self })
    }

    /// Searches among the nodes with these ids only, such as those of one type of a heterogeneous graph.
    ///
    /// ```
    /// # use kiln_train::TopKConfig;
    /// // Only the first 1,000 nodes are candidates, such as the items in stock.
    /// let config = TopKConfig::new(10).among(0..1_000);
    /// ```
    #[must_use]
    pub fn among(self, dsts: Range<u32>) -> Self {
        Self { dsts: Some(dsts), ..self }
    }

    /// Restricts the search to the destinations of a type, whose node ids are `ids` and within which those of
    /// [`TopKConfig::among`] are numbered.
    pub(crate) fn within_type(self, ids: &Range<u32>) -> Self {
        let id = |number: u32| ids.start.saturating_add(number).min(ids.end);
        let dsts = self.dsts.as_ref().map_or_else(|| ids.clone(), |dsts| id(dsts.start)..id(dsts.end));
        self.among(dsts)
    }

    /// Returns the destinations among ascending nodes.
    pub(crate) fn dsts<'a>(&self, nodes: &'a [NodeId]) -> &'a [NodeId] {
        let Some(Range { start, end }) = self.dsts else { return nodes };
        let before = |id: u32| nodes.partition_point(|node| node.0 < id);
        &nodes[before(start)..before(end.max(start))]
    }

    pub(crate) fn excluded(&self) -> Option<&Arc<Csc>> {
        self.excluded.as_ref()
    }
}

/// The best destinations of a source among those that were added.
pub(crate) struct Best<'a> {
    src: NodeId,
    config: &'a TopKConfig,
    /// At most `k` links, by descending score; links with equal scores in the order in which they were added.
    links: Vec<ScoredLink>,
}

impl<'a> Best<'a> {
    pub(crate) fn of(src: NodeId, config: &'a TopKConfig) -> Self {
        Self { src, config, links: Vec::new() }
    }

    /// Adds destinations, ascending, with their scores. Scores that are not finite are left out.
    pub(crate) fn add(&mut self, dsts: &[NodeId], scores: &[f32]) {
        for (&dst, &score) in dsts.iter().zip(scores) {
            let is_full = self.links.len() == self.config.k;
            // Few destinations pass this comparison, so the searches below do not matter for the time. NaN never passes.
            let is_better = match self.links.last() {
                Some(last) if is_full => last.score < score,
                _ => !is_full,
            };
            if !is_better || !score.is_finite() || self.is_excluded(dst) {
                continue;
            }
            if is_full {
                self.links.pop();
            }
            let place = self.links.partition_point(|link| score <= link.score);
            self.links.insert(place, ScoredLink { src: self.src, dst, score });
        }
    }

    fn is_excluded(&self, dst: NodeId) -> bool {
        dst == self.src
            || self
                .config
                .excluded
                .as_ref()
                .is_some_and(|graph: &Arc<Csc>| graph.in_neighbors(dst).binary_search(&self.src).is_ok())
    }

    pub(crate) fn into_links(self) -> Vec<ScoredLink> {
        self.links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the destinations that are kept of `scores`, which are those of the nodes 0, 1, 2 and so on, two at a time.
    fn kept(src: u32, config: &TopKConfig, scores: &[f32]) -> Vec<u32> {
        let mut best = Best::of(NodeId(src), config);
        let dsts: Vec<NodeId> = (0..scores.len() as u32).map(NodeId).collect();
        for (dsts, scores) in dsts.chunks(2).zip(scores.chunks(2)) {
            best.add(dsts, scores);
        }
        best.into_links().iter().map(|link| link.dst.0).collect()
    }

    #[test]
    fn keeps_the_largest_scores_and_the_smaller_ids_of_ties() {
        let scores = [1.0, 3.0, 2.0, 3.0, -1.0, 2.0];
        assert_eq!(kept(9, &TopKConfig::new(3), &scores), [1, 3, 2]);
        assert_eq!(kept(9, &TopKConfig::new(4), &scores), [1, 3, 2, 5]);
        assert_eq!(kept(9, &TopKConfig::new(9), &scores), [1, 3, 2, 5, 0, 4]);
        assert_eq!(kept(9, &TopKConfig::new(0), &scores), [0; 0]);
    }

    #[test]
    fn destinations_are_those_of_a_range() {
        let nodes = [2, 3, 5, 8].map(NodeId);
        let dsts = |range| {
            TopKConfig::new(1).among(range).dsts(&nodes).iter().map(|node| node.0).collect::<Vec<_>>()
        };
        assert_eq!(dsts(3..8), [3, 5]);
        assert_eq!(dsts(0..9), [2, 3, 5, 8]);
        assert_eq!(dsts(6..7), [0; 0]);
        assert_eq!(TopKConfig::new(1).dsts(&nodes), nodes);
        // Of a type with the ids 3 to 7, the first two nodes, those after them, and all.
        let within = |config: TopKConfig| config.within_type(&(3..8)).dsts;
        assert_eq!(within(TopKConfig::new(1).among(0..2)), Some(3..5));
        assert_eq!(within(TopKConfig::new(1).among(2..u32::MAX)), Some(5..8));
        assert_eq!(within(TopKConfig::new(1)), Some(3..8));
    }

    #[test]
    fn leaves_out_the_source_scores_that_are_not_finite_and_excluded_edges() {
        let scores = [5.0, f32::NAN, 4.0, f32::NEG_INFINITY, f32::INFINITY, 3.0];
        // The neighbours of node 2 do not ascend.
        let indptr = vec![0_u64, 0, 0, 2, 2, 3, 3];
        let indices = vec![3_u32, 0, 1];
        let graph = Csc::new(indptr.into(), indices.into()).expect("the arrays should be valid");
        assert_eq!(kept(0, &TopKConfig::new(5), &scores), [2, 5]);
        assert_eq!(kept(4, &TopKConfig::new(1), &scores), [0]);
        let config = TopKConfig::new(5).excluding(Arc::new(graph)).expect("the graph should be valid");
        assert_eq!(kept(0, &config, &scores), [5]);
        assert_eq!(kept(1, &config, &scores), [0, 2, 5]);
    }
}
