//! Feature rows of edges.

use half::f16;
use kiln_feature::{EdgeFeatures, Error, FeatureBuffer, FeatureDType};
use kiln_graph::EdgeId;

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
