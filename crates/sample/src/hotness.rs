use crate::{FrontierSampler, Result, RngKey, Scratch, Seeds};

/// Counts how often each node is an input of the given batches, to decide which features are worth caching. `batches`
/// contains the seeds and the key of each batch; the function samples each batch and discards its blocks.
///
/// ```
/// use std::sync::Arc;
/// use kiln_graph::{CscBuilder, NodeId};
/// use kiln_sample::{Fanout, NeighborSampler, RngKey, Seeds, count_node_accesses};
/// // 0 -> 1 and 0 -> 2.
/// let graph = Arc::new(CscBuilder::new(3).build(&[0, 0], &[1, 2])?);
/// let sampler = NeighborSampler::new(graph, [Fanout::UpTo(5)]);
/// let batches = [1, 2].map(|seed| (Seeds::nodes(vec![NodeId(seed)]), RngKey::new(0)));
/// assert_eq!(count_node_accesses(&sampler, 3, batches)?, [2, 1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns the sampler's errors.
///
/// # Panics
/// Panics if a sampled node is not below `n_nodes`.
pub fn count_node_accesses(
    sampler: &(impl FrontierSampler + ?Sized),
    n_nodes: usize,
    batches: impl IntoIterator<Item = (Seeds, RngKey)>,
) -> Result<Vec<u32>> {
    let mut counts = vec![0; n_nodes];
    let mut scratch = Scratch::default();
    for (seeds, key) in batches {
        let sampled = sampler.sample_blocks(&seeds, key, &mut scratch)?;
        let inputs = match sampled.blocks.first() {
            Some(block) => block.srcs(),
            None => seeds.as_nodes(),
        };
        for node in inputs {
            counts[node.index()] += 1;
        }
    }
    Ok(counts)
}
