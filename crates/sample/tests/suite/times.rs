//! Compares temporal sampling with a naive program that follows `docs/rng.md`.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::Arc;

use kiln_graph::{
    Block, Csc, CscBuilder, EdgeColumn, EdgeColumns, EdgeId, EdgeTimes, NodeId, NodeTypes, RelationEdges,
    Relations, TimeScale,
};
use kiln_sample::{
    EdgeWeights, Error, ExcludedEdges, Fanout, FrontierSampler, HeteroNeighborSampler, KeyDomain,
    NeighborSampler, Neighbors, NodeKey, RngKey, Rule, RuleError, SamplerConfig, Scratch, Seeds, Selection,
    TimeLimits, TimesError,
};
use kiln_testkit::{CooGraph, arb_coo, chi_square_p_value, hub, six_nodes};
use proptest::prelude::*;

/// The smallest accepted p-value.
const LEAST_P_VALUE: f64 = 1e-4;

/// A custom rule, which gets the known edges in ascending order.
fn uniform_of_neighbors(neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
    assert!(neighbors.ids.is_sorted(), "{neighbors:?}");
    Rule::Uniform.pick(neighbors, key, fanout, picks);
}

/// One way to sample.
#[derive(Debug, Clone)]
struct Way {
    rule: Rule,
    fanout: Fanout,
    limits: TimeLimits,
}

impl Way {
    fn config(&self, n_layers: usize) -> SamplerConfig {
        SamplerConfig::new(vec![self.fanout; n_layers])
            .with_rule(self.rule.clone())
            .with_time_limits(self.limits)
    }

    /// Returns true if an edge is known at a time.
    fn knows(&self, edge_time: i64, time: i64) -> bool {
        if edge_time == EdgeTimes::ALWAYS {
            return true;
        }
        let is_early = if self.limits.includes_equal { edge_time <= time } else { edge_time < time };
        let is_recent = match self.limits.window {
            None => true,
            Some(window) => {
                let age = i128::from(time) - i128::from(edge_time);
                if self.limits.includes_equal { age < i128::from(window) } else { age <= i128::from(window) }
            }
        };
        edge_time != EdgeTimes::NEVER && is_early && is_recent
    }

    /// Picks the edges of one destination, ascending: the reference.
    fn pick(
        &self,
        graph: &Csc,
        dst: NodeId,
        time: i64,
        key: RngKey,
        excluded: &ExcludedEdges,
    ) -> Vec<EdgeId> {
        let first = graph.first_edge(dst).0;
        let of_edge =
            |edge: u64| graph.edge_times().map_or(EdgeTimes::ALWAYS, |all| all.times()[edge as usize]);
        let is_loop = |edge: u64| graph.indices()[edge as usize] == dst;
        let mut known: Vec<u64> = (first..first + graph.in_degree(dst))
            .filter(|edge| self.knows(of_edge(*edge), time))
            .filter(|edge| !excluded.srcs_into(dst).contains(&graph.indices()[*edge as usize]))
            .collect();
        let mut kept = Vec::new();
        let reads_neighbors = matches!(self.rule, Rule::UniformKeepSelfLoops | Rule::Custom { .. });
        if matches!(self.rule, Rule::UniformKeepSelfLoops) && self.fanout != Fanout::All {
            kept = known.iter().copied().filter(|edge| is_loop(*edge)).collect();
            known.retain(|edge| !is_loop(*edge));
        } else if !reads_neighbors {
            known.sort_by_key(|edge| (of_edge(*edge), *edge));
        }
        let n = known.len() as u32;
        let mut rng = key.fold_in(KeyDomain::Time, time as u64).node(dst).rng();
        let positions: Vec<u32> = match (self.fanout, &self.rule) {
            (Fanout::All, _) => (0..n).collect(),
            (Fanout::UpTo(fanout), Rule::UniformWithReplacement) if 0 < n => {
                (0..fanout).map(|_| rng.below(n)).collect()
            }
            (Fanout::UpTo(fanout), _) if n <= fanout => (0..n).collect(),
            (Fanout::UpTo(fanout), Rule::MostRecent) if graph.edge_times().is_some() => {
                (n - fanout..n).collect()
            }
            (Fanout::UpTo(fanout), _) => {
                let mut picks = Vec::new();
                for last in n - fanout..n {
                    let drawn = rng.below(last + 1);
                    picks.push(if picks.contains(&drawn) { last } else { drawn });
                }
                picks
            }
        };
        let mut edges: Vec<u64> = positions.iter().map(|position| known[*position as usize]).collect();
        edges.extend(kept);
        edges.sort_unstable();
        edges.into_iter().map(EdgeId).collect()
    }
}

