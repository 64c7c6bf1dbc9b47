//! [`Csc::sort_neighbors`]: the neighbours of each node ascend, and the data of edges move with them.
#![allow(clippy::unwrap_used, reason = "test helpers may unwrap")]

use kiln_graph::{Csc, CscBuilder, Error, NodeId};

#[test]
fn sorts_neighbors_with_weights_and_types_and_keeps_parallel_edges_in_order() {
    let graph = Csc::new(vec![0, 2, 2, 6, 7].into(), vec![3_u32, 1, 2, 0, 2, 0, 1].into()).unwrap();
    let graph = graph.with_weights(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0].into()).unwrap();
    let graph = graph.with_edge_types(vec![0_u8, 1, 2, 3, 4, 5, 6].into()).unwrap();
    assert!(!graph.has_sorted_neighbors());
    let sorted = graph.sort_neighbors().unwrap();
    assert!(sorted.has_sorted_neighbors());
    assert_eq!(sorted.indptr(), graph.indptr());
    assert_eq!(sorted.indices(), [1, 3, 0, 0, 2, 2, 1].map(NodeId));
    assert_eq!(sorted.weights().unwrap(), [1.0, 0.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    assert_eq!(sorted.edge_types().unwrap(), [1, 0, 3, 5, 2, 4, 6]);
}

/// More edges than one task sorts, with a hub.
#[test]
fn sorting_a_large_reversed_graph_equals_building_it() {
    let n = 3_000_u32;
    let edges = (0..n).flat_map(|dst| {
        let degree = if dst == 1_000 { 2_900 } else { 50 };
        (0..degree).map(move |step| ((dst + step) % n, dst))
    });
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.unzip();
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| edge as f32).collect();
    let built = CscBuilder::new(n as usize).weights(&weights).build(&srcs, &dsts).unwrap();
    assert!(built.has_sorted_neighbors());
    let (mut indices, mut weights) = (built.indices().to_vec(), built.weights().unwrap().to_vec());
    for bounds in built.indptr().windows(2) {
        let edges = bounds[0] as usize..bounds[1] as usize;
        indices[edges.clone()].reverse();
        weights[edges].reverse();
    }
    let reversed = Csc::new(built.indptr().to_vec().into(), indices.into()).unwrap();
    let bare = reversed.sort_neighbors().unwrap();
    assert_eq!((bare.indices(), bare.weights()), (built.indices(), None));
    let sorted = reversed.with_weights(weights.into()).unwrap().sort_neighbors().unwrap();
    assert_eq!((sorted.indices(), sorted.weights()), (built.indices(), built.weights()));
}

#[test]
fn damaged_graphs_are_an_error_and_not_sorted() {
    let falls = Csc::new(vec![0, 2, 1, 3].into(), vec![0_u32, 1, 2].into()).unwrap();
    assert!(!falls.has_sorted_neighbors());
    let error = falls.sort_neighbors().unwrap_err();
    assert!(matches!(error, Error::IndptrNotMonotone { node: 1, before: 2, after: 1 }), "{error}");
    let beyond = Csc::new(vec![0, 9, 2].into(), vec![0_u32, 1].into()).unwrap();
    assert!(!beyond.has_sorted_neighbors());
    let unknown = Csc::new(vec![0, 2, 2].into(), vec![7_u32, 1].into()).unwrap();
    let error = unknown.sort_neighbors().unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { edge: 0, node: 7, n_nodes: 2 }), "{error}");
    assert!(Csc::new(vec![0].into(), Vec::<u32>::new().into()).unwrap().sort_neighbors().is_ok());
}
