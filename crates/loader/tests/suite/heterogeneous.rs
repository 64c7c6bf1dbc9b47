//! Batches of nodes of several types: rows by type, targets of one type, typed errors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureBuffer, FeatureStore, Labels};
use kiln_graph::{NodeId, NodeTypes, Relation, RelationEdges, Relations};
use kiln_loader::{
    BatchError, Batcher, Error, FeatureRows, FeatureStores, ItemSampler, ItemSamplerConfig, Loader,
    LoaderConfig, MiniBatch, NodeBatcher, NodeTargets, Phase, RowsOfType, SeedBatch, StageTimes,
};
use kiln_sample::{Fanout, HeteroNeighborSampler, RngKey, SamplerConfig, Scratch};

/// Users 0 to 3, items 4 to 9 and shops 10 and 11. Each item is bought by two users and sold by a shop.
fn graph() -> Relations {
    let types = NodeTypes::new([("user", 4), ("item", 6), ("shop", 2)]).unwrap();
    let of = |name, src_type, srcs, dsts| RelationEdges::new(name, src_type, "item", srcs, dsts);
    let buyers = [0, 1, 1, 2, 2, 3, 3, 0, 0, 2, 1, 3];
    let bought = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5];
    let buys = of("buys", "user", &buyers, &bought);
    let sells = of("sells", "shop", &[0, 1, 0, 1, 0, 1], &[0, 1, 2, 3, 4, 5]);
    Relations::from_edges(types, &[buys, sells]).unwrap()
}

/// Item `i` of the type has the features `[i, 10 i]` and the class `i % 3`, and shop `i` the feature `[-i]`. Users have no
/// features.
fn loader(items: &[u32], workers: usize) -> Loader<NodeBatcher<HeteroNeighborSampler>> {
    let graph = graph();
    let fanouts = vec![vec![Fanout::All, Fanout::All]];
    let sampler = HeteroNeighborSampler::new(&graph, fanouts, SamplerConfig::default()).unwrap();
    let of_items: Vec<f32> = (0..6).flat_map(|item| [item as f32, 10.0 * item as f32]).collect();
    let stores: Vec<Option<Arc<dyn FeatureStore>>> = vec![
        None,
        Some(Arc::new(DenseFeatures::from_f32(of_items, 2).unwrap())),
        Some(Arc::new(DenseFeatures::from_f32(vec![0.0, -1.0], 1).unwrap())),
    ];
    let features = FeatureStores::new(graph.types().clone(), stores);
    let labels = Labels::new((0..6).map(|item| item % 3).collect::<Vec<i32>>(), 3);
    let targets = NodeTargets::of_type(graph.types().range(1), Arc::new(labels));
    let batcher = NodeBatcher::new(Arc::new(sampler), features, targets);
    let config = ItemSamplerConfig { batch_size: 4, shuffle: false, ..Default::default() };
    let items = ItemSampler::new(items.iter().copied().map(NodeId).collect::<Vec<_>>(), config).unwrap();
    Loader::new(items, batcher, LoaderConfig { workers, queue_bytes: 1 << 20 }).unwrap()
}

fn batches(items: &[u32], workers: usize) -> Vec<MiniBatch> {
    loader(items, workers).epoch(Phase::Train { epoch: 0 }).collect::<Result<_, _>>().unwrap()
}

