//! Subgraphs in which the neighbours of each node are picked once.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Block, CscBuilder, EdgeId, NodeId, NodeTypes, RelationEdges, Relations};
use kiln_sample::{
    Dsts, EdgeWeights, Fanout, Frontier, FrontierSampler, HeteroNeighborSampler, HopRequest, NeighborSampler,
    RngKey, Rule, SampledBlocks, SamplerConfig, Scratch, Seeds, SubgraphSampler,
};
use kiln_testkit::{arb_coo, check_block, six_nodes};
use proptest::prelude::*;

fn nodes(ids: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

fn sample(sampler: &impl FrontierSampler, seeds: &Seeds) -> SampledBlocks {
    sampler.sample_blocks(seeds, RngKey::new(7), &mut Scratch::default()).unwrap()
}

/// Checks that each node has its edges in the block after the one that adds it, and that they are those that `sampler` picks
/// for the node in this layer.
fn check_subgraph(sampler: impl FrontierSampler + Clone, seeds: &Seeds) {
    let SampledBlocks { blocks, .. } = sample(&SubgraphSampler::new(sampler.clone()), seeds);
    let mut n_expanded = 0;
    for (layer, block) in blocks.iter().enumerate().rev() {
        let own = HopRequest::new(RngKey::new(7), layer, sampler.fanouts()[layer], sampler.weights());
        let request = HopRequest { edge_types: sampler.has_edge_types(), ..own };
        let mut expected = Frontier::default();
        let new = &block.dsts()[n_expanded..];
        sampler.sample_frontier(&request, Dsts::from(new), &mut Scratch::default(), &mut expected).unwrap();
        assert!(block.indptr()[..n_expanded].iter().all(|start| *start == 0));
        assert_eq!(block.indptr()[n_expanded..], expected.indptr);
        assert_eq!(block.edge_ids(), expected.edge_ids);
        assert_eq!(srcs_of(block), expected.srcs);
        assert_eq!(block.weights(), expected.weights.as_deref());
        assert_eq!(block.edge_types(), expected.edge_types.as_deref());
        n_expanded = block.n_dst();
    }
}

fn srcs_of(block: &Block) -> Vec<NodeId> {
    block.indices().iter().map(|src| block.global(*src)).collect()
}

#[test]
fn nodes_have_their_edges_in_the_hop_after_the_one_that_adds_them() {
    let sampler = SubgraphSampler::new(NeighborSampler::full(six_nodes(), 2));
    let sampled = sample(&sampler, &Seeds::nodes(nodes([5, 3])));
    let [outer, inner] = &sampled.blocks[..] else { panic!("two layers should give two blocks") };
    assert_eq!(inner.srcs(), nodes([5, 3, 2, 4]));
    assert_eq!(inner.edge_ids(), [6, 4, 5].map(EdgeId));
    assert_eq!(outer.srcs(), nodes([5, 3, 2, 4, 1]));
    assert_eq!(outer.indptr(), [0, 0, 0, 3, 3]);
    assert_eq!(outer.edge_ids(), [1, 2, 3].map(EdgeId));
}

#[test]
fn a_node_has_the_edges_of_one_hop_of_the_sampler_inside_with_types_and_weights() {
    let types = NodeTypes::new([("user", 3), ("item", 3)]).unwrap();
    let buys = RelationEdges::new("buys", "user", "item", &[0, 1, 2, 2, 0], &[0, 0, 0, 1, 2]);
    let bought = RelationEdges::new("bought by", "item", "user", &[0, 0, 1, 2], &[0, 1, 2, 2]);
    let relations = [
        RelationEdges { weights: Some(&[1.0, 2.0, 3.0, 4.0, 5.0]), ..buys },
        RelationEdges { weights: Some(&[6.0, 7.0, 8.0, 9.0]), ..bought },
    ];
    let graph = Relations::from_edges(types, &relations).unwrap();
    let fanouts = vec![vec![Fanout::UpTo(2); 2]; 3];
    let config = SamplerConfig::default().with_edge_types().with_weights(EdgeWeights::Stored);
    let sampler = HeteroNeighborSampler::new(&graph, fanouts, config).unwrap();
    check_subgraph(sampler, &Seeds::nodes(nodes([3, 5, 3])));
}

#[test]
fn pairs_of_a_node_and_a_time_have_their_edges_once() {
    let graph = CscBuilder::new(3).build(&[1, 2, 0], &[0, 0, 1]).unwrap();
    let graph = Arc::new(graph.with_edge_times(vec![1, 5, 1]).unwrap());
    let sampler = SubgraphSampler::new(NeighborSampler::full(graph, 2));
    let sampled = sample(&sampler, &Seeds::nodes(nodes([0, 0])).with_times(vec![3, 9]));
    let [outer, inner] = &sampled.blocks[..] else { panic!("two layers should give two blocks") };
    assert_eq!(inner.srcs(), nodes([0, 0, 1, 1, 2]));
    assert_eq!(inner.indptr(), [0, 1, 3]);
    assert_eq!(outer.indptr(), [0, 0, 0, 1, 2, 2]);
    assert_eq!(outer.src_times(), Some(&[3, 9, 3, 9, 9][..]));
}

proptest! {
    #[test]
    fn subgraphs_of_random_graphs_have_the_edges_of_the_sampler_inside(
        coo in arb_coo(),
        fanout in 0_u32..4,
        with_replacement in any::<bool>(),
    ) {
        let graph = Arc::new(CscBuilder::new(coo.n_nodes).build(&coo.srcs, &coo.dsts).unwrap());
        let rule = if with_replacement { Rule::UniformWithReplacement } else { Rule::Uniform };
        let fanouts = [Fanout::UpTo(fanout), Fanout::All, Fanout::UpTo(2)];
        let sampler = NeighborSampler::with_rule(Arc::clone(&graph), fanouts, rule);
        let seeds = Seeds::nodes(nodes((0..coo.n_nodes as u32).step_by(2)));
        let sampled = sample(&SubgraphSampler::new(sampler.clone()), &seeds);
        let mut dsts = seeds.as_nodes();
        for block in sampled.blocks.iter().rev() {
            check_block(&graph, dsts, block);
            dsts = block.srcs();
        }
        check_subgraph(sampler, &seeds);
    }
}