fn arb_way() -> impl Strategy<Value = Way> {
    let rule = prop_oneof![
        Just(Rule::Uniform),
        Just(Rule::UniformWithReplacement),
        Just(Rule::UniformKeepSelfLoops),
        Just(Rule::MostRecent),
        Just(Rule::from(uniform_of_neighbors)),
    ];
    let fanout =
        prop_oneof![Just(Fanout::All), (0..40_u32).prop_map(Fanout::UpTo), (1..6_u32).prop_map(Fanout::UpTo)];
    let window = prop_oneof![Just(None), (0..8_u64).prop_map(Some)];
    (rule, fanout, any::<bool>(), window).prop_map(|(rule, fanout, includes_equal, window)| Way {
        rule,
        fanout,
        limits: TimeLimits { includes_equal, window },
    })
}

fn arb_time() -> impl Strategy<Value = i64> {
    prop_oneof![10 => -6..9_i64, 1 => Just(EdgeTimes::ALWAYS), 1 => Just(EdgeTimes::NEVER)]
}

/// Items, and the pairs of nodes whose edges they leave out.
type Items = (Vec<(u32, i64)>, Vec<(u32, u32)>);

/// Returns a graph with times, and items of it.
fn arb_case() -> impl Strategy<Value = (Arc<Csc>, Items)> {
    arb_coo().prop_flat_map(|CooGraph { n_nodes, srcs, dsts }| {
        let graph = CooGraph { n_nodes, srcs, dsts }.csc();
        let n_edges = graph.n_edges() as usize;
        let times = prop::collection::vec(arb_time(), n_edges);
        let node = 0..n_nodes as u32;
        let items = prop::collection::vec((node.clone(), arb_time()), 1..6);
        let pairs = prop::collection::vec((node.clone(), node), 0..4);
        (times, items, pairs).prop_map(move |(times, items, pairs)| {
            (Arc::new(Csc::clone(&graph).with_edge_times(times).unwrap()), (items, pairs))
        })
    })
}

fn seeds_of((items, pairs): &Items) -> (Seeds, ExcludedEdges) {
    let nodes = items.iter().map(|item| NodeId(item.0)).collect();
    let times: Vec<i64> = items.iter().map(|item| item.1).collect();
    let excluded = ExcludedEdges::new(pairs.iter().map(|&(src, dst)| (NodeId(src), NodeId(dst))));
    (Seeds::nodes(nodes).with_times(times).excluding(Arc::new(excluded.clone())), excluded)
}

