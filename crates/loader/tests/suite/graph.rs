//! Batches of whole graphs: exact arrays, identical batches for any number of workers, typed errors.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use kiln_feature::{DenseFeatures, FeatureStore, Labels};
use kiln_graph::{
    Csc, CscBuilder, EdgeId, GraphId, LocalId, MappedFile, NodeId, SharedArray, TransposedBlock,
};
use kiln_loader::{
    BatchError, Batcher, GraphBatch, GraphBatcher, ItemSampler, ItemSamplerConfig, Loader, LoaderConfig,
    Phase, SeedBatch, StageTimes,
};
use kiln_sample::RngKey;
use proptest::prelude::*;

const TRAIN: Phase = Phase::Train { epoch: 0 };
/// Graph 1 has no nodes, graph 2 no edges.
const OFFSETS: [u32; 5] = [0, 3, 3, 5, 8];
const CLASSES: [i32; 4] = [1, 0, 2, 1];

/// Graph 0 is the path 0 - 1 - 2, graph 3 the ring 5 -> 6 -> 7 -> 5 with a self-loop on 6.
fn graph() -> Csc {
    let (srcs, dsts) = ([0, 1, 1, 2, 5, 6, 7, 6], [1, 0, 2, 1, 6, 7, 5, 6]);
    let graph = CscBuilder::new(8).build(&srcs, &dsts).unwrap();
    assert_eq!(graph.indptr(), [0, 1, 3, 4, 4, 4, 5, 7, 8]);
    assert_eq!(graph.indices(), [1, 0, 2, 1, 7, 5, 6, 6].map(NodeId));
    graph
}

/// Node `v` has the features `[v, -v]`.
fn batcher(graph: Csc, offsets: &[u32], classes: &[i32]) -> GraphBatcher<dyn FeatureStore> {
    let rows: Vec<f32> = (0..graph.n_nodes()).flat_map(|node| [node as f32, -(node as f32)]).collect();
    let features: Arc<dyn FeatureStore> = Arc::new(DenseFeatures::from_f32(rows, 2).unwrap());
    let labels = Arc::new(Labels::new(classes.to_vec(), 3));
    GraphBatcher::new(Arc::new(graph), offsets.to_vec().into(), features, labels)
}

/// Makes one evaluation batch of these graphs.
fn take<F>(batcher: &GraphBatcher<F>, graphs: &[u32]) -> Result<GraphBatch, BatchError>
where
    F: FeatureStore + ?Sized + 'static,
{
    take_in(Phase::Validation, batcher, graphs)
}

fn take_in<F>(phase: Phase, batcher: &GraphBatcher<F>, graphs: &[u32]) -> Result<GraphBatch, BatchError>
where
    F: FeatureStore + ?Sized + 'static,
{
    let seeds = graphs.iter().copied().map(GraphId).collect();
    let seeds = SeedBatch::new(phase, 7, RngKey::new(1), seeds);
    batcher.batch(seeds, &mut (), &mut StageTimes::default())
}

#[test]
fn a_batch_concatenates_its_graphs() {
    let batcher = batcher(graph(), &OFFSETS, &CLASSES);
    let batch = take(&batcher, &[3, 1, 0, 2]).unwrap();
    assert_eq!(
        (batch.step, batch.key, batch.graphs),
        (7, RngKey::new(1), [3, 1, 0, 2].map(GraphId).to_vec())
    );
    assert_eq!(batch.node_offsets, [0, 3, 3, 6, 8]);
    assert_eq!(batch.block.srcs(), [5, 6, 7, 0, 1, 2, 3, 4].map(NodeId));
    assert_eq!(batch.block.dsts(), batch.block.srcs());
    assert_eq!(batch.block.indptr(), [0, 1, 3, 4, 5, 7, 8, 8, 8]);
    assert_eq!(batch.block.indices(), [2, 0, 1, 1, 4, 3, 5, 4].map(LocalId));
    assert_eq!(batch.block.edge_ids(), [4, 5, 6, 7, 0, 1, 2, 3].map(EdgeId));
    assert_eq!(batch.labels, [1, 0, 1, 2]);
    assert_eq!(batch.x_dim, 2);
    let rows: Vec<f32> = [5, 6, 7, 0, 1, 2, 3, 4].into_iter().flat_map(|v| [v as f32, -(v as f32)]).collect();
    assert_eq!(batch.x.into_f32(), rows);
}

