use kiln_loader::Phase;
use kiln_train::Popularity;

use crate::{LinkNeighborLoader, Result};

impl LinkNeighborLoader {
    /// Returns the metrics of the ranking of the test links by popularity, among the negatives of a training with this seed. `None` for
    /// edges with targets, without test links, and for negatives of the step's links.
    pub(super) fn popularity_baseline(&self, seed: u64) -> Result<Option<String>> {
        let links = self.targets.links();
        let negatives = self.known_negatives(Phase::Test);
        // Links of a random split know the past only, but the counts would be those of all times.
        let counts_later_links = self.link_times().is_some() && self.nodes.source().time_split().is_none();
        if self.edges.is_some() || negatives.reads_step() || counts_later_links {
            return Ok(None);
        }
        // The links of undirected edges are from the smaller node to the larger one, which says nothing about popularity.
        let are_undirected = links.srcs().iter().zip(links.dsts().iter()).all(|(src, dst)| src <= dst);
        let has_one_type = self.relation.is_none_or(|links| {
            let [srcs, dsts] = self.nodes.source().schema().node_ranges(links.position);
            srcs == dsts
        });
        let popularity = match has_one_type && are_undirected {
            true => Popularity::count_both_ends(links, &self.targets.split().train),
            false => Popularity::count_destinations(links, &self.targets.split().train),
        };
        let popularity = popularity.times(self.link_times().cloned());
        Ok(popularity.note_on_test(links, &self.targets.split().test, &negatives, seed)?)
    }
}
