//! Sampled blocks: exact arrays, invariants on random graphs, and unusual and invalid input.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder, EdgeId, LocalId, NodeId};
use kiln_sample::{
    DamagedGraphError, Dsts, EdgeWeights, Error, Fanout, Frontier, FrontierSampler, HopRequest,
    NeighborSampler, Neighbors, NodeKey, RngKey, Rule, RuleError, SampledBlocks, SamplerConfig, SamplerError,
    SamplingRule, Scratch, Seeds, Selection,
};
use kiln_testkit::{arb_coo, check_block, check_same_edges, hub, ring, six_nodes};
use proptest::prelude::*;

fn nodes(ids: impl IntoIterator<Item = u32>) -> Vec<NodeId> {
    ids.into_iter().map(NodeId).collect()
}

fn sample(sampler: &impl FrontierSampler, seeds: impl IntoIterator<Item = u32>, seed: u64) -> SampledBlocks {
    let seeds = Seeds::nodes(nodes(seeds));
    sampler.sample_blocks(&seeds, RngKey::new(seed), &mut Scratch::default()).unwrap()
}

#[test]
fn full_sampler_returns_all_in_edges_of_each_hop() {
    let sampled = sample(&NeighborSampler::full(six_nodes(), 2), [5, 3], 0);
    let [outer, inner] = &sampled.blocks[..] else { panic!("two layers should give two blocks") };
    assert_eq!(inner.srcs(), nodes([5, 3, 2, 4]));
    assert_eq!(inner.indptr(), [0, 1, 3]);
    assert_eq!(inner.indices(), [2, 1, 3].map(LocalId));
    assert_eq!(inner.edge_ids(), [6, 4, 5].map(EdgeId));
    assert_eq!(outer.srcs(), nodes([5, 3, 2, 4, 1]));
    assert_eq!(outer.indptr(), [0, 1, 3, 6, 6]);
    assert_eq!(outer.indices(), [2, 1, 3, 4, 1, 3].map(LocalId));
    assert_eq!(outer.edge_ids(), [6, 4, 5, 1, 2, 3].map(EdgeId));
    assert_eq!(sampled.seed_index, [LocalId(0), LocalId(1)]);
}

/// The expected picks are those of `docs/rng.md`. A change of these arrays breaks the reproducibility of existing
/// results.
#[test]
fn picks_of_a_hub_match_golden_values() {
    let sampler = NeighborSampler::new(hub(1000), [Fanout::UpTo(5)]);
    let picks = |seed| -> Vec<u64> {
        sample(&sampler, [0], seed).blocks[0].edge_ids().iter().map(|edge| edge.0).collect()
    };
    assert_eq!(picks(0), GOLDEN_SEED_0);
    assert_eq!(picks(1), GOLDEN_SEED_1);
    let sampler = NeighborSampler::with_rule(hub(3), [Fanout::UpTo(6)], Rule::UniformWithReplacement);
    let edges: Vec<u64> = sample(&sampler, [0], 0).blocks[0].edge_ids().iter().map(|edge| edge.0).collect();
    assert_eq!(edges, GOLDEN_WITH_REPLACEMENT);
}

const GOLDEN_SEED_0: [u64; 5] = [240, 589, 696, 723, 876];
const GOLDEN_SEED_1: [u64; 5] = [11, 25, 563, 627, 973];
const GOLDEN_WITH_REPLACEMENT: [u64; 6] = [0, 0, 1, 2, 2, 2];

#[test]
fn duplicate_seeds_share_a_row() {
    let sampled = sample(&NeighborSampler::new(ring(10), [Fanout::All]), [4, 7, 4, 4, 1], 0);
    assert_eq!(sampled.blocks[0].dsts(), nodes([4, 7, 1]));
    assert_eq!(sampled.seed_index, [0, 1, 0, 0, 2].map(LocalId));
}

