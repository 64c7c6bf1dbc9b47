use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kiln_graph::{Csc, LinkId, LinkNegatives, Links, NodeId};

use crate::rng::mul_hi;
use crate::{Error, KeyDomain, NegativesError, NodeRng, Result, RngKey, in_edge_range};

/// A distribution of negative links: pairs of nodes that a model learns to score below a given link.
///
/// A candidate must be a pure function of its arguments, so that negatives do not depend on ranks, threads or batches.
pub trait NegativeSampler: Send + Sync {
    /// Returns a candidate for one negative of a link, as its source and its destination. All random draws must come
    /// from `rng`.
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId);

    /// Returns the name of the sampler, by which a resumed run recognises it.
    fn name(&self) -> &str;

    /// Returns a sampler of the same distribution among the nodes `is_known`, indexed by node, for [`Negatives::among`]. The
    /// default implementation returns `None`: candidates with other nodes are drawn again.
    fn among(&self, is_known: &Arc<[bool]>) -> Option<Arc<dyn NegativeSampler>> {
        let _ = is_known;
        None
    }

    /// Returns true if negatives depend on [`PositiveLink::step_dsts`], which is empty otherwise.
    fn reads_step(&self) -> bool {
        true
    }
}

/// A link for which a negative is drawn.
#[derive(Debug, Clone, Copy)]
pub struct PositiveLink<'a> {
    /// The source of the link.
    pub src: NodeId,
    /// The destination of the link.
    pub dst: NodeId,
    /// The destinations of all links of the training step, over all ranks, in the order of the epoch; in evaluations, of all
    /// links of the split, so that the negatives of a link do not depend on the size of batches.
    pub step_dsts: &'a [NodeId],
}

/// Replaces the destination by a node that is drawn uniformly (DGL's `PerSourceUniform`, GraphBolt's
/// `UniformNegativeSampler`).
///
/// ```
/// use kiln_graph::NodeTypes;
/// use kiln_sample::{Negatives, UniformNegatives};
/// // Any node of a graph with 100 nodes.
/// let negatives = Negatives::new(UniformNegatives { dsts: 0..100 }, 5);
/// // The items of a heterogeneous graph, for links from users to items.
/// let types = NodeTypes::new([("user", 60), ("item", 40)])?;
/// let items = Negatives::new(UniformNegatives { dsts: types.range(1) }, 5);
/// # Ok::<(), kiln_graph::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniformNegatives {
    /// The ids of the nodes to draw from: all of the graph, or those of the links' destination type
    /// ([`NodeTypes::range`](kiln_graph::NodeTypes::range)).
    pub dsts: Range<u32>,
}

impl NegativeSampler for UniformNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, draw_node(&self.dsts, rng))
    }

    fn among(&self, is_known: &Arc<[bool]>) -> Option<Arc<dyn NegativeSampler>> {
        let is_known = |node: &u32| is_known.get(*node as usize).copied().unwrap_or(false);
        let dsts: Vec<NodeId> = self.dsts.clone().filter(is_known).map(NodeId).collect();
        // Without a node, the candidates of all nodes are rejected and counted.
        (!dsts.is_empty())
            .then(|| Arc::new(ListedNegatives { dsts: dsts.into() }) as Arc<dyn NegativeSampler>)
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform"
    }
}

/// Replaces the destination by a node of a list that is drawn uniformly.
#[derive(Debug)]
struct ListedNegatives {
    dsts: Arc<[NodeId]>,
}

impl NegativeSampler for ListedNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        (link.src, self.dsts[rng.below(self.dsts.len() as u32) as usize])
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform"
    }
}

/// Draws both nodes uniformly (DGL's `GlobalUniform`, PyG's `negative_sampling`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UniformPairNegatives {
    /// The ids of the nodes to draw sources from: all of the graph, or those of the links' source type.
    pub srcs: Range<u32>,
    /// The ids of the nodes to draw destinations from.
    pub dsts: Range<u32>,
}

impl NegativeSampler for UniformPairNegatives {
    fn draw(&self, _: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        let src = draw_node(&self.srcs, rng);
        (src, draw_node(&self.dsts, rng))
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "uniform-pairs"
    }
}

fn draw_node(nodes: &Range<u32>, rng: &mut NodeRng) -> NodeId {
    NodeId(nodes.start + rng.below(nodes.end.saturating_sub(nodes.start)))
}

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
/// A candidate that is the link itself, or that joins a node with itself, is drawn anew, and so is an edge of the graph
/// of [`Negatives::rejecting`]. After [`Negatives::max_draws`] draws the last candidate is kept and counted
/// ([`SampledNegatives::n_rejected`]). Fixed negatives ([`Negatives::fixed`]) are never rejected.
#[derive(Clone)]
pub struct Negatives {
    source: Source,
    n_per_link: usize,
    known: Option<Arc<Csc>>,
    /// The nodes of which negatives are drawn, by node; `None` for all.
    among: Option<Arc<[bool]>>,
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
    /// The number of negatives that would have been rejected again after the last draw.
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
        Self { source, n_per_link, known: None, among: None, max_draws: 16, n_rejected: Arc::default() }
    }

    /// Also rejects the edges of a graph. Each check is a binary search, so a graph whose neighbours do not ascend is
    /// copied and sorted ([`Csc::sort_neighbors`]). Reads the whole graph once.
    ///
    /// # Errors
    /// Returns [`Error::Graph`] if the graph is damaged.
    pub fn rejecting(self, known: Arc<Csc>) -> Result<Self> {
        let known = match known.has_sorted_neighbors() {
            true => known,
            false => Arc::new(known.sort_neighbors()?),
        };
        Ok(Self { known: Some(known), ..self })
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

    /// Returns true if negatives depend on the links of the step.
    pub fn reads_step(&self) -> bool {
        match &self.source {
            Source::Drawn(sampler) => sampler.reads_step(),
            Source::Fixed(_) => false,
        }
    }

    /// Returns the negatives of some of a step's links. They depend on `key`, on the link and on the number of the
    /// negative only, for in-batch negatives also on the links of the step. `step` are the links of the step over all
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
        match &self.source {
            Source::Drawn(sampler) => self.sample_drawn(&**sampler, all, links, step, key),
            Source::Fixed(negatives) => take_fixed(negatives, all, links),
        }
    }

    fn sample_drawn(
        &self,
        sampler: &dyn NegativeSampler,
        all: &Links,
        links: &[LinkId],
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
                let positive = PositiveLink { src, dst, step_dsts: &step_dsts };
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
                return Ok((pair, false));
            }
            pair = sampler.draw(link, rng);
        }
        Ok((pair, self.is_rejected(link, pair)?))
    }

    fn is_rejected(&self, link: PositiveLink<'_>, (src, dst): (NodeId, NodeId)) -> Result<bool> {
        if src == dst || (src, dst) == (link.src, link.dst) {
            return Ok(true);
        }
        let is_unknown = |node: NodeId| {
            self.among.as_ref().is_some_and(|known| known.get(node.index()).is_none_or(|is_known| !is_known))
        };
        if is_unknown(dst) || (src != link.src && is_unknown(src)) {
            return Ok(true);
        }
        let Some(known) = &self.known else { return Ok(false) };
        let node = src.max(dst);
        if known.n_nodes() <= node.index() {
            return Err(Error::Negatives(NegativesError::NegativeOutOfRange {
                node,
                n_nodes: known.n_nodes(),
            }));
        }
        Ok(known.in_neighbors(dst).binary_search(&src).is_ok())
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
