//! Unbiased edge weights, the rule that keeps self loops, and errors with the path of a mapped file.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Block, Csc, CscBuilder, EdgeId, MappedFile, NodeId, gcn_norm};
use kiln_sample::{
    DamagedGraphError, EdgeWeights, Error, Fanout, FrontierSampler, KeyDomain, NeighborSampler, Neighbors,
    NodeKey, RngKey, Rule, SamplerConfig, SamplingRule, Scratch, Seeds, Selection,
};
use kiln_testkit::{arb_coo, check_block, hub, six_nodes};
use proptest::prelude::*;

fn block_of(sampler: &impl FrontierSampler, seeds: impl IntoIterator<Item = u32>, key: RngKey) -> Block {
    let seeds = Seeds::nodes(seeds.into_iter().map(NodeId).collect());
    sampler.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap().blocks.remove(0)
}

/// A sampler with one layer.
fn one_layer(
    graph: Arc<Csc>,
    fanout: Fanout,
    rule: impl Into<Rule>,
    weights: EdgeWeights,
) -> kiln_sample::Result<NeighborSampler> {
    NeighborSampler::with_config(graph, SamplerConfig::new([fanout]).with_rule(rule).with_weights(weights))
}

/// A sampler with one layer and unbiased weights.
fn unbiased(graph: Arc<Csc>, fanout: Fanout, rule: impl Into<Rule>) -> NeighborSampler {
    one_layer(graph, fanout, rule, EdgeWeights::Unbiased).unwrap()
}

/// The six-node graph with the edge weights 1, 2, 4, ... in edge order.
fn weighted() -> Arc<Csc> {
    let weights: Vec<f32> = (0..7).map(|edge| f32::from(1_u16 << edge)).collect();
    Arc::new((*six_nodes()).clone().with_weights(weights.into()).unwrap())
}

/// A custom rule that picks the first neighbours.
fn first(_: Neighbors<'_>, _: NodeKey, fanout: u32, picks: &mut Selection) {
    (0..fanout).for_each(|position| picks.push(position));
}

/// A custom rule that picks the self loops and the first of the other neighbours.
struct LoopAndFirst;

impl SamplingRule for LoopAndFirst {
    fn pick(&self, neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection) {
        let loops = neighbors.self_loops();
        loops.clone().for_each(|position| picks.push(position as u32));
        picks.push(if loops.start == 0 { loops.end as u32 } else { 0 });
    }

    fn keeps_self_loops(&self) -> bool {
        true
    }
}

#[test]
fn unbiased_weights_are_scaled_by_edges_per_pick() {
    let sampler = unbiased(weighted(), Fanout::UpTo(2), first);
    // Two of the three edges of node 2 are picked, and both edges of node 3.
    let block = block_of(&sampler, [2, 3], RngKey::new(0));
    assert_eq!(block.edge_ids(), [1, 2, 4, 5].map(EdgeId));
    assert_eq!(block.weights().unwrap(), [2.0 * 1.5, 4.0 * 1.5, 16.0, 32.0]);
    let sampler = unbiased(weighted(), Fanout::UpTo(1), first);
    // The rule does not keep self loops, so the self loop of node 3 is an ordinary edge.
    assert_eq!(block_of(&sampler, [2, 3], RngKey::new(0)).weights().unwrap(), [6.0, 32.0]);
}

#[test]
fn kept_self_loops_are_not_scaled_and_not_counted() {
    let star =
        CscBuilder::new(5).weights(&[3.0, 5.0, 7.0, 11.0]).build(&[1, 2, 3, 2], &[2, 2, 2, 4]).unwrap();
    let star = Arc::new(star);
    let sampler = |weights| one_layer(star.clone(), Fanout::UpTo(1), LoopAndFirst, weights).unwrap();
    let block = block_of(&sampler(EdgeWeights::Unbiased), [2, 4], RngKey::new(0));
    assert_eq!(block.edge_ids(), [0, 1, 3].map(EdgeId));
    assert_eq!(block.weights().unwrap(), [3.0 * 2.0, 5.0, 11.0]);
    let stored = block_of(&sampler(EdgeWeights::Stored), [2, 4], RngKey::new(0));
    assert_eq!(stored.weights().unwrap(), [3.0, 5.0, 11.0]);
}

