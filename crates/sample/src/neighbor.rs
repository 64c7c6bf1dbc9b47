use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kiln_graph::{Csc, EdgeId, NodeId};

use crate::{
    Error, Frontier, FrontierSampler, Hop, Neighbors, PickRule, Result, Scratch, Uniform,
    UniformWithReplacement,
};

/// How many in-neighbours to pick for each destination of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// All of them.
    All,
    /// At most this many.
    UpTo(u32),
}

/// Picks in-neighbours by a rule, uniformly and without replacement unless told otherwise.
///
/// `fanouts[i]` belongs to layer `i`, input layer first, which is DGL's order: the last number is the
/// hop next to the seeds.
#[derive(Debug, Clone)]
pub struct NeighborSampler<R = Uniform> {
    graph: Arc<Csc>,
    fanouts: Vec<Fanout>,
    rule: R,
    weights: EdgeWeights,
}

/// What a sampler's blocks carry for each edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EdgeWeights {
    None,
    Stored,
    Scaled,
}

impl NeighborSampler {
    /// A sampler without replacement: a destination with no more neighbours than its fanout gets all.
    pub fn new(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>) -> Self {
        Self::with_rule(graph, fanouts, Uniform)
    }
}

impl NeighborSampler<UniformWithReplacement> {
    /// A sampler with replacement: each destination that has a neighbour gets exactly its fanout.
    pub fn with_replacement(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>) -> Self {
        Self::with_rule(graph, fanouts, UniformWithReplacement)
    }
}

impl<R: PickRule> NeighborSampler<R> {
    /// A sampler by the user's own rule.
    pub fn with_rule(graph: Arc<Csc>, fanouts: impl Into<Vec<Fanout>>, rule: R) -> Self {
        Self { graph, fanouts: fanouts.into(), rule, weights: EdgeWeights::None }
    }

    /// The same sampler, whose blocks carry the graph's edge weights.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Stored)
    }

    /// The same sampler, whose blocks carry weights that make each destination's weighted sum an unbiased
    /// estimate of the sum over all its edges: an edge's weight in the graph times the number of its
    /// destination's edges, divided by the number of picks (Horvitz and Thompson 1952).
    ///
    /// That is right for rules that pick each neighbour with the same probability, as the built-in ones
    /// do, and for fanouts above 0. Self loops that the rule always keeps
    /// ([`PickRule::keeps_self_loops`]) count in neither number, and their weights stay as they are. A
    /// destination all of whose edges are picked carries exactly the graph's weights.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use kiln_graph::{CscBuilder, NodeId, gcn_norm};
    /// use kiln_sample::{BlockSampler, Fanout, NeighborSampler, RngKey, Scratch, Seeds, UniformWithLoop};
    /// let star = CscBuilder::new(5).build(&[1, 2, 3, 4], &[0, 0, 0, 0])?;
    /// let graph = Arc::new(gcn_norm(&star)?);
    /// let sampler = NeighborSampler::with_rule(graph, [Fanout::UpTo(2)], UniformWithLoop).estimate_sums()?;
    /// let seeds = Seeds::nodes(vec![NodeId(0)]);
    /// let block = &sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default())?.blocks[0];
    /// // The loop, and two picks that stand for two edges each.
    /// assert_eq!(block.n_edges(), 3);
    /// let edge = 1.0 / 5.0_f64.sqrt();
    /// assert_eq!(block.weights(), Some(&[0.2, 2.0 * edge as f32, 2.0 * edge as f32][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn estimate_sums(self) -> Result<Self> {
        self.with_edge_weights(EdgeWeights::Scaled)
    }

    fn with_edge_weights(self, weights: EdgeWeights) -> Result<Self> {
        if self.graph.weights().is_none() {
            return Err(Error::NoWeights);
        }
        Ok(Self { weights, ..self })
    }
}

impl<R: PickRule> FrontierSampler for NeighborSampler<R> {
    fn n_layers(&self) -> usize {
        self.fanouts.len()
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.graph.indices_path()
    }

    fn sample_frontier(
        &self,
        hop: Hop,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        let fanout = self.fanouts[hop.layer];
        let wants_weights = self.weights != EdgeWeights::None;
        let mut writer = FrontierWriter::new(&self.graph, hop.layer, wants_weights, out);
        for (position, &dst) in dsts.iter().enumerate() {
            let edges = in_edges(&self.graph, dst, position)?;
            match fanout {
                Fanout::All => writer.push_all(edges),
                Fanout::UpTo(0) if !self.rule.keeps_self_loops() => {}
                Fanout::UpTo(_) if edges.is_empty() => {}
                Fanout::UpTo(fanout) => {
                    let neighbors = neighbors(&self.graph, dst, edges);
                    let picks = &mut scratch.picks;
                    picks.clear();
                    self.rule.pick(neighbors, hop.key.node(dst), fanout, picks);
                    picks.sort();
                    writer.push_picks(neighbors, picks.positions())?;
                    if self.weights == EdgeWeights::Scaled {
                        let kept = if self.rule.keeps_self_loops() { neighbors.self_loops() } else { 0..0 };
                        writer.scale_weights(neighbors.degree(), picks.positions(), kept);
                    }
                }
            }
            writer.end_destination()?;
        }
        Ok(())
    }
}

/// Takes every in-neighbour: blocks without sampling noise, for exact evaluation on small graphs.
#[derive(Debug, Clone)]
pub struct FullNeighbors(NeighborSampler);

