//! Tests of metagraphs, and of blocks whose edges are grouped by relation.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use kiln_graph::{
    Block, BlockParts, EdgeId, Error, LocalId, Metagraph, NodeId, NodeTypes, RelationEdges,
    RelationEdgesError, RelationGroups, Relations, SchemaError, TransposedBlock, TypeGroup,
};

/// Type 0 has the nodes 0 and 1, type 1 none, type 2 the nodes 2 to 4.
fn types() -> NodeTypes {
    NodeTypes::new([("a", 2), ("none", 0), ("b", 3)]).unwrap()
}

/// Relations 0 and 2 are into type 0, relation 1 into type 1, none into type 2.
fn metagraph() -> Metagraph {
    Metagraph::new(3, vec![[2, 0], [0, 1], [0, 0]]).unwrap()
}

/// The destinations 1, 4 and 0: node 1 has the edges 2 -> 1 and 4 -> 1 of relation 0 and 0 -> 1 of relation 2, node 0 the
/// edge 1 -> 0 of relation 2.
fn parts() -> BlockParts {
    BlockParts {
        srcs: [1, 4, 0, 2].map(NodeId).to_vec(),
        indptr: vec![0, 3, 3, 4],
        indices: [3, 1, 2, 0].map(LocalId).to_vec(),
        edge_ids: (0..4).map(EdgeId).collect(),
        weights: None,
        edge_types: Some(vec![0, 0, 2, 2]),
    }
}

#[test]
fn a_destination_has_a_segment_for_itself_and_one_per_relation_into_its_type() {
    let weights = Some(vec![0.5, 1.5, 2.5, 3.5]);
    let block = Block::new(BlockParts { weights, ..parts() });
    let groups = RelationGroups::new(&block, &types(), &metagraph()).unwrap();
    let of = |n_dst, n_segments| TypeGroup { n_dst, n_segments };
    let parts = groups.parts();
    assert_eq!(parts.types, [of(2, 3), of(0, 2), of(1, 1)]);
    // Node 1: itself, relation 0, relation 2; node 0: the same; node 4: itself.
    assert_eq!(parts.indptr, [0, 1, 3, 4, 5, 5, 6, 7]);
    assert_eq!(parts.indices, [0, 3, 1, 2, 2, 0, 1].map(LocalId));
    assert_eq!(parts.weights.as_deref(), Some(&[1.0, 0.5, 1.5, 2.5, 1.0, 3.5, 1.0][..]));
    assert_eq!(parts.order.as_deref(), Some(&[0, 2, 1][..]));
    assert_eq!((parts.n_src, groups.n_dst(), groups.n_segments()), (4, 3, 7));
}

#[test]
fn destinations_that_are_ordered_by_type_need_no_order() {
    let block = Block::new(BlockParts { srcs: [1, 0, 4, 2].map(NodeId).to_vec(), ..parts() });
    let fits = Block::new(BlockParts { indptr: vec![0, 3, 4, 4], ..block.into_parts() });
    let groups = RelationGroups::new(&fits, &types(), &metagraph()).unwrap();
    assert_eq!(groups.parts().order, None);
    let without = Block::new(BlockParts {
        srcs: vec![],
        indptr: vec![0],
        edge_types: Some(vec![]),
        ..BlockParts::default()
    });
    let groups = RelationGroups::new(&without, &types(), &metagraph()).unwrap();
    assert_eq!((groups.n_dst(), groups.n_segments()), (0, 0));
}

#[test]
fn transposed_arrays_are_cached_and_counted() {
    let block = Block::new(parts());
    let mut groups = RelationGroups::new(&block, &types(), &metagraph()).unwrap();
    let n_bytes = groups.n_bytes();
    groups.transpose();
    let parts = groups.parts();
    let transposed = parts.transposed.as_ref().unwrap();
    assert_eq!(transposed.segments, TransposedBlock::of_edges(&parts.indptr, &parts.indices, 4));
    let order = transposed.order.as_ref().unwrap();
    assert_eq!((order.indptr(), order.dsts()), (&[0, 1, 2, 3][..], &[0, 2, 1][..]));
    assert_eq!(groups.n_bytes(), n_bytes + transposed.segments.n_bytes() + order.n_bytes());
}

