//! The entry point of the fuzz targets. Each target runs the same body as the ordinary tests, and then samples two hops
//! from all nodes of the split.

mod targets;

use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_sample::{
    EdgeWeights, Fanout, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds,
};

/// Runs the target with this name on one input.
///
/// # Panics
/// Panics if the reader violates an invariant, or if there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target =
        targets::TARGETS.iter().find(|target| target.name == name).expect("the target should be listed");
    (target.body)(input, sample);
}

/// Samples two hops. If the graph is damaged, the sampler must return an error and must not panic.
fn sample(data: &Dataset) {
    let graph = data.csc().expect("a homogeneous set should have one relation");
    let weights = graph.weights().map_or(EdgeWeights::None, |_| EdgeWeights::Unbiased);
    let config = SamplerConfig::new([Fanout::UpTo(3), Fanout::All]).with_weights(weights);
    let config = SamplerConfig { edge_types: graph.edge_types().is_some(), ..config };
    let sampler = NeighborSampler::with_config(graph.clone(), config)
        .expect("the sampler should accept the configuration");
    let seeds: Vec<NodeId> = data.split().parts().iter().flat_map(|(_, nodes)| nodes.iter().copied()).collect();
    match sampler.sample_blocks(&Seeds::nodes(seeds), RngKey::new(0), &mut Scratch::default()) {
        Ok(sampled) => assert_eq!(sampled.blocks.len(), 2),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
