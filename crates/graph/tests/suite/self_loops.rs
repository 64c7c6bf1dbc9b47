//! Adding self loops: exact arrays with types and weights, existing loops, hubs, and unusual and invalid input.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};
use kiln_graph::{
    ColumnValues, Csc, CscBuilder, EdgeColumn, Error, NodeId, add_self_loops, features_with_self_loops,
    gcn_norm,
};
use kiln_testkit::{arb_coo, hub, ring, six_nodes};
use proptest::prelude::*;

fn csc(indptr: &[u64], indices: &[u32]) -> Csc {
    Csc::new(indptr.to_vec().into(), NodeId::from_slice(indices).to_vec().into()).unwrap()
}

fn ids(graph: &Csc) -> Vec<u32> {
    graph.indices().iter().map(|node| node.0).collect()
}

#[test]
fn nodes_without_a_loop_get_one_and_existing_loops_are_kept() {
    let graph = add_self_loops(&six_nodes()).unwrap();
    assert_eq!(graph.indptr(), [0, 1, 3, 7, 9, 10, 12]);
    // Node 3 has a self loop already.
    assert_eq!(ids(&graph), [0, 0, 1, 1, 2, 3, 4, 3, 4, 4, 2, 5]);
    assert!(graph.weights().is_none() && graph.edge_types().is_none());
    let parallel = add_self_loops(&csc(&[0, 2, 3], &[0, 0, 0])).unwrap();
    assert_eq!((parallel.indptr(), ids(&parallel)), (&[0, 2, 4][..], vec![0, 0, 0, 1]));
}

/// Each element type has the rounded mean, and a node without edges has zeros. A graph with all loops keeps its features.
#[test]
fn features_of_added_loops_are_the_means_of_a_node() {
    // 2 -> 0, 1 -> 1, and 0, 2 -> 2.
    let graph = csc(&[0, 1, 2, 4, 4], &[2, 1, 0, 3]);
    let rows = [1.0, -1.0, 8.0, 9.0, 3.0, 10.0, 4.0, 20.0_f32];
    let expected = [1.0, -1.0, 1.0, -1.0, 8.0, 9.0, 3.0, 10.0, 3.5, 15.0, 4.0, 20.0, 0.0, 0.0_f32];
    let columns: [ColumnValues; 3] = [
        rows.to_vec().into(),
        rows.map(f16::from_f32).to_vec().into(),
        rows.map(bf16::from_f32).to_vec().into(),
    ];
    let looped = add_self_loops(&graph).unwrap();
    assert_eq!(ids(&looped), [0, 2, 1, 0, 2, 3, 3]);
    for values in columns {
        let column = EdgeColumn::new(values, 2).unwrap();
        let featured = graph.clone().with_column("features", column.clone()).unwrap();
        let got = features_with_self_loops(&featured, &looped).unwrap();
        assert_eq!(got.element_type(), column.element_type());
        assert_eq!((0..14).map(|i| got.value(i)).collect::<Vec<f32>>(), expected);
        let complete = looped.clone().with_column("features", got.clone()).unwrap();
        let same = features_with_self_loops(&complete, &add_self_loops(&complete).unwrap()).unwrap();
        assert_eq!(same.as_bytes(), got.as_bytes());
    }
    assert!(features_with_self_loops(&graph, &looped).is_none());
}

#[test]
fn added_loops_have_weight_1_and_the_type_after_the_largest() {
    // The edges are 1 -> 0 twice, 2 -> 0, and a self loop of weight 3 on node 1.
    let graph = CscBuilder::new(3)
        .weights(&[0.5, f32::NAN, 2.0, 3.0])
        .edge_types(&[4, 5, 6, 0])
        .build(&[1, 1, 2, 1], &[0, 0, 0, 1])
        .unwrap();
    let graph = add_self_loops(&graph).unwrap();
    assert_eq!((graph.indptr(), ids(&graph)), (&[0, 4, 5, 6][..], vec![0, 1, 1, 2, 1, 2]));
    assert_eq!(graph.edge_types().unwrap(), [7, 4, 5, 6, 0, 7]);
    assert_eq!(graph.n_edge_types(), Some(8));
    let weights = graph.weights().unwrap();
    assert_eq!((&weights[..2], &weights[3..]), (&[1.0, 0.5][..], &[2.0, 3.0, 1.0][..]));
    assert!(weights[2].is_nan());
}