#[test]
fn nodes_are_grouped_by_type() {
    let block = Block::new(parts());
    let groups = RelationGroups::new(&block, &types(), &metagraph()).unwrap();
    let n_bytes = groups.n_bytes();
    let mut groups = groups.with_nodes(&block, &types()).unwrap();
    let [srcs, dsts] = &**groups.parts().nodes.as_ref().unwrap();
    assert_eq!(groups.n_bytes(), n_bytes + srcs.n_bytes() + dsts.n_bytes());
    // The sources are the nodes 1, 4, 0 and 2, the destinations the first three of them.
    let sizes = |groups: &RelationGroups| -> Vec<_> {
        groups.parts().types.iter().map(|group| (group.n_dst, group.n_segments)).collect()
    };
    assert_eq!(sizes(srcs), [(2, 1), (0, 1), (2, 1)]);
    assert_eq!(srcs.parts().indptr, [0, 1, 2, 3, 4]);
    assert_eq!(srcs.parts().indices, [0, 2, 1, 3].map(LocalId));
    assert_eq!(srcs.parts().order.as_deref(), Some(&[0, 2, 1, 3][..]));
    assert_eq!(sizes(dsts), [(2, 1), (0, 1), (1, 1)]);
    assert_eq!((dsts.parts().n_src, dsts.parts().order.as_deref()), (3, groups.parts().order.as_deref()));
    groups.transpose();
    assert!(groups.parts().nodes.iter().flat_map(|of| of.iter()).all(|of| of.parts().transposed.is_some()));
    let outside = RelationGroups::of_nodes(&[NodeId(4), NodeId(5)], &types());
    assert!(matches!(outside, Err(Error::Schema(SchemaError::NodeWithoutType { node: 5, .. }))));
}

#[test]
fn a_homogeneous_block_needs_no_edge_types() {
    let block = Block::new(BlockParts { edge_types: None, ..parts() });
    let types = NodeTypes::new([("node", 5)]).unwrap();
    let groups = RelationGroups::new(&block, &types, &Metagraph::homogeneous()).unwrap();
    assert_eq!(groups.parts().indptr, [0, 1, 4, 5, 5, 6, 7]);
    assert_eq!(groups.parts().indices, [0, 3, 1, 2, 1, 2, 0].map(LocalId));
}

#[test]
fn blocks_that_do_not_fit_the_types_are_errors() {
    let group = |parts: BlockParts| RelationGroups::new(&Block::new(parts), &types(), &metagraph());
    let error = |parts: BlockParts| group(parts).unwrap_err().to_string();
    assert!(matches!(
        group(BlockParts { edge_types: None, ..parts() }),
        Err(Error::RelationEdges(RelationEdgesError::NoEdgeTypes))
    ));
    let descending = BlockParts { edge_types: Some(vec![0, 2, 0, 2]), ..parts() };
    assert_eq!(
        error(descending),
        "edge 2 of the block, into node 1, is of relation 0: expected the relations into the node's type, in ascending order"
    );
    let of_other_type = BlockParts { edge_types: Some(vec![0, 0, 2, 1]), ..parts() };
    assert!(matches!(
        group(of_other_type),
        Err(Error::RelationEdges(RelationEdgesError::RelationOrder { edge: 3, relation: 1, node: 0 }))
    ));
    let unknown = BlockParts { edge_types: Some(vec![0, 0, 2, 200]), ..parts() };
    assert!(matches!(
        group(unknown),
        Err(Error::RelationEdges(RelationEdgesError::RelationOrder { relation: 200, .. }))
    ));
    let out_of_range = BlockParts { srcs: [1, 5, 0, 2].map(NodeId).to_vec(), ..parts() };
    assert!(matches!(
        group(out_of_range),
        Err(Error::Schema(SchemaError::NodeWithoutType { node: 5, n_nodes: 5 }))
    ));
    let two = Metagraph::new(2, vec![[0, 0]]).unwrap();
    let result = RelationGroups::new(&Block::new(parts()), &types(), &two);
    assert!(matches!(result, Err(Error::LengthMismatch { expected: 2, got: 3, .. })));
}

#[test]
fn a_metagraph_has_the_types_of_the_relations() {
    let none = |name, src_type, dst_type| RelationEdges::new(name, src_type, dst_type, &[], &[]);
    let relations = [none("r", "b", "a"), none("s", "a", "none"), none("t", "a", "a")];
    let graph = Relations::from_edges(types(), &relations).unwrap();
    assert_eq!(graph.metagraph(), metagraph());
    assert_eq!(metagraph().relations_into(0).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((metagraph().n_types(), metagraph().n_relations()), (3, 3));
    assert_eq!((metagraph().relations_into(2).count(), metagraph().relations_into(3).count()), (0, 0));
    assert!(!metagraph().is_homogeneous() && Metagraph::homogeneous().is_homogeneous());
    assert!(matches!(Metagraph::new(0, vec![]), Err(Error::Schema(SchemaError::NoTypes))));
    let error = Metagraph::new(2, vec![[0, 1], [2, 1]]).unwrap_err();
    assert_eq!(error.to_string(), "relation 1 refers to node type 2, but there are 2 types, numbered from 0");
    assert!(matches!(Metagraph::new(1, vec![[0, 0]; 257]), Err(Error::TooMany { n: 257, .. })));
}