#[test]
fn training_batches_equal_evaluation_batches_plus_the_transposed_block() {
    let plain = take(&batcher(graph(), &OFFSETS, &CLASSES), &[3, 1, 0]).unwrap();
    let batcher = batcher(graph(), &OFFSETS, &CLASSES);
    let training = take_in(Phase::Train { epoch: 0 }, &batcher, &[3, 1, 0]).unwrap();
    assert_eq!((&training.block, training.x.n_bytes()), (&plain.block, plain.x.n_bytes()));
    assert_eq!(plain.block.transposed(), None);
    assert_eq!(training.block.transposed(), Some(&TransposedBlock::of(&plain.block)));
}

#[test]
fn a_duplicate_graph_is_copied_twice() {
    let batch = take(&batcher(graph(), &OFFSETS, &CLASSES), &[0, 0]).unwrap();
    assert_eq!(batch.node_offsets, [0, 3, 6]);
    assert_eq!(batch.block.srcs(), [0, 1, 2, 0, 1, 2].map(NodeId));
    assert_eq!(batch.block.indptr(), [0, 1, 3, 4, 5, 7, 8]);
    assert_eq!(batch.block.indices(), [1, 0, 2, 1, 4, 3, 5, 4].map(LocalId));
    assert_eq!(batch.block.edge_ids(), [0, 1, 2, 3, 0, 1, 2, 3].map(EdgeId));
    assert_eq!(batch.block.weights(), None);
    assert_eq!(batch.labels, [1, 1]);
}

#[test]
fn accepts_empty_batches_and_graphs_without_nodes() {
    let batcher = batcher(graph(), &OFFSETS, &CLASSES);
    for (graphs, offsets) in [(&[][..], &[0][..]), (&[1, 1], &[0, 0, 0])] {
        let batch = take(&batcher, graphs).unwrap();
        assert_eq!(batch.node_offsets, offsets);
        assert_eq!((batch.block.n_dst(), batch.block.n_edges(), batch.x.n_values()), (0, 0, 0));
        assert_eq!(batch.labels.len(), graphs.len());
    }
}

#[test]
fn n_bytes_counts_all_arrays() {
    let plain = take(&batcher(graph(), &OFFSETS, &CLASSES), &[3, 0]).unwrap();
    // The terms are the sizes of graphs and labels, offsets, nodes, indptr, edges with their ids, and feature rows.
    assert_eq!(plain.n_bytes(), 2 * 8 + 3 * 4 + 6 * 4 + 7 * 4 + 8 * 12 + 6 * 8);
}

#[test]
fn batches_are_identical_for_any_number_of_workers() {
    let graphs: Vec<GraphId> = (0..500).map(|item| GraphId(item % 4)).collect();
    let config = ItemSamplerConfig { batch_size: 32, ..Default::default() };
    let mut expected: Option<String> = None;
    for workers in [0, 1, 4] {
        let items = ItemSampler::new(graphs.clone(), config).unwrap();
        let loader = LoaderConfig { workers, queue_bytes: 1 << 14 };
        let loader = Loader::new(items, batcher(graph(), &OFFSETS, &CLASSES), loader).unwrap();
        let batches =
            loader.epoch(TRAIN).map(|batch| GraphBatch { times: StageTimes::default(), ..batch.unwrap() });
        let batches = format!("{:?}", batches.collect::<Vec<_>>());
        assert!(*expected.get_or_insert_with(|| batches.clone()) == batches, "{workers} workers");
    }
}

