use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kiln_graph::{Csc, LinkId, LinkNegatives, Links, NodeId, SharedArray};

use crate::hop::in_edge_range;
use crate::known_positives::KnownPositives;
use crate::negative_sampler::{NegativeSampler, PositiveLink};
use crate::rng::mul_hi;
use crate::{Error, KeyDomain, NegativesError, NodeRng, Result, RngKey, TimesError};

/// Replaces the destination by that of another link of the same training step, over all ranks; in evaluations, of another link
/// of the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InBatchNegatives;

impl NegativeSampler for InBatchNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let position = rng.below(link.step_dsts.len() as u32);
        (link.src, link.step_dsts[position as usize])
    }

    fn name(&self) -> &str {
        "in-batch"
    }
}

/// Replaces the destination by a node that is drawn in proportion to its in-degree to the power 0.75 (Mikolov et al.
/// 2013, "Distributed representations of words and phrases and their compositionality", section 2.2). Nodes without
/// in-edges are never drawn. Cloning shares the table.
///
/// A draw takes constant time (Walker 1977; built by Vose 1991, "A linear algorithm for generating random numbers with a
/// given distribution"). The probabilities are exact to 2^-32. The table takes 8 bytes per node.
#[derive(Clone)]
pub struct DegreeNegatives {
    /// For each node, the probability of keeping it once its column was drawn, times 2^32, and otherwise the node that
    /// replaces it.
    columns: Arc<[(u32, NodeId)]>,
}

impl DegreeNegatives {
    /// Builds the table from the in-degrees of a graph.
    ///
    /// # Errors
    /// Returns [`NegativesError::NoEdges`] if the graph has no edges, [`crate::DamagedGraphError::BadEdgeRange`] if its
    /// `indptr` is damaged, and [`Error::DegreeTooLarge`] if a node has more than 2^32 - 1 edges.
    pub fn new(graph: &Csc) -> Result<Self> {
        // Square roots are rounded correctly on every machine, unlike powers.
        let of_degree = |degree: usize| (degree as f64 * (degree as f64).sqrt()).sqrt();
        let nodes = (0..graph.n_nodes()).map(|node| (node, NodeId(node as u32)));
        let weights = nodes.map(|(row, node)| Ok(of_degree(in_edge_range(graph, node, row)?.len())));
        let mut weights = weights.collect::<Result<Vec<f64>>>()?;
        let sum: f64 = weights.iter().sum();
        if sum == 0.0 {
            return Err(Error::Negatives(NegativesError::NoEdges));
        }
        let scale = weights.len() as f64 / sum;
        weights.iter_mut().for_each(|weight| *weight *= scale);
        Ok(Self { columns: alias_table(weights) })
    }
}

/// Builds the table of the alias method from weights with mean 1.
fn alias_table(mut weights: Vec<f64>) -> Arc<[(u32, NodeId)]> {
    let mut columns: Vec<_> = (0..weights.len() as u32).map(|node| (u32::MAX, NodeId(node))).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..weights.len()).partition(|&node| weights[node] < 1.0);
    while let (Some(&below), Some(&above)) = (small.last(), large.last()) {
        small.pop();
        columns[below] = ((weights[below] * 4_294_967_296.0) as u32, NodeId(above as u32));
        weights[above] -= 1.0 - weights[below];
        if weights[above] < 1.0 {
            large.pop();
            small.push(above);
        }
    }
    // The rest are columns whose weight is 1 except for rounding, which always keep their node. A weight of 0 is not
    // among them: the surplus of the large columns equals what the small ones lack, except for rounding.
    columns.into()
}

impl NegativeSampler for DegreeNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let column = mul_hi(rng.next_u32(), self.columns.len() as u32);
        let (kept, other) = self.columns[column as usize];
        (link.src, if rng.next_u32() < kept { NodeId(column) } else { other })
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "degree"
    }
}

impl fmt::Debug for DegreeNegatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DegreeNegatives").field("n_nodes", &self.columns.len()).finish()
    }
}

