//! What the fuzz targets run: the bodies that the ordinary tests replay, and two hops of sampling from all
//! nodes of the split.

mod targets;

use kiln_data::Dataset;
use kiln_graph::NodeId;
use kiln_sample::{BlockSampler, Fanout, NeighborSampler, RngKey, Scratch, Seeds};

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
    let fanouts = [Fanout::UpTo(3), Fanout::All];
    let sampler = NeighborSampler::new(data.graph.clone(), fanouts);
    let sampler = match data.graph.weights() {
        Some(_) => sampler.estimate_sums().expect("a graph with weights should have weights"),
        None => sampler,
    };
    let seeds: Vec<NodeId> = data.split.parts().iter().flat_map(|(_, nodes)| nodes.iter().copied()).collect();
    match sampler.sample_blocks(&Seeds::nodes(seeds), RngKey::new(0), &mut Scratch::default()) {
        Ok(sampled) => assert_eq!(sampled.blocks.len(), 2),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
