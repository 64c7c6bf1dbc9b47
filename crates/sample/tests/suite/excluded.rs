//! Compares samples with excluded edges with samples of the graph without these edges.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder, EdgeId, NodeId};
use kiln_sample::{
    EdgeWeights, ExcludedEdges, Fanout, FrontierSampler, NeighborSampler, Neighbors, NodeKey, RngKey, Rule,
    SampledBlocks, SamplerConfig, Scratch, Seeds, Selection,
};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

/// A custom rule that depends on ids, weights and edge ids: edge ids must be those of the whole graph.
fn reads_everything(neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
    assert_eq!(neighbors.weights.unwrap().len(), neighbors.degree());
    for (position, (&id, &weight)) in neighbors.ids.iter().zip(neighbors.weights.unwrap()).enumerate() {
        assert_eq!(weight, weight_of(id, neighbors.dst), "{neighbors:?}");
        assert_eq!(neighbors.edge_types.unwrap()[position], id.0 as u8);
    }
    Rule::Uniform.pick(neighbors, key, fanout, picks);
}

fn weight_of(src: NodeId, dst: NodeId) -> f32 {
    0.25 + (src.0 * 13 + dst.0) as f32
}

/// The graph of some edges, with weights and edge types.
fn graph_of(n_nodes: usize, edges: &[(u32, u32)]) -> Arc<Csc> {
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
    let weights: Vec<f32> = edges.iter().map(|&(src, dst)| weight_of(NodeId(src), NodeId(dst))).collect();
    let types: Vec<u8> = srcs.iter().map(|&src| src as u8).collect();
    let builder = CscBuilder::new(n_nodes).weights(&weights).edge_types(&types);
    Arc::new(builder.build(&srcs, &dsts).unwrap())
}

/// A graph, and the same graph without some pairs.
struct Case {
    whole: Arc<Csc>,
    reduced: Arc<Csc>,
    excluded: Arc<ExcludedEdges>,
    /// The edge of the whole graph of each edge of the reduced one.
    kept: Vec<EdgeId>,
}

impl Case {
    fn new(n_nodes: usize, edges: &[(u32, u32)], pairs: &[(u32, u32)]) -> Self {
        let is_kept = |src: u32, dst: u32| !pairs.contains(&(src, dst));
        let whole = graph_of(n_nodes, edges);
        let left: Vec<_> = edges.iter().copied().filter(|&(src, dst)| is_kept(src, dst)).collect();
        let mut kept = Vec::new();
        for dst in 0..n_nodes as u32 {
            let first = whole.first_edge(NodeId(dst)).0;
            let srcs = (first..).zip(whole.in_neighbors(NodeId(dst)));
            kept.extend(srcs.filter(|(_, src)| is_kept(src.0, dst)).map(|(edge, _)| EdgeId(edge)));
        }
        let excluded = ExcludedEdges::new(pairs.iter().map(|&(src, dst)| (NodeId(src), NodeId(dst))));
        Self { whole, reduced: graph_of(n_nodes, &left), excluded: Arc::new(excluded), kept }
    }

    /// Checks that a sampler of the whole graph that excludes the pairs equals one of the reduced graph.
    fn check(&self, config: &SamplerConfig, seeds: &[NodeId]) {
        let sampler = |graph: &Arc<Csc>| NeighborSampler::with_config(graph.clone(), config.clone()).unwrap();
        let (seeds, key) = (Seeds::nodes(seeds.to_vec()), RngKey::new(5));
        let mut scratch = Scratch::default();
        let expected = sampler(&self.reduced).sample_blocks(&seeds, key, &mut scratch).unwrap();
        let excluding = seeds.excluding(Arc::clone(&self.excluded));
        let sampled = sampler(&self.whole).sample_blocks(&excluding, key, &mut scratch).unwrap();
        self.check_same(&sampled, &expected, config);
    }

    fn check_same(&self, sampled: &SampledBlocks, expected: &SampledBlocks, config: &SamplerConfig) {
        assert_eq!(sampled.seed_index, expected.seed_index, "{config:?}");
        for (sampled, expected) in sampled.blocks.iter().zip(&expected.blocks) {
            assert_eq!(sampled.srcs(), expected.srcs(), "{config:?}");
            assert_eq!(sampled.indptr(), expected.indptr(), "{config:?}");
            assert_eq!(sampled.indices(), expected.indices(), "{config:?}");
            assert_eq!(sampled.weights(), expected.weights(), "{config:?}");
            assert_eq!(sampled.edge_types(), expected.edge_types(), "{config:?}");
            let edge_ids: Vec<EdgeId> =
                expected.edge_ids().iter().map(|edge| self.kept[edge.index()]).collect();
            assert_eq!(sampled.edge_ids(), edge_ids, "{config:?}");
        }
    }

