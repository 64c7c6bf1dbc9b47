//! Blocks and rows are bit-identical to those of the whole graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use kiln_feature::{DenseFeatures, FeatureArray, FeatureBuffer, FeatureStore, SparseFeatures};
use kiln_graph::{NodeId, SharedArray};
use kiln_partition::{CacheConfig, Part};
use kiln_remote::{DistFeatureStore, DistNeighborSampler, RuleRegistry};
use kiln_sample::{
    Dsts, EdgeWeights, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, Neighbors, NodeKey,
    RngKey, Rule, SampledBlocks, SamplerConfig, SamplerError, Scratch, Seeds, Selection,
};

use crate::cluster::{Cluster, N_NODES, by_name, data, features, hubs, labels, parts, wild};

pub(crate) const FANOUTS: [Fanout; 3] = [Fanout::UpTo(3), Fanout::All, Fanout::UpTo(7)];

pub(crate) fn batches() -> Vec<(Seeds, RngKey)> {
    let nodes =
        |n: u64, first: u64| Seeds::nodes((0..n).map(|at| NodeId((wild(first + at) % 500) as u32)).collect());
    vec![
        (nodes(64, 0), RngKey::new(3)),
        (nodes(1, 100), RngKey::new(4)),
        // These seeds are hubs, and node 3 occurs twice.
        (Seeds::nodes([3, 4, 3, 0].map(NodeId).to_vec()), RngKey::new(5)),
        (Seeds::nodes(Vec::new()), RngKey::new(6)),
    ]
}

pub(crate) fn sampled(sampler: &dyn FrontierSampler) -> Vec<SampledBlocks> {
    blocks(sampler, &batches())
}

/// Samples the blocks of these batches.
pub(crate) fn blocks(sampler: &dyn FrontierSampler, batches: &[(Seeds, RngKey)]) -> Vec<SampledBlocks> {
    let mut scratch = Scratch::default();
    batches.iter().map(|(seeds, key)| sampler.sample_blocks(seeds, *key, &mut scratch).unwrap()).collect()
}

/// The number of partitions, and the function from a node to its partition.
pub(crate) type Way = (usize, fn(u32) -> usize);

/// Returns four partitionings: two interleaved partitions, two with one empty, four with one empty, and a single one.
pub(crate) fn ways() -> [Way; 4] {
    [
        (2, |node| node as usize % 2),
        (2, |_| 1),
        (4, |node| [0, 1, 3][wild(u64::from(node)) as usize % 3]),
        (1, |_| 0),
    ]
}

/// Returns the possible local partitions: `None`, for servers that hold all partitions, and then the index of each
/// partition.
pub(crate) fn modes(parts: &[Arc<Part>]) -> impl Iterator<Item = Option<usize>> {
    std::iter::once(None).chain((0..parts.len()).map(Some))
}

#[test]
fn blocks_equal_those_of_the_whole_graph() {
    let data = hubs();
    let graph = &data.graph;
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in modes(&parts) {
            let cluster = Cluster::of(&parts, own, RuleRegistry::default());
            for weights in [EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased] {
                for rule in Rule::BUILT_IN {
                    let config = SamplerConfig::new(FANOUTS).with_rule(rule.clone()).with_weights(weights);
                    let whole =
                        NeighborSampler::with_config(Arc::clone(&graph.relation(0).graph), config.clone())
                            .unwrap();
                    let remote =
                        DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
                    assert_eq!(remote.warning(), None);
                    assert!(
                        sampled(&remote) == sampled(&whole),
                        "{rule:?}, {weights:?}, {n_parts} partitions, local {own:?}"
                    );
                }
            }
        }
    }
}

/// A custom rule that depends on ids and weights.
pub(crate) fn last_ones(neighbors: Neighbors<'_>, key: NodeKey, fanout: u32, picks: &mut Selection) {
    let by_weight = neighbors.weights.is_some_and(|weights| 0.1 < weights[0]);
    let first = if by_weight { key.rng().below(neighbors.degree() as u32) } else { neighbors.ids[0].0 };
    let degree = neighbors.degree() as u32;
    (0..fanout.min(degree)).for_each(|at| picks.push((first + at) % degree));
}