/// The negatives of links: their distribution, their number per link, and the pairs that are no negatives.
///
/// A candidate that is the link itself, or that joins a node with itself, is drawn anew, and so are an edge of the graph
/// of [`Negatives::rejecting`] and a node that does not exist at the time of the link ([`Negatives::existing`]). After [`Negatives::max_draws`] draws the last candidate is kept and counted
/// ([`SampledNegatives::n_rejected`]). Fixed negatives ([`Negatives::fixed`]) are never rejected.
#[derive(Clone)]
pub struct Negatives {
    source: Source,
    n_per_link: usize,
    known: Option<KnownPositives>,
    /// The nodes of which negatives are drawn, by node; `None` for all.
    among: Option<Arc<[bool]>>,
    /// The time of each node, which negatives of links with times must be later than; `None` if all nodes always exist.
    node_times: Option<SharedArray<i64>>,
    max_draws: u32,
    /// The number of rejected negatives of all batches so far, which clones share.
    n_rejected: Arc<AtomicU64>,
}

/// The source of negatives.
#[derive(Clone)]
enum Source {
    Drawn(Arc<dyn NegativeSampler>),
    Fixed(LinkNegatives),
}

/// The negatives of some links, `[n_links, n_per_link]`, row-major.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampledNegatives {
    /// The source of each negative.
    pub srcs: Vec<NodeId>,
    /// The destination of each negative.
    pub dsts: Vec<NodeId>,
    /// The number of negatives that would have been rejected again after the last draw, and of those that replace one that does not
    /// exist ([`NegativeSampler::has_negatives`]).
    pub n_rejected: u64,
}

impl Negatives {
    /// Creates negatives that are rejected only if they are the link itself or join a node with itself, with at most 16
    /// draws each.
    pub fn new(sampler: impl NegativeSampler + 'static, n_per_link: usize) -> Self {
        Self::of_source(Source::Drawn(Arc::new(sampler)), n_per_link)
    }

    /// Creates the given negatives, in their order and without a draw. They depend on the link only. None is rejected,
    /// not even the link itself or an edge of the graph of [`Negatives::rejecting`].
    pub fn fixed(negatives: LinkNegatives) -> Self {
        let n_per_link = negatives.n_per_link();
        Self::of_source(Source::Fixed(negatives), n_per_link)
    }

    fn of_source(source: Source, n_per_link: usize) -> Self {
        Self {
            source,
            n_per_link,
            known: None,
            among: None,
            node_times: None,
            max_draws: 16,
            n_rejected: Arc::default(),
        }
    }

    /// Also rejects the edges of a graph. Each check is a binary search, so a graph whose neighbours do not ascend is
    /// copied and sorted ([`Csc::sort_neighbors`]). Reads the whole graph once.
    ///
    /// If links and edges have times ([`EdgeColumns::TIMES`](kiln_graph::EdgeColumns::TIMES)), an edge is rejected if it is not later
    /// than the link: a pair that becomes an edge later is a negative at that time, and rejecting it would tell the future.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the graph is damaged.
    pub fn rejecting(self, known: Arc<Csc>) -> Result<Self> {
        Ok(Self { known: Some(KnownPositives::new(known)?), ..self })
    }

