use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_graph::{Csc, EdgeTimes, NodeId, SharedArray};

use crate::known_positives::times_of;
use crate::negative_sampler::{NegativeSampler, PositiveLink};
use crate::uniform_negatives::UniformNegatives;
use crate::{Error, NegativesError, NodeRng, Result};

/// Replaces the destination by another one that the source had an edge to before the time of the link: the historical negatives of
/// TGB (Huang et al. 2023, "Temporal graph benchmark for machine learning on temporal graphs"). They are difficult, because a model
/// that repeats the past ranks them first. Links must have times. Cloning shares the lists.
///
/// Each past destination has the same probability, however many edges there were. A source without another past destination gets a
/// uniform one, which counts as rejected ([`SampledNegatives::n_rejected`](crate::SampledNegatives::n_rejected)). The lists take 12
/// bytes per pair of nodes with an edge, and 8 per node.
///
/// ```
/// use kiln_graph::{CscBuilder, EdgeColumn, EdgeColumns, LinkId, Links};
/// use kiln_sample::{Negatives, PastNegatives, RngKey};
/// // Node 0 has edges to the nodes 1, 2 and 3, at the times 10, 20 and 30.
/// let graph = CscBuilder::new(4).build(&[0, 0, 0], &[1, 2, 3])?;
/// let graph = graph.with_column(EdgeColumns::TIMES, EdgeColumn::new(vec![10_i64, 20, 30], 1)?)?;
/// let negatives = Negatives::new(PastNegatives::new(&graph, 1..4)?, 2);
/// let links = Links::new(vec![0], vec![2])?;
/// let drawn = negatives.sample_at(&links, &[LinkId(0)], Some(&[25]), &[], RngKey::new(7))?;
/// assert_eq!(drawn.dsts.iter().map(|dst| dst.0).collect::<Vec<u32>>(), [1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PastNegatives {
    /// The start of each source's list, `[n_nodes + 1]`.
    indptr: Arc<[u64]>,
    /// The time of the first edge to each destination of a list, ascending in each list.
    times: Arc<[i64]>,
    /// The destinations, of equal times by their ids.
    dsts: Arc<[NodeId]>,
    /// The negatives of sources without another past destination.
    others: Arc<dyn NegativeSampler>,
}

impl PastNegatives {
    /// Lists the destinations of the edges of a graph by source and time, without self loops and without edges whose time is
    /// missing. `dsts` are the nodes from which those without a past get negatives.
    ///
    /// # Errors
    /// Returns [`NegativesError::NoEdgeTimes`] if edges have no times, and [`Error::Graph`] if the graph is damaged.
    pub fn new(graph: &Csc, dsts: Range<u32>) -> Result<Self> {
        graph.validate()?;
        let times = times_of(graph).ok_or(Error::Negatives(NegativesError::NoEdgeTimes))?;
        let ends = graph.indices().iter().zip(graph.dsts()).zip(times.iter());
        let mut edges: Vec<(NodeId, NodeId, i64)> = Vec::new();
        for ((src, dst), time) in ends {
            if *src != dst && *time != EdgeTimes::NEVER {
                edges.push((*src, dst, *time));
            }
        }
        edges.sort_unstable();
        // The first of the edges of a pair is the earliest.
        edges.dedup_by_key(|(src, dst, _)| (*src, *dst));
        edges.sort_unstable_by_key(|(src, dst, time)| (*src, *time, *dst));
        let mut indptr = Vec::with_capacity(graph.n_nodes() + 1);
        for node in 0..=graph.n_nodes() {
            indptr.push(edges.partition_point(|(src, ..)| src.index() < node) as u64);
        }
        Ok(Self {
            indptr: indptr.into(),
            times: edges.iter().map(|(.., time)| *time).collect(),
            dsts: edges.iter().map(|(_, dst, _)| *dst).collect(),
            others: Arc::new(UniformNegatives { dsts }),
        })
    }

    /// Returns the destinations that the source of a link had before its time.
    fn past(&self, link: PositiveLink<'_>) -> &[NodeId] {
        let bounds = self.indptr.get(link.src.index()..link.src.index() + 2);
        let (Some([start, end]), Some(time)) = (bounds, link.time) else { return &[] };
        let start = *start as usize;
        let n_before = self.times[start..*end as usize].partition_point(|first| *first < time);
        &self.dsts[start..start + n_before]
    }
}

impl NegativeSampler for PastNegatives {
    fn draw(&self, link: PositiveLink<'_>, rng: &mut NodeRng) -> (NodeId, NodeId) {
        match self.past(link) {
            past if has_other(past, link.dst) => (link.src, past[rng.below(past.len() as u32) as usize]),
            _ => self.others.draw(link, rng),
        }
    }

    fn existing(&self, times: &SharedArray<i64>) -> Option<Arc<dyn NegativeSampler>> {
        let others = self.others.existing(times)?;
        Some(Arc::new(Self { others, ..self.clone() }))
    }

    fn reads_times(&self) -> bool {
        true
    }

    fn has_negatives(&self, link: PositiveLink<'_>) -> bool {
        has_other(self.past(link), link.dst)
    }

    fn reads_step(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "past"
    }
}

/// Returns true if distinct destinations have one that is not that of a link.
fn has_other(past: &[NodeId], dst: NodeId) -> bool {
    match past {
        [] => false,
        [only] => *only != dst,
        _ => true,
    }
}

impl fmt::Debug for PastNegatives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PastNegatives").field("n_pairs", &self.dsts.len()).finish_non_exhaustive()
    }
}
