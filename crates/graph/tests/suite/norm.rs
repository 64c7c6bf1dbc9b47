//! GCN normalisation: exact arrays, agreement with the formula on random graphs, unusual and invalid input.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use kiln_graph::{ColumnError, Csc, CscBuilder, Error, MappedFile, NodeId, gcn_norm};
use kiln_testkit::{arb_coo, ring, six_nodes};
use proptest::prelude::*;

fn csc(indptr: &[u64], indices: &[u32]) -> Csc {
    Csc::new(indptr.to_vec().into(), NodeId::from_slice(indices).to_vec().into()).unwrap()
}

fn ids(graph: &Csc) -> Vec<u32> {
    graph.indices().iter().map(|node| node.0).collect()
}

/// Returns `1 / sqrt(d_u d_v)`.
fn of(d_u: f64, d_v: f64) -> f32 {
    (1.0 / (d_u * d_v).sqrt()) as f32
}

/// Compares numbers with a tolerance of one rounding to f32, because the f64 values before the rounding may differ.
fn check_close(got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= f32::EPSILON * expected.abs(), "{got}, expected {expected}");
    }
}

#[test]
fn six_node_graph_gets_self_loops_and_in_degree_weights() {
    let graph = gcn_norm(&six_nodes()).unwrap();
    assert_eq!(graph.indptr(), [0, 1, 3, 7, 9, 10, 12]);
    assert_eq!(ids(&graph), [0, 0, 1, 1, 2, 3, 4, 3, 4, 4, 2, 5]);
    // The in-degrees with self loops are 1 2 4 2 1 2. Node 3 has a self loop already and gets no second one.
    let expected = [
        of(1., 1.),
        of(1., 2.),
        of(2., 2.),
        of(2., 4.),
        of(4., 4.),
        of(2., 4.),
        of(1., 4.),
        of(2., 2.),
        of(1., 2.),
        of(1., 1.),
        of(4., 2.),
        of(2., 2.),
    ];
    check_close(graph.weights().unwrap(), &expected);
    assert!(graph.edge_types().is_none());
}

#[test]
fn normalisation_multiplies_edge_weights_and_keeps_types_and_existing_loops() {
    // The edges are 1 -> 0 twice, 2 -> 0, and a self loop of weight 3 on node 1.
    let graph = CscBuilder::new(3)
        .weights(&[0.5, 1.5, 2.0, 3.0])
        .edge_types(&[4, 5, 6, 7])
        .build(&[1, 1, 2, 1], &[0, 0, 0, 1])
        .unwrap();
    let graph = gcn_norm(&graph).unwrap();
    assert_eq!(graph.indptr(), [0, 4, 5, 6]);
    assert_eq!(ids(&graph), [0, 1, 1, 2, 1, 2]);
    assert_eq!(graph.edge_types().unwrap(), [0, 4, 5, 6, 7, 0]);
    let expected = [0.2, 0.5 * of(3., 5.), 1.5 * of(3., 5.), 2.0 * of(1., 5.), 1.0, 1.0];
    check_close(graph.weights().unwrap(), &expected);
}

#[test]
fn nodes_with_parallel_self_loops_keep_them_and_get_no_additional_loop() {
    let graph = gcn_norm(&csc(&[0, 2, 3], &[0, 0, 0])).unwrap();
    assert_eq!((graph.indptr(), ids(&graph)), (&[0, 2, 4][..], vec![0, 0, 0, 1]));
    check_close(graph.weights().unwrap(), &[0.5, 0.5, 0.5, 0.5]);
}

#[test]
fn unsorted_neighbours_keep_their_order_and_the_loop_follows_the_last_smaller_one() {
    let graph = gcn_norm(&csc(&[0, 0, 0, 4, 4], &[3, 0, 1, 3])).unwrap();
    assert_eq!(ids(&graph), [0, 1, 3, 0, 1, 2, 3, 3]);
    // A self loop is found although the neighbours do not ascend.
    let graph = gcn_norm(&csc(&[0, 3, 3], &[1, 0, 1])).unwrap();
    assert_eq!(ids(&graph), [1, 0, 1, 1]);
}

#[test]
fn nodes_with_non_positive_degree_get_weight_zero() {
    let build = |weight: f32| {
        let graph = CscBuilder::new(2).weights(&[weight]).build(&[1], &[0]).unwrap();
        gcn_norm(&graph).unwrap().weights().unwrap().to_vec()
    };
    assert_eq!(build(-1.0), [0.0, 0.0, 1.0]);
    assert_eq!(build(-7.5), [0.0, 0.0, 1.0]);
    check_close(&build(-0.75), &[4.0, -0.75 * 2.0, 1.0]);
}

