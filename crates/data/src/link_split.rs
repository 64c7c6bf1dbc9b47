//! Splits for link prediction: the graph that passes messages, and the links for training, validation and test.

mod random;
mod targets;
mod typed;
mod typed_links;

use std::sync::Arc;

use kiln_feature::EdgeFeatures;
use kiln_graph::{Csc, LinkId, LinkNegatives, Links, NodeId, SharedArray};

use kiln_store::check_count;

use self::random::sorted;
pub use self::random::{LinkDirection, LinkSplitConfig};
pub use self::targets::LinkTargets;
pub use self::typed::TypedLinkSplit;
pub use self::typed_links::TypedLinks;
pub(crate) use self::typed_links::check_link_types;
use crate::arrays::RowsOf;
use crate::{Dataset, Note, Result, Split};

/// A split for link prediction: the graph that passes messages, and the links for training, validation and test. Cloning
/// shares the arrays.
///
/// A model must not read a link that it predicts from the graph. [`LinkSplit::random`] therefore removes the links for
/// validation and test from the graph. Training links stay in it by default, and a training step excludes its own links
/// (`kiln_loader::LinkExclusion`). All evaluations use the same graph, whereas PyG's `RandomLinkSplit` adds the
/// validation links to the graph of the test.
///
/// ```
/// use kiln_data::{LinkSplit, LinkSplitConfig, synthetic};
/// let ring = synthetic::ring(50)?;
/// let split = LinkSplit::random(&ring.graph, &LinkSplitConfig { val: 0.1, test: 0.2, ..Default::default() }, 7)?;
/// // Each link of the undirected ring is two edges.
/// assert_eq!(split.split().parts().map(|(_, links)| links.len()), [35, 5, 10]);
/// assert_eq!(split.message().n_edges(), 70);
/// # Ok::<(), kiln_data::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LinkSplit {
    message: Arc<Csc>,
    /// The features of the edges of `message`.
    edge_features: Option<EdgeFeatures>,
    targets: LinkTargets,
}

impl LinkSplit {
    /// Creates a split from a graph that passes messages and from links. The graph may contain any of the links;
    /// [`LinkSplit::find_leaks`] finds those of the validation and the test.
    ///
    /// The search for the edges of links requires that neighbours ascend. A graph in which they do not, as may be one
    /// that was made from existing arrays, is copied and sorted ([`Csc::sort_neighbors`]): its edges then have other ids
    /// than in the given graph. Reads the whole graph once.
    ///
    /// # Errors
    /// Returns [`Error::Graph`](crate::Error::Graph) if a node of a link or of a negative is not in the graph, or if the
    /// graph is damaged.
    pub fn new(message: Arc<Csc>, targets: LinkTargets) -> Result<Self> {
        targets.check(message.n_nodes())?;
        let message = match message.has_sorted_neighbors() {
            true => message,
            false => Arc::new(message.sort_neighbors()?),
        };
        Ok(Self { message, edge_features: None, targets })
    }

    /// Returns the split of a data set: its own ([`Dataset::links`]) with its graph, or else a random split of its edges.
    /// The split has the features of the edges of its graph, if the set has them: as in the set, or in memory if the graph
    /// has other edges or another order.
    ///
    /// # Errors
    /// Returns the errors of [`LinkSplit::new`] and [`LinkSplit::random`], and [`kiln_store::Error::Inconsistent`] if the
    /// set has another number of rows than of edges.
    pub fn of_dataset(data: &Dataset, config: &LinkSplitConfig, seed: u64) -> Result<Self> {
        let (graph, features) = (&data.graph, data.edge_features.as_ref());
        if let Some(features) = features {
            let (n_edges, n_rows) = (graph.n_edges() as usize, features.n_edges() as usize);
            check_count(&data.name, RowsOf::Edges.count(), n_edges, n_rows)?;
        }
        let Some(targets) = &data.links else { return Self::random_of(graph, features, config, seed) };
        let (message, edge_features) = match features {
            Some(features) if !graph.has_sorted_neighbors() => {
                let (message, features) = sorted(graph, features)?;
                (Arc::new(message), features)
            }
            features => (graph.clone(), features.cloned()),
        };
        Ok(Self { edge_features, ..Self::new(message, (**targets).clone())? })
    }