#[test]
fn weights_with_replacement_are_divided_among_picks() {
    let graph = CscBuilder::new(3).weights(&[8.0]).build(&[1], &[0]).unwrap();
    let sampler = unbiased(Arc::new(graph), Fanout::UpTo(4), Rule::UniformWithReplacement);
    assert_eq!(block_of(&sampler, [0], RngKey::new(0)).weights().unwrap(), [2.0; 4]);
}

/// The weights have full mantissas, so a factor that is not exactly 1 changes them.
#[test]
fn whole_neighbourhoods_have_exactly_the_stored_weights() {
    let degree = 1000;
    let weights: Vec<f32> = (1..=degree).map(|edge| 1.0 / edge as f32).collect();
    let graph = Arc::new((*hub(degree)).clone().with_weights(weights.clone().into()).unwrap());
    for fanout in [Fanout::All, Fanout::UpTo(degree), Fanout::UpTo(u32::MAX)] {
        let uniform = unbiased(graph.clone(), fanout, Rule::Uniform);
        assert_eq!(block_of(&uniform, [0], RngKey::new(0)).weights().unwrap(), weights);
        let looped = unbiased(graph.clone(), fanout, Rule::UniformKeepSelfLoops);
        assert_eq!(block_of(&looped, [0], RngKey::new(0)).weights().unwrap(), weights);
    }
}

#[test]
fn rejects_unbiased_weights_for_unweighted_graph() {
    let error = one_layer(six_nodes(), Fanout::UpTo(1), Rule::Uniform, EdgeWeights::Unbiased).unwrap_err();
    assert!(matches!(error, Error::NoWeights), "{error}");
}

/// A graph with varied neighbourhoods: a hub with a self loop, a hub without a self loop, and parallel edges.
fn uneven() -> Arc<Csc> {
    let mut srcs: Vec<u32> = (0..12).chain(1..9).collect();
    let mut dsts = [vec![0; 12], vec![9; 8]].concat();
    srcs.extend([3, 3, 3, 5, 7]);
    dsts.extend([4, 4, 5, 5, 5]);
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| 0.25 + (edge * 7 % 5) as f32).collect();
    Arc::new(CscBuilder::new(12).weights(&weights).build(&srcs, &dsts).unwrap())
}

/// Returns two weighted sums of source features for each destination: the sum over the sampled edges, as a mean over
/// `n_steps` steps, and the sum over all edges. Source `v` has the feature `1 + v`.
fn sums(sampler: &impl FrontierSampler, graph: Arc<Csc>, n_steps: u64) -> Vec<[f64; 2]> {
    let whole = one_layer(graph, Fanout::All, Rule::Uniform, EdgeWeights::Stored).unwrap();
    let sum = |sampler: &dyn FrontierSampler, key: RngKey, scratch: &mut Scratch| -> Vec<f64> {
        let seeds = Seeds::nodes([0, 9, 4, 5].map(NodeId).to_vec());
        let block = sampler.sample_blocks(&seeds, key, scratch).unwrap().blocks.remove(0);
        let edges = block.indices().iter().zip(block.weights().unwrap());
        let terms: Vec<f64> =
            edges.map(|(&src, weight)| f64::from(block.global(src).0 + 1) * f64::from(*weight)).collect();
        block.indptr().windows(2).map(|ends| terms[ends[0] as usize..ends[1] as usize].iter().sum()).collect()
    };
    let mut scratch = Scratch::default();
    let mut means: Vec<[f64; 2]> =
        sum(&whole, RngKey::new(0), &mut scratch).into_iter().map(|sum| [0.0, sum]).collect();
    for step in 0..n_steps {
        let one = sum(sampler, RngKey::new(4).fold_in(KeyDomain::Step, step), &mut scratch);
        for (mean, sum) in means.iter_mut().zip(one) {
            mean[0] += sum / n_steps as f64;
        }
    }
    means
}

