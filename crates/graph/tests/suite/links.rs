use kiln_graph::{Error, LinkId, Links, NodeId};

#[test]
fn returns_the_pairs_of_links() {
    let links = Links::new(vec![3_u32, 1], vec![0_u32, 1]).unwrap();
    assert_eq!(links.len(), 2);
    assert_eq!([0, 1].map(|link| links.pair(LinkId(link))), [(NodeId(3), NodeId(0)), (NodeId(1), NodeId(1))]);
}

#[test]
fn rejects_lists_of_different_lengths() {
    let error = Links::new(vec![3_u32, 1], vec![0_u32]).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { expected: 2, got: 1, .. }), "{error}");
}

#[test]
fn rejects_links_of_missing_nodes() {
    let links = Links::new(vec![3_u32, 1], vec![0_u32, 4]).unwrap();
    assert!(links.check(5).is_ok());
    let error = links.check(4).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { edge: 1, node: 4, n_nodes: 4 }), "{error}");
}
