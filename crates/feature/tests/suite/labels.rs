//! Labels of nodes and graphs: order, unlabelled nodes, labels out of range.

use kiln_feature::{Error, Labels, TargetsError};
use kiln_graph::{GraphId, NodeId, SharedArray};

#[test]
fn gathers_labels_in_the_order_of_the_nodes() {
    let labels = Labels::new(vec![2, -1, 0, -7], 3);
    assert_eq!((labels.len(), labels.n_classes(), labels.is_empty()), (4, 3, false));
    assert_eq!(labels.as_slice(), [2, -1, 0, -7]);
    let mut out = vec![9; 8];
    labels.gather(&[NodeId(2), NodeId(0), NodeId(2)], &mut out).unwrap();
    assert_eq!(out, [0, 2, 0]);
    labels.gather(&[], &mut out).unwrap();
    assert_eq!(out, []);
}

#[test]
fn get_returns_none_and_gather_fails_for_unlabelled_nodes() {
    let labels = Labels::new(SharedArray::from(vec![2, -1, 0, -7]), 3);
    let alone: Vec<Option<u32>> = (0..5).map(|node| labels.get(NodeId(node))).collect();
    assert_eq!(alone, [Some(2), None, Some(0), None, None]);
    let error = labels.gather(&[NodeId(0), NodeId(3)], &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Targets(TargetsError::Unlabelled { item: "node", id: 3 })));
    let error = labels.gather(&[NodeId(4)], &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Targets(TargetsError::NoSuchItem { item: "node", id: 4, n_labels: 4 })));
    assert_eq!(error.to_string(), "node 4 has no label: expected an id below 4");
}

#[test]
fn rejects_a_label_that_is_not_below_the_number_of_classes() {
    let error = Labels::<NodeId>::new(vec![0, 2, 3], 3).validate().unwrap_err();
    assert!(matches!(
        error,
        Error::Targets(TargetsError::LabelOutOfRange { item: "node", id: 2, label: 3, n_classes: 3 })
    ));
    assert!(Labels::<NodeId>::new(vec![i32::MIN, -1], 0).validate().is_ok());
    assert!(Labels::<NodeId>::new(vec![0], 0).validate().is_err());
    let error = Labels::new(vec![0, 3], 3).gather(&[GraphId(1)], &mut Vec::new()).unwrap_err();
    assert!(matches!(
        error,
        Error::Targets(TargetsError::LabelOutOfRange { item: "graph", id: 1, label: 3, n_classes: 3 })
    ));
}