#[test]
fn normalises_graphs_without_edges_or_nodes() {
    let graph = gcn_norm(&csc(&[0, 0, 0], &[])).unwrap();
    assert_eq!((ids(&graph), graph.weights().unwrap()), (vec![0, 1], &[1.0, 1.0][..]));
    assert_eq!(gcn_norm(&csc(&[0], &[])).unwrap().n_edges(), 0);
}

#[test]
fn rejects_nan_and_infinite_weights() {
    for weight in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let graph = CscBuilder::new(2).weights(&[1.0, weight, weight]).build(&[0, 1, 1], &[0, 0, 1]).unwrap();
        let error = gcn_norm(&graph).unwrap_err();
        assert!(matches!(error, Error::Column(ColumnError::WeightNotFinite { edge: 1, .. })), "{error}");
    }
}

/// Each array is mapped without validation and contains one invalid number.
#[test]
fn rejects_damaged_mapped_graphs() {
    let folder = tempfile::tempdir().unwrap();
    let mapped = |indptr: &[u64], indices: &[u32]| {
        let path = folder.path().join("graph");
        let mut bytes: Vec<u8> = indptr.iter().flat_map(|start| start.to_le_bytes()).collect();
        let n_indptr_bytes = bytes.len();
        bytes.extend(indices.iter().flat_map(|id| id.to_le_bytes()));
        std::fs::write(&path, &bytes).unwrap();
        let file = MappedFile::open(&path).unwrap();
        let indices = file.slice::<NodeId>(n_indptr_bytes..bytes.len()).unwrap();
        Csc::new(file.slice(0..n_indptr_bytes).unwrap(), indices).unwrap()
    };
    let good = gcn_norm(&mapped(&[0, 1, 2], &[1, 0])).unwrap();
    check_close(good.weights().unwrap(), &[0.5; 4]);
    let refused = |indptr: &[u64], indices: &[u32]| match gcn_norm(&mapped(indptr, indices)).unwrap_err() {
        Error::InFile { path, source } if path == folder.path().join("graph") => *source,
        other => panic!("{other}"),
    };
    let error = refused(&[0, 1, 2], &[1, 2]);
    assert!(matches!(error, Error::NodeOutOfRange { edge: 1, node: 2, n_nodes: 2 }), "{error}");
    let error = refused(&[0, 9, 1, 2], &[1, 0]);
    assert!(matches!(error, Error::IndptrNotMonotone { node: 1, before: 9, after: 1 }), "{error}");
}

#[test]
fn normalised_graph_is_bit_identical_for_any_number_of_threads() {
    // The ring is long enough to be split many times, and its last node is a hub.
    let ring = ring(100_000);
    let mut srcs: Vec<u32> = ring.indices().iter().map(|node| node.0).collect();
    let mut dsts: Vec<u32> = (0..100_000).flat_map(|dst| [dst, dst]).collect();
    srcs.extend(0..50_000);
    dsts.extend([99_999; 50_000]);
    let weights: Vec<f32> = (0..srcs.len()).map(|edge| 0.1 + (edge % 97) as f32).collect();
    let graph = CscBuilder::new(100_000).weights(&weights).build(&srcs, &dsts).unwrap();
    let run = |n_threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let graph = pool.install(|| gcn_norm(&graph).unwrap());
        let bits: Vec<u32> = graph.weights().unwrap().iter().map(|weight| weight.to_bits()).collect();
        (graph.indptr().to_vec(), ids(&graph), bits)
    };
    let one = run(1);
    for n_threads in [2, 5] {
        assert!(one == run(n_threads), "{n_threads} threads");
    }
}

proptest! {
    /// Compares the weights with the formula, on a dense matrix of edge counts.
    #[test]
    fn normalised_weights_match_the_dense_formula(coo in arb_coo()) {
        let n_nodes = coo.n_nodes;
        let mut dense = vec![vec![0.0_f64; n_nodes]; n_nodes];
        for (&src, &dst) in coo.srcs.iter().zip(&coo.dsts) {
            dense[dst as usize][src as usize] += 1.0;
        }
        for (node, row) in dense.iter_mut().enumerate() {
            row[node] = row[node].max(1.0);
        }
        let degrees: Vec<f64> = dense.iter().map(|row| row.iter().sum()).collect();
        let graph = gcn_norm(&coo.csc()).unwrap();
        let (weights, mut n_edges) = (graph.weights().unwrap(), 0.0);
        for dst in 0..n_nodes {
            let srcs = graph.in_neighbors(NodeId(dst as u32));
            prop_assert!(srcs.is_sorted());
            for (edge, src) in (graph.indptr()[dst] as usize..).zip(srcs) {
                check_close(&weights[edge..=edge], &[of(degrees[src.index()], degrees[dst])]);
                dense[dst][src.index()] -= 1.0;
                n_edges += 1.0;
            }
        }
        prop_assert!(dense.iter().flatten().all(|left| *left == 0.0));
        prop_assert_eq!(n_edges, degrees.iter().sum::<f64>());
    }
}