/// Returns the edges of each destination of a block, by the destination and its time.
fn edges_by_dst(block: &Block) -> HashMap<(NodeId, i64), Vec<EdgeId>> {
    let times = block.src_times().unwrap();
    let mut all = HashMap::new();
    for (row, dst) in block.dsts().iter().enumerate() {
        let edges = block.indptr()[row] as usize..block.indptr()[row + 1] as usize;
        for src in &block.indices()[edges.clone()] {
            assert_eq!(times[src.index()], times[row], "a source should be in the tree of its destination");
        }
        let before = all.insert((*dst, times[row]), block.edge_ids()[edges].to_vec());
        assert_eq!(before, None, "destinations should be distinct");
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn picks_are_those_of_the_naive_program((graph, items) in arb_case(), way in arb_way()) {
        let key = RngKey::new(5).fold_in(KeyDomain::Step, 3);
        let sampler = NeighborSampler::with_config(Arc::clone(&graph), way.config(2)).unwrap();
        let (seeds, excluded) = seeds_of(&items);
        let mut scratch = Scratch::default();
        let sampled = sampler.sample_blocks(&seeds, key, &mut scratch).unwrap();
        for (layer, block) in sampled.blocks.iter().enumerate() {
            let hop_key = key.fold_in(KeyDomain::Layer, layer as u64);
            for ((dst, time), edges) in edges_by_dst(block) {
                let expected = way.pick(&graph, dst, time, hop_key, &excluded);
                prop_assert_eq!(&edges, &expected, "destination {} at {}, layer {}", dst.0, time, layer);
            }
        }
        // The seeds are the rows that the index states.
        let last = &sampled.blocks[1];
        for (position, row) in sampled.seed_index.iter().enumerate() {
            prop_assert_eq!(last.dsts()[row.index()], seeds.as_nodes()[position]);
            prop_assert_eq!(last.src_times().unwrap()[row.index()], seeds.times().unwrap()[position]);
        }
        // An item has the same tree alone, with the same scratch or a new one.
        for (node, time) in &items.0 {
            let (alone, _) = seeds_of(&(vec![(*node, *time)], items.1.clone()));
            for scratch in [&mut scratch, &mut Scratch::default()] {
                let of_one = sampler.sample_blocks(&alone, key, scratch).unwrap();
                let all = edges_by_dst(last);
                prop_assert_eq!(&edges_by_dst(&of_one.blocks[1])[&(NodeId(*node), *time)], &all[&(NodeId(*node), *time)]);
            }
        }
    }

    #[test]
    fn relations_draw_with_their_own_keys_times_rules_and_windows(
        (graph, items) in arb_case(),
        way in arb_way(),
        own in arb_way(),
    ) {
        // The second relation has the same edges without times, and the third its own rule, window and times.
        let n_nodes = graph.n_nodes();
        let types = NodeTypes::new([("node", n_nodes)]).unwrap();
        let srcs: Vec<u32> = graph.indices().iter().map(|src| src.0).collect();
        let dsts: Vec<u32> = graph.dsts().iter().map(|dst| dst.0).collect();
        let of = |name| RelationEdges::new(name, "node", "node", &srcs, &dsts);
        let relations = Relations::from_edges(types, &[of("timed"), of("always"), of("own")]).unwrap();
        let mut all: Vec<_> = relations.iter().cloned().collect();
        all[0].graph = Arc::clone(&graph);
        let mut times = graph.edge_times().unwrap().times().to_vec();
        times.reverse();
        all[2].graph = Arc::new(Csc::clone(&all[1].graph).with_edge_times(times).unwrap());
        let relations = Relations::new(Arc::clone(relations.types()), all).unwrap();
        let fanouts = vec![vec![way.fanout, Fanout::UpTo(2), own.fanout]; 2];
        let own = Way { limits: TimeLimits { window: own.limits.window, ..way.limits }, ..own };
        let config = way
            .config(2)
            .with_edge_types()
            .with_relation_rule("own", own.rule.clone())
            .with_relation_window("own", own.limits.window);
        let sampler = HeteroNeighborSampler::new(&relations, fanouts, config).unwrap();
        let (seeds, excluded) = seeds_of(&items);
        let key = RngKey::new(6);
        let sampled = sampler.sample_blocks(&seeds, key, &mut Scratch::default()).unwrap();
        let of_always = Way { fanout: Fanout::UpTo(2), ..way.clone() };
        for (layer, block) in sampled.blocks.iter().enumerate() {
            let hop_key = key.fold_in(KeyDomain::Layer, layer as u64);
            for ((dst, time), edges) in edges_by_dst(block) {
                let mut expected = way.pick(&graph, dst, time, hop_key, &excluded);
                for (relation, way) in [(1_u64, &of_always), (2, &own)] {
                    let key = hop_key.fold_in(KeyDomain::Relation, relation);
                    let of_relation = &relations.relation(relation as usize).graph;
                    let picks = way.pick(of_relation, dst, time, key, &excluded);
                    expected.extend(picks.iter().map(|edge| EdgeId(edge.0 + relation * graph.n_edges())));
                }
                prop_assert_eq!(edges, expected, "destination {} at {}, layer {}", dst.0, time, layer);
            }
        }
    }
}

/// The vectors of `docs/rng.md`, which another program computed.
#[test]
fn picks_match_the_documented_vectors() {
    let step = RngKey::new(0x0123_4567_89ab_cdef).fold_in(KeyDomain::Epoch, 2).fold_in(KeyDomain::Step, 3);
    let key = step.fold_in(KeyDomain::Layer, 1).fold_in(KeyDomain::Time, -5_i64 as u64);
    assert_eq!(key.words(), [0x26ea_709d, 0x03a8_16b6]);
    // Node 42 has 130 edges, of which the last 100 are known at -5, the latest first.
    let graph = CscBuilder::new(43).build(&[0; 130], &[42; 130]).unwrap();
    let times: Vec<i64> = (0..130).map(|edge| if edge < 30 { 0 } else { -10 - edge }).collect();
    let graph = Arc::new(graph.with_edge_times(times).unwrap());
    let sampler = NeighborSampler::new(graph, [Fanout::UpTo(0), Fanout::UpTo(10)]);
    let seeds = Seeds::nodes(vec![NodeId(42)]).with_times(vec![-5]);
    let sampled = sampler.sample_blocks(&seeds, step, &mut Scratch::default()).unwrap();
    let mut ranks: Vec<u64> = sampled.blocks[1].edge_ids().iter().map(|edge| 129 - edge.0).collect();
    ranks.reverse();
    assert_eq!(ranks, [7, 17, 19, 22, 53, 60, 63, 72, 76, 91]);
}

#[test]
fn known_edges_are_equally_likely() {
    // 150 edges of which 120 are known: more than are counted one after the other.
    let times: Vec<i64> = (0..150).map(|edge| (edge * 37) % 150).collect();
    let graph = Arc::new(Csc::clone(&hub(150)).with_edge_times(times.clone()).unwrap());
    let sampler = NeighborSampler::new(graph, [Fanout::UpTo(10)]);
    let n_steps = 20_000;
    let mut counts = vec![0_u64; 150];
    let mut scratch = Scratch::default();
    let seeds = Seeds::nodes(vec![NodeId(0)]).with_times(vec![120]);
    for step in 0..n_steps {
        let key = RngKey::new(13).fold_in(KeyDomain::Step, step);
        for edge in sampler.sample_blocks(&seeds, key, &mut scratch).unwrap().blocks[0].edge_ids() {
            counts[edge.index()] += 1;
        }
    }
    let mean = n_steps as f64 * 10.0 / 120.0;
    let shrink = (110.0_f64 / 119.0).sqrt();
    let mut of_known = Vec::new();
    for (count, time) in counts.iter().zip(&times) {
        if *time < 120 {
            of_known.push((mean + (*count as f64 - mean) / shrink).round() as u64);
        } else {
            assert_eq!(*count, 0, "an edge at {time} should not be known at 120");
        }
    }
    let p = chi_square_p_value(&of_known, &[mean; 120]);
    assert!(p > LEAST_P_VALUE && p < 1.0 - LEAST_P_VALUE, "p = {p}, {of_known:?}");
}

#[test]
fn weights_are_scaled_by_the_known_edges() {
    let weights: Vec<f32> = (1..=8).map(|weight| weight as f32).collect();
    let graph = Csc::clone(&hub(8)).with_weights(weights.into()).unwrap();
    let graph = Arc::new(graph.with_edge_times((0..8).collect::<Vec<i64>>()).unwrap());
    let config = SamplerConfig::new([2]).with_weights(EdgeWeights::Unbiased);
    let sampler = NeighborSampler::with_config(graph, config).unwrap();
    let seeds = Seeds::nodes(vec![NodeId(0)]).with_times(vec![6]);
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(1), &mut Scratch::default()).unwrap();
    let block = &sampled.blocks[0];
    for (edge, weight) in block.edge_ids().iter().zip(block.weights().unwrap()) {
        assert_eq!(*weight, (edge.0 + 1) as f32 * 3.0, "two of six edges should count three times");
    }
}

