//! Compares samples of heterogeneous graphs with those of one homogeneous graph per relation.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use kiln_graph::{Csc, CscBuilder, NodeId, NodeTypes, RelationEdges, Relations};
use kiln_sample::{
    DamagedGraphError, EdgeWeights, Error, ExcludedEdges, Fanout, FanoutsError, Frontier, FrontierSampler,
    HeteroNeighborSampler, HopRequest, KeyDomain, NeighborSampler, RelationHop, RelationSampler,
    RelationScratch, RngKey, Rule, SamplerConfig, Scratch, Seeds,
};

/// The name and the types of each relation. The first and the last have edges into the same type, and no edge leads to the
/// last type.
const RELATIONS: [(&str, usize, usize); 4] =
    [("rates", 0, 1), ("follows", 0, 0), ("rated by", 1, 0), ("sold by", 2, 1)];

fn types() -> NodeTypes {
    NodeTypes::new([("user", 40), ("item", 25), ("shop", 7)]).unwrap()
}

/// The edges of a relation, in ids within the types.
fn edges_of(relation: usize) -> (Vec<u32>, Vec<u32>, Vec<f32>) {
    let (_, src_type, dst_type) = RELATIONS[relation];
    let [n_src, n_dst] = [src_type, dst_type].map(|of_type| types().range(of_type).len() as u32);
    let word = |i: u32| (i + 1000 * relation as u32).wrapping_mul(2_654_435_769) >> 8;
    let ids = |n: u32, seed: u32| (0..300).map(move |i| word(2 * i + seed) % n).collect::<Vec<_>>();
    (ids(n_src, 0), ids(n_dst, 1), (0..300).map(|i| 1.0 + i as f32).collect())
}

fn relations() -> Relations {
    let lists: Vec<_> = (0..RELATIONS.len()).map(edges_of).collect();
    let types = types();
    let mut edges = Vec::new();
    for (&(name, src_type, dst_type), (srcs, dsts, weights)) in RELATIONS.iter().zip(&lists) {
        let [src_type, dst_type] = [src_type, dst_type].map(|of_type| types.names()[of_type].as_str());
        edges.push(RelationEdges {
            name,
            src_type,
            dst_type,
            srcs,
            dsts,
            weights: Some(weights),
            columns: None,
        });
    }
    Relations::from_edges(types.clone(), &edges).unwrap()
}

/// A relation as a graph of all nodes, without [`Relations`].
fn whole_graph(relation: usize) -> Arc<Csc> {
    let (_, src_type, dst_type) = RELATIONS[relation];
    let (srcs, dsts, weights) = edges_of(relation);
    let global = |ids: Vec<u32>, of_type: usize| -> Vec<u32> {
        ids.iter().map(|id| types().range(of_type).start + id).collect()
    };
    let builder = CscBuilder::new(types().n_nodes()).weights(&weights);
    Arc::new(builder.build(&global(srcs, src_type), &global(dsts, dst_type)).unwrap())
}

/// The edges of one destination, from the samplers of the relations' graphs.
fn expected(
    request: &HopRequest,
    dst: NodeId,
    fanouts: &[Fanout],
    rule: &Rule,
) -> Vec<(NodeId, u64, f32, u8)> {
    let (mut edges, mut first_edge) = (Vec::new(), 0);
    for (relation, &fanout) in fanouts.iter().enumerate() {
        let graph = whole_graph(relation);
        let config = SamplerConfig::new([fanout]).with_rule(rule.clone()).with_weights(request.weights);
        let sampler = NeighborSampler::with_config(Arc::clone(&graph), config).unwrap();
        let key = match relation {
            0 => request.key,
            _ => request.key.fold_in(KeyDomain::Relation, relation as u64),
        };
        let request = HopRequest { key, fanout, edge_types: false, ..request.clone() };
        let mut found = Frontier::default();
        sampler.sample_frontier(&request, (&[dst]).into(), &mut Scratch::default(), &mut found).unwrap();
        let weights = found.weights.unwrap_or_else(|| vec![0.0; found.srcs.len()]);
        let ids = found.edge_ids.iter().map(|id| first_edge + id.0);
        edges.extend(
            found
                .srcs
                .iter()
                .zip(ids)
                .zip(weights)
                .map(|((&src, id), weight)| (src, id, weight, relation as u8)),
        );
        first_edge += graph.n_edges();
    }
    edges
}

