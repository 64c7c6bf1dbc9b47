//! Target values of nodes and graphs: order, missing values, invalid values.

use kiln_feature::{Error, Labels, TargetKind, TargetValues, Targets, TargetsError};
use kiln_graph::{GraphId, NodeId};

const MISSING: u8 = TargetValues::<NodeId>::MISSING;

#[test]
fn gathers_labels_and_numbers_in_the_order_of_the_items() {
    let labels = TargetValues::multi_label(vec![1, 0, MISSING, 1, MISSING, MISSING], 2).unwrap();
    assert_eq!((labels.len(), labels.n_columns(), labels.kind()), (3, 2, TargetKind::MultiLabel));
    let mut out = vec![7.0; 9];
    labels.gather(&[NodeId(1), NodeId(0), NodeId(1)], &mut out).unwrap();
    assert_eq!((&out[1..4], out[5]), (&[1.0, 1.0, 0.0][..], 1.0));
    assert!(out[0].is_nan() && out[4].is_nan() && out.len() == 6);

    let numbers = TargetValues::<GraphId>::regression(vec![0.5, f32::NAN, -3.0], 1).unwrap();
    assert_eq!((numbers.len(), numbers.kind()), (3, TargetKind::Regression));
    numbers.gather(&[GraphId(2), GraphId(0)], &mut out).unwrap();
    assert_eq!(out, [-3.0, 0.5]);
    let has: Vec<bool> = (0..4).map(|graph| numbers.has_any(GraphId(graph))).collect();
    assert_eq!(has, [true, false, true, false]);
}

#[test]
fn rejects_items_without_targets_and_invalid_values() {
    let labels = TargetValues::multi_label(vec![1, 0, MISSING, MISSING, 2, 0], 2).unwrap();
    let gather = |node| labels.gather(&[NodeId(0), NodeId(node)], &mut Vec::new()).unwrap_err();
    assert!(matches!(gather(1), Error::Targets(TargetsError::Untargeted { item: "node", id: 1 })));
    assert_eq!(gather(1).to_string(), "node 1 has no target value: remove it from the split");
    assert!(matches!(
        gather(3),
        Error::Targets(TargetsError::NoSuchItem { item: "node", id: 3, n_labels: 3 })
    ));
    let expected = "node 2 has the target 2 in column 0, expected 0, 1 or 255 (missing)";
    assert_eq!(gather(2).to_string(), expected);
    assert_eq!(labels.validate().unwrap_err().to_string(), expected);

    let numbers = TargetValues::<NodeId>::regression(vec![0.5, f32::NAN, f32::INFINITY], 1).unwrap();
    let error = numbers.validate().unwrap_err();
    assert!(matches!(&error, Error::Targets(TargetsError::BadTarget { id: 2, column: 0, .. })), "{error}");
    assert!(matches!(
        numbers.gather(&[NodeId(2)], &mut Vec::new()),
        Err(Error::Targets(TargetsError::BadTarget { .. }))
    ));
    assert!(matches!(TargetValues::<NodeId>::regression(vec![0.5; 3], 2), Err(Error::PartialRow { .. })));
    assert!(matches!(TargetValues::<NodeId>::multi_label(vec![], 0), Err(Error::ZeroDim)));
}

#[test]
fn targets_are_classes_or_values() {
    let classes = Targets::<NodeId>::from(Labels::new(vec![1, -1], 3));
    assert_eq!((classes.kind(), classes.len(), classes.n_outputs()), (TargetKind::Classes, 2, 3));
    assert!(classes.has_any(NodeId(0)) && !classes.has_any(NodeId(1)));
    let values = Targets::from(TargetValues::regression(vec![0.5, 1.0], 2).unwrap());
    let (mut labels, mut numbers) = (vec![9], vec![9.0]);
    values.gather(&[NodeId(0)], &mut labels, &mut numbers).unwrap();
    assert_eq!((labels, numbers), (vec![], vec![0.5, 1.0]));
    let (mut labels, mut numbers) = (vec![9], vec![9.0]);
    classes.gather(&[NodeId(0)], &mut labels, &mut numbers).unwrap();
    assert_eq!((labels, numbers), (vec![1], vec![]));
}
