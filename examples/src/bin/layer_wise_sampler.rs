//! Trains a GCN with a sampler of the program's own, which picks the nodes of a layer for the whole batch: LADIES (Zou et al. 2019,
//! "Layer-Dependent Importance Sampling for Training Deep and Large Graph Convolutional Networks", algorithm 1). Unlike there, each
//! node is picked by a draw of its own, and edges have unbiased weights instead of rows that sum to 1.
//!
//! ```text
//! cargo run --release --bin layer_wise_sampler  # test accuracy 0.68
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

/// Picks the sources of a layer for all destinations of the batch. The fanout of a layer is the largest expected number of picks.
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
    fn edges(&self, dst: NodeId, request: &HopRequest) -> impl Iterator<Item = (EdgeId, NodeId, f64)> {
        let excluded = request.excluded.as_ref().map_or(&[][..], |excluded| excluded.srcs_into(dst));
        let weights = self.graph.weights().unwrap_or_default();
        let edges = (self.graph.first_edge(dst).0..).zip(self.graph.in_neighbors(dst));
        let edges = edges.map(|(id, &src)| (EdgeId(id), src, f64::from(weights[id as usize])));
        edges.filter(|(_, src, _)| excluded.binary_search(src).is_err())
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

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        _: &mut Scratch,
        out: &mut Frontier,
    ) -> Result<(), SampleError> {
        // The importance of a node is the sum of its squared edge weights into the layer. A destination always reads itself.
        let mut importances = BTreeMap::new();
        for &dst in dsts.nodes() {
            for (_, src, weight) in self.edges(dst, request).filter(|(_, src, _)| *src != dst) {
                *importances.entry(src).or_insert(0.0) += weight * weight;
            }
        }
        let scale = match request.fanout {
            Fanout::UpTo(n_picks) => f64::from(n_picks) / importances.values().sum::<f64>(),
            Fanout::All => f64::INFINITY,
        };
        let mut weights = Vec::new();
        *out = Frontier::default();
        for &dst in dsts.nodes() {
            for (id, src, weight) in self.edges(dst, request) {
                let probability = if src == dst { 1.0 } else { (importances[&src] * scale).min(1.0) };
                // The draw of a node is the same for all destinations.
                if f64::from(request.key.node(src).rng().unit_f32()) < probability {
                    out.srcs.push(src);
                    out.edge_ids.push(id);
                    weights.push((weight / probability) as f32);
                }
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
    /// Number of epochs.
    #[arg(long, default_value = "10")]
    epochs: usize,
}

fn main() -> Result<()> {
    kiln::print_log();
    let args = Args::parse();
    let data = Dataset::open(&args.data)?.standardize()?;
    let sampler = CustomSampler::try_new("ladies", Ladies::new);
    let loader = NeighborLoader::new(&data, [4096, 2048]).gcn_norm()?.sampler(sampler);
    let loader = loader.evaluation(EvalMode::Exact { memory_bytes: None });
    let model = GcnConfig::for_data(&data).layers(2).hidden(256);
    let best = Trainer::new(model, AdamConfig::new(3e-3)).fit(&loader, FitConfig::epochs(args.epochs))?;
    println!("test accuracy {:.4}", best.evaluate(&loader, Phase::Test)?.accuracy());
    Ok(())
}
