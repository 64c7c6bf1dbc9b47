use std::ops::Range;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Instant;

use kiln_feature::{EdgeFeatures, FeatureBuffer, Targets};
use kiln_graph::{EdgeId, LinkId, Links, NodeId, SharedArray};
use kiln_sample::{ExcludedEdges, Negatives, SampledNegatives};

use crate::{BatchError, Batcher, FeatureRows, Phase, SeedBatch, StageTimes, StepItems};

/// The edges that message passing leaves out in training, so that a model cannot read a link from the graph that it
/// learns to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LinkExclusion {
    /// The edges of all links of the training step, in both directions.
    #[default]
    WithReverses,
    /// The edges of all links of the training step, in their direction only.
    Directed,
    /// No edges, for graphs that do not contain the links.
    None,
}

/// A batcher for link prediction: draws negatives, and lets a batcher of nodes sample the neighbourhoods of the sources,
/// the destinations and the negatives, as one list of seeds.
///
/// On a heterogeneous graph, the links are those of one relation, negatives are drawn from its types
/// ([`UniformNegatives`](kiln_sample::UniformNegatives), checked if [`LinkBatcher::node_ranges`] is set), `nodes`
/// is a [`NodeBatcher`](crate::NodeBatcher) of several types, and its sampler determines the relations from which the edges of links are
/// excluded ([`HeteroNeighborSampler::excluding_from`](kiln_sample::HeteroNeighborSampler::excluding_from)).
///
/// Negatives and excluded edges are those of the whole step, so they do not depend on the number of ranks or of
/// micro-batches. Evaluations exclude no edges: the graph must not contain the links of the validation and the test.
///
/// In-batch negatives ([`InBatchNegatives`](kiln_sample::InBatchNegatives)) of an evaluation are drawn from all links of the
/// split. A training step with a single link, such as a short last step, has no other link: its negatives are the link
/// itself, and [`LinkBatch::n_rejected`] counts them.
///
/// The links of an edge task have targets ([`LinkBatcher::targets`]) and no negatives. Their batches are made in the same way: a
/// training step leaves its edges out of the messages, so that edges are learned as they are predicted.
#[derive(Debug)]
pub struct LinkBatcher<B> {
    nodes: B,
    links: Links,
    /// The negatives of training, of the validation and of the test.
    negatives: [Negatives; 3],
    exclusion: LinkExclusion,
    /// The classes or target values of the links of an edge task.
    targets: Option<Targets<LinkId>>,
    /// The feature rows of the links, by link.
    features: Option<EdgeFeatures>,
    /// The time of each link, at which its nodes and those of its negatives are sampled; `None` without times.
    link_times: Option<SharedArray<i64>>,
    /// The ids of the nodes that sources and destinations of negatives may be; `None` for those of the whole graph.
    node_ranges: Option<[Range<u32>; 2]>,
    /// The excluded edges of the last step, which its next batch needs again. The lock is held only to copy the pointer,
    /// and a worker that does not get it computes the edges itself.
    last_excluded: Mutex<Option<StepExclusion>>,
}

/// The excluded edges of a training step.
#[derive(Debug, Clone)]
struct StepExclusion {
    step: StepItems<LinkId>,
    edges: Arc<ExcludedEdges>,
}