#[test]
fn isolated_nodes_are_destinations_without_edges() {
    let graph = Arc::new(CscBuilder::new(5).build(&[0], &[1]).unwrap());
    for sampled in [
        sample(&NeighborSampler::new(graph.clone(), [Fanout::UpTo(3), Fanout::All]), [4, 2], 0),
        sample(
            &NeighborSampler::with_rule(graph.clone(), [Fanout::UpTo(3); 2], Rule::UniformWithReplacement),
            [4, 2],
            0,
        ),
    ] {
        assert_eq!(sampled.blocks[0].srcs(), nodes([4, 2]));
        assert_eq!(sampled.blocks[0].indptr(), [0, 0, 0]);
    }
}

#[test]
fn self_loop_source_is_the_destination_itself() {
    let graph = Arc::new(CscBuilder::new(2).build(&[1, 0], &[1, 1]).unwrap());
    let sampled = sample(&NeighborSampler::new(graph, [Fanout::All]), [1], 0);
    assert_eq!(sampled.blocks[0].srcs(), nodes([1, 0]));
    assert_eq!(sampled.blocks[0].indices(), [LocalId(1), LocalId(0)]);
}

#[test]
fn samples_a_hub_with_over_a_million_neighbours() {
    let degree = 1_100_000;
    let graph = hub(degree);
    for fanout in [10, 48, 49, 5000] {
        let sampler = NeighborSampler::new(graph.clone(), [Fanout::UpTo(fanout)]);
        let block = &sample(&sampler, [0], 3).blocks[0];
        check_block(&graph, &nodes([0]), block);
        let edges = block.edge_ids();
        assert_eq!(edges.len(), fanout as usize);
        assert!(
            edges.windows(2).all(|pair| pair[0] < pair[1]),
            "the picks for fanout {fanout} should be distinct"
        );
        assert!(
            edges[edges.len() - 1].0 > u64::from(degree) / 2,
            "the picks should include the second half of the neighbours"
        );
    }
    let whole = sample(&NeighborSampler::full(graph.clone(), 1), [0], 0);
    assert_eq!(whole.blocks[0].n_edges(), degree as usize);
}

#[test]
fn empty_batch_gives_empty_blocks() {
    let sampled = sample(&NeighborSampler::new(ring(4), [Fanout::UpTo(2); 3]), [], 0);
    assert_eq!(sampled.blocks.len(), 3);
    for block in &sampled.blocks {
        assert_eq!((block.n_src(), block.n_dst(), block.n_edges()), (0, 0, 0));
    }
}

#[test]
fn fanout_zero_picks_nothing_and_large_fanout_picks_all() {
    let none = sample(&NeighborSampler::new(ring(6), [Fanout::UpTo(0)]), 0..6, 0);
    assert_eq!(none.blocks[0].n_edges(), 0);
    let graph = six_nodes();
    let all = sample(&NeighborSampler::new(graph.clone(), [Fanout::UpTo(u32::MAX)]), 0..6, 0);
    assert_eq!(all, sample(&NeighborSampler::new(graph.clone(), [Fanout::All]), 0..6, 0));
    assert_eq!(all, sample(&NeighborSampler::full(graph, 1), 0..6, 0));
}