#[test]
fn custom_rules_sample_identically_on_servers_and_clients() {
    let data = hubs();
    let config = SamplerConfig::new(FANOUTS).with_weights(EdgeWeights::Stored);
    let by = |rule: Rule| config.clone().with_rule(rule);
    let whole = NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), by(last_ones.into())).unwrap();
    let expected = sampled(&whole);
    let parts = parts(&data, 2, |node| node as usize / 3 % 2, None);
    for own in modes(&parts) {
        let rules = RuleRegistry::default().register("last-ones", last_ones).unwrap();
        let cluster = Cluster::of(&parts, own, rules);
        let graph = || Arc::clone(&cluster.graph);
        let there = by(cluster.graph.rule("last-ones").unwrap());
        let there = DistNeighborSampler::with_config(graph(), there).unwrap();
        assert!(sampled(&there) == expected, "sampled on the servers, local partition {own:?}");
        let here = DistNeighborSampler::with_config(graph(), by(last_ones.into())).unwrap();
        let warning = here.warning().unwrap();
        assert!(warning.contains("servers send all edges of each node"), "{warning}");
        assert!(sampled(&here) == expected, "sampled on the client, local partition {own:?}");
    }
}

/// A sampler for the local partition. It counts the destinations that it samples.
pub(crate) struct Counting {
    pub(crate) sampler: NeighborSampler,
    pub(crate) n_dsts: Arc<AtomicUsize>,
}

impl FrontierSampler for Counting {
    fn fanouts(&self) -> &[Fanout] {
        self.sampler.fanouts()
    }

    fn n_nodes(&self) -> usize {
        self.sampler.n_nodes()
    }

    fn sample_frontier(
        &self,
        request: &HopRequest,
        dsts: Dsts<'_>,
        scratch: &mut Scratch,
        out: &mut Frontier,
    ) -> kiln_sample::Result<()> {
        self.n_dsts.fetch_add(dsts.len(), Ordering::Relaxed);
        self.sampler.sample_frontier(request, dsts, scratch, out)
    }
}

#[test]
fn local_sampler_gives_the_blocks_of_the_whole_graph() {
    let data = hubs();
    let config = SamplerConfig::new(FANOUTS).with_rule(Rule::UniformKeepSelfLoops);
    let config = || config.clone().with_weights(EdgeWeights::Unbiased);
    let expected = sampled(&NeighborSampler::with_config(Arc::clone(data.csc().unwrap()), config()).unwrap());
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for (own, part) in parts.iter().enumerate() {
            let cluster = Cluster::of(&parts, Some(own), RuleRegistry::default());
            let n_dsts = Arc::<AtomicUsize>::default();
            let by_node = Arc::new(cluster.graph.local_part().unwrap().graph_by_node(0).unwrap());
            let sampler = NeighborSampler::with_config(by_node, config()).unwrap();
            let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config()).unwrap();
            let remote =
                remote.with_local_sampler(Counting { sampler, n_dsts: Arc::clone(&n_dsts) }).unwrap();
            assert!(sampled(&remote) == expected, "{n_parts} partitions, local {own}");
            assert_eq!(0 < n_dsts.load(Ordering::Relaxed), 0 < part.n_owned());
        }
    }
}

/// A sampler that never returns edge weights.
struct WithoutWeights(NeighborSampler);

impl FrontierSampler for WithoutWeights {
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
        let request = HopRequest { weights: EdgeWeights::None, ..request.clone() };
        self.0.sample_frontier(&request, dsts, scratch, out)
    }
}

#[test]
fn rejects_local_samplers_that_do_not_match_the_partition() {
    let data = hubs();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let by_node = |cluster: &Cluster| Arc::new(cluster.graph.local_part().unwrap().graph_by_node(0).unwrap());
    let cluster = Cluster::of(&parts, Some(0), RuleRegistry::default());
    let remote = || DistNeighborSampler::new(Arc::clone(&cluster.graph), FANOUTS);
    let error =
        remote().with_local_sampler(NeighborSampler::new(by_node(&cluster), [Fanout::All])).unwrap_err();
    assert!(error.to_string().contains("has 1 layers and 500 nodes, expected 3 and 500"), "{error}");
    let error = remote()
        .with_local_sampler(NeighborSampler::new(Arc::clone(&parts[0].relations[0].graph), FANOUTS))
        .unwrap_err();
    assert!(error.to_string().contains("has 3 layers and 250 nodes, expected 3 and 500"), "{error}");
    let config = SamplerConfig::new(FANOUTS).with_weights(EdgeWeights::Stored);
    let remote = DistNeighborSampler::with_config(Arc::clone(&cluster.graph), config).unwrap();
    let remote =
        remote.with_local_sampler(WithoutWeights(NeighborSampler::new(by_node(&cluster), FANOUTS))).unwrap();
    let (seeds, key) = &batches()[0];
    let error = remote.sample_blocks(seeds, *key, &mut Scratch::default()).unwrap_err();
    assert!(error.to_string().contains("returns no edge weights"), "{error}");
    // These samplers use other graphs: the whole graph and the other partition.
    for graph in [data.csc().unwrap().clone(), Arc::new(parts[1].graph_by_node(0).unwrap())] {
        let remote = DistNeighborSampler::new(Arc::clone(&cluster.graph), FANOUTS);
        let remote = remote.with_local_sampler(NeighborSampler::new(graph, FANOUTS)).unwrap();
        let error = remote.sample_blocks(seeds, *key, &mut Scratch::default()).unwrap_err();
        assert!(error.to_string().contains("returns edges that its nodes do not have"), "{error}");
    }
    struct Nothing;
    impl FrontierSampler for Nothing {
        fn fanouts(&self) -> &[Fanout] {
            &FANOUTS
        }

        fn n_nodes(&self) -> usize {
            N_NODES
        }

        fn sample_frontier(
            &self,
            _: &HopRequest,
            _: Dsts<'_>,
            _: &mut Scratch,
            _: &mut Frontier,
        ) -> kiln_sample::Result<()> {
            Ok(())
        }
    }
    let remote =
        DistNeighborSampler::new(Arc::clone(&cluster.graph), FANOUTS).with_local_sampler(Nothing).unwrap();
    let error = remote.sample_blocks(seeds, *key, &mut Scratch::default()).unwrap_err();
    assert!(
        matches!(error, kiln_sample::Error::Sampler(SamplerError::BadFrontier { n_dst: 0, .. })),
        "{error}"
    );
    // This client has no local partition.
    let served = Cluster::of(&parts, None, RuleRegistry::default());
    let remote = DistNeighborSampler::new(Arc::clone(&served.graph), FANOUTS);
    let error = remote.with_local_sampler(NeighborSampler::new(by_node(&cluster), FANOUTS)).unwrap_err();
    assert!(error.to_string().contains("servers hold all partitions"), "{error}");
}