/// The nodes of a batch of links, and the pairs to score.
///
/// A link has `1 + n_negatives` pairs: the link itself, then its negatives.
///
/// | array | element | length | indexed by |
/// |---|---|---|---|
/// | `links` | [`LinkId`] | `n_links` | position in the batch |
/// | `srcs` | `u32`, a position in the list of seeds | `n_links * (1 + n_negatives)` | pair, row-major; its source |
/// | `dsts` | `u32`, a position in the list of seeds | the same | pair, row-major; its destination |
/// | `labels` | class | `n_links`, or 0 without classes | position in the batch |
/// | `target_values` | `f32`, NaN if missing | `n_links * n_columns`, or 0 without target values | position, row-major |
#[derive(Debug, Clone)]
pub struct LinkBatch<B> {
    /// The batch of the nodes, whose seeds may repeat.
    pub nodes: B,
    /// The links.
    pub links: Vec<LinkId>,
    /// The source of each pair.
    pub srcs: Vec<u32>,
    /// The destination of each pair.
    pub dsts: Vec<u32>,
    /// The class of each link of an edge task; empty for other targets.
    pub labels: Vec<i32>,
    /// The target values of each link of an edge task; empty for other targets.
    pub target_values: Vec<f32>,
    /// The feature rows of the links, `[n_links, dim]`; `None` if they have none.
    pub features: Option<FeatureRows>,
    /// The number of negatives of each link.
    pub n_negatives: usize,
    /// The number of negatives, of all links, that are still rejected after the last draw
    /// ([`SampledNegatives::n_rejected`](kiln_sample::SampledNegatives::n_rejected)).
    pub n_rejected: u64,
}

impl<B: Batcher<Item = NodeId>> LinkBatcher<B> {
    /// Creates a batcher of these links. `nodes` needs no targets. Training and evaluation draw the same negatives, and
    /// training excludes the step's links in both directions.
    pub fn new(nodes: B, links: Links, negatives: Negatives) -> Self {
        let negatives = [negatives.clone(), negatives.clone(), negatives];
        let exclusion = LinkExclusion::default();
        let last_excluded = Mutex::default();
        Self {
            nodes,
            links,
            negatives,
            exclusion,
            targets: None,
            features: None,
            link_times: None,
            node_ranges: None,
            last_excluded,
        }
    }

    /// Sets the classes or target values of the links, and their feature rows if they have some, both by link. Batches carry
    /// those of their links.
    #[must_use]
    pub fn targets(self, targets: Targets<LinkId>, features: Option<EdgeFeatures>) -> Self {
        Self { targets: Some(targets), features, ..self }
    }

    /// Samples the nodes of each link, and of its negatives, at the time of the link, `[n_links]`, so that their trees have only
    /// edges that were known then. Negatives are drawn at that time, too
    /// ([`Negatives::existing`](kiln_sample::Negatives::existing), [`PastNegatives`](kiln_sample::PastNegatives)).
    ///
    /// # Panics
    /// Panics unless there is one time per link.
    #[must_use]
    pub fn link_times(self, times: impl Into<SharedArray<i64>>) -> Self {
        let times = times.into();
        assert_eq!(times.len(), self.links.len(), "expected one time per link");
        Self { link_times: Some(times), ..self }
    }

    /// Sets the negatives of the validation and the test. They depend on the run's seed and the kind of evaluation, so
    /// they are equal in each epoch and for any batch size.
    #[must_use]
    pub fn eval_negatives(self, negatives: Negatives) -> Self {
        let [of_training, ..] = self.negatives;
        Self { negatives: [of_training, negatives.clone(), negatives], ..self }
    }

    /// Sets the negatives of the test only, for example because the validation and the test have fixed negatives of
    /// their own ([`Negatives::fixed`]).
    #[must_use]
    pub fn test_negatives(self, negatives: Negatives) -> Self {
        let [of_training, of_validation, _] = self.negatives;
        Self { negatives: [of_training, of_validation, negatives], ..self }
    }

    /// Returns the negatives of a phase.
    fn negatives(&self, phase: Phase) -> &Negatives {
        let [of_training, of_validation, of_test] = &self.negatives;
        match phase {
            Phase::Train { .. } => of_training,
            Phase::Validation => of_validation,
            Phase::Test => of_test,
        }
    }

    /// Sets the edges that message passing leaves out in training.
    #[must_use]
    pub fn exclusion(self, exclusion: LinkExclusion) -> Self {
        Self { exclusion, last_excluded: Mutex::default(), ..self }
    }

    /// Sets the ids of the nodes of the sources' type and of the destinations' type of a relation. A negative that has
    /// another node is an error ([`BatchError::NegativeOfOtherType`]).
    #[must_use]
    pub fn node_ranges(self, srcs_and_dsts: [Range<u32>; 2]) -> Self {
        Self { node_ranges: Some(srcs_and_dsts), ..self }
    }