    /// Returns the graph that passes messages. The neighbours of each node ascend.
    pub fn message(&self) -> &Arc<Csc> {
        &self.message
    }

    /// Returns the features of the edges of [`LinkSplit::message`], if [`LinkSplit::of_dataset`] has split a set whose edges
    /// have features.
    pub fn edge_features(&self) -> Option<&EdgeFeatures> {
        self.edge_features.as_ref()
    }

    /// Returns the links with their split and their negatives.
    pub fn targets(&self) -> &LinkTargets {
        &self.targets
    }

    /// Returns all links.
    pub fn links(&self) -> &Links {
        self.targets.links()
    }

    /// Returns the links for training, validation and test.
    pub fn split(&self) -> &Split<LinkId> {
        self.targets.split()
    }

    /// Returns the fixed negatives of the validation links; `None` if they are to be drawn.
    pub fn val_negatives(&self) -> Option<&LinkNegatives> {
        self.targets.val_negatives()
    }

    /// Returns the fixed negatives of the test links; `None` if they are to be drawn.
    pub fn test_negatives(&self) -> Option<&LinkNegatives> {
        self.targets.test_negatives()
    }

    /// Finds the links for validation and test that are edges of the graph that passes messages, or whose reverse is.
    /// Returns a note ([`Note::LinksInGraph`]) for each part that has some. A random split has none, except that the
    /// reverse of a directed link may be an edge of its own. Benchmarks may have some: in a graph of citations, for
    /// example, a reverse edge is another citation. They are therefore reported and not rejected.
    ///
    /// Each link takes two binary searches.
    pub fn find_leaks(&self) -> Vec<Note> {
        self.find_leaks_in(&self.message)
    }

    /// Finds leaks, with the reverses of links in another graph.
    fn find_leaks_in(&self, reverses: &Csc) -> Vec<Note> {
        let in_graph = self.count_held_out(|src, dst| has_edge(&self.message, src, dst));
        let reversed = self.count_held_out(|src, dst| has_edge(reverses, dst, src));
        let notes = in_graph.into_iter().zip(reversed);
        let notes = notes.filter(|((_, n_links), (_, n_reversed))| (*n_links, *n_reversed) != (0, 0));
        notes
            .map(|((part, n_links), (_, n_reversed))| Note::LinksInGraph { part, n_links, n_reversed })
            .collect()
    }

    /// Counts the links for validation and for test of which `is_found` returns true.
    fn count_held_out(&self, is_found: impl Fn(NodeId, NodeId) -> bool) -> [(&'static str, usize); 2] {
        let [_, held_out @ ..] = self.split().parts();
        held_out.map(|part| self.count(part, &is_found))
    }

    /// Counts the links for training, validation and test of which `is_found` returns true.
    fn count_links(&self, is_found: impl Fn(NodeId, NodeId) -> bool) -> [(&'static str, usize); 3] {
        self.split().parts().map(|part| self.count(part, &is_found))
    }

    fn count(
        &self,
        (part, links): (&'static str, &SharedArray<LinkId>),
        is_found: impl Fn(NodeId, NodeId) -> bool,
    ) -> (&'static str, usize) {
        let pairs = links.iter().map(|link| self.links().pair(*link));
        (part, pairs.filter(|(src, dst)| is_found(*src, *dst)).count())
    }
}

/// Returns true if a graph whose neighbours ascend has an edge.
fn has_edge(graph: &Csc, src: NodeId, dst: NodeId) -> bool {
    graph.in_neighbors(dst).binary_search(&src).is_ok()
}