#[test]
fn times_that_cannot_be_used_are_errors() {
    let key = RngKey::new(0);
    let mut scratch = Scratch::default();
    let seeds = Seeds::nodes(vec![NodeId(0)]);
    let recent = NeighborSampler::with_rule(six_nodes(), [2], Rule::MostRecent);
    let error = recent.sample_blocks(&seeds, key, &mut scratch).unwrap_err();
    assert!(matches!(error, Error::Times(TimesError::NoTimes)), "{error}");

    let n_edges = six_nodes().n_edges() as usize;
    let column = EdgeColumn::new(vec![0_i64; n_edges], 1).unwrap();
    let unordered = Csc::clone(&six_nodes()).with_column(EdgeColumns::TIMES, column).unwrap();
    let sampler = NeighborSampler::new(Arc::new(unordered), [2]);
    let error = sampler.sample_blocks(&seeds.clone().with_times(vec![1]), key, &mut scratch).unwrap_err();
    assert!(matches!(error, Error::Times(TimesError::NoOrder)), "{error}");

    let sampler = NeighborSampler::new(six_nodes(), [2]);
    let error = sampler.sample_blocks(&seeds.clone().with_times(vec![1]), key, &mut scratch).unwrap_err();
    assert!(matches!(error, Error::Times(TimesError::NoEdgeTimes)), "{error}");
    let types = NodeTypes::new([("node", 2)]).unwrap();
    let relations =
        Relations::from_edges(types, &[RelationEdges::new("always", "node", "node", &[0], &[1])]).unwrap();
    let of = |config| HeteroNeighborSampler::new(&relations, vec![vec![Fanout::All]], config);
    let error = of(SamplerConfig::default()).unwrap().sample_blocks(
        &seeds.clone().with_times(vec![1]),
        key,
        &mut scratch,
    );
    assert!(matches!(error.unwrap_err(), Error::Times(TimesError::NoEdgeTimes)));
    let recent = SamplerConfig::default().with_relation_rule("always", Rule::MostRecent);
    for config in [recent.clone(), SamplerConfig::default().with_relation_window("always", Some(1))] {
        let error = of(config).unwrap_err();
        assert!(matches!(error, Error::Times(TimesError::RelationWithoutTimes { .. })), "{error}");
    }
    let error = of(SamplerConfig::default().with_relation_rule("never", Rule::Uniform)).unwrap_err();
    assert!(error.to_string().contains("no relation `never`"), "{error}");
    let error = NeighborSampler::with_config(six_nodes(), recent).unwrap_err();
    assert!(matches!(error, Error::Rule(RuleError::OfRelation { .. })), "{error}");

    let damaged =
        EdgeTimes::new(vec![0; n_edges].into(), vec![7; n_edges].into(), TimeScale::of(&[0])).unwrap();
    let damaged = Csc::clone(&six_nodes()).with_ordered_times(damaged).unwrap();
    for fanout in [Fanout::All, Fanout::UpTo(1)] {
        let sampler = NeighborSampler::new(Arc::new(damaged.clone()), [fanout]);
        let all = Seeds::nodes((0..6).map(NodeId).collect()).with_times(vec![i64::MAX; 6]);
        let error = sampler.sample_blocks(&all, key, &mut scratch).unwrap_err();
        assert!(error.to_string().contains("the graph is damaged"), "{error}");
    }
}