    /// Checks that the nodes of negatives have the types of the relation.
    fn check_types(&self, negatives: &SampledNegatives) -> Result<(), BatchError> {
        let Some([srcs, dsts]) = &self.node_ranges else { return Ok(()) };
        for (side, nodes, range) in
            [("source", &negatives.srcs, srcs), ("destination", &negatives.dsts, dsts)]
        {
            if let Some(&node) = nodes.iter().find(|node| !range.contains(&node.0)) {
                return Err(BatchError::NegativeOfOtherType { node, side, nodes: range.clone() });
            }
        }
        Ok(())
    }

    /// Returns the edges to leave out for a step with these links. The batches of a step share them.
    fn excluded(&self, phase: Phase, step: &StepItems<LinkId>) -> Option<Arc<ExcludedEdges>> {
        if !phase.is_training() || self.exclusion == LinkExclusion::None {
            return None;
        }
        let last = self.with_last(|last| last.clone()).flatten();
        if let Some(last) = last.filter(|last| last.step == *step) {
            return Some(last.edges);
        }
        let pairs = step.iter().map(|link| self.links.pair(*link));
        let edges = Arc::new(match self.exclusion {
            LinkExclusion::WithReverses => ExcludedEdges::with_reverses(pairs),
            LinkExclusion::Directed | LinkExclusion::None => ExcludedEdges::new(pairs),
        });
        self.with_last(|last| *last = Some(StepExclusion { step: step.clone(), edges: Arc::clone(&edges) }));
        Some(edges)
    }