impl FullNeighbors {
    /// A sampler of `n_layers` whole hops.
    pub fn new(graph: Arc<Csc>, n_layers: usize) -> Self {
        Self(NeighborSampler::new(graph, vec![Fanout::All; n_layers]))
    }

    /// The same sampler, whose blocks carry the graph's edge weights.
    ///
    /// # Errors
    /// [`Error::NoWeights`] when the graph has none.
    pub fn carry_weights(self) -> Result<Self> {
        Ok(Self(self.0.carry_weights()?))
    }
}

impl FrontierSampler for FullNeighbors {
    fn n_layers(&self) -> usize {
        FrontierSampler::n_layers(&self.0)
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn indices_path(&self) -> Option<&Path> {
        self.0.indices_path()
    }

    fn sample_frontier(
        &self,
        hop: Hop,
        dsts: &[NodeId],
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<()> {
        self.0.sample_frontier(hop, dsts, scratch, out)
    }
}

/// The positions of the edges into `dst`, checked: the graph may be a mapped file that nobody has read.
#[inline]
fn in_edges(graph: &Csc, dst: NodeId, position: usize) -> Result<Range<usize>> {
    let indptr = graph.indptr();
    if dst.index() >= graph.n_nodes() {
        return Err(Error::SeedOutOfRange { node: dst, position, n_nodes: graph.n_nodes() });
    }
    let (start, end) = (indptr[dst.index()], indptr[dst.index() + 1]);
    if start > end || end > graph.n_edges() {
        let (n_edges, file) = (graph.n_edges(), graph.indptr_path().map(Path::to_owned));
        return Err(Error::BadEdgeRange { node: dst, start, end, n_edges, file });
    }
    if end - start > u64::from(u32::MAX) {
        return Err(Error::DegreeTooLarge { dst, degree: end - start });
    }
    Ok(start as usize..end as usize)
}

#[inline]
fn neighbors(graph: &Csc, dst: NodeId, edges: Range<usize>) -> Neighbors<'_> {
    let first_edge = EdgeId(edges.start as u64);
    Neighbors {
        weights: graph.weights().map(|weights| &weights[edges.clone()]),
        edge_types: graph.edge_types().map(|types| &types[edges.clone()]),
        ..Neighbors::new(dst, &graph.indices()[edges], first_edge)
    }
}

/// Fills a frontier destination by destination.
struct FrontierWriter<'a> {
    graph: &'a Csc,
    layer: usize,
    out: &'a mut Frontier,
}

impl<'a> FrontierWriter<'a> {
    fn new(graph: &'a Csc, layer: usize, wants_weights: bool, out: &'a mut Frontier) -> Self {
        out.indptr.clear();
        out.indptr.push(0);
        out.srcs.clear();
        out.edge_ids.clear();
        out.weights = wants_weights.then(|| {
            let mut weights = out.weights.take().unwrap_or_default();
            weights.clear();
            weights
        });
        Self { graph, layer, out }
    }

    fn push_all(&mut self, edges: Range<usize>) {
        self.out.srcs.extend_from_slice(&self.graph.indices()[edges.clone()]);
        if let (Some(out), Some(weights)) = (&mut self.out.weights, self.graph.weights()) {
            out.extend_from_slice(&weights[edges.clone()]);
        }
        self.out.edge_ids.extend(edges.map(|edge| EdgeId(edge as u64)));
    }

    /// Appends the picks, which ascend: the last one is the largest.
    #[inline]
    fn push_picks(&mut self, neighbors: Neighbors<'_>, picks: &[u32]) -> Result<()> {
        if let Some(&pick) = picks.last().filter(|&&pick| pick as usize >= neighbors.degree()) {
            return Err(Error::PickOutOfRange { dst: neighbors.dst, pick, degree: neighbors.degree() });
        }
        self.out.srcs.extend(picks.iter().map(|&pick| neighbors.ids[pick as usize]));
        self.out.edge_ids.extend(picks.iter().map(|&pick| neighbors.edge_id(pick as usize)));
        if let (Some(out), Some(weights)) = (&mut self.out.weights, neighbors.weights) {
            out.extend(picks.iter().map(|&pick| weights[pick as usize]));
        }
        Ok(())
    }

    /// Multiplies the weights of the picks pushed last by the number of edges that a pick stands for, but
    /// for the picks in `kept`, which are not drawn. Where all edges are picked that number is exactly 1.
    fn scale_weights(&mut self, degree: usize, picks: &[u32], kept: Range<usize>) {
        let is_drawn = |pick: u32| !kept.contains(&(pick as usize));
        let n_drawn = picks.iter().filter(|pick| is_drawn(**pick)).count();
        let factor = ((degree - kept.len()) as f64 / n_drawn as f64) as f32;
        let Some(weights) = &mut self.out.weights else { return };
        let first = weights.len() - picks.len();
        for (weight, &pick) in weights[first..].iter_mut().zip(picks) {
            if is_drawn(pick) {
                *weight *= factor;
            }
        }
    }

    #[inline]
    fn end_destination(&mut self) -> Result<()> {
        let n_edges = self.out.srcs.len() as u64;
        let end = u32::try_from(n_edges).map_err(|_| Error::BlockTooLarge { layer: self.layer, n_edges })?;
        self.out.indptr.push(end);
        Ok(())
    }
}
