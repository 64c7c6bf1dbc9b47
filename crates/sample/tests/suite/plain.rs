//! Compares blocks with those of a naive reference sampler, which handles one destination at a time.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;

use kiln_graph::{Block, BlockParts, Csc, CscBuilder, LocalId, NodeId};
use kiln_sample::{
    DamagedGraphError, EdgeWeights, Error, Fanout, FrontierSampler, KeyDomain, NeighborSampler, Neighbors,
    NodeKey, RngKey, Rule, RuleError, SampledBlocks, SamplerConfig, Scratch, Seeds, Selection,
};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

/// A custom rule that reads the neighbours: it picks those with even ids, the last one twice.
fn even(neighbors: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection) {
    let is_even = |position: &u32| neighbors.ids[*position as usize].0.is_multiple_of(2);
    let positions = (0..neighbors.degree() as u32).rev().filter(is_even);
    positions.take(fanout as usize).for_each(|position| picks.push(position));
    if let Some(last) = picks.positions().last().copied() {
        picks.push(last);
    }
}

/// The reference implementation of a rule.
type PlainRule = fn(&Csc, NodeId, NodeKey, u32) -> Vec<u32>;

fn plain_uniform(graph: &Csc, dst: NodeId, key: NodeKey, fanout: u32) -> Vec<u32> {
    floyd(graph.in_degree(dst) as u32, key, fanout)
}

fn plain_with_loop(graph: &Csc, dst: NodeId, key: NodeKey, fanout: u32) -> Vec<u32> {
    let is_loop = |position: &u32| graph.in_neighbors(dst)[*position as usize] == dst;
    let (loops, others): (Vec<u32>, Vec<u32>) = (0..graph.in_degree(dst) as u32).partition(is_loop);
    let drawn = floyd(others.len() as u32, key, fanout).into_iter().map(|pick| others[pick as usize]);
    drawn.chain(loops).collect()
}

fn plain_with_replacement(graph: &Csc, dst: NodeId, key: NodeKey, fanout: u32) -> Vec<u32> {
    let mut rng = key.rng();
    (0..fanout).map(|_| rng.below(graph.in_degree(dst) as u32)).collect()
}

fn plain_even(graph: &Csc, dst: NodeId, key: NodeKey, fanout: u32) -> Vec<u32> {
    let mut picks = Selection::default();
    even(Neighbors::new(dst, graph.in_neighbors(dst), graph.first_edge(dst)), key, fanout, &mut picks);
    picks.positions().to_vec()
}

fn floyd(degree: u32, key: NodeKey, fanout: u32) -> Vec<u32> {
    let mut rng = key.rng();
    let mut picks = Vec::new();
    for last in degree.saturating_sub(fanout)..degree {
        if degree <= fanout {
            picks.push(last);
            continue;
        }
        let drawn = rng.below(last + 1);
        picks.push(if picks.contains(&drawn) { last } else { drawn });
    }
    picks
}

struct Plain {
    graph: Arc<Csc>,
    fanouts: Vec<Fanout>,
    rule: PlainRule,
    keeps_self_loops: bool,
    weights: EdgeWeights,
}

impl Plain {
    fn sample(&self, seeds: &[u32], key: RngKey) -> SampledBlocks {
        let mut nodes: Vec<NodeId> = Vec::new();
        let mut numbers: HashMap<NodeId, LocalId> = HashMap::new();
        let mut number = |node: NodeId, nodes: &mut Vec<NodeId>| {
            *numbers.entry(node).or_insert_with(|| {
                nodes.push(node);
                LocalId(nodes.len() as u32 - 1)
            })
        };
        let seed_index = seeds.iter().map(|seed| number(NodeId(*seed), &mut nodes)).collect();
        let mut blocks = Vec::new();
        for (layer, &fanout) in self.fanouts.iter().enumerate().rev() {
            let key = key.fold_in(KeyDomain::Layer, layer as u64);
            let mut parts = BlockParts { indptr: vec![0], ..BlockParts::default() };
            let mut weights = Vec::new();
            for dst in nodes.clone() {
                for (position, factor) in self.picks(dst, key, fanout) {
                    let edge = self.graph.first_edge(dst).index() + position as usize;
                    parts.indices.push(number(self.graph.indices()[edge], &mut nodes));
                    parts.edge_ids.push(kiln_graph::EdgeId(edge as u64));
                    weights.push(self.graph.weights().map_or(1.0, |weights| weights[edge]) * factor);
                }
                parts.indptr.push(parts.indices.len() as u32);
            }
            parts.weights = (self.weights != EdgeWeights::None).then_some(weights);
            parts.srcs = nodes.clone();
            blocks.push(Block::new(parts));
        }
        blocks.reverse();
        SampledBlocks { blocks, seed_index }
    }

