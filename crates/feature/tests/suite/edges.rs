//! Feature rows of edges.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use half::f16;
use kiln_feature::{
    EdgeColumnError, EdgeFeatures, Error, FeatureBuffer, FeatureDType, RelationRows, edge_rows_of,
};
use kiln_graph::{
    Block, BlockParts, ColumnValues, EdgeColumn, EdgeColumns, EdgeId, LocalId, NodeId, NodeTypes,
    RelationEdges, Relations,
};

#[test]
fn gathers_rows_in_the_order_of_the_ids_and_keeps_their_element_type() {
    let values: Vec<f16> = (0..8).map(|i| f16::from_f32(i as f32 / 2.0)).collect();
    let features = EdgeFeatures::new(values, 2).unwrap();
    assert_eq!((features.dim(), features.n_edges(), features.dtype()), (2, 4, FeatureDType::F16));
    let mut rows = FeatureBuffer::default();
    features.gather(&[EdgeId(3), EdgeId(0), EdgeId(3)], &mut rows).unwrap();
    assert_eq!(rows.dtype(), FeatureDType::F16);
    // Memory that is not a vector may have any alignment.
    let mut bytes = [0; 13];
    features.gather_bytes(&[EdgeId(3), EdgeId(0), EdgeId(3)], &mut bytes[1..]).unwrap();
    assert_eq!(&bytes[1..], rows.as_bytes());
    assert_eq!(rows.into_f32(), [3.0, 3.5, 0.0, 0.5, 3.0, 3.5]);
    let mut copied = FeatureBuffer::default();
    features.in_memory().gather(&[EdgeId(1)], &mut copied).unwrap();
    assert_eq!(copied.into_f32(), [1.0, 1.5]);
}

#[test]
fn an_edge_without_a_row_is_an_error() {
    let features = EdgeFeatures::new(vec![1.0, 2.0], 1).unwrap();
    for edge in [2, u64::from(u32::MAX) + 1, u64::MAX] {
        let error = features.gather(&[EdgeId(0), EdgeId(edge)], &mut FeatureBuffer::default()).unwrap_err();
        assert!(
            matches!(error, Error::EdgeOutOfRange { edge: EdgeId(found), n_rows: 2 } if found == edge),
            "{error}"
        );
        features.gather_bytes(&[EdgeId(edge)], &mut [0; 4]).unwrap_err();
    }
    assert!(matches!(EdgeFeatures::new(vec![1.0, 2.0, 3.0], 2).unwrap_err(), Error::PartialRow { .. }));
}

/// Three relations of two edges each. The first has two columns, the last one, and the second none.
fn relations(of_last: impl Into<ColumnValues>) -> Relations {
    let types = NodeTypes::new([("user", 2), ("item", 2)]).unwrap();
    let features = |values: ColumnValues, width| {
        EdgeColumns::default().with("features", EdgeColumn::new(values, width).unwrap()).unwrap()
    };
    let first = features(vec![1.0_f32, 2.0, 3.0, 4.0].into(), 2);
    let last = features(of_last.into(), 1);
    let of = |name| RelationEdges::new(name, "user", "item", &[0, 1], &[0, 1]);
    let pays = RelationEdges { columns: Some(&first), ..of("pays") };
    let rates = RelationEdges { columns: Some(&last), ..of("rates") };
    Relations::from_edges(types, &[pays, of("views"), rates]).unwrap()
}

/// The edges of two destinations by all relations.
fn block() -> Block {
    Block::new(BlockParts {
        srcs: [2, 3].map(NodeId).to_vec(),
        indptr: vec![0, 3, 6],
        indices: vec![LocalId(0); 6],
        edge_ids: [0, 2, 4, 1, 3, 5].map(EdgeId).to_vec(),
        ..BlockParts::default()
    })
}

#[test]
fn rows_of_narrower_relations_end_in_zeros() {
    let half = [5.0, 6.0].map(f16::from_f32).to_vec();
    for graph in [relations(vec![5.0_f32, 6.0]), relations(half)] {
        let store = edge_rows_of(&graph, "features", RelationRows::Padded).unwrap();
        assert_eq!((store.dim(), store.dtype()), (2, FeatureDType::F32));
        assert_eq!(store.relation_widths(), [Some(2), None, Some(1)]);
        // The buffer has other values before.
        let mut rows = FeatureBuffer::F32(vec![7.0; 30]);
        store.gather_block(&block(), &mut rows).unwrap();
        assert_eq!(rows.into_f32(), [1.0, 2.0, 0.0, 0.0, 5.0, 0.0, 3.0, 4.0, 0.0, 0.0, 6.0, 0.0]);
    }
    let graph = relations(vec![5.0_f32, 6.0]);
    let error = edge_rows_of(&graph, "features", RelationRows::Equal).unwrap_err();
    assert!(matches!(&error, Error::EdgeColumn(EdgeColumnError::Differ { .. })), "{error}");
    let error = edge_rows_of(&graph, "amount", RelationRows::Padded).unwrap_err();
    assert!(matches!(&error, Error::EdgeColumn(EdgeColumnError::Missing { .. })), "{error}");
    let store = edge_rows_of(&graph, "features", RelationRows::Padded).unwrap();
    let beyond = Block::new(BlockParts { edge_ids: vec![EdgeId(6); 6], ..block().into_parts() });
    let error = store.gather_block(&beyond, &mut FeatureBuffer::default()).unwrap_err();
    assert!(matches!(error, Error::EdgeOutOfRange { edge: EdgeId(6), n_rows: 6 }), "{error}");
}