    /// Draws only negatives of the nodes `is_known`, indexed by node: those that exist at the time of the links. The source of a
    /// link may be any node. Uniform negatives are drawn from these nodes; candidates of another sampler that are not known are
    /// drawn again, up to [`Negatives::max_draws`]. Fixed negatives stay.
    ///
    /// ```
    /// use kiln_graph::{LinkId, Links, NodeId};
    /// use kiln_sample::{Negatives, RngKey, UniformNegatives};
    /// let is_known = [false, false, true, true].to_vec();
    /// let negatives = Negatives::new(UniformNegatives { dsts: 0..4 }, 5).among(is_known.into());
    /// let links = Links::new(vec![NodeId(0)], vec![NodeId(1)])?;
    /// let drawn = negatives.sample(&links, &[LinkId(0)], &[], RngKey::new(7))?;
    /// assert!(drawn.dsts.iter().all(|dst| 2 <= dst.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn among(self, is_known: Arc<[bool]>) -> Self {
        let source = match &self.source {
            Source::Drawn(sampler) => sampler.among(&is_known).map(Source::Drawn),
            Source::Fixed(_) => None,
        };
        Self { source: source.unwrap_or(self.source), among: Some(is_known), ..self }
    }

    /// Draws, for links with times, only nodes that exist before the time of the link. `times` has the time of each node, by node.
    /// The source of a link may be any node. Uniform negatives are drawn from these nodes; candidates of another sampler that do not
    /// exist yet are drawn again, up to [`Negatives::max_draws`]. Fixed negatives stay.
    ///
    /// ```
    /// use kiln_graph::{LinkId, Links, NodeId};
    /// use kiln_sample::{Negatives, RngKey, UniformNegatives};
    /// let times = vec![0_i64, 0, 5, 9];
    /// let negatives = Negatives::new(UniformNegatives { dsts: 1..4 }, 5).existing(times);
    /// let links = Links::new(vec![NodeId(0)], vec![NodeId(1)])?;
    /// let drawn = negatives.sample_at(&links, &[LinkId(0)], Some(&[6]), &[], RngKey::new(7))?;
    /// assert_eq!(drawn.dsts, [NodeId(2); 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn existing(self, times: impl Into<SharedArray<i64>>) -> Self {
        let times = times.into();
        let source = match &self.source {
            Source::Drawn(sampler) => sampler.existing(&times).map(Source::Drawn),
            Source::Fixed(_) => None,
        };
        Self { source: source.unwrap_or(self.source), node_times: Some(times), ..self }
    }

    /// Returns the same negatives, whose rejected ones are counted apart from those of the clones ([`Negatives::n_rejected`]).
    #[must_use]
    pub fn with_own_count(self) -> Self {
        Self { n_rejected: Arc::default(), ..self }
    }

    /// Sets the maximum number of draws for a negative, at least 1.
    #[must_use]
    pub fn max_draws(self, max_draws: u32) -> Self {
        Self { max_draws: max_draws.max(1), ..self }
    }

    /// Returns the number of negatives per link.
    pub fn n_per_link(&self) -> usize {
        self.n_per_link
    }

    /// Returns the name of the sampler if its negatives depend on the times of links, which must then have some.
    pub fn sampler_of_times(&self) -> Option<&str> {
        match &self.source {
            Source::Drawn(sampler) => sampler.reads_times().then(|| sampler.name()),
            Source::Fixed(_) => None,
        }
    }

    /// Returns true if negatives depend on the links of the step.
    pub fn reads_step(&self) -> bool {
        match &self.source {
            Source::Drawn(sampler) => sampler.reads_step(),
            Source::Fixed(_) => false,
        }
    }

    /// Returns the negatives of some of a step's links, which have no times. They depend on `key`, on the link and on the number of
    /// the negative only, for in-batch negatives also on the links of the step. `step` are the links of the step over all
    /// ranks, which may be empty unless [`Negatives::reads_step`] is true.
    ///
    /// # Errors
    /// Returns [`NegativesError::NegativeOutOfRange`] if a custom sampler returns a node that the graph of
    /// [`Negatives::rejecting`] does not have, and [`NegativesError::NoFixedNegatives`] if the fixed negatives lack a
    /// link.
    ///
    /// # Panics
    /// Panics if a link is not in the list.
    pub fn sample(
        &self,
        all: &Links,
        links: &[LinkId],
        step: &[LinkId],
        key: RngKey,
    ) -> Result<SampledNegatives> {
        self.sample_at(all, links, None, step, key)
    }

    /// Returns the negatives of some of a step's links, as [`Negatives::sample`] does, at the time of each link, `[n_links]`, if
    /// links have times. A time changes no key: it determines which candidates are negatives.
    ///
    /// # Errors
    /// Returns the errors of [`Negatives::sample`], [`TimesError::Length`] unless there is one time per link, and
    /// [`NegativesError::NoLinkTimes`] if the sampler reads times and links have none.
    ///
    /// # Panics
    /// Panics if a link is not in the list.
    pub fn sample_at(
        &self,
        all: &Links,
        links: &[LinkId],
        times: Option<&[i64]>,
        step: &[LinkId],
        key: RngKey,
    ) -> Result<SampledNegatives> {
        if let Some(times) = times.filter(|times| times.len() != links.len()) {
            return Err(Error::Times(TimesError::Length { n_times: times.len(), n_seeds: links.len() }));
        }
        if let (None, Some(sampler)) = (times, self.sampler_of_times()) {
            return Err(Error::Negatives(NegativesError::NoLinkTimes { sampler: sampler.to_owned() }));
        }
        match &self.source {
            Source::Drawn(sampler) => self.sample_drawn(&**sampler, all, (links, times), step, key),
            Source::Fixed(negatives) => take_fixed(negatives, all, links),
        }
    }

    fn sample_drawn(
        &self,
        sampler: &dyn NegativeSampler,
        all: &Links,
        (links, times): (&[LinkId], Option<&[i64]>),
        step: &[LinkId],
        key: RngKey,
    ) -> Result<SampledNegatives> {
        let step_dsts: Vec<NodeId> = step.iter().map(|link| all.dsts()[link.index()]).collect();
        let n_pairs = links.len() * self.n_per_link;
        let mut sampled = SampledNegatives {
            srcs: vec![NodeId(0); n_pairs],
            dsts: vec![NodeId(0); n_pairs],
            n_rejected: 0,
        };
        for number in 0..self.n_per_link {
            let key = key.fold_in(KeyDomain::Negative, number as u64);
            for (row, &link) in links.iter().enumerate() {
                let (src, dst) = all.pair(link);
                let time = times.map(|times| times[row]);
                let positive = PositiveLink { src, dst, time, step_dsts: &step_dsts };
                let ((src, dst), is_rejected) = self.draw(sampler, positive, &mut key.link(link).rng())?;
                let position = row * self.n_per_link + number;
                sampled.srcs[position] = src;
                sampled.dsts[position] = dst;
                sampled.n_rejected += u64::from(is_rejected);
            }
        }
        self.n_rejected.fetch_add(sampled.n_rejected, Ordering::Relaxed);
        Ok(sampled)
    }

    /// Returns the number of negatives that were kept although they should have been rejected, in all batches that this
    /// value and its clones have drawn.
    pub fn n_rejected(&self) -> u64 {
        self.n_rejected.load(Ordering::Relaxed)
    }

    /// Draws one negative, and returns it with true if it should be rejected, too.
    fn draw(
        &self,
        sampler: &dyn NegativeSampler,
        link: PositiveLink<'_>,
        rng: &mut NodeRng,
    ) -> Result<((NodeId, NodeId), bool)> {
        let mut pair = sampler.draw(link, rng);
        for _ in 1..self.max_draws {
            if !self.is_rejected(link, pair)? {
                return Ok((pair, !sampler.has_negatives(link)));
            }
            pair = sampler.draw(link, rng);
        }
        Ok((pair, self.is_rejected(link, pair)? || !sampler.has_negatives(link)))
    }

    fn is_rejected(&self, link: PositiveLink<'_>, (src, dst): (NodeId, NodeId)) -> Result<bool> {
        if src == dst || (src, dst) == (link.src, link.dst) {
            return Ok(true);
        }
        if self.is_unknown(dst, link.time) || (src != link.src && self.is_unknown(src, link.time)) {
            return Ok(true);
        }
        self.known.as_ref().map_or(Ok(false), |known| known.contain(src, dst, link.time))
    }

    /// Returns true if a node does not exist for a link of this time.
    fn is_unknown(&self, node: NodeId, time: Option<i64>) -> bool {
        let lacks =
            self.among.as_ref().is_some_and(|among| !among.get(node.index()).is_some_and(|known| *known));
        let of_node = self.node_times.as_ref().and_then(|times| times.get(node.index()));
        lacks || of_node.zip(time).is_some_and(|(of_node, time)| time <= *of_node)
    }
}

