//! Samplers of one's own for the relations of the local partition: blocks are those of the whole graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln_graph::NodeId;
use kiln_partition::Part;
use kiln_remote::{DistGraph, Error};
use kiln_sample::{
    EdgeWeights, FrontierSampler, HeteroNeighborSampler, NeighborSampler, RngKey, SamplerConfig, Scratch,
    Seeds,
};

use crate::cluster::{Cluster, parts};
use crate::heterogeneous::{fanouts, shop, ways};
use crate::same::Counting;

/// Returns a sampler whose local nodes are sampled by samplers of `part`.
fn with_local(
    graph: &Arc<DistGraph>,
    part: &Part,
    config: &SamplerConfig,
    n_dsts: &Arc<AtomicUsize>,
) -> kiln_remote::Result<HeteroNeighborSampler> {
    graph.hetero_sampler_with_local(fanouts(), config, |relation, of_relation| {
        let graph = Arc::new(part.graph_by_node(relation)?);
        let sampler = NeighborSampler::with_config(graph, of_relation.clone())?;
        Ok::<_, Error>(Counting { sampler, n_dsts: Arc::clone(n_dsts) })
    })
}

fn blocks(sampler: &HeteroNeighborSampler) -> kiln_sample::Result<kiln_sample::SampledBlocks> {
    let seeds = Seeds::nodes((0..60).map(|node| NodeId(node * 3 + 5)).collect());
    sampler.sample_blocks(&seeds, RngKey::new(6), &mut Scratch::default())
}

#[test]
fn blocks_with_local_samplers_equal_those_of_the_whole_graph() {
    let data = shop();
    for weights in [EdgeWeights::None, EdgeWeights::Unbiased] {
        let config = SamplerConfig::default().with_weights(weights).with_edge_types();
        let expected =
            blocks(&HeteroNeighborSampler::new(&data.graph, fanouts(), config.clone()).unwrap()).unwrap();
        for (n_parts, owner) in ways() {
            let parts = parts(&data, n_parts, owner, None);
            for (own, part) in parts.iter().enumerate() {
                let cluster = Cluster::of(&parts, Some(own), Default::default());
                let n_dsts = Arc::default();
                let sampler =
                    with_local(&cluster.graph, cluster.graph.local_part().unwrap(), &config, &n_dsts)
                        .unwrap();
                assert!(blocks(&sampler).unwrap() == expected, "{n_parts} partitions, local {own}");
                assert_eq!(0 < n_dsts.load(Ordering::Relaxed), 0 < part.n_owned());
            }
        }
    }
}

#[test]
fn local_samplers_that_do_not_suit_the_partition_are_errors() {
    let parts = parts(&shop(), 2, |node| node as usize % 2, None);
    let (config, n_dsts) = (SamplerConfig::default().with_edge_types(), Arc::default());
    let servers = Cluster::of(&parts, None, Default::default());
    let error = with_local(&servers.graph, &parts[0], &config, &n_dsts).unwrap_err();
    assert!(error.to_string().contains("servers hold all partitions"), "{error}");
    // The samplers are those of the other partition.
    let cluster = Cluster::of(&parts, Some(0), Default::default());
    let sampler = with_local(&cluster.graph, &parts[1], &config, &n_dsts).unwrap();
    let error = blocks(&sampler).unwrap_err();
    assert!(error.to_string().contains("returns edges that its nodes do not have"), "{error}");
}
