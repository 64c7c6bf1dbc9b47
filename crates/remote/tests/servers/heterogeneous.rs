//! Partitions of heterogeneous graphs: blocks, rows and batches are bit-identical to those of the whole graph, with servers
//! and in worker mode.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kiln_comm::ThreadRanks;
use kiln_data::Dataset;
use kiln_feature::{DenseFeatures, FeatureStore, Labels, SparseFeatures};
use kiln_graph::{NodeId, NodeTypes, RelationEdges, SharedArray};
use kiln_loader::{
    FeatureStores, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig, NodeBatcher, NodeTargets, Phase,
    Shard,
};
use kiln_partition::CacheConfig;
use kiln_remote::{ColocatedWorker, ColocatedWorkerConfig, DistFeatureStore, DistGraph, RuleRegistry};
use kiln_sample::{
    EdgeWeights, ExcludedEdges, Fanout, FrontierSampler, HeteroNeighborSampler, HopRequest, NeighborSampler,
    Neighbors, NodeKey, RngKey, Rule, SampledBlocks, SamplerConfig, Scratch, Seeds, Selection,
};

use crate::cluster::{Cluster, hubs, labels, parts, wild};
use crate::same::{Way, blocks, gathered, last_ones};

pub(crate) const N_USERS: u32 = 120;
const N_ITEMS: u32 = 80;
pub(crate) const N_SHOPS: u32 = 11;

/// The fanouts of each layer, input layer first, for each relation.
pub(crate) fn fanouts() -> Vec<Vec<Fanout>> {
    vec![
        vec![Fanout::UpTo(2), Fanout::All, Fanout::UpTo(1), Fanout::UpTo(3)],
        vec![Fanout::UpTo(3), Fanout::UpTo(2), Fanout::UpTo(0), Fanout::All],
    ]
}

/// Returns a set with users without features, items with labels, and shops with sparse features. All relations have weights.
pub(crate) fn shop() -> Dataset {
    let types = NodeTypes::new([("user", 120), ("item", 80), ("shop", 11)]).unwrap();
    let ids =
        |n: u32, seed: u64| (0..400).map(|edge| wild(edge + 1000 * seed) as u32 % n).collect::<Vec<_>>();
    let weights: Vec<f32> = (0..400).map(|edge| 0.5 + (wild(edge) % 7) as f32).collect();
    let (users, others, items, shops) = (ids(N_USERS, 1), ids(N_USERS, 2), ids(N_ITEMS, 3), ids(N_SHOPS, 4));
    let of = |name, [src_type, dst_type]: [&'static str; 2], srcs, dsts| RelationEdges {
        name,
        src_type,
        dst_type,
        srcs,
        dsts,
        weights: Some(&weights),
        columns: None,
    };
    let rows: Vec<f32> = (0..u64::from(3 * N_ITEMS)).map(|value| wild(value) as f32).collect();
    let indptr: Vec<u64> = (0..=u64::from(N_SHOPS)).collect();
    let columns: Vec<u32> = (0..N_SHOPS).map(|shop| shop % 5).collect();
    let values: Vec<f32> = (0..N_SHOPS).map(|shop| shop as f32).collect();
    let sparse = SparseFeatures::new(indptr.into(), columns.into(), values.into(), 5).unwrap();
    let part = |rest: u32| (0..N_ITEMS).filter(|item| item % 3 == rest).collect::<Vec<u32>>();
    Dataset::builder_with_types(types)
        .name("shop")
        .relation(of("rates", ["user", "item"], &users, &items))
        .relation(of("rated by", ["item", "user"], &items, &users))
        .relation(of("follows", ["user", "user"], &others, &users))
        .relation(of("sells", ["shop", "item"], &shops, &items))
        .nodes("item")
        .feature_store(Arc::new(DenseFeatures::from_f32(rows, 3).unwrap()))
        .nodes("shop")
        .feature_store(Arc::new(sparse))
        .nodes("item")
        .labels((0..N_ITEMS as i32).map(|item| item % 4).collect::<Vec<_>>(), 4)
        .split(part(0).clone(), part(1).clone(), part(2).clone())
        .build()
        .unwrap()
}

/// Returns one to four partitions: one of them with an empty partition, and one with a type in a single partition.
pub(crate) fn ways() -> [Way; 5] {
    [
        (1, |_| 0),
        (2, |node| node as usize % 2),
        (2, |node| usize::from(node < N_USERS)),
        (3, |node| [0, 2][wild(u64::from(node)) as usize % 2]),
        (4, |node| wild(u64::from(node)) as usize % 4),
    ]
}