/// Returns the fixed negatives of some links.
fn take_fixed(negatives: &LinkNegatives, all: &Links, links: &[LinkId]) -> Result<SampledNegatives> {
    let n_pairs = links.len() * negatives.n_per_link();
    let mut srcs = Vec::with_capacity(n_pairs);
    let mut dsts = Vec::with_capacity(n_pairs);
    for &link in links {
        let row = negatives.row(link).ok_or(Error::Negatives(NegativesError::NoFixedNegatives { link }))?;
        dsts.extend_from_slice(negatives.dsts_of(row));
        match negatives.srcs_of(row) {
            Some(of_row) => srcs.extend_from_slice(of_row),
            None => srcs.resize(dsts.len(), all.pair(link).0),
        }
    }
    Ok(SampledNegatives { srcs, dsts, n_rejected: 0 })
}

impl fmt::Debug for Negatives {
    /// Writes the settings that the negatives depend on.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, n_per_link, known, max_draws, .. } = self;
        match source {
            Source::Drawn(sampler) => write!(f, "{n_per_link} {}", sampler.name())?,
            Source::Fixed(negatives) => {
                return write!(f, "{n_per_link} fixed of {} links", negatives.links().len());
            }
        }
        match known {
            Some(known) => write!(f, ", not among {} edges, {max_draws} draws", known.n_edges()),
            None => write!(f, ", {max_draws} draws"),
        }
    }
}