#[test]
fn rejects_rules_that_servers_do_not_know() {
    let data = hubs();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let cluster = Cluster::of(&parts, None, RuleRegistry::default());
    let graph = || Arc::clone(&cluster.graph);
    let error = by_name(graph(), FANOUTS, "mine").unwrap_err();
    assert!(
        error.to_string().contains("unknown sampling rule `mine`, expected one of most-recent, uniform,"),
        "{error}"
    );
    assert!(RuleRegistry::default().register("uniform", last_ones).is_err());
    // The rule is registered on the client only.
    let servers = cluster.servers.iter().map(|server| server.address().to_string()).collect::<Vec<_>>();
    let rules = RuleRegistry::default().register("mine", last_ones).unwrap();
    let config = kiln_remote::ConnectConfig { rules, ..crate::cluster::config(servers) };
    let graph = Arc::new(kiln_remote::DistGraph::connect(config).unwrap());
    let error = by_name(graph, FANOUTS, "mine").unwrap_err();
    assert!(
        error.to_string().contains("does not know the sampling rule `mine`: register it there"),
        "{error}"
    );
}

pub(crate) fn gathered(source: &dyn FeatureStore, ids: &[NodeId]) -> FeatureBuffer {
    let mut rows = FeatureBuffer::empty(source.dtype());
    source.gather(ids, &mut rows).unwrap();
    rows
}

