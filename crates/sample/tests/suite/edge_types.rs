//! Tests of the edge types of sampled blocks.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Block, BlockParts, Csc, CscBuilder, EdgeId, NodeId};
use kiln_sample::{
    EdgeWeights, Error, ExcludedEdges, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler,
    Neighbors, NodeKey, RngKey, Rule, SamplerConfig, SamplerError, Scratch, Seeds, Selection, to_block,
};
use kiln_testkit::{arb_coo, check_block, ring};
use proptest::prelude::*;

/// A custom rule that picks all edges of the type of the first one.
fn type_of_first(neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection) {
    let types = neighbors.edge_types.unwrap();
    (0..neighbors.degree() as u32).filter(|&at| types[at as usize] == types[0]).for_each(|at| picks.push(at));
}

/// A graph with a type for each edge, in the order of its edges.
fn typed(graph: &Csc) -> Arc<Csc> {
    let types: Vec<u8> = (0..graph.n_edges()).map(|edge| (edge * 37 % 256) as u8).collect();
    Arc::new(graph.clone().with_edge_types(types.into()).unwrap())
}

/// Edges 1 -> 0, 2 -> 0 and 3 -> 0 of the types 5, 0 and 255.
fn star() -> Arc<Csc> {
    let builder = CscBuilder::new(4).edge_types(&[255, 5, 0]);
    Arc::new(builder.build(&[3, 1, 2], &[0, 0, 0]).unwrap())
}

fn blocks(graph: &Arc<Csc>, config: SamplerConfig, seeds: &Seeds, key: RngKey) -> Vec<Block> {
    let sampler = NeighborSampler::with_config(Arc::clone(graph), config).unwrap();
    sampler.sample_blocks(seeds, key, &mut Scratch::default()).unwrap().blocks
}

fn without_types(block: &Block) -> Block {
    Block::new(BlockParts { edge_types: None, ..block.clone().into_parts() })
}

#[test]
fn edge_types_match_their_edges() {
    let seeds = Seeds::nodes(vec![NodeId(2), NodeId(0)]);
    let full = blocks(&star(), SamplerConfig::full(1).with_edge_types(), &seeds, RngKey::new(0));
    assert_eq!(full[0].edge_types(), Some(&[5, 0, 255][..]));
    let excluded = Arc::new(ExcludedEdges::new([(NodeId(2), NodeId(0))]));
    let seeds = seeds.excluding(excluded);
    let full = blocks(&star(), SamplerConfig::full(1).with_edge_types(), &seeds, RngKey::new(0));
    assert_eq!(full[0].edge_types(), Some(&[5, 255][..]));
    let none = blocks(&star(), SamplerConfig::full(1), &seeds, RngKey::new(0));
    assert_eq!(none[0].edge_types(), None);
    // The vectors of a clone have no spare capacity.
    assert_eq!(full[0].clone().n_bytes(), without_types(&full[0]).n_bytes() + full[0].n_edges());
}

#[test]
fn destinations_without_edges_have_empty_edge_types() {
    let seeds = Seeds::nodes(vec![NodeId(3)]);
    for fanout in [Fanout::All, Fanout::UpTo(0), Fanout::UpTo(2)] {
        let config = SamplerConfig::new([fanout]).with_edge_types();
        assert_eq!(blocks(&star(), config, &seeds, RngKey::new(0))[0].edge_types(), Some(&[][..]));
    }
}

#[test]
fn rejects_edge_types_of_graphs_without_them() {
    let config = SamplerConfig::new([Fanout::All]).with_edge_types();
    let error = NeighborSampler::with_config(ring(4), config).unwrap_err();
    assert!(matches!(error, Error::NoEdgeTypes), "{error}");
    assert!(error.to_string().contains("set them with CscBuilder::edge_types"), "{error}");
    let request = HopRequest::new(RngKey::new(0), 0, Fanout::All, EdgeWeights::None);
    let request = HopRequest { edge_types: true, ..request };
    let sampler = NeighborSampler::new(ring(4), [Fanout::All]);
    let error = sampler
        .sample_frontier(&request, (&[NodeId(0)]).into(), &mut Scratch::default(), &mut Frontier::default())
        .unwrap_err();
    assert!(matches!(error, Error::NoEdgeTypes), "{error}");
}

#[test]
fn reused_frontiers_drop_edge_types_that_are_not_requested() {
    let sampler = NeighborSampler::new(star(), [Fanout::All]);
    let (mut scratch, mut frontier) = (Scratch::default(), Frontier::default());
    let plain = HopRequest::new(RngKey::new(0), 0, Fanout::All, EdgeWeights::None);
    let with_types = HopRequest { edge_types: true, ..plain.clone() };
    for (request, expected) in [(&with_types, Some(vec![5, 0, 255])), (&plain, None)] {
        sampler.sample_frontier(request, (&[NodeId(0)]).into(), &mut scratch, &mut frontier).unwrap();
        assert_eq!(frontier.edge_types, expected);
    }
    frontier.edge_types = Some(vec![1, 2]);
    assert!(matches!(frontier.check(0, 1), Err(Error::Sampler(SamplerError::BadFrontier { .. }))));
}

#[test]
fn to_block_keeps_edge_types() {
    let frontier = Frontier {
        indptr: vec![0, 1],
        srcs: vec![NodeId(2)],
        edge_ids: vec![EdgeId(1)],
        edge_types: Some(vec![9]),
        ..Frontier::default()
    };
    let block = to_block(&[NodeId(0)], &frontier, 4, &mut Scratch::default()).unwrap();
    assert_eq!(block.edge_types(), Some(&[9][..]));
}

const FANOUTS: [Fanout; 4] = [Fanout::UpTo(0), Fanout::UpTo(2), Fanout::UpTo(30), Fanout::All];

proptest! {
    #[test]
    fn edge_types_are_those_of_the_graph_for_every_rule(
        coo in arb_coo(),
        fanouts in [0..FANOUTS.len(), 0..FANOUTS.len()],
        excluded in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed: u64,
    ) {
        let graph = typed(&coo.csc());
        let edges: Vec<_> = coo.srcs.iter().copied().zip(coo.dsts.iter().copied()).collect();
        let pick = |index: &prop::sample::Index| edges.get(index.index(edges.len().max(1))).copied();
        let pairs: Vec<_> = excluded.iter().filter_map(pick).collect();
        let excluded = ExcludedEdges::new(pairs.iter().map(|&(src, dst)| (NodeId(src), NodeId(dst))));
        let seeds = Seeds::nodes((0..coo.n_nodes as u32).step_by(2).map(NodeId).collect());
        for seeds in [seeds.clone(), seeds.excluding(Arc::new(excluded))] {
            for rule in Rule::BUILT_IN.into_iter().chain([Rule::from(type_of_first)]) {
                let config = SamplerConfig::new(fanouts.map(|fanout| FANOUTS[fanout])).with_rule(rule);
                let expected = blocks(&graph, config.clone(), &seeds, RngKey::new(seed));
                let sampled = blocks(&graph, config.with_edge_types(), &seeds, RngKey::new(seed));
                for (block, expected) in sampled.iter().zip(&expected) {
                    prop_assert!(block.edge_types().is_some());
                    check_block(&graph, block.dsts(), block);
                    prop_assert_eq!(&without_types(block), expected);
                }
            }
        }
    }
}