    /// Checks all rules, kinds of weights and these fanouts.
    fn check_all(&self, fanouts: &[Fanout], seeds: &[NodeId]) {
        for weights in [EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased] {
            let rules = Rule::BUILT_IN.into_iter().chain([Rule::from(reads_everything)]);
            for rule in rules {
                let config =
                    SamplerConfig::new(fanouts).with_rule(rule).with_weights(weights).with_edge_types();
                self.check(&config, seeds);
            }
        }
    }
}

const FANOUTS: [Fanout; 5] =
    [Fanout::UpTo(0), Fanout::UpTo(1), Fanout::UpTo(4), Fanout::UpTo(64), Fanout::All];

proptest! {
    #[test]
    fn samples_equal_those_of_the_graph_without_the_edges(
        coo in arb_coo(),
        fanouts in [0..FANOUTS.len(), 0..FANOUTS.len()],
        excluded in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        missing in prop::collection::vec((0_u32..40, 0_u32..40), 0..5),
    ) {
        let edges: Vec<_> = coo.srcs.iter().copied().zip(coo.dsts.iter().copied()).collect();
        let in_graph = (!edges.is_empty()).then(|| excluded.iter().map(|index| edges[index.index(edges.len())]));
        let both = in_graph.into_iter().flatten().flat_map(|(src, dst)| [(src, dst), (dst, src)]);
        let pairs: Vec<_> = both.chain(missing).collect();
        let seeds: Vec<NodeId> = (0..coo.n_nodes as u32).rev().map(NodeId).collect();
        Case::new(coo.n_nodes, &edges, &pairs).check_all(&fanouts.map(|fanout| FANOUTS[fanout]), &seeds);
    }
}

#[test]
fn excludes_parallel_edges_self_loops_and_whole_neighbourhoods() {
    // Node 0 has a self loop twice, node 1 three times and 90 other neighbours once or twice.
    let hub = (0..90).flat_map(|i| [(2 + i, 0), (2 + i / 2, 0)]);
    let others = [(0, 0), (0, 0), (1, 0), (1, 0), (1, 0), (0, 1), (1, 1), (0, 50), (0, 51), (1, 51)];
    let edges: Vec<_> = hub.chain(others).collect();
    let all_of_51: Vec<_> = edges.iter().copied().filter(|edge| edge.1 == 51).collect();
    let seeds = [NodeId(0), NodeId(1), NodeId(50), NodeId(51)];
    let cases: [&[(u32, u32)]; 5] =
        [&[(1, 0)], &[(0, 0), (91, 0)], &[(2, 0), (40, 0), (0, 0), (91, 0)], &[(1, 1), (0, 1)], &all_of_51];
    for pairs in cases {
        for fanout in FANOUTS {
            Case::new(92, &edges, pairs).check_all(&[fanout], &seeds);
        }
    }
}

#[test]
fn custom_rules_get_the_ids_of_the_remaining_edges() {
    let graph = graph_of(6, &[(0, 5), (1, 5), (1, 5), (2, 5), (3, 5), (4, 5)]);
    let rule = |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        assert_eq!(neighbors.ids, [NodeId(0), NodeId(2), NodeId(4)]);
        assert_eq!([0, 1, 2].map(|position| neighbors.edge_id(position)), [0, 3, 5].map(EdgeId));
        picks.push(2);
    };
    let excluded = Arc::new(ExcludedEdges::new([1, 3].map(|src| (NodeId(src), NodeId(5)))));
    let sampler = NeighborSampler::with_rule(graph, [1_u32], rule);
    let seeds = Seeds::nodes(vec![NodeId(5)]).excluding(excluded);
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap();
    assert_eq!(sampled.blocks[0].edge_ids(), [EdgeId(5)]);
    assert_eq!(sampled.blocks[0].srcs(), [NodeId(5), NodeId(4)]);
}

/// The positions of excluded edges are kept from hop to hop, but not for another graph or for other global ids.
#[test]
fn shared_scratch_keeps_no_positions_of_other_samplers() {
    let excluded =
        Arc::new(ExcludedEdges::new([(3, 0), (1, 5)].map(|(src, dst)| (NodeId(src), NodeId(dst)))));
    let seeds = Seeds::nodes(vec![NodeId(0)]).excluding(excluded);
    let first = NeighborSampler::full(graph_of(6, &[(1, 0), (2, 0), (3, 0)]), 1);
    let second = NeighborSampler::full(graph_of(6, &[(2, 0), (3, 0), (4, 0)]), 1);
    let of_part = first.clone().with_global_ids([5, 1, 2, 3, 4, 0].map(NodeId).to_vec());
    let mut scratch = Scratch::default();
    for (sampler, expected) in [(second, [2, 4]), (first, [1, 2]), (of_part, [2, 3])] {
        let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut scratch).unwrap();
        assert_eq!(sampled.blocks[0].srcs()[1..], expected.map(NodeId));
    }
}
