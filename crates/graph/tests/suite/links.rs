use kiln_graph::{CscBuilder, Error, LinkId, LinkNegatives, Links, NodeId};

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

fn ids(ids: &[u32]) -> Vec<LinkId> {
    ids.iter().copied().map(LinkId).collect()
}

#[test]
fn returns_the_fixed_negatives_of_a_link() {
    let negatives =
        LinkNegatives::of_pairs(ids(&[2, 7]), 2, vec![0_u32, 1, 2, 3], vec![4_u32, 5, 6, 7]).unwrap();
    assert_eq!([2, 3, 7].map(|link| negatives.row(LinkId(link))), [Some(0), None, Some(1)]);
    assert_eq!(negatives.srcs_of(1), Some(&[NodeId(2), NodeId(3)][..]));
    assert_eq!(negatives.dsts_of(0), [NodeId(4), NodeId(5)]);
    assert!(negatives.check(8).is_ok());
    let error = negatives.check(7).unwrap_err();
    assert!(matches!(error, Error::NodeOutOfRange { edge: 3, node: 7, n_nodes: 7 }), "{error}");
}

#[test]
fn rejects_inconsistent_fixed_negatives() {
    let error = LinkNegatives::of_dsts(ids(&[0, 1]), 2, vec![0_u32; 3]).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { expected: 4, got: 3, .. }), "{error}");
    let error = LinkNegatives::of_pairs(ids(&[0, 1]), 1, vec![0_u32; 1], vec![0_u32; 2]).unwrap_err();
    assert!(matches!(error, Error::LengthMismatch { what: "the sources of the negatives", .. }), "{error}");
    let error = LinkNegatives::of_dsts(ids(&[1, 3, 3]), 1, vec![0_u32; 3]).unwrap_err();
    assert!(matches!(error, Error::LinksNotAscending { row: 2, link: 3 }), "{error}");
}

#[test]
fn returns_the_destination_of_each_edge() {
    let graph = CscBuilder::new(4).build(&[3, 0, 1, 1], &[1, 3, 3, 3]).unwrap();
    assert_eq!(graph.dsts(), [1, 3, 3, 3].map(NodeId));
}