    /// Calls `f` with the excluded edges of the last step, unless another thread holds the lock.
    fn with_last<T>(&self, f: impl FnOnce(&mut Option<StepExclusion>) -> T) -> Option<T> {
        match self.last_excluded.try_lock() {
            Ok(mut last) => Some(f(&mut last)),
            Err(TryLockError::Poisoned(last)) => Some(f(&mut last.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Checks that all links are in the list.
    fn check(&self, links: &[LinkId]) -> Result<(), BatchError> {
        let n_links = self.links.len();
        match links.iter().position(|link| n_links <= link.index()) {
            Some(position) => Err(BatchError::LinkOutOfRange { link: links[position], position, n_links }),
            None => Ok(()),
        }
    }
}

impl<B: Batcher<Item = NodeId>> Batcher for LinkBatcher<B> {
    type Item = LinkId;
    type Batch = LinkBatch<B::Batch>;
    type Scratch = B::Scratch;

    fn batch(
        &self,
        seeds: SeedBatch<LinkId>,
        scratch: &mut B::Scratch,
        times: &mut StageTimes,
    ) -> Result<Self::Batch, BatchError> {
        let start = Instant::now();
        let SeedBatch { phase, step, key, phase_key, seeds: links, times: given_times, of_step, .. } = seeds;
        let negatives = self.negatives(phase);
        let all_of_step: Vec<LinkId> = match phase.is_training() || negatives.reads_step() {
            true => of_step.iter().copied().collect(),
            false => Vec::new(),
        };
        self.check(&all_of_step)?;
        self.check(&links)?;
        let of_links = match (given_times, &self.link_times) {
            (Some(given), _) => Some(given),
            (None, Some(times)) => Some(links.iter().map(|link| times[link.index()]).collect::<Vec<i64>>()),
            (None, None) => None,
        };
        let sampled =
            negatives.sample_at(&self.links, &links, of_links.as_deref(), &all_of_step, phase_key)?;
        self.check_types(&sampled)?;
        let pairs = Pairs::new(&self.links, &links, &sampled.srcs, &sampled.dsts);
        let seed_times = of_links.as_ref().map(|times| pairs.times(times));
        let seeds = SeedBatch {
            times: seed_times,
            excluded: self.excluded(phase, &of_step),
            ..SeedBatch::new(phase, step, key, pairs.seeds)
        };
        let mut labels = Vec::new();
        let mut target_values = Vec::new();
        if let Some(targets) = &self.targets {
            targets.gather(&links, &mut labels, &mut target_values)?;
        }
        let features = self.features.as_ref().map(|features| rows_of(features, &links)).transpose()?;
        times.seeds += start.elapsed();
        let nodes = self.nodes.batch(seeds, scratch, times)?;
        Ok(LinkBatch {
            nodes,
            links,
            srcs: pairs.srcs,
            dsts: pairs.dsts,
            labels,
            target_values,
            features,
            n_negatives: negatives.n_per_link(),
            n_rejected: sampled.n_rejected,
        })
    }

    fn n_bytes(batch: &Self::Batch) -> usize {
        let LinkBatch { nodes, links, srcs, dsts, labels, target_values, features, .. } = batch;
        B::n_bytes(nodes)
            + size_of_val(links.as_slice())
            + size_of_val(srcs.as_slice())
            + size_of_val(dsts.as_slice())
            + size_of_val(labels.as_slice())
            + size_of_val(target_values.as_slice())
            + features.as_ref().map_or(0, |rows| rows.x.n_bytes())
    }
}

/// Returns the feature rows of some links, as stored.
fn rows_of(features: &EdgeFeatures, links: &[LinkId]) -> Result<FeatureRows, BatchError> {
    let rows: Vec<EdgeId> = links.iter().map(|link| EdgeId(u64::from(link.0))).collect();
    let mut x = FeatureBuffer::empty(features.dtype());
    features.gather(&rows, &mut x)?;
    Ok(FeatureRows { x, dim: features.dim() })
}

/// The seeds of a batch, and the positions of each pair's nodes among them.
struct Pairs {
    /// The sources of the links, their destinations, and the nodes of the negatives that differ from those of the link.
    seeds: Vec<NodeId>,
    /// For each seed, the position of its link in the batch.
    links_of_seeds: Vec<u32>,
    srcs: Vec<u32>,
    dsts: Vec<u32>,
}

impl Pairs {
    /// Returns the time of each seed: that of its link.
    fn times(&self, of_links: &[i64]) -> Vec<i64> {
        self.links_of_seeds.iter().map(|row| of_links[*row as usize]).collect()
    }

    /// Lists the pairs of links and of their negatives, `[n_links, n_negatives]`, row-major.
    fn new(all: &Links, links: &[LinkId], negative_srcs: &[NodeId], negative_dsts: &[NodeId]) -> Self {
        let n_links = links.len();
        let n_negatives = negative_dsts.len() / n_links.max(1);
        let n_pairs = n_links + negative_dsts.len();
        let mut seeds: Vec<NodeId> = links.iter().map(|link| all.pair(*link).0).collect();
        seeds.extend(links.iter().map(|link| all.pair(*link).1));
        seeds.reserve(negative_dsts.len());
        let mut links_of_seeds: Vec<u32> = (0..n_links as u32).chain(0..n_links as u32).collect();
        let mut srcs = Vec::with_capacity(n_pairs);
        let mut dsts = Vec::with_capacity(n_pairs);
        for row in 0..n_links {
            let src_seed = row as u32;
            let dst_seed = (n_links + row) as u32;
            srcs.push(src_seed);
            dsts.push(dst_seed);
            let src = seeds[row];
            let dst = seeds[n_links + row];
            let mut position = |node: NodeId, of_link: NodeId, seed: u32| {
                if node == of_link {
                    return seed;
                }
                seeds.push(node);
                links_of_seeds.push(row as u32);
                seeds.len() as u32 - 1
            };
            let negatives = row * n_negatives..(row + 1) * n_negatives;
            for (&negative_src, &negative_dst) in
                negative_srcs[negatives.clone()].iter().zip(&negative_dsts[negatives])
            {
                srcs.push(position(negative_src, src, src_seed));
                dsts.push(position(negative_dst, dst, dst_seed));
            }
        }
        Self { seeds, links_of_seeds, srcs, dsts }
    }
}