const FANOUTS: [Fanout; 4] = [Fanout::UpTo(3), Fanout::UpTo(0), Fanout::All, Fanout::UpTo(5)];

#[test]
fn each_relation_is_sampled_with_its_fanout_and_key() {
    let (graph, mut scratch, mut frontier) = (relations(), Scratch::default(), Frontier::default());
    let dsts: Vec<_> = (0..graph.n_nodes() as u32).map(|i| NodeId(i * 31 % graph.n_nodes() as u32)).collect();
    for rule in [Rule::Uniform, Rule::UniformWithReplacement, Rule::UniformKeepSelfLoops] {
        for weights in [EdgeWeights::None, EdgeWeights::Unbiased] {
            let config =
                SamplerConfig::default().with_rule(rule.clone()).with_weights(weights).with_edge_types();
            let sampler = HeteroNeighborSampler::new(&graph, vec![FANOUTS.to_vec(); 2], config).unwrap();
            let request = HopRequest::new(RngKey::new(7), 1, Fanout::All, weights);
            let request = HopRequest { edge_types: true, ..request };
            sampler.sample_frontier(&request, (&dsts).into(), &mut scratch, &mut frontier).unwrap();
            let mut n_edges = 0;
            for (row, &dst) in dsts.iter().enumerate() {
                let of_dst = frontier.indptr[row] as usize..frontier.indptr[row + 1] as usize;
                let found: Vec<_> = of_dst
                    .map(|edge| {
                        let weight = frontier.weights.as_ref().map_or(0.0, |weights| weights[edge]);
                        let edge_type = frontier.edge_types.as_ref().unwrap()[edge];
                        (frontier.srcs[edge], frontier.edge_ids[edge].0, weight, edge_type)
                    })
                    .collect();
                assert_eq!(found, expected(&request, dst, &FANOUTS, &rule), "{rule:?}, {dst:?}");
                assert!(found.is_sorted_by_key(|edge| edge.1), "{found:?}");
                n_edges += found.len();
            }
            assert!(300 < n_edges, "{n_edges}");
        }
    }
}

/// The samplers of the relations, which record the relations that they are asked for.
struct Recording {
    samplers: Vec<NeighborSampler>,
    asked: Mutex<Vec<usize>>,
}

