//! A baseline of link prediction: the ranking of destinations by their popularity.

use kiln_graph::{LinkId, Links, NodeId, SharedArray};
use kiln_loader::Phase;
use kiln_sample::{Negatives, RngKey};

use crate::{LinkRanks, Result};

/// The number of links that are ranked at once.
const LINKS: usize = 1 << 12;

/// The maximum number of test links that are ranked for a note, so that it takes seconds at most.
const MOST_LINKS: usize = 100_000;

/// The popularity of nodes: the number of training links that end at each. Ranking pairs by the popularity of their destination is a
/// baseline of link prediction, which a model should exceed.
///
/// ```
/// use kiln_graph::{LinkId, Links};
/// use kiln_sample::{Negatives, RngKey, UniformNegatives};
/// use kiln_train::Popularity;
/// // Three users, of whom two have item 3 and none has items 4 to 9.
/// let links = Links::new(vec![0, 1, 2], vec![3, 3, 3])?;
/// let popularity = Popularity::count_destinations(&links, &[LinkId(0), LinkId(1)]);
/// let negatives = Negatives::new(UniformNegatives { dsts: 4..10 }, 5);
/// let ranks = popularity.rank(&links, &[LinkId(2)], &negatives, RngKey::new(0))?;
/// assert_eq!(ranks.mrr(), Some(1.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Popularity {
    /// The number of training links of each node that has some.
    n_links: Vec<u32>,
    /// The time of each link; `None` for links without times.
    times: Option<SharedArray<i64>>,
}

impl Popularity {
    /// Counts the training links at their destinations.
    ///
    /// # Panics
    /// Panics if a link is not in the list.
    pub fn count_destinations(links: &Links, training: &[LinkId]) -> Self {
        Self::count(training.iter().map(|link| links.pair(*link).1))
    }

    /// Counts the training links at both ends, for undirected links.
    ///
    /// # Panics
    /// Panics if a link is not in the list.
    pub fn count_both_ends(links: &Links, training: &[LinkId]) -> Self {
        Self::count(training.iter().flat_map(|link| <[NodeId; 2]>::from(links.pair(*link))))
    }

    fn count(nodes: impl Iterator<Item = NodeId>) -> Self {
        let mut n_links = Vec::new();
        for node in nodes {
            if n_links.len() <= node.index() {
                n_links.resize(node.index() + 1, 0);
            }
            n_links[node.index()] += 1;
        }
        Self { n_links, times: None }
    }

    /// Sets the time of each link, at which its negatives are drawn; `None` for links without times, the default.
    #[must_use]
    pub fn times(self, times: Option<SharedArray<i64>>) -> Self {
        Self { times, ..self }
    }

    /// Returns a note with the metrics of this ranking of test links, among the negatives of a training with this seed; `None`
    /// without links. At most 100,000 links are ranked.
    ///
    /// # Errors
    /// Returns the errors of [`Negatives::sample_at`].
    ///
    /// # Panics
    /// Panics if a link is not in the list, or has no time although others have.
    pub fn note_on_test(
        &self,
        links: &Links,
        test: &[LinkId],
        negatives: &Negatives,
        seed: u64,
    ) -> Result<Option<String>> {
        let ranked = &test[..test.len().min(MOST_LINKS)];
        let ranks = self.rank(links, ranked, negatives, Phase::Test.key(seed))?;
        let (Some(mrr), Some(hits)) = (ranks.mrr(), ranks.hits_at(10)) else { return Ok(None) };
        let which = if ranked.len() < test.len() { "first 100,000 " } else { "" };
        Ok(Some(format!(
            "ranking the {which}test links by the popularity of their destinations, their number of training links, has mrr \
             {mrr:.4} and hits@10 {hits:.4}: a model should exceed it"
        )))
    }

    /// Ranks links among their negatives by the popularity of the destinations. `key` is that of the phase whose negatives are
    /// drawn ([`Phase::key`](kiln_loader::Phase::key)).
    ///
    /// # Errors
    /// Returns the errors of [`Negatives::sample_at`].
    ///
    /// # Panics
    /// Panics if a link is not in the list, or has no time although others have.
    pub fn rank(
        &self,
        links: &Links,
        ids: &[LinkId],
        negatives: &Negatives,
        key: RngKey,
    ) -> Result<LinkRanks> {
        // The counts of rejected negatives are those of training and evaluations.
        let negatives = negatives.clone().with_own_count();
        let n_negatives = negatives.n_per_link();
        let score = |node: NodeId| self.n_links.get(node.index()).copied().unwrap_or(0) as f32;
        let mut ranks = LinkRanks::new(1 + n_negatives);
        let mut scores = Vec::with_capacity(1 + n_negatives);
        for part in ids.chunks(LINKS) {
            let times: Option<Vec<i64>> =
                self.times.as_ref().map(|times| part.iter().map(|link| times[link.index()]).collect());
            let sampled = negatives.sample_at(links, part, times.as_deref(), ids, key)?;
            for (row, link) in part.iter().enumerate() {
                let of_link = &sampled.dsts[row * n_negatives..(row + 1) * n_negatives];
                scores.clear();
                scores.push(score(links.pair(*link).1));
                scores.extend(of_link.iter().map(|dst| score(*dst)));
                ranks.add(&scores);
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use kiln_sample::UniformNegatives;

    use super::*;

    #[test]
    fn links_are_ranked_by_the_training_links_of_their_destinations() {
        let links = Links::new(vec![0, 1, 2, 0], vec![5, 5, 6, 4]).expect("a link has two ends");
        let training = [LinkId(0), LinkId(1), LinkId(2)];
        let rank = |popularity: &Popularity, link: u32, dsts| {
            let negatives = Negatives::new(UniformNegatives { dsts }, 3);
            let ranks = popularity.rank(&links, &[LinkId(link)], &negatives, RngKey::new(1));
            assert_eq!(negatives.n_rejected(), 0);
            ranks.expect("the links exist").mrr()
        };
        let by_destination = Popularity::count_destinations(&links, &training);
        // Destination 6 has one link: fewer than 5, more than 4.
        assert_eq!(rank(&by_destination, 2, 5..6), Some(0.25));
        assert_eq!(rank(&by_destination, 2, 4..5), Some(1.0));
        // All three negatives are tied with destination 4: the mean rank is 2.5.
        assert_eq!(rank(&by_destination, 3, 7..9), Some(0.4));
        let by_end = Popularity::count_both_ends(&links, &training);
        assert_eq!(rank(&by_end, 2, 2..3), Some(0.4));
    }
}