#[test]
fn rejects_invalid_seeds_graphs_and_weights() {
    let fail = |graph: Arc<Csc>, seed: u32| {
        let seeds = Seeds::nodes(nodes([0, seed]));
        let sampler = NeighborSampler::new(graph, [Fanout::UpTo(1), Fanout::All]);
        sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err()
    };
    let csc = |indptr: Vec<u64>, indices: Vec<u32>| {
        Arc::new(Csc::new(indptr.into(), nodes(indices).into()).unwrap())
    };
    let error = fail(ring(4), 4);
    assert!(matches!(error, Error::SeedOutOfRange { node: NodeId(4), position: 1, n_nodes: 4 }), "{error}");
    let error = fail(csc(vec![0, 1, 1], vec![9]), 1);
    assert!(
        matches!(
            error,
            Error::DamagedGraph(DamagedGraphError::NeighborOutOfRange {
                node: NodeId(9),
                edge: 0,
                n_nodes: 2,
                file: None
            })
        ),
        "{error}"
    );
    let error = fail(csc(vec![0, 2, 1], vec![0]), 1);
    assert!(
        matches!(
            error,
            Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node: NodeId(0), start: 0, end: 2, .. })
        ),
        "{error}"
    );
    let error = fail(csc(vec![0, 1, 0, 1], vec![0]), 1);
    assert!(
        matches!(
            error,
            Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node: NodeId(1), start: 1, end: 0, .. })
        ),
        "{error}"
    );
    let weighted = SamplerConfig::new([Fanout::All]).with_weights(EdgeWeights::Stored);
    assert!(matches!(NeighborSampler::with_config(ring(4), weighted).unwrap_err(), Error::NoWeights));
    // A request may ask for weights although the sampler is configured without them.
    let request = HopRequest::new(RngKey::new(0), 0, Fanout::All, EdgeWeights::Stored);
    let sampler = NeighborSampler::new(ring(4), [Fanout::All]);
    let (mut scratch, mut out) = (Scratch::default(), Frontier::default());
    assert!(matches!(
        sampler.sample_frontier(&request, (&nodes([0])).into(), &mut scratch, &mut out).unwrap_err(),
        Error::NoWeights
    ));
}

#[test]
fn scratch_is_reusable_after_errors_and_for_other_graphs() {
    let mut scratch = Scratch::default();
    let mut run = |n_nodes: u32, seed: u32| {
        let sampler = NeighborSampler::new(ring(n_nodes), [Fanout::UpTo(1); 2]);
        sampler.sample_blocks(&Seeds::nodes(nodes([seed])), RngKey::new(5), &mut scratch)
    };
    let fresh = |n_nodes| sample(&NeighborSampler::new(ring(n_nodes), [Fanout::UpTo(1); 2]), [1], 5);
    assert!(run(8, 8).is_err());
    assert_eq!(run(8, 1).unwrap(), fresh(8));
    assert_eq!(run(20, 1).unwrap(), fresh(20));
    assert_eq!(run(8, 1).unwrap(), fresh(8));
}

#[test]
fn edge_weights_match_their_edges() {
    let graph = CscBuilder::new(4).weights(&[0.5, 1.5, 2.5]).build(&[3, 1, 2], &[0, 0, 0]).unwrap();
    let config = SamplerConfig::new([Fanout::UpTo(2)]).with_weights(EdgeWeights::Stored);
    let sampler = NeighborSampler::with_config(Arc::new(graph), config).unwrap();
    let block = &sample(&sampler, [0], 0).blocks[0];
    for (edge, weight) in block.edge_ids().iter().zip(block.weights().unwrap()) {
        assert_eq!(*weight, [1.5, 2.5, 0.5][edge.index()]);
    }
    assert_eq!(block.n_edges(), 2);
    let graph = CscBuilder::new(2).weights(&[0.5]).build(&[1], &[0]).unwrap();
    let whole = SamplerConfig::full(1).with_weights(EdgeWeights::Stored);
    let whole = NeighborSampler::with_config(Arc::new(graph), whole).unwrap();
    assert_eq!(sample(&whole, [0], 0).blocks[0].weights(), Some(&[0.5][..]));
}

#[test]
fn custom_rule_gets_one_destination_and_its_picks_are_checked() {
    let first_and_last = |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        picks.push(neighbors.degree() as u32 - 1);
        picks.push(0);
    };
    let sampler = NeighborSampler::with_rule(hub(50), [Fanout::UpTo(2)], first_and_last);
    assert_eq!(sample(&sampler, [0], 0).blocks[0].edge_ids(), [EdgeId(0), EdgeId(49)]);

    struct TooFar;
    impl SamplingRule for TooFar {
        fn pick(&self, neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection) {
            picks.push(neighbors.degree() as u32);
        }
    }
    let sampler = NeighborSampler::with_rule(hub(50), [Fanout::UpTo(2)], TooFar);
    let error = sampler
        .sample_blocks(&Seeds::nodes(nodes([0])), RngKey::new(0), &mut Scratch::default())
        .unwrap_err();
    assert!(matches!(error, Error::Rule(RuleError::PickOutOfRange { pick: 50, degree: 50, .. })), "{error}");
}

