//! What the fuzz targets run: the bodies that the ordinary tests replay, and two hops of sampling from all
//! nodes of the split.

mod targets;

use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_sample::{
    EdgeWeights, Fanout, FrontierSampler, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds,
};

/// Runs the target of this name on one input.
///
/// # Panics
/// When the reader broke a promise, or there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target =
        targets::TARGETS.iter().find(|target| target.name == name).expect("the target should be listed");
    (target.body)(input, sample);
}

/// A damaged graph gives an error where the sampler meets the damage; it must not panic.
fn sample(data: &Dataset) {
    let weights = data.graph.weights().map_or(EdgeWeights::None, |_| EdgeWeights::Unbiased);
    let config = SamplerConfig::new([Fanout::UpTo(3), Fanout::All]).with_weights(weights);
    let sampler = NeighborSampler::with_config(data.graph.clone(), config)
        .expect("a graph with weights should have weights");
    let seeds: Vec<NodeId> = data.split.parts().iter().flat_map(|(_, nodes)| nodes.iter().copied()).collect();
    match sampler.sample_blocks(&Seeds::nodes(seeds), RngKey::new(0), &mut Scratch::default()) {
        Ok(sampled) => assert_eq!(sampled.blocks.len(), 2),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