#[test]
fn each_type_has_the_rows_of_its_nodes_in_their_order() {
    // Item 5 of the type is node 9, and occurs twice.
    for batch in batches(&[9, 4, 9], 1) {
        let nodes = batch.sampled.input_nodes().to_vec();
        // Items first, then users and shops by first appearance: 9 is bought by 1 and 3 and sold by 11, 4 by 0, 1 and 10.
        assert_eq!(nodes, [9, 4, 1, 3, 11, 0, 10].map(NodeId));
        assert_eq!(batch.input.node_types, [1, 1, 0, 0, 2, 0, 2]);
        let [users, items, shops] = &batch.input.rows[..] else { panic!("there are 3 types") };
        assert!(matches!(users, RowsOfType::Trainable { nodes } if *nodes == [1, 3, 0].map(NodeId)));
        let rows_of = |rows: &RowsOfType| match rows {
            RowsOfType::Features(FeatureRows { x: FeatureBuffer::F32(x), dim }) => (x.clone(), *dim),
            other => panic!("expected f32 rows, got {other:?}"),
        };
        assert_eq!(rows_of(items), (vec![5.0, 50.0, 0.0, 0.0], 2));
        assert_eq!(rows_of(shops), (vec![-1.0, 0.0], 1));
        assert_eq!(batch.sampled.labels, [2, 0, 2]);
        assert!(batch.n_bytes() > batch.sampled.n_bytes());
        // The backward pass reaches the rows in front of the first block.
        assert!(batch.sampled.blocks.iter().all(|block| block.transposed().is_some()));
    }
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers() {
    let items: Vec<u32> = (0..20).map(|item| 4 + item * 7 % 6).collect();
    let texts = |workers: usize| {
        batches(&items, workers)
            .into_iter()
            .map(|MiniBatch { sampled, input, .. }| {
                format!("{:?} {:?} {input:?}", sampled.blocks, sampled.labels)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(0).len(), 5);
    assert_eq!(texts(0), texts(3));
}

#[test]
fn a_seed_without_target_is_an_error() {
    for (seed, expected) in [
        (2, "node 2 has no target: expected a node of the type with targets (4..10)"),
        (10, "node 10 has no target: expected a node of the type with targets (4..10)"),
    ] {
        let error = loader(&[5, seed], 1).epoch(Phase::Validation).next().unwrap().unwrap_err();
        let Error::Batch { step: 0, source: source @ BatchError::NoTarget { .. } } = &error else {
            panic!("{error}")
        };
        assert_eq!(source.to_string(), expected);
    }
    // Samplers reject a node that does not exist.
    let error = loader(&[12], 1).epoch(Phase::Validation).next().unwrap().unwrap_err();
    assert!(matches!(error, Error::Batch { source: BatchError::Sample(_), .. }), "{error}");
}

/// The rows are about items 4 to 9 of the graph, and one item is in two of them, at different times.
#[test]
fn rows_of_a_table_have_the_node_the_time_and_the_target_of_each() {
    let mut relations: Vec<Relation> = graph().iter().cloned().collect();
    let n_edges = relations[0].graph.n_edges() as usize;
    relations[0].graph =
        Arc::new(relations[0].graph.as_ref().clone().with_edge_times(vec![0; n_edges]).unwrap());
    let graph = Relations::new(Arc::clone(graph().types()), relations).unwrap();
    let batcher = |times: Vec<i64>| {
        let sampler =
            HeteroNeighborSampler::new(&graph, vec![vec![Fanout::All; 2]], SamplerConfig::default());
        let features = FeatureStores::new(graph.types().clone(), vec![None; 3]);
        let targets = NodeTargets::rows(vec![NodeId(9), NodeId(4), NodeId(9)], Labels::new(vec![2, 0, 1], 3));
        NodeBatcher::new(Arc::new(sampler.unwrap()), features, targets).seed_times(times)
    };
    let batch = |times: Vec<i64>, rows: &[u32]| {
        let rows = rows.iter().copied().map(NodeId).collect();
        let seeds = SeedBatch::new(Phase::Test, 0, RngKey::new(0), rows);
        batcher(times).batch(seeds, &mut Scratch::default(), &mut StageTimes::default())
    };
    let sampled = batch(vec![10, 20, 30], &[2, 0, 1, 2]).unwrap().sampled;
    assert_eq!(sampled.seeds.as_nodes(), [9, 9, 4, 9].map(NodeId));
    assert_eq!(sampled.seeds.times(), Some(&[30, 10, 20, 30][..]));
    assert_eq!(sampled.items, [2, 0, 1, 2].map(NodeId));
    assert_eq!(sampled.labels, [1, 2, 0, 1]);
    // Equal rows share their trees, and those of one node at two times do not.
    assert_eq!(sampled.seed_index[0], sampled.seed_index[3]);
    assert_ne!(sampled.seed_index[0], sampled.seed_index[1]);
    for (times, rows) in [(vec![10, 20, 30], vec![0, 3]), (vec![10, 20], vec![2])] {
        let error = batch(times, &rows).unwrap_err();
        assert!(matches!(error, BatchError::NoSuchRow { .. }), "{error}");
    }
}

#[test]
fn the_first_block_is_not_transposed_for_features_that_a_model_reads_directly() {
    let types = NodeTypes::new([("node", 3)]).unwrap();
    let edge = RelationEdges {
        name: "edge",
        src_type: "node",
        dst_type: "node",
        srcs: &[0, 1, 2],
        dsts: &[1, 2, 0],
        weights: None,
        columns: None,
    };
    let graph = Relations::from_edges(types, &[edge]).unwrap();
    let store: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(vec![1.0, 2.0, 3.0], 1).unwrap());
    for (store, expected) in [(Some(store), [false, true]), (None, [true, true])] {
        let sampler =
            HeteroNeighborSampler::new(&graph, vec![vec![Fanout::All]; 2], SamplerConfig::default()).unwrap();
        let features = FeatureStores::new(graph.types().clone(), vec![store]);
        let labels = Arc::new(Labels::new(vec![0, 1, 0], 2));
        let targets = NodeTargets::of_type(0..3, labels);
        let batcher = NodeBatcher::new(Arc::new(sampler), features, targets);
        let items = ItemSampler::new(vec![NodeId(0)], ItemSamplerConfig::default()).unwrap();
        let loader = Loader::new(items, batcher, LoaderConfig::default()).unwrap();
        let batch = loader.epoch(Phase::Train { epoch: 0 }).next().unwrap().unwrap();
        let transposed = batch.sampled.blocks.iter().map(|block| block.transposed().is_some());
        assert_eq!(transposed.collect::<Vec<_>>(), expected);
        // With one type, the rows are in the order of the input nodes.
        assert!(batch.input.node_types.is_empty());
        let nodes = batch.sampled.input_nodes().to_vec();
        match &batch.input.rows[..] {
            [RowsOfType::Features(FeatureRows { x: FeatureBuffer::F32(x), dim: 1 })] => {
                assert_eq!(*x, nodes.iter().map(|node| (node.0 + 1) as f32).collect::<Vec<_>>());
            }
            [RowsOfType::Trainable { nodes: rows }] => assert_eq!(*rows, nodes),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_that_does_not_exist_has_no_row() {
    for types in [&[("a", 2)][..], &[("a", 1), ("b", 1)]] {
        let stores = vec![None; types.len()];
        let types = Arc::new(NodeTypes::new(types.iter().copied()).unwrap());
        let error = FeatureStores::new(types, stores).gather(&[NodeId(1), NodeId(2)]).unwrap_err();
        assert!(matches!(error, BatchError::NoSuchNode { node: NodeId(2), n_nodes: 2 }), "{error}");
    }
}

#[test]
#[should_panic(
    expected = "the features are those of 2 types of nodes: pass NodeTargets::of_type as the targets"
)]
fn targets_of_several_types_must_say_whose_they_are() {
    let graph = graph();
    let sampler =
        HeteroNeighborSampler::new(&graph, vec![vec![Fanout::All; 2]], SamplerConfig::default()).unwrap();
    let types = Arc::new(NodeTypes::new([("user", 4), ("item", 8)]).unwrap());
    let labels = Labels::new(vec![0; 4], 1);
    NodeBatcher::new(Arc::new(sampler), FeatureStores::new(types, vec![None, None]), labels);
}

#[test]
fn groups_of_nodes_do_not_depend_on_the_order_of_the_calls() {
    let graph = graph();
    let of_batch = |has_nodes_first: bool| {
        let config = SamplerConfig::default().with_edge_types();
        let sampler = HeteroNeighborSampler::new(&graph, vec![vec![Fanout::All; 2]], config).unwrap();
        let features = FeatureStores::new(graph.types().clone(), vec![None; 3]);
        let batcher = NodeBatcher::without_targets(Arc::new(sampler), features);
        let batcher = match has_nodes_first {
            true => batcher.node_groups().relation_groups(graph.schema()),
            false => batcher.relation_groups(graph.schema()).node_groups(),
        };
        let items = ItemSampler::new(vec![NodeId(4)], ItemSamplerConfig::default()).unwrap();
        let loader = Loader::new(items, batcher, LoaderConfig::default()).unwrap();
        let batch = loader.epoch(Phase::Validation).next().unwrap().unwrap();
        format!("{:?}", batch.sampled.groups.expect("the edges should be grouped"))
    };
    assert_eq!(of_batch(true), of_batch(false));
}