    /// Returns a destination's picks in ascending order, with their weight factors.
    fn picks(&self, dst: NodeId, key: RngKey, fanout: Fanout) -> Vec<(u32, f32)> {
        let degree = self.graph.in_degree(dst) as u32;
        let Fanout::UpTo(fanout) = fanout else { return (0..degree).map(|pick| (pick, 1.0)).collect() };
        if degree == 0 || fanout == 0 && !self.keeps_self_loops {
            return Vec::new();
        }
        let mut picks = (self.rule)(&self.graph, dst, key.node(dst), fanout);
        picks.sort_unstable();
        let ids = self.graph.in_neighbors(dst);
        let is_kept = |pick: u32| self.keeps_self_loops && ids[pick as usize] == dst;
        let n_kept = (0..degree).filter(|&pick| is_kept(pick)).count();
        let n_drawn = picks.iter().filter(|pick| !is_kept(**pick)).count();
        let scale = match self.weights {
            EdgeWeights::Unbiased => ((degree as usize - n_kept) as f64 / n_drawn as f64) as f32,
            EdgeWeights::None | EdgeWeights::Stored => 1.0,
        };
        picks.iter().map(|&pick| (pick, if is_kept(pick) { 1.0 } else { scale })).collect()
    }
}

fn sampler(plain: &Plain, rule: impl Into<Rule>) -> NeighborSampler {
    let config = SamplerConfig::new(plain.fanouts.clone()).with_rule(rule).with_weights(plain.weights);
    NeighborSampler::with_config(plain.graph.clone(), config).unwrap()
}

/// Compares all rules and all kinds of weights, with the same scratch.
fn check(graph: &Arc<Csc>, fanouts: &[Fanout], seeds: &[u32], seed: u64, scratch: &mut Scratch) {
    let key = RngKey::new(seed);
    let given = Seeds::nodes(seeds.iter().copied().map(NodeId).collect());
    for weights in [EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased] {
        let plain = |rule, keeps_self_loops| {
            let (graph, fanouts) = (graph.clone(), fanouts.to_vec());
            Plain { graph, fanouts, rule, keeps_self_loops, weights }
        };
        let name = format!("{fanouts:?}, {weights:?}, {} seeds", seeds.len());
        let mut same = |plain: Plain, sampler: &dyn FrontierSampler, rule: &str| {
            let sampled = sampler.sample_blocks(&given, key, scratch).unwrap();
            assert!(sampled == plain.sample(seeds, key), "{rule}: {name}");
        };
        let uniform = plain(plain_uniform, false);
        let fast = sampler(&uniform, Rule::Uniform);
        same(uniform, &fast, "uniform");
        let with_loop = plain(plain_with_loop, true);
        let fast = sampler(&with_loop, Rule::UniformKeepSelfLoops);
        same(with_loop, &fast, "with the loop");
        let with_replacement = plain(plain_with_replacement, false);
        let fast = sampler(&with_replacement, Rule::UniformWithReplacement);
        same(with_replacement, &fast, "with replacement");
        let users = plain(plain_even, false);
        let fast = sampler(&users, even);
        same(users, &fast, "a user's rule");
    }
}

/// A graph whose nodes have these in-degrees, repeated cyclically, with parallel edges and self loops.
fn graph_of(degrees: &[u32], n_nodes: u32) -> Arc<Csc> {
    let (mut srcs, mut dsts) = (Vec::new(), Vec::new());
    for dst in 0..n_nodes {
        for edge in 0..degrees[dst as usize % degrees.len()] {
            let src = (dst * 31 + edge).wrapping_mul(2_654_435_761) % n_nodes;
            srcs.push(if edge % 9 == 4 { dst } else { src });
            dsts.push(dst);
        }
    }
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| 0.3 + edge as f32 * 0.7).collect();
    Arc::new(CscBuilder::new(n_nodes as usize).weights(&weights).build(&srcs, &dsts).unwrap())
}

const FANOUTS: [Fanout; 9] = [
    Fanout::UpTo(0),
    Fanout::UpTo(1),
    Fanout::UpTo(5),
    Fanout::UpTo(16),
    Fanout::UpTo(17),
    Fanout::UpTo(48),
    Fanout::UpTo(49),
    Fanout::UpTo(100),
    Fanout::All,
];