impl RelationSampler for Recording {
    fn sample_relations(
        &self,
        hops: &[RelationHop<'_>],
        out: &mut [RelationScratch],
    ) -> kiln_sample::Result<()> {
        self.asked.lock().unwrap().extend(hops.iter().map(|hop| hop.relation));
        self.samplers.sample_relations(hops, out)
    }
}

#[test]
fn relations_with_fanout_0_are_not_sampled_unless_the_rule_keeps_self_loops() {
    let graph = relations();
    let dsts: Vec<_> = (0..graph.n_nodes() as u32).map(NodeId).collect();
    // Each user also follows itself.
    let (mut srcs, mut followed, mut weights) = edges_of(1);
    srcs.extend(0..40);
    followed.extend(0..40);
    weights.resize(srcs.len(), 2.0);
    let with_loops = CscBuilder::new(graph.n_nodes()).weights(&weights).build(&srcs, &followed).unwrap();
    let with_loops = Arc::new(with_loops);
    for (rule, expected) in [(Rule::Uniform, vec![2, 0, 3]), (Rule::UniformKeepSelfLoops, vec![1, 2, 0, 3])] {
        let config =
            SamplerConfig::default().with_rule(rule).with_weights(EdgeWeights::Stored).with_edge_types();
        let of_relation = |relation: usize| {
            let config = SamplerConfig { edge_types: false, ..config.clone() };
            let graph = if relation == 1 { Arc::clone(&with_loops) } else { whole_graph(relation) };
            NeighborSampler::with_config(graph, config).unwrap()
        };
        let samplers = (0..RELATIONS.len()).map(of_relation).collect();
        let recording = Arc::new(Recording { samplers, asked: Mutex::default() });
        let fanouts = vec![FANOUTS.to_vec(), vec![Fanout::All; 4], vec![Fanout::UpTo(0); 4]];
        let sampler =
            HeteroNeighborSampler::of_samplers(graph.schema().clone(), recording.clone(), fanouts, &config)
                .unwrap();
        let (mut scratch, mut frontier) = (Scratch::default(), Frontier::default());
        let mut sample = |layer: usize| {
            let request = HopRequest::new(
                RngKey::new(7),
                layer,
                FrontierSampler::fanouts(&sampler)[layer],
                config.weights,
            );
            let request = HopRequest { edge_types: true, ..request };
            sampler.sample_frontier(&request, (&dsts).into(), &mut scratch, &mut frontier).unwrap();
            let loops =
                frontier.edge_types.as_ref().unwrap().iter().filter(|&&relation| relation == 1).count();
            (std::mem::take(&mut *recording.asked.lock().unwrap()), frontier.n_edges(), loops)
        };
        // The first request fills the buffers of all relations.
        assert_eq!(sample(1).0, [1, 2, 0, 3]);
        let (asked, _, n_follows) = sample(0);
        assert_eq!(asked, expected);
        // Self loops are edges of relation 1.
        let keeps_self_loops = config.rule.keeps_self_loops();
        assert_eq!(n_follows, if keeps_self_loops { 40 } else { 0 });
        let (asked, n_edges, n_loops) = sample(2);
        assert_eq!((asked.is_empty(), n_edges), (!keeps_self_loops, n_loops));
        assert_eq!(n_loops, n_follows);
    }
}

#[test]
fn blocks_of_several_hops_are_consistent_and_do_not_depend_on_the_scratch() {
    let graph = relations();
    let sampler = HeteroNeighborSampler::new(
        &graph,
        vec![FANOUTS.to_vec(); 3],
        SamplerConfig::default().with_edge_types(),
    )
    .unwrap();
    let mut used = Scratch::default();
    let excluded = Arc::new(ExcludedEdges::with_reverses((0..40).map(|i| (NodeId(i), NodeId(40 + i % 25)))));
    for first in [0, 30, 60] {
        let seeds = Seeds::nodes((first..first + 12).map(NodeId).collect()).excluding(Arc::clone(&excluded));
        let with = |scratch: &mut Scratch| sampler.sample_blocks(&seeds, RngKey::new(3), scratch).unwrap();
        let sampled = with(&mut Scratch::default());
        assert_eq!(with(&mut used), sampled);
        for block in &sampled.blocks {
            for (dst, edges) in block.indptr().windows(2).enumerate() {
                for edge in edges[0] as usize..edges[1] as usize {
                    let (src, dst) = (block.srcs()[block.indices()[edge].index()], block.dsts()[dst]);
                    let (_, src_type, dst_type) = RELATIONS[usize::from(block.edge_types().unwrap()[edge])];
                    let found = [src, dst].map(|node| graph.types().type_of(node).unwrap());
                    assert_eq!(found, [src_type, dst_type]);
                    assert!(!excluded.srcs_into(dst).contains(&src), "{src:?} -> {dst:?} is excluded");
                }
            }
        }
    }
}

#[test]
fn only_named_relations_leave_out_excluded_edges() {
    let graph = relations();
    let pairs_of = |relation: usize| -> Vec<(NodeId, NodeId)> {
        let whole = whole_graph(relation);
        whole.indices().iter().copied().zip(whole.dsts()).collect()
    };
    let excluded: Vec<_> =
        [0, 1, 2].into_iter().flat_map(|relation| pairs_of(relation).into_iter().take(50)).collect();
    let excluded = Arc::new(ExcludedEdges::new(excluded));
    let seeds = Seeds::nodes((0..types().n_nodes() as u32).map(NodeId).collect());
    let edges = |sampler: &HeteroNeighborSampler, seeds: &Seeds| {
        let block =
            sampler.sample_blocks(seeds, RngKey::new(1), &mut Scratch::default()).unwrap().blocks.remove(0);
        let mut edges = vec![Vec::new(); RELATIONS.len()];
        for (dst, range) in block.indptr().windows(2).enumerate() {
            for edge in range[0] as usize..range[1] as usize {
                let pair = (block.srcs()[block.indices()[edge].index()], block.dsts()[dst]);
                edges[usize::from(block.edge_types().unwrap()[edge])].push(pair);
            }
        }
        edges
    };
    let config = SamplerConfig::default().with_edge_types();
    let sampler =
        HeteroNeighborSampler::new(&graph, vec![vec![Fanout::All; RELATIONS.len()]], config).unwrap();
    let whole = edges(&sampler, &seeds);
    let seeds = seeds.excluding(Arc::clone(&excluded));
    for named in [&[0, 1, 2, 3][..], &[0, 2], &[1], &[]] {
        let found = edges(&sampler.clone().excluding_from(named), &seeds);
        for (relation, (found, whole)) in found.iter().zip(&whole).enumerate() {
            let is_left = |pair: &&(NodeId, NodeId)| {
                !named.contains(&relation) || !excluded.srcs_into(pair.1).contains(&pair.0)
            };
            let expected: Vec<_> = whole.iter().filter(is_left).copied().collect();
            assert_eq!(*found, expected, "relation {relation} of {named:?}");
            assert_eq!(found.len() < whole.len(), named.contains(&relation) && relation < 3);
        }
    }
}

#[test]
fn one_type_and_one_relation_have_the_blocks_of_the_homogeneous_graph() {
    let graph = whole_graph(1);
    let with_types =
        Arc::new((*graph).clone().with_edge_types(vec![0; graph.n_edges() as usize].into()).unwrap());
    let typed = Relations::of_graph(Arc::clone(&graph));
    let fanouts = [Fanout::UpTo(4), Fanout::All, Fanout::UpTo(2)];
    let excluded = Arc::new(ExcludedEdges::with_reverses(
        (0..9).flat_map(|dst| graph.in_neighbors(NodeId(dst)).first().map(|&src| (src, NodeId(dst)))),
    ));
    let seeds = Seeds::nodes((0..9).map(NodeId).collect());
    for seeds in [seeds.clone(), seeds.excluding(excluded)] {
        for weights in [EdgeWeights::None, EdgeWeights::Stored] {
            let config = SamplerConfig::new(fanouts).with_weights(weights).with_edge_types();
            let plain = NeighborSampler::with_config(Arc::clone(&with_types), config.clone()).unwrap();
            let of_layers = fanouts.iter().map(|&fanout| vec![fanout]).collect();
            let typed = HeteroNeighborSampler::new(&typed, of_layers, config).unwrap();
            assert_eq!(typed.fanouts(), plain.fanouts());
            let [expected, got] = [&plain as &dyn FrontierSampler, &typed].map(|sampler| {
                sampler.sample_blocks(&seeds, RngKey::new(1), &mut Scratch::default()).unwrap()
            });
            assert_eq!(got, expected);
        }
    }
}

/// The rows of the only relation are those of the second type.
#[test]
fn one_relation_between_two_types_has_the_picks_of_its_graph() {
    let types = types();
    let (srcs, dsts, _) = edges_of(0);
    let edges = RelationEdges::new("rates", "user", "item", &srcs, &dsts);
    let graph = Relations::from_edges(types.clone(), &[edges]).unwrap();
    let sampler =
        HeteroNeighborSampler::new(&graph, vec![vec![Fanout::UpTo(3)]; 2], SamplerConfig::default()).unwrap();
    let plain = NeighborSampler::new(whole_graph(0), [Fanout::UpTo(3), Fanout::UpTo(3)]);
    let seeds = Seeds::nodes(types.range(1).chain(0..5).map(NodeId).collect());
    let [expected, got] = [&plain as &dyn FrontierSampler, &sampler]
        .map(|sampler| sampler.sample_blocks(&seeds, RngKey::new(2), &mut Scratch::default()).unwrap());
    assert_eq!(got, expected);
}

#[test]
fn wrong_requests_are_errors() {
    let graph = relations();
    let few = HeteroNeighborSampler::new(
        &graph,
        vec![FANOUTS.to_vec(), vec![Fanout::All; 3]],
        SamplerConfig::default(),
    );
    assert!(matches!(
        few,
        Err(Error::Fanouts(FanoutsError::RelationFanouts { layer: 1, got: 3, expected: 4 }))
    ));
    let sampler =
        HeteroNeighborSampler::new(&graph, vec![FANOUTS.to_vec()], SamplerConfig::default()).unwrap();
    let sample = |layer: usize, dst: u32| {
        let request = HopRequest::new(RngKey::new(0), layer, Fanout::All, EdgeWeights::None);
        sampler.sample_frontier(
            &request,
            (&[NodeId(dst)]).into(),
            &mut Scratch::default(),
            &mut Frontier::default(),
        )
    };
    assert!(sample(0, 71).is_ok());
    let few = vec![vec![Fanout::UpTo(3), Fanout::UpTo(5), Fanout::UpTo(0), Fanout::UpTo(1)]];
    let few = HeteroNeighborSampler::new(&graph, few, SamplerConfig::default()).unwrap();
    let with = |fanout: Fanout| {
        let request = HopRequest::new(RngKey::new(0), 0, fanout, EdgeWeights::None);
        few.sample_frontier(
            &request,
            (&[NodeId(0)]).into(),
            &mut Scratch::default(),
            &mut Frontier::default(),
        )
    };
    assert!(with(Fanout::UpTo(5)).is_ok());
    assert!(matches!(with(Fanout::UpTo(6)), Err(Error::Fanouts(FanoutsError::LargerFanout { layer: 0 }))));
    assert!(matches!(with(Fanout::All), Err(Error::Fanouts(FanoutsError::LargerFanout { layer: 0 }))));
    assert!(matches!(sample(0, 72), Err(Error::SeedOutOfRange { node: NodeId(72), n_nodes: 72, .. })));
    assert!(matches!(
        sample(1, 0),
        Err(Error::Fanouts(FanoutsError::LayerOutOfRange { layer: 1, n_layers: 1 }))
    ));
    let unweighted = Relations::of_graph(CscBuilder::new(2).build(&[0], &[1]).unwrap());
    let config = SamplerConfig::default().with_weights(EdgeWeights::Stored);
    assert!(
        matches!(HeteroNeighborSampler::new(&unweighted, vec![vec![Fanout::All]], config), Err(Error::NoRelationWeights { relation }) if relation == "edge")
    );
}

/// The samplers of a relation whose edges come from nodes of another type, and of fewer relations than the graph has.
#[test]
fn samplers_of_damaged_relations_are_errors() {
    let graph = relations();
    let config = SamplerConfig::default();
    let sampler_of = |relation: usize| {
        NeighborSampler::with_config(whole_graph(relation), SamplerConfig::default()).unwrap()
    };
    let error = |samplers: Vec<NeighborSampler>, seed: u32| {
        let fanouts = vec![vec![Fanout::All; RELATIONS.len()]];
        let schema = graph.schema().clone();
        let sampler =
            HeteroNeighborSampler::of_samplers(schema, Arc::new(samplers), fanouts, &config).unwrap();
        let seeds = Seeds::nodes(vec![NodeId(seed)]);
        sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap_err()
    };
    // Node 40 is an item, whose raters and sellers are swapped.
    let swapped = [3, 1, 2, 0].map(sampler_of).to_vec();
    let found = error(swapped, 40);
    assert!(
        matches!(&found, Error::DamagedGraph(DamagedGraphError::SourceOfOtherType { relation, nodes, .. }) if relation == "rates" && *nodes == (0..40)),
        "{found}"
    );
    assert!(matches!(error(vec![sampler_of(0)], 40), Error::RelationSamplers { relation: 1, n_samplers: 1 }));
}

#[test]
fn the_fanout_of_a_request_limits_those_of_the_relations() {
    let graph = relations();
    let sampler =
        HeteroNeighborSampler::new(&graph, vec![FANOUTS.to_vec()], SamplerConfig::default()).unwrap();
    assert_eq!(sampler.fanouts(), [Fanout::All]);
    let request = HopRequest::new(RngKey::new(0), 0, Fanout::UpTo(1), EdgeWeights::None);
    let mut found = Frontier::default();
    let dsts: Vec<_> = (0..65).map(NodeId).collect();
    sampler.sample_frontier(&request, (&dsts).into(), &mut Scratch::default(), &mut found).unwrap();
    let most = found.indptr.windows(2).map(|ends| ends[1] - ends[0]).max();
    assert_eq!(most, Some(2), "an item has edges of two relations");
}