#[test]
fn batches_report_the_times_of_all_stages() {
    let items = ItemSampler::new([0, 3].map(GraphId), ItemSamplerConfig::default()).unwrap();
    let loader = Loader::new(items, batcher(graph(), &OFFSETS, &CLASSES), LoaderConfig::default()).unwrap();
    let times = loader.epoch(TRAIN).next().unwrap().unwrap().times;
    assert!(!times.seeds.is_zero() && !times.sample.is_zero() && !times.gather.is_zero(), "{times:?}");
}

#[test]
fn rejects_unknown_and_unlabelled_graphs() {
    let batcher = batcher(graph(), &OFFSETS, &[1, 0, -1, 3]);
    let cases = [
        (vec![0, 4], "item 4 at position 1 is not a graph: expected an id below 4"),
        (vec![1, 2], "graph 2 has no label: remove it from the split"),
        (vec![3], "graph 3 has label 3, expected a class below 3"),
    ];
    for (graphs, expected) in cases {
        assert_eq!(take(&batcher, &graphs).unwrap_err().to_string(), expected);
    }
}

#[test]
fn rejects_edges_between_graphs() {
    let batcher = batcher(graph(), &[0, 2, 3, 5, 8], &CLASSES);
    // The source of edge 2 is after graph 0, that of edge 3 before graph 1.
    let cases = [
        (0, "edge 2 comes from node 2, expected a node of graph 0 (0..2)"),
        (1, "edge 3 comes from node 1, expected a node of graph 1 (2..3)"),
    ];
    for (graph, expected) in cases {
        let error = take(&batcher, &[graph]).unwrap_err();
        assert!(matches!(error, BatchError::EdgeLeavesGraph { .. }));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert!(take(&batcher, &[3]).is_ok());
}

#[test]
fn rejects_damaged_offsets_only_in_batches_with_their_graphs() {
    let falling = batcher(graph(), &[0, 3, 2, 5, 9], &CLASSES);
    assert!(take(&falling, &[0]).is_ok());
    for (graph, expected) in [
        (1, "the nodes of graph 1 are 3..2, expected a range within 0..8"),
        (3, "the nodes of graph 3 are 5..9, expected a range within 0..8"),
    ] {
        let error = take(&falling, &[graph]).unwrap_err();
        assert!(matches!(error, BatchError::BadNodeRange { .. }));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    for (indptr, expected) in [
        (vec![0, 3, 1, 4, 4, 4, 5, 7, 8], "node 1 has the edge range 3 to 1, expected"),
        (vec![0, 1, 9, 4, 4, 4, 5, 7, 8], "node 1 has the edge range 1 to 9, expected"),
        (vec![0, 1, 3, 9, 4, 4, 5, 7, 8], "node 2 has the edge range 3 to 9, expected"),
    ] {
        let damaged = Csc::new(SharedArray::from(indptr), graph().indices().to_vec().into()).unwrap();
        let damaged = batcher(damaged, &OFFSETS, &CLASSES);
        let error = take(&damaged, &[0]).unwrap_err();
        assert!(
            matches!(
                error,
                BatchError::Sample(kiln_sample::Error::DamagedGraph(
                    kiln_sample::DamagedGraphError::BadEdgeRange { .. }
                ))
            ),
            "{error}"
        );
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(take(&damaged, &[3]).is_ok());
    }
}

#[test]
fn a_graph_without_nodes_ignores_damaged_offsets_of_the_next_graph() {
    // Graph 1 is empty and starts at node 3, where the offset of the edges is damaged.
    for start in [9, 2, u64::MAX] {
        let indptr = vec![0, 1, 3, start, 4, 4, 5, 7, 8];
        let damaged = Csc::new(SharedArray::from(indptr), graph().indices().to_vec().into()).unwrap();
        let damaged = batcher(damaged, &OFFSETS, &CLASSES);
        let batch = take(&damaged, &[1, 3, 1]).unwrap();
        assert_eq!(batch.node_offsets, [0, 0, 3, 3]);
        assert_eq!(batch.block.edge_ids(), [4, 5, 6, 7].map(EdgeId));
        let graph_0 = take(&damaged, &[0]).map(|batch| batch.block.n_edges());
        assert!(graph_0.is_err(), "{graph_0:?}");
    }
}

#[test]
fn an_error_in_a_mapped_file_contains_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("indices");
    let indices = [1, 0, 2, 1, 7, 5, 4_000_000_000_u32, 6];
    fs::write(&path, indices.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>()).unwrap();
    let mapped = MappedFile::open(&path).unwrap().slice(0..32).unwrap();
    let damaged = Csc::new(graph().indptr().to_vec().into(), mapped).unwrap();
    let error = take(&batcher(damaged, &OFFSETS, &CLASSES), &[0, 3]).unwrap_err().to_string();
    let expected =
        format!("{}: edge 6 comes from node 4000000000, expected a node of graph 3", path.display());
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn rejects_a_batch_with_more_nodes_than_local_ids() {
    let n_nodes = 1 << 20;
    let empty = CscBuilder::new(n_nodes).build(&[], &[]).unwrap();
    let error = take(&batcher(empty, &[0, n_nodes as u32], &[0]), &[0; 1 << 12]).unwrap_err();
    assert!(matches!(error, BatchError::BatchTooLarge { what: "nodes", n: 0x1_0000_0000 }), "{error}");
}

#[test]
#[should_panic(expected = "expected one label per graph")]
fn new_panics_without_one_label_per_graph() {
    batcher(graph(), &OFFSETS, &CLASSES[..3]);
}

/// Random graphs: the number of nodes and the edges of each.
fn arb_graphs() -> impl Strategy<Value = Vec<(u32, Vec<(u32, u32)>)>> {
    let graph = (0_u32..6).prop_flat_map(|n_nodes| {
        let node = 0..n_nodes.max(1);
        let n_edges = if n_nodes == 0 { 0 } else { 12 };
        (Just(n_nodes), prop::collection::vec((node.clone(), node), 0..=n_edges))
    });
    prop::collection::vec(graph, 1..8)
}

proptest! {
    #[test]
    fn each_graph_of_a_batch_equals_the_graph_built_alone(
        graphs in arb_graphs(),
        drawn in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let (mut offsets, mut srcs, mut dsts) = (vec![0], Vec::new(), Vec::new());
        for (n_nodes, edges) in &graphs {
            let first = offsets[offsets.len() - 1];
            srcs.extend(edges.iter().map(|edge| first + edge.0));
            dsts.extend(edges.iter().map(|edge| first + edge.1));
            offsets.push(first + n_nodes);
        }
        let all = CscBuilder::new(offsets[graphs.len()] as usize).build(&srcs, &dsts).unwrap();
        let drawn: Vec<u32> = drawn.iter().map(|index| index.index(graphs.len()) as u32).collect();
        let batch = take(&batcher(all.clone(), &offsets, &vec![0; graphs.len()]), &drawn).unwrap();
        prop_assert_eq!(batch.node_offsets.len(), drawn.len() + 1);
        for (nodes, &graph) in batch.node_offsets.windows(2).zip(&drawn) {
            let (n_nodes, edges) = &graphs[graph as usize];
            let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
            let alone = CscBuilder::new(*n_nodes as usize).build(&srcs, &dsts).unwrap();
            prop_assert_eq!(nodes[1] - nodes[0], *n_nodes);
            for node in 0..*n_nodes {
                let row = (nodes[0] + node) as usize;
                prop_assert_eq!(batch.block.srcs()[row], NodeId(offsets[graph as usize] + node));
                let edges = batch.block.indptr()[row] as usize..batch.block.indptr()[row + 1] as usize;
                let here: Vec<u32> = batch.block.indices()[edges.clone()].iter().map(|src| src.0 - nodes[0]).collect();
                let expected: Vec<u32> = alone.in_neighbors(NodeId(node)).iter().map(|src| src.0).collect();
                prop_assert_eq!(here, expected);
                for (edge, src) in batch.block.edge_ids()[edges.clone()].iter().zip(&batch.block.indices()[edges]) {
                    prop_assert_eq!(all.indices()[edge.index()], batch.block.global(*src));
                }
            }
        }
    }
}