/// A sampler that returns one destination fewer than requested.
struct Lying(NeighborSampler);

impl FrontierSampler for Lying {
    fn fanouts(&self) -> &[Fanout] {
        self.0.fanouts()
    }

    fn n_nodes(&self) -> usize {
        self.0.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        self.0.sample_frontier(request, dsts.slice(1..dsts.len()), scratch, out)
    }
}

#[test]
fn rejects_inconsistent_frontier_of_a_custom_sampler() {
    let sampler = Lying(NeighborSampler::new(ring(9), [Fanout::All]));
    let error = sampler
        .sample_blocks(&Seeds::nodes(nodes([4, 5, 6])), RngKey::new(0), &mut Scratch::default())
        .unwrap_err();
    assert!(
        matches!(error, Error::Sampler(SamplerError::BadFrontier { layer: 0, n_dst: 2, expected: 3, .. })),
        "{error}"
    );
}

fn check_counts(graph: &Csc, sampled: &SampledBlocks, fanouts: [u32; 2], replace: bool) {
    for (block, fanout) in sampled.blocks.iter().zip(fanouts) {
        for (row, &dst) in block.dsts().iter().enumerate() {
            let range = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
            let degree = graph.in_degree(dst) as usize;
            let fanout = fanout as usize;
            let expected = match replace {
                true => {
                    if degree == 0 {
                        0
                    } else {
                        fanout
                    }
                }
                false => degree.min(fanout),
            };
            assert_eq!(range.len(), expected, "picks of node {} of degree {degree}", dst.0);
            if !replace {
                let edges = &block.edge_ids()[range];
                assert!(edges.windows(2).all(|pair| pair[0] < pair[1]), "picks should be distinct");
            }
        }
    }
}

proptest! {
    #[test]
    fn blocks_satisfy_invariants(
        coo in arb_coo(),
        fanouts in [0u32..6, 0u32..6],
        seed: u64,
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        replace: bool,
    ) {
        let graph = coo.csc();
        let seeds: Vec<u32> = picked.iter().map(|index| index.index(coo.n_nodes) as u32).collect();
        let layers = fanouts.map(Fanout::UpTo);
        let sampled = if replace {
            let rule = Rule::UniformWithReplacement;
            sample(&NeighborSampler::with_rule(graph.clone(), layers, rule), seeds.clone(), seed)
        } else {
            sample(&NeighborSampler::new(graph.clone(), layers), seeds.clone(), seed)
        };
        let [outer, inner] = &sampled.blocks[..] else { panic!("two layers should give two blocks") };
        check_block(&graph, inner.dsts(), inner);
        check_block(&graph, inner.srcs(), outer);
        check_counts(&graph, &sampled, fanouts, replace);
        prop_assert_eq!(sampled.seed_index.len(), seeds.len());
        for (row, seed) in sampled.seed_index.iter().zip(&seeds) {
            prop_assert_eq!(inner.dsts()[row.index()], NodeId(*seed));
        }
    }

    /// Splits a batch in two: a node's picks depend only on the step's key and the layer, so the blocks of both halves
    /// agree with those of the whole batch.
    #[test]
    fn picks_do_not_depend_on_the_batch(coo in arb_coo(), fanout in 1u32..4, seed: u64, cut in 0usize..40) {
        let sampler = NeighborSampler::new(coo.csc(), [Fanout::UpTo(fanout); 2]);
        let all: Vec<u32> = (0..coo.n_nodes as u32).collect();
        let whole = sample(&sampler, all.clone(), seed);
        let (left, right) = all.split_at(cut.min(all.len()));
        for part in [left, right] {
            let part = sample(&sampler, part.to_vec(), seed);
            for (one, other) in part.blocks.iter().zip(&whole.blocks) {
                check_same_edges(one, other);
            }
        }
    }
}