fn batches() -> Vec<(Seeds, RngKey)> {
    let n_nodes = u64::from(N_USERS + N_ITEMS + N_SHOPS);
    let nodes = |n: u64, first: u64| {
        Seeds::nodes((first..first + n).map(|at| NodeId((wild(at) % n_nodes) as u32)).collect())
    };
    vec![(nodes(40, 0), RngKey::new(1)), (nodes(1, 50), RngKey::new(2)), (nodes(0, 0), RngKey::new(3))]
}

pub(crate) fn sampled(sampler: &dyn FrontierSampler) -> Vec<SampledBlocks> {
    blocks(sampler, &batches())
}

#[test]
fn blocks_equal_those_of_the_whole_graph() {
    let data = shop();
    for (n_parts, owner) in ways() {
        let parts = parts(&data, n_parts, owner, None);
        for own in std::iter::once(None).chain((0..n_parts).map(Some)) {
            let cluster = Cluster::of(&parts, own, Default::default());
            assert!(cluster.graph.is_heterogeneous());
            assert_eq!(cluster.graph.schema(), data.graph.schema());
            let target_type = cluster.graph.targets().unwrap().node_type;
            assert_eq!(cluster.graph.schema().types().range(target_type), data.target_nodes());
            for weights in [EdgeWeights::None, EdgeWeights::Stored, EdgeWeights::Unbiased] {
                for rule in Rule::BUILT_IN.into_iter().chain([Rule::from(last_ones)]) {
                    let config = SamplerConfig::default().with_rule(rule.clone()).with_weights(weights);
                    let config = config.with_edge_types();
                    let whole = HeteroNeighborSampler::new(&data.graph, fanouts(), config.clone()).unwrap();
                    let remote = cluster.graph.hetero_sampler(fanouts(), &config).unwrap();
                    assert!(
                        sampled(&remote) == sampled(&whole),
                        "{rule:?}, {weights:?}, {n_parts} partitions, local {own:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn excluded_edges_are_not_sampled() {
    let data = shop();
    let cluster = Cluster::of(&parts(&data, 3, |node| node as usize % 3, None), None, Default::default());
    let config = SamplerConfig::default().with_edge_types();
    let whole = HeteroNeighborSampler::new(&data.graph, fanouts(), config.clone()).unwrap();
    let remote = cluster.graph.hetero_sampler(fanouts(), &config).unwrap();
    let items: Vec<NodeId> = data.target_nodes().map(NodeId).collect();
    let graph = &data.graph.relation(0).graph;
    let pairs = items
        .iter()
        .zip(0..)
        .map(|(&item, row)| (graph.in_neighbors(NodeId(row)).first().copied().unwrap_or(NodeId(0)), item));
    let excluded = Some(Arc::new(ExcludedEdges::new(pairs)));
    let request = |excluded| {
        let request = HopRequest::new(RngKey::new(5), 1, Fanout::All, EdgeWeights::None).excluding(excluded);
        HopRequest { edge_types: true, ..request }
    };
    let frontier = |sampler: &dyn FrontierSampler, request: &HopRequest| {
        let mut out = Default::default();
        sampler.sample_frontier(request, (&items).into(), &mut Scratch::default(), &mut out).unwrap();
        out
    };
    let expected = frontier(&whole, &request(excluded.clone()));
    assert_ne!(expected, frontier(&whole, &request(None)));
    assert_eq!(frontier(&remote, &request(excluded)), expected);
}

#[test]
fn relations_with_fanout_0_send_no_requests() {
    let data = shop();
    let cluster = Cluster::of(&parts(&data, 1, |_| 0, None), None, Default::default());
    let users = Seeds::nodes((0..40).map(NodeId).collect());
    // Users are destinations of relations 1 and 2.
    for (rule, fanouts, n_requests) in [
        (Rule::Uniform, [3, 2, 1, 4], 2),
        (Rule::Uniform, [3, 2, 0, 4], 1),
        (Rule::Uniform, [3, 0, 0, 4], 0),
        (Rule::UniformKeepSelfLoops, [3, 2, 0, 4], 2),
    ] {
        let (rule_name, fanouts) = (format!("{rule:?}"), vec![fanouts.map(Fanout::UpTo).to_vec()]);
        let config = SamplerConfig::default().with_rule(rule).with_weights(EdgeWeights::Stored);
        let whole = HeteroNeighborSampler::new(&data.graph, fanouts.clone(), config.clone()).unwrap();
        let remote = cluster.graph.hetero_sampler(fanouts.clone(), &config).unwrap();
        cluster.graph.take_fetch_stats();
        let [expected, got] = [&whole, &remote]
            .map(|sampler| sampler.sample_blocks(&users, RngKey::new(5), &mut Scratch::default()).unwrap());
        assert!(got == expected, "{rule_name}, {fanouts:?}");
        assert_eq!(cluster.graph.take_fetch_stats().n_requests, n_requests, "{rule_name}, {fanouts:?}");
    }
}

#[test]
fn feature_rows_of_each_type_equal_those_of_the_data_set() {
    let (data, mut n_hits) = (shop(), 0);
    for (n_parts, owner) in ways() {
        let cache = CacheConfig { ratio: 0.1, fanouts: vec![Fanout::UpTo(3); 2], batch_size: 8, seed: 0 };
        let parts = parts(&data, n_parts, owner, Some(&cache));
        for own in std::iter::once(None).chain((0..n_parts).map(Some)) {
            let cluster = Cluster::of(&parts, own, Default::default());
            assert_eq!(cluster.graph.dims(), data.dims());
            for (node_type, n_nodes) in [(1, N_ITEMS), (2, N_SHOPS)] {
                let whole = data.features[node_type].as_ref().unwrap();
                let ids: Vec<NodeId> = (0..90).map(|at| NodeId(wild(at) as u32 % n_nodes)).collect();
                let store = || DistFeatureStore::of_type(Arc::clone(&cluster.graph), node_type).unwrap();
                let bare = || DistFeatureStore::without_cache(Arc::clone(&cluster.graph), node_type).unwrap();
                let stores = [store(), bare(), bare().with_dynamic_cache(1 << 10)];
                for remote in stores {
                    assert_eq!((remote.n_rows(), remote.dim()), (whole.n_rows(), whole.dim()));
                    for _ in 0..2 {
                        assert!(gathered(&remote, &ids) == gathered(&**whole, &ids), "{n_parts}, {own:?}");
                    }
                }
            }
            n_hits += cluster.graph.take_fetch_stats().hot_rows;
        }
    }
    assert!(0 < n_hits, "the static cache should serve some rows");
}

/// The batches of a rank's training items, as texts.
fn texts<S: FrontierSampler + 'static>(
    sampler: S,
    stores: Vec<Option<Arc<dyn FeatureStore>>>,
    labels: &Arc<Labels>,
    items: ItemSampler,
    data: &Dataset,
) -> Vec<String> {
    let features = FeatureStores::new(data.graph.types().clone(), stores);
    let targets = NodeTargets::of_type(data.target_nodes(), Arc::clone(labels));
    let batcher = NodeBatcher::new(Arc::new(sampler), features, targets);
    let batcher = batcher.relation_groups(data.graph.schema());
    let loader = Loader::new(items, batcher, LoaderConfig { workers: 2, ..Default::default() }).unwrap();
    let batches = loader.epoch(Phase::Train { epoch: 3 }).map(|batch| batch.unwrap());
    let text = |batch: kiln_loader::MiniBatch| {
        let (sampled, input) = (batch.sampled, batch.input);
        format!("{:?} {:?} {:?} {input:?}", sampled.seeds.as_nodes(), sampled.blocks, sampled.labels)
    };
    batches.map(text).collect()
}

/// The batches of a rank from the whole set.
fn texts_of_whole(data: &Dataset, items: ItemSampler) -> Vec<String> {
    let config = SamplerConfig::default().with_edge_types();
    let sampler = HeteroNeighborSampler::new(&data.graph, fanouts(), config).unwrap();
    let kiln_feature::Targets::Classes(labels) = &data.targets.as_ref().unwrap().values else {
        panic!("the items have labels")
    };
    texts(sampler, data.features.clone(), labels, items, data)
}

/// The batches of a rank from partitions.
fn texts_of_parts(data: &Dataset, graph: &Arc<DistGraph>, items: ItemSampler) -> Vec<String> {
    let config = SamplerConfig::default().with_edge_types();
    let sampler = graph.hetero_sampler(fanouts(), &config).unwrap();
    let store = |(node_type, dim): (usize, Option<usize>)| {
        dim.map(|_| {
            Arc::new(DistFeatureStore::of_type(graph.clone(), node_type).unwrap()) as Arc<dyn FeatureStore>
        })
    };
    let stores = graph.dims().into_iter().enumerate().map(store).collect();
    texts(sampler, stores, labels(graph), items, data)
}

fn items_of(train: &SharedArray<NodeId>, rank: usize, world_size: usize) -> ItemSampler {
    let (shard, batch_size) = (Shard { rank, world_size }, 8 / world_size);
    let config = ItemSamplerConfig { batch_size, shuffle: true, shard, ..Default::default() };
    ItemSampler::new(train.to_vec(), config).unwrap()
}

#[test]
fn ranks_have_the_batches_of_the_whole_set_from_servers() {
    let data = shop();
    for (n_parts, owner) in ways() {
        let cluster = Cluster::of(&parts(&data, n_parts, owner, None), None, Default::default());
        let split = &data.targets.as_ref().unwrap().split;
        assert_eq!(cluster.graph.split(), *split);
        for n_ranks in [1, 2, 4] {
            for rank in 0..n_ranks {
                let expected = texts_of_whole(&data, items_of(&split.train, rank, n_ranks));
                let items = items_of(&cluster.graph.split().train, rank, n_ranks);
                assert_eq!(expected.len(), 4);
                assert!(
                    texts_of_parts(&data, &cluster.graph, items) == expected,
                    "{n_parts} partitions, rank {rank} of {n_ranks}"
                );
            }
        }
    }
}

#[test]
fn ranks_with_partitions_have_the_batches_of_the_whole_set() {
    let data = shop();
    for (n_ranks, n_parts) in [(1, 1), (2, 1), (2, 2), (4, 2), (3, 3), (4, 4)] {
        let part_of = |node: u32| wild(u64::from(node)) as usize % n_parts;
        let parts = parts(&data, n_parts, part_of, None);
        let ranks = ThreadRanks { deadline: Duration::from_secs(120), ..ThreadRanks::of(n_ranks) };
        let owned = ranks.run(|mut comm| {
            let (info, meeting) = (comm.rank_info(), comm.duplicate("parts").unwrap());
            let part = ColocatedWorker::part_of(info, n_parts).unwrap();
            let config = ColocatedWorkerConfig::new("127.0.0.1");
            let worker = ColocatedWorker::meet(meeting, Arc::clone(&parts[part]), config).unwrap();
            let (graph, owner) = (Arc::clone(worker.graph()), worker.owner());
            let items = items_of(&graph.split().train, info.rank, n_ranks).shard_by_owner(owner).unwrap();
            let expected = texts_of_whole(&data, items.clone());
            assert!(
                texts_of_parts(&data, &graph, items) == expected,
                "{n_parts} partitions, {n_ranks} ranks"
            );
            let owner = worker.owner();
            let is_owned = |node: &u32| owner(NodeId(*node)) == info.rank;
            let owned: Vec<u32> = data.target_nodes().filter(is_owned).collect();
            drop(graph);
            worker.end(Duration::from_secs(120)).unwrap();
            Ok(owned)
        });
        let owned = owned.unwrap();
        for (rank, nodes) in owned.iter().enumerate() {
            let expected = rank / (n_ranks / n_parts);
            assert!(nodes.iter().all(|node| part_of(*node) == expected), "rank {rank} of {n_ranks}");
        }
        assert_eq!(owned.iter().map(Vec::len).sum::<usize>(), N_ITEMS as usize);
    }
}

/// A rule that waits until it runs for two nodes at once. If the requests of a hop were sent one after another, the first one
/// would wait in vain.
#[test]
fn a_hop_sends_the_requests_of_all_relations_together() {
    let data = shop();
    let [rates, sells] = [0, 3].map(|relation| Arc::clone(&data.graph.relation(relation).graph));
    let item = (0..N_ITEMS).map(NodeId).find(|item| 1 < rates.in_degree(*item).min(sells.in_degree(*item)));
    let seed = NodeId(N_USERS + item.unwrap().0);
    let (n_running, changed) = (Arc::new(Mutex::new(0)), Arc::new(Condvar::new()));
    let counter = Arc::clone(&n_running);
    let meet = move |_: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        let mut n_running = counter.lock().unwrap();
        *n_running += 1;
        changed.notify_all();
        let limit = Duration::from_secs(60);
        let (mut n_running, wait) = changed.wait_timeout_while(n_running, limit, |n| *n < 2).unwrap();
        // After a wait in vain, the count stays below 2 for the next call, too.
        *n_running -= i32::from(wait.timed_out());
        picks.push(0);
    };
    let rules = RuleRegistry::default().register("meet", meet).unwrap();
    let cluster = Cluster::of(&parts(&data, 1, |_| 0, None), None, rules);
    let config = SamplerConfig::default().with_rule(cluster.graph.rule("meet").unwrap());
    let sampler = cluster.graph.hetero_sampler(vec![vec![Fanout::UpTo(1); 4]], &config).unwrap();
    let seeds = Seeds::nodes(vec![seed]);
    let sampled = sampler.sample_blocks(&seeds, RngKey::new(0), &mut Scratch::default()).unwrap();
    assert_eq!(sampled.blocks[0].n_edges(), 2);
    assert_eq!(*n_running.lock().unwrap(), 2, "the rule should run for both relations at once");
}

#[test]
fn hetero_sampler_samples_a_homogeneous_graph() {
    let data = hubs();
    let cluster = Cluster::of(&parts(&data, 2, |node| node as usize % 2, None), None, Default::default());
    assert!(!cluster.graph.is_heterogeneous());
    let fanouts = vec![vec![Fanout::UpTo(3)], vec![Fanout::UpTo(5)]];
    let remote = cluster.graph.hetero_sampler(fanouts, &SamplerConfig::default()).unwrap();
    let whole = NeighborSampler::new(Arc::clone(data.csc().unwrap()), [3, 5]);
    assert_eq!(sampled(&remote), sampled(&whole));
}
