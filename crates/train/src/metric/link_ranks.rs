use std::ops::AddAssign;

/// The ranks of links among their own negatives, from which MRR and Hits@k are computed. Values of batches and of ranks
/// of a job can be added; the metrics do not depend on the order, because the counts are integers.
///
/// The rank of a link is 1 plus the number of its negatives with a larger score, plus half the number of those with an
/// equal score: the mean of the ranks that its tied negatives allow. Optimistic ranks would reward a model that gives
/// all pairs the same score. OGB's evaluators of MRR, too, take the mean of the optimistic and the pessimistic rank.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `counts` | `u64` | `2 * n_scores + 1` | twice the rank of a link; 0 for links of which a score is NaN |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRanks {
    counts: Vec<u64>,
}

impl LinkRanks {
    /// Creates the counts of links with `n_scores` scores each: that of the link and those of its negatives.
    pub fn new(n_scores: usize) -> Self {
        Self { counts: vec![0; 2 * n_scores + 1] }
    }

    /// Returns the rank of the first score among all of them, or `None` if a score is NaN.
    ///
    /// # Panics
    /// Panics if there are no scores.
    pub fn rank(scores: &[f32]) -> Option<f64> {
        match twice_rank(scores) {
            0 => None,
            twice => Some(twice as f64 / 2.0),
        }
    }

    /// Adds a link with these scores; the first one is that of the link.
    ///
    /// # Panics
    /// Panics if the number of scores is 0 or differs from that of [`LinkRanks::new`].
    pub fn add(&mut self, scores: &[f32]) {
        let expected = self.counts.len() / 2;
        assert_eq!(scores.len(), expected, "expected {expected} scores of a link and its negatives");
        self.counts[twice_rank(scores)] += 1;
    }

    /// Returns the number of links.
    pub fn n_links(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the number of links that score above all their negatives, which is the number of hits at 1.
    pub fn n_first(&self) -> u64 {
        self.counts.get(2).copied().unwrap_or(0)
    }

    /// Returns the mean reciprocal rank (Voorhees 1999): the mean over the links of 1 divided by the rank. `None`
    /// without links, or if a score is NaN.
    pub fn mrr(&self) -> Option<f64> {
        let ranks = self.counts.iter().enumerate().skip(1);
        self.share(ranks.map(|(twice, &n_links)| 2.0 * n_links as f64 / twice as f64).sum())
    }

    /// Returns the fraction of links whose rank is at most `k` (Bordes et al. 2013, section 4.2). `None` without links,
    /// or if a score is NaN.
    ///
    /// The negatives are those of the link itself, as in OGB's evaluator of `ogbl-citation2`. OGB's `Hits@K` of data
    /// sets with one common list of negatives, such as `ogbl-collab`, counts the links that score above the `K`-th best
    /// negative of the whole list; with one list of negatives for all links, the two differ in the treatment of ties
    /// only.
    pub fn hits_at(&self, k: usize) -> Option<f64> {
        let within = self.counts.iter().take(2 * k + 1).skip(1);
        self.share(within.sum::<u64>() as f64)
    }

    fn share(&self, sum: f64) -> Option<f64> {
        let n_links = self.n_links();
        (0 < n_links && self.counts[0] == 0).then(|| sum / n_links as f64)
    }

    /// Encodes the counts as 64-bit words.
    pub(crate) fn to_words(&self) -> &[u64] {
        &self.counts
    }

    /// Decodes the words of [`LinkRanks::to_words`].
    pub(crate) fn from_words(words: Vec<u64>) -> Self {
        Self { counts: words }
    }
}

impl AddAssign<&LinkRanks> for LinkRanks {
    /// Adds the counts of other links.
    ///
    /// # Panics
    /// Panics if the numbers of scores of a link differ.
    fn add_assign(&mut self, other: &LinkRanks) {
        assert_eq!(self.counts.len(), other.counts.len(), "the numbers of scores of a link should be equal");
        for (sum, n_links) in self.counts.iter_mut().zip(&other.counts) {
            *sum += n_links;
        }
    }
}

/// Returns twice the rank of the first score, an integer; 0 if a score is NaN.
fn twice_rank(scores: &[f32]) -> usize {
    let (link, negatives) = scores.split_first().expect("a link should have a score");
    if scores.iter().any(|score| score.is_nan()) {
        return 0;
    }
    let n_above = negatives.iter().filter(|negative| link < negative).count();
    let n_tied = negatives.iter().filter(|negative| link == *negative).count();
    2 + 2 * n_above + n_tied
}
