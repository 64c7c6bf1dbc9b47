//! [`Csc::scatter_rows`]: the rows of a graph become the rows of some nodes of a larger graph.
#![allow(clippy::unwrap_used, reason = "test helpers may unwrap")]

use kiln_graph::{Csc, CscBuilder, EdgeId, Error, NodeId, SharedArray};

fn three_rows() -> Csc {
    let graph = CscBuilder::new(3).weights(&[0.5, 1.5, 2.5, 3.5]);
    graph.build(&[1, 2, 0, 1], &[0, 0, 2, 2]).unwrap()
}

fn nodes(ids: &[u32]) -> SharedArray<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

#[test]
fn rows_move_to_their_nodes_and_edge_ids_stay() {
    let graph = three_rows();
    for (of_rows, n_nodes) in [(&[1, 4, 6][..], 9), (&[0, 1, 2], 3), (&[6, 7, 8], 9)] {
        let of_rows = nodes(of_rows);
        let spread = graph.scatter_rows(&of_rows, n_nodes).unwrap();
        spread.validate().unwrap();
        assert_eq!((spread.n_nodes(), spread.n_edges()), (n_nodes, 4));
        assert_eq!(spread.weights(), graph.weights());
        for node in (0..n_nodes as u32).map(NodeId) {
            let row = of_rows.iter().position(|other| *other == node);
            let expected = row.map_or(&[][..], |row| graph.in_neighbors(NodeId(row as u32)));
            assert_eq!(spread.in_neighbors(node), expected, "{node:?}");
            if let Some(row) = row {
                assert_eq!(spread.first_edge(node), graph.first_edge(NodeId(row as u32)));
            }
        }
    }
    assert_eq!(graph.first_edge(NodeId(2)), EdgeId(2));
    let none = Csc::new(vec![0].into(), SharedArray::default()).unwrap();
    assert_eq!(none.scatter_rows(&nodes(&[]), 3).unwrap().indptr(), [0, 0, 0, 0]);
}

#[test]
fn rejects_invalid_row_nodes_and_indptr() {
    let graph = three_rows();
    for (of_rows, bad_row) in [(&[1, 1, 2][..], 1), (&[2, 1, 4], 1), (&[0, 1, 9], 2)] {
        let error = graph.scatter_rows(&nodes(of_rows), 9).unwrap_err();
        assert!(matches!(error, Error::BadRow { row, .. } if row == bad_row), "{error}");
    }
    let error = graph.scatter_rows(&nodes(&[0, 1]), 9).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { expected: 3, got: 2, .. }), "{error}");
    let falls = Csc::new(vec![0, 2, 1, 3].into(), nodes(&[0, 1, 2])).unwrap();
    let error = falls.scatter_rows(&nodes(&[1, 2, 3]), 4).unwrap_err();
    assert!(matches!(error, Error::IndptrNotMonotone { node: 1, before: 2, after: 1 }), "{error}");
}

#[test]
fn a_range_of_rows_is_the_graph_that_was_scattered() {
    let graph = three_rows();
    let whole = graph.scatter_rows(&nodes(&[6, 7, 8]), 11).unwrap();
    let narrowed = whole.narrow_rows(6..9).unwrap();
    assert_eq!((narrowed.indptr(), narrowed.indices()), (graph.indptr(), graph.indices()));
    assert_eq!(narrowed.weights(), graph.weights());
    // Rows without edges may be added, and none with edges be left out.
    assert_eq!(whole.narrow_rows(5..11).unwrap().indptr(), [0, 0, 2, 2, 4, 4, 4]);
    for range in [7..9, 6..8, 0..0, 11..11, 6..12, 12..13] {
        let error = whole.narrow_rows(range.clone()).unwrap_err();
        assert!(matches!(error, Error::LengthMismatch { .. }), "{range:?}: {error}");
    }
}