#[test]
fn feature_rows_equal_those_of_the_data_set() {
    let sparse = || {
        let indptr: Vec<u64> = (0..=N_NODES as u64).collect();
        let columns: Vec<u32> = (0..N_NODES as u32).map(|row| row % 5).collect();
        let values: Vec<f32> = (0..N_NODES).map(|row| row as f32).collect();
        SparseFeatures::new(
            SharedArray::from(indptr),
            SharedArray::from(columns),
            SharedArray::from(values),
            5,
        )
        .unwrap()
    };
    let halves: Vec<f16> = (0..2 * N_NODES).map(|at| f16::from_f32(at as f32)).collect();
    let upper: Vec<bf16> = (0..2 * N_NODES).map(|at| bf16::from_f32(at as f32)).collect();
    let kinds: [Arc<dyn FeatureStore>; 5] = [
        features(N_NODES, 3),
        // The rows are so wide that a response has many chunks with one row each.
        features(N_NODES, 70_000),
        Arc::new(DenseFeatures::new(FeatureArray::F16(halves.into()), 2).unwrap()),
        Arc::new(DenseFeatures::new(FeatureArray::BF16(upper.into()), 2).unwrap()),
        Arc::new(sparse()),
    ];
    let ids = |n: u64| -> Vec<NodeId> { (0..n).map(|at| NodeId((wild(at) % 500) as u32)).collect() };
    for kind in kinds {
        let data = data(N_NODES, kind);
        let wide = 1000 < data.node_features().unwrap().dim();
        let lists = if wide {
            vec![ids(40)]
        } else {
            vec![ids(300), ids(1), Vec::new(), [7; 9].map(NodeId).to_vec()]
        };
        let cache = CacheConfig { ratio: 0.2, fanouts: vec![Fanout::UpTo(4); 2], batch_size: 50, seed: 0 };
        for (n_parts, owner) in if wide { ways()[..1].to_vec() } else { ways().to_vec() } {
            let parts = parts(&data, n_parts, owner, Some(&cache));
            for own in modes(&parts) {
                let cluster = Cluster::of(&parts, own, RuleRegistry::default());
                let graph = || Arc::clone(&cluster.graph);
                let row_bytes =
                    data.node_features().unwrap().dim() * data.node_features().unwrap().dtype().bytes();
                let bare = || DistFeatureStore::without_cache(graph(), 0).unwrap();
                for remote in [
                    DistFeatureStore::new(graph()).unwrap(),
                    bare(),
                    bare().with_dynamic_cache(30 * row_bytes),
                    bare().with_dynamic_cache(N_NODES * row_bytes),
                ] {
                    assert_eq!(
                        (remote.dim(), remote.n_rows()),
                        (data.node_features().unwrap().dim(), N_NODES)
                    );
                    for ids in lists.iter().chain(&lists) {
                        let expected = gathered(&**data.node_features().unwrap(), ids);
                        assert!(gathered(&remote, ids) == expected, "{n_parts} partitions, local {own:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn labels_split_and_metadata_equal_those_of_the_data_set() {
    let data = hubs();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    for own in modes(&parts) {
        let Cluster { graph, .. } = &Cluster::of(&parts, own, RuleRegistry::default());
        assert_eq!((graph.n_nodes(), graph.n_edges()), (N_NODES, data.graph.n_edges()));
        assert_eq!((graph.name(), graph.hash()), ("hubs", &*data.hash().unwrap()));
        assert_eq!(labels(graph).as_slice(), data.labels().as_slice());
        assert_eq!(graph.targets().unwrap().class_names, data.class_names());
        assert_eq!(&graph.split(), data.split());
    }
}

#[test]
fn fetch_stats_count_rows_by_location() {
    let data = hubs();
    let cache = CacheConfig { ratio: 0.1, fanouts: vec![Fanout::UpTo(5); 2], batch_size: 50, seed: 0 };
    let parts = parts(&data, 2, |node| node as usize % 2, Some(&cache));
    let kept = parts[0].types[0].cache.as_ref().unwrap().ids.to_vec();
    let cluster = Cluster::of(&parts, Some(0), RuleRegistry::default());
    let remote = DistFeatureStore::new(Arc::clone(&cluster.graph)).unwrap();
    let others = (0..N_NODES as u32).map(NodeId).filter(|node| node.0 % 2 == 1 && !kept.contains(node));
    let others: Vec<NodeId> = others.take(10).collect();
    let ids = [&[0, 2, 4].map(NodeId)[..], &kept[..5], &others, &others[..2]].concat();
    gathered(&remote, &ids);
    let stats = cluster.graph.take_fetch_stats();
    assert_eq!((stats.own_rows, stats.hot_rows, stats.remote_rows), (3, 5, 10), "{stats:?}");
    assert_eq!(stats.remote_bytes, 10 * 3 * 4);
    assert_eq!(stats.hit_rate(), Some(5.0 / 15.0));
    assert_eq!(cluster.graph.take_fetch_stats().own_rows, 0);
}

#[test]
fn dynamic_cache_keeps_rows_that_are_read_again() {
    let data = hubs();
    let parts = parts(&data, 2, |node| node as usize % 2, None);
    let cluster = Cluster::of(&parts, None, RuleRegistry::default());
    let row_bytes = 3 * 4;
    let remote = DistFeatureStore::new(Arc::clone(&cluster.graph)).unwrap();
    let remote = remote.with_dynamic_cache(20 * row_bytes);
    let ids: Vec<NodeId> = (0..15).map(NodeId).collect();
    let counts = |ids: &[NodeId]| {
        assert!(gathered(&remote, ids) == gathered(&**data.node_features().unwrap(), ids));
        let stats = cluster.graph.take_fetch_stats();
        assert_eq!(stats.remote_bytes, stats.remote_rows * row_bytes as u64);
        (stats.kept_rows, stats.remote_rows)
    };
    assert_eq!(counts(&ids), (0, 15));
    assert_eq!(counts(&ids), (15, 0));
    // The cache has room for 20 rows. The other rows evict each other from 5 slots, and the 15 rows that were read
    // again stay in the cache.
    let others: Vec<NodeId> = (100..200).map(NodeId).collect();
    others.chunks(5).for_each(|others| assert_eq!(counts(others), (0, 5)));
    assert_eq!(counts(&[NodeId(199), NodeId(100)]), (1, 1));
}
