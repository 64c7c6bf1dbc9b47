//! Checks of the blocks of custom samplers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Block, Csc, EdgeTimes};

use crate::{
    Dsts, EdgeWeights, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest, Result, RngKey,
    SampledBlocks, SamplerError, Scratch, Seeds, TimeLimits, in_edge_range,
};

/// A custom sampler whose blocks are checked. Sources are looked up in the table of the scratch, and each edge in the graph.
pub(crate) struct CheckedSampler {
    name: Arc<str>,
    sampler: Arc<dyn FrontierSampler>,
    graph: Arc<Csc>,
    n_edge_types: usize,
}

impl CheckedSampler {
    pub(crate) fn new(name: Arc<str>, sampler: Arc<dyn FrontierSampler>, graph: &Arc<Csc>) -> Self {
        let n_edge_types = graph.n_edge_types().unwrap_or(0);
        Self { name, sampler, graph: Arc::clone(graph), n_edge_types }
    }

    fn name(&self) -> String {
        self.name.to_string()
    }

    /// Checks what a sampler returned for seeds.
    fn check(&self, sampled: &SampledBlocks, seeds: &Seeds, scratch: &mut Scratch) -> Result<()> {
        let SampledBlocks { blocks, seed_index: _ } = sampled;
        let expected = self.n_layers();
        let got = blocks.len();
        if expected != got {
            return Err(SamplerError::BlockCount { name: self.name(), expected, got }.into());
        }
        for (layer, block) in blocks.iter().enumerate() {
            let problem = match blocks.get(layer + 1) {
                Some(next) if block.dsts() != next.srcs() => Some(format!(
                    "its {} destinations are not the {} sources of the next layer, in their order",
                    block.n_dst(),
                    next.n_src()
                )),
                Some(next) if block.src_times().map(|times| &times[..block.n_dst()]) != next.src_times() => {
                    Some(
                        "the times of its destinations are not those of the sources of the next layer"
                            .to_owned(),
                    )
                }
                _ => self.problem_of(block, seeds),
            };
            if let Some(reason) = problem {
                return Err(SamplerError::Block { name: self.name(), layer, reason }.into());
            }
            if let Some(excluded) = seeds.excluded() {
                self.check_excluded(block, layer, excluded)?;
            }
        }
        self.check_srcs(blocks, seeds, scratch)?;
        for (layer, block) in blocks.iter().enumerate() {
            if let Some(reason) = self.problem_of_edges(block) {
                return Err(SamplerError::Block { name: self.name(), layer, reason }.into());
            }
        }
        self.check_seeds(sampled, seeds)
    }

    /// Returns what is wrong with the arrays of a block, if anything is.
    fn problem_of(&self, block: &Block, seeds: &Seeds) -> Option<String> {
        let has_weights = block.weights().is_some();
        if has_weights != (self.weights() != EdgeWeights::None) {
            return Some(format!("expected edge weights {:?}, got {}", self.weights(), words(has_weights)));
        }
        if let Some(weight) = block.weights().and_then(|weights| weights.iter().find(|w| !w.is_finite())) {
            return Some(format!("it has the edge weight {weight}, expected finite ones"));
        }
        let has_types = block.edge_types().is_some();
        if has_types != self.has_edge_types() {
            return Some(format!("expected {} edge types", words(self.has_edge_types())));
        }
        let largest_type = block.edge_types().and_then(|types| types.iter().max().copied());
        if let Some(largest) = largest_type.filter(|largest| self.n_edge_types <= usize::from(*largest)) {
            return Some(format!("it has the edge type {largest}, but the graph has {}", self.n_edge_types));
        }
        let has_times = seeds.times().is_some();
        let has_src_times = block.src_times().is_some();
        (has_times != has_src_times).then(|| format!("expected {} times of sources", words(has_times)))
    }

    /// Returns what is wrong with the first edge that is not the graph's, or not in ascending order, if any is.
    fn problem_of_edges(&self, block: &Block) -> Option<String> {
        for (row, dst) in block.dsts().iter().enumerate() {
            let Ok(of_graph) = in_edge_range(&self.graph, *dst, row) else {
                return Some(format!("it has the destination {}, which is not a node of the graph", dst.0));
            };
            let mut first_possible = of_graph.start;
            let known = block.src_times().zip(self.graph.edge_times()).map(|(times, edges)| {
                let (start, end) = self.time_limits().range(times[row]);
                KnownEdges { times: edges.times(), start, end }
            });
            for at in block.indptr()[row] as usize..block.indptr()[row + 1] as usize {
                let edge = block.edge_ids()[at].index();
                let src = block.global(block.indices()[at]);
                if !of_graph.contains(&edge) || self.graph.indices()[edge] != src {
                    return Some(format!(
                        "it has edge {edge} from node {} to node {}, which is not an edge of the graph",
                        src.0, dst.0
                    ));
                }
                if edge < first_possible {
                    return Some(format!("the ids of its edges into node {} do not ascend", dst.0));
                }
                if known.as_ref().is_some_and(|known| !known.contains(edge)) {
                    return Some(format!(
                        "it has edge {edge}, which is not known at the time of node {}",
                        dst.0
                    ));
                }
                first_possible = edge;
            }
        }
        None
    }