#[test]
fn adding_loops_twice_adds_none_and_no_type() {
    let graph = CscBuilder::new(3).edge_types(&[2, 1]).build(&[0, 1], &[1, 2]).unwrap();
    let once = add_self_loops(&graph).unwrap();
    let twice = add_self_loops(&once).unwrap();
    assert_eq!(
        (once.indptr(), once.indices(), once.edge_types()),
        (twice.indptr(), twice.indices(), twice.edge_types())
    );
}

#[test]
fn type_255_leaves_no_type_for_loops_unless_none_is_missing() {
    let graph = |dsts: &[u32]| CscBuilder::new(2).edge_types(&[255, 0]).build(&[0, 1], dsts).unwrap();
    let error = add_self_loops(&graph(&[0, 0])).unwrap_err();
    assert!(matches!(error, Error::NoFreeEdgeType), "{error}");
    assert_eq!(add_self_loops(&graph(&[0, 1])).unwrap().edge_types().unwrap(), [255, 0]);
    let graph = CscBuilder::new(2).edge_types(&[254]).build(&[0], &[1]).unwrap();
    assert_eq!(add_self_loops(&graph).unwrap().edge_types().unwrap(), [255, 254, 255]);
}

#[test]
fn graphs_without_edges_or_nodes_get_loops_of_type_0() {
    let graph = csc(&[0, 0, 0], &[]).with_edge_types(Vec::new().into()).unwrap();
    assert_eq!(graph.n_edge_types(), Some(0));
    let graph = add_self_loops(&graph).unwrap();
    assert_eq!((ids(&graph), graph.edge_types().unwrap()), (vec![0, 1], &[0, 0][..]));
    assert_eq!(add_self_loops(&csc(&[0], &[])).unwrap().n_edges(), 0);
    assert_eq!(csc(&[0], &[]).n_edge_types(), None);
}

#[test]
fn rejects_edges_from_nodes_that_do_not_exist() {
    let error = add_self_loops(&csc(&[0, 1], &[1])).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { edge: 0, node: 1, n_nodes: 1 }), "{error}");
}

#[test]
fn graphs_with_hubs_are_bit_identical_for_any_number_of_threads() {
    let ring = ring(50_000);
    let srcs: Vec<u32> = ids(&ring).into_iter().chain(0..40_000).collect();
    let dsts: Vec<u32> = (0..50_000).flat_map(|dst| [dst, dst]).chain([49_999; 40_000]).collect();
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| (edge % 97) as f32).collect();
    let types: Vec<u8> = (0..srcs.len()).map(|edge| (edge % 5) as u8).collect();
    let graph = CscBuilder::new(50_000).weights(&weights).edge_types(&types).build(&srcs, &dsts).unwrap();
    let run = |graph: &Csc, n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let graph = pool.install(|| add_self_loops(graph).unwrap());
        let edge_data = (graph.weights().map(<[f32]>::to_vec), graph.edge_types().map(<[u8]>::to_vec));
        (graph.indptr().to_vec(), ids(&graph), edge_data)
    };
    for graph in [graph, (*hub(100_000)).clone()] {
        let one = run(&graph, 1);
        for n_threads in [2, 5] {
            assert!(one == run(&graph, n_threads), "{n_threads} threads");
        }
    }
}

proptest! {
    /// The edges without the added loops are those of the graph, and the structure is that of a normalised graph.
    #[test]
    fn only_missing_loops_are_added(coo in arb_coo()) {
        let before = coo.csc();
        let graph = add_self_loops(&before).unwrap();
        for dst in (0..coo.n_nodes as u32).map(NodeId) {
            let (old, new) = (before.in_neighbors(dst), graph.in_neighbors(dst));
            prop_assert!(new.is_sorted());
            let is_missing = !old.contains(&dst);
            let mut expected: Vec<NodeId> = old.iter().copied().chain(is_missing.then_some(dst)).collect();
            expected.sort();
            prop_assert_eq!(new, expected);
        }
        let normalised = gcn_norm(&before).unwrap();
        prop_assert_eq!(graph.indices(), normalised.indices());
    }
}