/// The number of steps over which estimates are averaged.
const STEPS: u64 = 20_000;
/// The tolerance of the means' relative error. An estimate from one of twelve neighbours is off by about 80 % in one
/// step, so its mean over [`STEPS`] is off by about 0.6 %. The keys are fixed, so the result is deterministic.
const TOLERANCE: f64 = 0.02;

fn largest_error(sums: &[[f64; 2]]) -> f64 {
    sums.iter().map(|[mean, sum]| (mean / sum - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn mean_of_unbiased_sums_converges_to_the_full_sum() {
    let graph = uneven();
    for fanout in [1, 2, 5] {
        for rule in Rule::BUILT_IN {
            let sampler = unbiased(graph.clone(), Fanout::UpTo(fanout), rule);
            let sums = sums(&sampler, graph.clone(), STEPS);
            assert!(largest_error(&sums) < TOLERANCE, "fanout {fanout}: {sums:?}");
        }
    }
}

#[test]
fn mean_of_unscaled_sums_is_biased() {
    let graph = uneven();
    for fanout in [1, 2, 5] {
        let (fanout, rule) = (Fanout::UpTo(fanout), Rule::UniformKeepSelfLoops);
        let sampler = one_layer(graph.clone(), fanout, rule, EdgeWeights::Stored).unwrap();
        let sums = sums(&sampler, graph.clone(), STEPS);
        assert!(10.0 * TOLERANCE < largest_error(&sums), "{fanout:?}: {sums:?}");
    }
}

/// Compares with uniform picks in the same graph without the self loop, where the same positions are drawn.
#[test]
fn keeping_a_self_loop_does_not_change_the_other_picks() {
    let with_loop: Arc<Csc> = Arc::new(CscBuilder::new(1200).build(&vec_to(1200), &[600; 1200]).unwrap());
    let others: Vec<u32> = vec_to(1200).into_iter().filter(|&src| src != 600).collect();
    let without: Arc<Csc> = Arc::new(CscBuilder::new(1200).build(&others, &[600; 1199]).unwrap());
    for fanout in [1, 5, 60] {
        let fanouts = [Fanout::UpTo(fanout)];
        let sources = |graph: &Arc<Csc>, looped: bool| {
            let key = RngKey::new(u64::from(fanout));
            let rule = if looped { Rule::UniformKeepSelfLoops } else { Rule::Uniform };
            let block = block_of(&NeighborSampler::with_rule(graph.clone(), fanouts, rule), [600], key);
            let mut srcs: Vec<u32> = block.indices().iter().map(|&src| block.global(src).0).collect();
            srcs.sort_unstable();
            srcs
        };
        let uniform = sources(&without, false);
        assert_eq!(sources(&without, true), uniform, "picks of a node without a self loop");
        let mut expected = [uniform, vec![600]].concat();
        expected.sort_unstable();
        assert_eq!(sources(&with_loop, true), expected, "picks of a node with a self loop");
    }
}

fn vec_to(end: u32) -> Vec<u32> {
    (0..end).collect()
}

#[test]
fn finds_self_loops_at_any_position() {
    let loops = |ids: &[u32]| Neighbors::new(NodeId(4), NodeId::from_slice(ids), EdgeId(0)).self_loops();
    assert_eq!(loops(&[]), 0..0);
    assert_eq!(loops(&[1, 2, 5]), 0..0);
    assert_eq!(loops(&[4]), 0..1);
    assert_eq!(loops(&[1, 4, 5]), 1..2);
    assert_eq!(loops(&[4, 4, 4, 7]), 0..3);
    assert_eq!(loops(&[1, 4, 4]), 1..3);
}

#[test]
fn kept_self_loop_does_not_count_toward_fanout() {
    let sampler = NeighborSampler::with_rule(weighted(), [Fanout::UpTo(1)], Rule::UniformKeepSelfLoops);
    // Node 3 has a self loop and one other neighbour.
    assert_eq!(block_of(&sampler, [3], RngKey::new(0)).edge_ids(), [4, 5].map(EdgeId));
    assert_eq!(block_of(&sampler, [2], RngKey::new(0)).n_edges(), 1);
}

proptest! {
    #[test]
    fn blocks_with_kept_self_loops_satisfy_invariants(coo in arb_coo(), fanout in 1u32..6, seed: u64) {
        let graph = Arc::new(gcn_norm(&coo.csc()).unwrap());
        let sampler = unbiased(graph.clone(), Fanout::UpTo(fanout), Rule::UniformKeepSelfLoops);
        let block = block_of(&sampler, 0..coo.n_nodes as u32, RngKey::new(seed));
        check_block(&graph, block.dsts(), &block);
        let stored = graph.weights().unwrap();
        for (row, &dst) in block.dsts().iter().enumerate() {
            let edges = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
            prop_assert!(block.edge_ids()[edges.clone()].windows(2).all(|pair| pair[0] < pair[1]));
            let is_loop = |edge: EdgeId| graph.indices()[edge.index()] == dst;
            let n_loops = graph.in_neighbors(dst).iter().filter(|src| **src == dst).count();
            let n_picked = edges.clone().filter(|&at| is_loop(block.edge_ids()[at])).count();
            prop_assert_eq!(n_picked, n_loops, "every loop is picked");
            let n_others = graph.in_degree(dst) as usize - n_loops;
            prop_assert_eq!(edges.len() - n_loops, n_others.min(fanout as usize));
            let factor = (n_others as f64 / (edges.len() - n_loops) as f64) as f32;
            for at in edges {
                let edge = block.edge_ids()[at];
                let scale = if is_loop(edge) { 1.0 } else { factor };
                prop_assert_eq!(block.weights().unwrap()[at], stored[edge.index()] * scale);
            }
        }
    }
}

/// A graph whose two arrays are mapped from separate files.
fn mapped(folder: &std::path::Path, indptr: &[u64], indices: &[u32]) -> Arc<Csc> {
    let write = |name: &str, bytes: Vec<u8>| {
        std::fs::write(folder.join(name), &bytes).unwrap();
        (MappedFile::open(folder.join(name)).unwrap(), 0..bytes.len())
    };
    let (starts, bytes) = write("indptr.bin", indptr.iter().flat_map(|start| start.to_le_bytes()).collect());
    let indptr = starts.slice(bytes).unwrap();
    let (ids, bytes) = write("indices.bin", indices.iter().flat_map(|id| id.to_le_bytes()).collect());
    Arc::new(Csc::new(indptr, ids.slice(bytes).unwrap()).unwrap())
}

#[test]
fn errors_of_a_damaged_mapped_graph_contain_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let fail = |graph: Arc<Csc>| {
        let sampler = NeighborSampler::full(graph, 2);
        let seeds = Seeds::nodes(vec![NodeId(1)]);
        sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err()
    };
    let error = fail(mapped(folder.path(), &[0, 1, 2], &[1, 9]));
    let path = folder.path().join("indices.bin");
    assert!(
        matches!(&error, Error::DamagedGraph(DamagedGraphError::NeighborOutOfRange { edge: 1, file: Some(file), .. }) if *file == path)
    );
    let expected = "edge 1 comes from node 9, but the graph has 2 nodes: the graph is damaged: restore or \
                    regenerate it";
    assert_eq!(error.to_string(), format!("{}: {expected}", path.display()));

    let error = fail(mapped(folder.path(), &[0, 2, 1, 2], &[1, 0]));
    let path = folder.path().join("indptr.bin");
    assert!(
        matches!(&error, Error::DamagedGraph(DamagedGraphError::BadEdgeRange { node: NodeId(1), file: Some(file), .. }) if *file == path)
    );
    let expected = "node 1 has the edge range 2 to 1, expected an ascending range within 2 edges: the graph is \
                    damaged: restore or regenerate it";
    assert_eq!(error.to_string(), format!("{}: {expected}", path.display()));
}

#[test]
fn errors_of_a_graph_in_memory_contain_no_path() {
    let graph = Csc::new(vec![0, 1, 1].into(), vec![NodeId(9)].into()).unwrap();
    let sampler = NeighborSampler::new(Arc::new(graph), [Fanout::UpTo(1)]);
    let seeds = Seeds::nodes(vec![NodeId(0)]);
    let error = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err();
    assert!(error.to_string().starts_with("edge 0 comes from node 9"), "{error}");
}
