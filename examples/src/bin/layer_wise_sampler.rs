//! Trains a GCN with a layer-wise sampler of one's own: LADIES (Zou et al., Layer-Dependent Importance Sampling for Training Deep
//! and Large Graph Convolutional Networks, NeurIPS 2019, algorithm 1). Unlike there, edges have unbiased weights instead of rows
//! that sum to 1, nodes are drawn with replacement, and a node keeps its self loop.
//!
//! ```text
//! cargo run --release --bin layer_wise_sampler -- --nodes 512
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use kiln::graph::{Csc, EdgeId};
use kiln::prelude::*;
use kiln::sample::{
    CustomSampler, Dsts, Error as SampleError, Frontier, FrontierSampler, HopRequest, SamplerConfig, Scratch,
};

kiln::use_allocator!();

/// Draws the sources of a layer for all destinations of the batch. A fanout is the number of draws in a layer.
pub(crate) struct Ladies {
    graph: Arc<Csc>,
    fanouts: Vec<Fanout>,
}

impl Ladies {
    pub(crate) fn new(graph: Arc<Csc>, config: SamplerConfig) -> Result<Self, SampleError> {
        match graph.weights() {
            Some(_) => Ok(Self { graph, fanouts: config.fanouts }),
            None => Err(SampleError::NoWeights),
        }
    }

    /// Returns the id, the source and the weight of each edge into a node that the batch does not leave out.
    fn edges<'a>(
        &'a self,
        dst: NodeId,
        request: &'a HopRequest,
    ) -> impl Iterator<Item = (EdgeId, NodeId, f64)> + 'a {
        let excluded = request.excluded.as_ref().map_or(&[][..], |excluded| excluded.srcs_into(dst));
        let first = self.graph.first_edge(dst).0;
        let weights = self.graph.weights().unwrap_or_default();
        let edges = (first..).zip(self.graph.in_neighbors(dst));
        let edges = edges.map(move |(id, &src)| (EdgeId(id), src, f64::from(weights[id as usize])));
        edges.filter(move |(_, src, _)| excluded.binary_search(src).is_err())
    }

    /// Draws nodes in proportion to the sums of their squared edge weights into the layer. Returns the factor of the edges from
    /// each drawn node: the number of its draws divided by their expected number.
    fn draw(&self, squares: &BTreeMap<NodeId, f64>, request: &HopRequest) -> BTreeMap<NodeId, f64> {
        let n_draws = match request.fanout {
            Fanout::UpTo(n_draws) if (n_draws as usize) < squares.len() => n_draws,
            // All candidates are taken.
            _ => return squares.keys().map(|node| (*node, 1.0)).collect(),
        };
        let mut total = 0.0;
        let mut ends = Vec::with_capacity(squares.len());
        for (node, square) in squares {
            total += square;
            ends.push((total, *node));
        }
        let mut rng = request.key.node(NodeId(0)).rng();
        let mut factors = BTreeMap::new();
        for _ in 0..n_draws {
            let at = f64::from(rng.unit_f32()) * total;
            let (_, node) = ends[ends.partition_point(|(end, _)| *end <= at).min(ends.len() - 1)];
            *factors.entry(node).or_default() += total / (f64::from(n_draws) * squares[&node]);
        }
        factors
    }
}

impl FrontierSampler for Ladies {
    fn fanouts(&self) -> &[Fanout] {
        &self.fanouts
    }

    fn weights(&self) -> EdgeWeights {
        EdgeWeights::Unbiased
    }

    fn n_nodes(&self) -> usize {
        self.graph.n_nodes()
    }

    /// Samples one layer. The destinations are those of the whole batch.
    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        _: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<(), SampleError> {
        let mut squares = BTreeMap::new();
        for &dst in dsts.nodes() {
            for (_, src, weight) in self.edges(dst, request).filter(|(_, src, _)| *src != dst) {
                *squares.entry(src).or_default() += weight * weight;
            }
        }
        let factors = self.draw(&squares, request);
        let mut weights = Vec::new();
        *out = Frontier::default();
        for &dst in dsts.nodes() {
            for (id, src, weight) in self.edges(dst, request) {
                // A self loop is kept without a draw.
                let factor = if src == dst { Some(&1.0) } else { factors.get(&src) };
                let Some(factor) = factor else { continue };
                out.srcs.push(src);
                out.edge_ids.push(id);
                weights.push((weight * factor) as f32);
            }
            out.indptr.push(out.srcs.len() as u32);
        }
        out.weights = Some(weights);
        Ok(())
    }
}

/// Trains a GCN on a graph's nodes with layer-wise sampling.
#[derive(Parser)]
struct Args {
    /// Dataset: `debian-packages` (built in), or the path of a folder.
    #[arg(long, default_value = "debian-packages")]
    data: PathBuf,
    /// Number of draws in each layer of a batch.
    #[arg(long, default_value = "512")]
    nodes: u32,
    /// Number of epochs.
    #[arg(long, default_value = "10")]
    epochs: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let data = Dataset::open(&args.data)?.standardize()?;
    let sampler = CustomSampler::try_new("ladies", Ladies::new);
    let exact = EvalMode::Exact { memory_bytes: None };
    let loader = NeighborLoader::new(&data, [args.nodes; 2]).gcn_norm()?.sampler(sampler);
    let loader = loader.batch_size(512).evaluation(exact);
    let model = GcnConfig::for_data(&data).layers(2).hidden(128);
    let mut trainer = Trainer::new(model, AdamConfig::new(0.01));
    let best = trainer.fit(&loader, FitConfig::epochs(args.epochs))?;
    if let Some(summary) = best.write_report(&loader)? {
        println!("{summary}");
    }
    Ok(())
}