    fn check_excluded(&self, block: &Block, layer: usize, excluded: &ExcludedEdges) -> Result<()> {
        let indptr = block.indptr();
        for (row, &dst) in block.dsts().iter().enumerate() {
            let srcs = excluded.srcs_into(dst);
            if srcs.is_empty() {
                continue;
            }
            for at in indptr[row] as usize..indptr[row + 1] as usize {
                let src = block.srcs()[block.indices()[at].index()];
                if srcs.binary_search(&src).is_ok() {
                    let edge = block.edge_ids()[at];
                    return Err(
                        SamplerError::ExcludedEdge { name: self.name(), layer, edge, src, dst }.into()
                    );
                }
            }
        }
        Ok(())
    }

    /// Checks that the sources of the first block, which contain those of the others, are distinct nodes of the graph. With times,
    /// a node may be several sources.
    fn check_srcs(&self, blocks: &[Block], seeds: &Seeds, scratch: &mut Scratch) -> Result<()> {
        let Some(block) = blocks.first() else { return Ok(()) };
        let relabel = &mut scratch.relabel;
        relabel.begin(self.n_nodes());
        for (position, &src) in block.srcs().iter().enumerate() {
            let reason = match relabel.local(src) {
                None => format!("it has node {}, but the graph has {} nodes", src.0, self.n_nodes()),
                Some(first) if first.index() != position && seeds.times().is_none() => {
                    format!("the sources {} and {position} are both node {}", first.0, src.0)
                }
                Some(_) => continue,
            };
            return Err(SamplerError::Block { name: self.name(), layer: 0, reason }.into());
        }
        Ok(())
    }

    /// Checks that the destinations of the last block are the distinct seeds in the order of their first appearance.
    fn check_seeds(&self, sampled: &SampledBlocks, seeds: &Seeds) -> Result<()> {
        let SampledBlocks { blocks, seed_index } = sampled;
        let dsts = blocks.last().map_or(&[][..], Block::dsts);
        let error = |position| SamplerError::Seeds {
            name: self.name(),
            n_dst: dsts.len(),
            n_rows: seed_index.len(),
            n_seeds: seeds.len(),
            position,
        };
        if seed_index.len() != seeds.len() {
            return Err(error(None).into());
        }
        if blocks.is_empty() {
            return Ok(());
        }
        let mut n_distinct = 0;
        let dst_times = blocks.last().and_then(Block::src_times);
        for (position, (row, seed)) in seed_index.iter().zip(seeds.as_nodes()).enumerate() {
            if row.index() == n_distinct {
                n_distinct += 1;
            }
            let is_of_time = dst_times.and_then(|times| times.get(row.index()).copied())
                == seeds.times().map(|times| times[position]);
            if n_distinct <= row.index() || dsts.get(row.index()) != Some(seed) || !is_of_time {
                return Err(error(Some(position)).into());
            }
        }
        match n_distinct == dsts.len() {
            true => Ok(()),
            false => Err(error(None).into()),
        }
    }
}

/// The edges that a destination may know at its time.
struct KnownEdges<'a> {
    /// The time of each edge of the graph.
    times: &'a [i64],
    /// The first known time, if there is a window.
    start: Option<i64>,
    /// The end of the known times.
    end: i64,
}

impl KnownEdges<'_> {
    fn contains(&self, edge: usize) -> bool {
        let time = self.times[edge];
        let is_in_window = self.start.is_none_or(|start| start <= time);
        time < self.end && (is_in_window || time == EdgeTimes::ALWAYS)
    }
}

fn words(is_some: bool) -> &'static str {
    if is_some { "some" } else { "no" }
}

impl FrontierSampler for CheckedSampler {
    fn fanouts(&self) -> &[Fanout] {
        self.sampler.fanouts()
    }

    fn weights(&self) -> EdgeWeights {
        self.sampler.weights()
    }

    fn time_limits(&self) -> TimeLimits {
        self.sampler.time_limits()
    }

    fn has_edge_types(&self) -> bool {
        self.sampler.has_edge_types()
    }

    fn n_nodes(&self) -> usize {
        self.sampler.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.sampler.indices_path()
    }

    fn takes_times(&self) -> bool {
        self.sampler.takes_times()
    }

    fn has_edge_times(&self) -> bool {
        self.sampler.has_edge_times()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        self.sampler.sample_frontier(request, dsts, scratch, out)
    }

    fn n_layers(&self) -> usize {
        self.sampler.n_layers()
    }

    fn sample_blocks(&self, seeds: &Seeds, key: RngKey, scratch: &mut Scratch) -> Result<SampledBlocks> {
        if seeds.times().is_some() && !self.takes_times() {
            return Err(SamplerError::Times { name: self.name() }.into());
        }
        // A block is created from arrays that fit, or panics.
        let sampled = catch_unwind(AssertUnwindSafe(|| self.sampler.sample_blocks(seeds, key, scratch)));
        let sampled = match sampled {
            Ok(sampled) => sampled?,
            Err(panic) => {
                *scratch = Scratch::default();
                let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
                    (Some(message), _) => (*message).to_owned(),
                    (None, Some(message)) => message.clone(),
                    (None, None) => "without a message".to_owned(),
                };
                return Err(SamplerError::Panicked { name: self.name(), message }.into());
            }
        };
        self.check(&sampled, seeds, scratch)?;
        Ok(sampled)
    }
}