#[test]
fn agrees_with_reference_for_any_number_of_destinations_and_fanout() {
    // The degrees are around the limits of a bitset word, a batch of draws and a linear search; one node is a hub.
    let graph = graph_of(&[3, 0, 1, 15, 2000, 16, 17, 33, 48, 49, 5, 63, 64, 65, 129, 300], 160);
    let mut scratch = Scratch::default();
    for fanout in FANOUTS {
        for n_seeds in [0, 1, 63, 64, 65, 129] {
            let seeds: Vec<u32> = (0..n_seeds).map(|seed| (seed * 37 + 5) % 160).collect();
            check(&graph, &[fanout], &seeds, u64::from(n_seeds), &mut scratch);
        }
    }
    check(&graph, &[Fanout::All, Fanout::UpTo(5), Fanout::UpTo(2)], &[7, 7, 4, 12], 1, &mut scratch);
}

#[test]
fn sources_beyond_one_chunk_are_relabelled_by_first_appearance() {
    let graph = graph_of(&[40], 5000);
    let seeds: Vec<u32> = (0..300).collect();
    check(&graph, &[Fanout::UpTo(15), Fanout::UpTo(10)], &seeds, 3, &mut Scratch::default());
}

proptest! {
    #[test]
    fn agrees_with_reference_on_random_graphs(
        coo in arb_coo(),
        fanouts in [0..FANOUTS.len(), 0..FANOUTS.len()],
        picked in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        seed: u64,
    ) {
        let weights = vec![0.7; coo.srcs.len()];
        let builder = CscBuilder::new(coo.n_nodes).weights(&weights);
        let graph = Arc::new(builder.build(&coo.srcs, &coo.dsts).unwrap());
        let seeds: Vec<u32> = picked.iter().map(|index| index.index(coo.n_nodes) as u32).collect();
        check(&graph, &fanouts.map(|at| FANOUTS[at]), &seeds, seed, &mut Scratch::default());
    }
}

/// A ring of 200 nodes, each with one edge from the node before it, modified by `damage`.
fn damaged(damage: impl Fn(&mut [u64], &mut [NodeId])) -> Arc<Csc> {
    let mut indptr: Vec<u64> = (0..=200).collect();
    let mut indices: Vec<NodeId> = (0..200).map(|node| NodeId((node + 199) % 200)).collect();
    damage(&mut indptr, &mut indices);
    Arc::new(Csc::new(indptr.into(), indices.into()).unwrap())
}

fn error_of(graph: Arc<Csc>, rule: impl Into<Rule>) -> Error {
    let sampler = NeighborSampler::with_rule(graph, [Fanout::UpTo(3)], rule);
    let seeds = Seeds::nodes((0..200).map(NodeId).collect());
    sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err()
}

#[test]
fn first_of_several_damaged_values_is_reported() {
    for at in [1, 63, 64, 65, 127, 128, 129] {
        // The edge ranges of two nodes, `at - 1` and the later node 189, end after the last edge.
        let error = error_of(damaged(|indptr, _| (indptr[at], indptr[190]) = (900, 901)), Rule::Uniform);
        let named = matches!(error, Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node, end: 900, .. }) if node.index() == at - 1);
        assert!(named, "{error}");
        let bad = |indices: &mut [NodeId]| (indices[at], indices[190]) = (NodeId(300), NodeId(301));
        let error = error_of(damaged(|_, indices| bad(indices)), Rule::Uniform);
        let named = matches!(error, Error::DamagedGraph(DamagedGraphError::NeighborOutOfRange { node: NodeId(300), edge, .. }) if edge == at as u64);
        assert!(named, "{error}");
    }
}

#[test]
fn pick_out_of_range_is_reported_before_later_damage() {
    let too_far_at = |place: u32| {
        move |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
            picks.push(u32::from(neighbors.dst.0 == place));
        }
    };
    let graph = damaged(|indptr, _| indptr[101] = 900);
    let error = error_of(graph.clone(), too_far_at(99));
    assert!(
        matches!(error, Error::Rule(RuleError::PickOutOfRange { dst: NodeId(99), pick: 1, degree: 1 })),
        "{error}"
    );
    let error = error_of(graph, too_far_at(101));
    assert!(
        matches!(
            error,
            Error::DamagedGraph(DamagedGraphError::BadEdgeRange {
                node: NodeId(100),
                start: 100,
                end: 900,
                ..
            })
        ),
        "{error}"
    );
}
