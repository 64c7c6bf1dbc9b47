//! Tests of heterogeneous graphs.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use kiln_graph::{Csc, CscBuilder, EdgeId, Error, NodeId, NodeTypes, Relation, RelationEdges, Relations};

fn types() -> NodeTypes {
    NodeTypes::new([("user", 2), ("nothing", 0), ("item", 3)]).unwrap()
}

fn rates<'a>(srcs: &'a [u32], dsts: &'a [u32]) -> RelationEdges<'a> {
    RelationEdges::new("rates", "user", "item", srcs, dsts)
}

/// Returns the text of the error within the relation `rates`.
fn error_of(result: Result<Relations, Error>) -> String {
    match result {
        Err(Error::InRelation { name, source }) if name == "rates" => source.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn edge_lists_become_adjacencies_of_the_destinations_type() {
    let weighted = RelationEdges { weights: Some(&[0.5, 1.5, 2.5]), ..rates(&[1, 0, 1], &[2, 2, 0]) };
    let empty = RelationEdges { name: "of", src_type: "item", dst_type: "nothing", ..rates(&[], &[]) };
    let back =
        RelationEdges { name: "rated by", src_type: "item", dst_type: "user", ..rates(&[2, 2], &[1, 0]) };
    let graph = Relations::from_edges(types(), &[weighted, empty, back]).unwrap();
    graph.validate().unwrap();
    let rates = &graph.relation(0).graph;
    assert_eq!(rates.indptr(), [0, 1, 1, 3]);
    assert_eq!(rates.indices(), NodeId::from_slice(&[1, 0, 1]));
    assert_eq!(rates.weights(), Some(&[2.5, 1.5, 0.5][..]));
    assert_eq!(graph.relation(1).graph.indptr(), [0]);
    assert_eq!(graph.relation(2).graph.indices(), NodeId::from_slice(&[4, 4]));
    assert_eq!([0, 1, 2].map(|relation| graph.first_edge(relation)), [0, 3, 3].map(EdgeId));
    assert_eq!((graph.n_nodes(), graph.n_edges(), graph.n_relations()), (5, 5, 3));
    assert_eq!((graph.position("rated by"), graph.position("rated")), (Some(2), None));
    let schema = graph.schema();
    assert_eq!((schema.n_nodes(), schema.n_edges(), schema.position("of")), (5, 5, Some(1)));
    assert_eq!(schema.relations()[2].n_edges, 2);
}

#[test]
fn to_homogeneous_joins_the_relations_into_each_type() {
    let more = RelationEdges { name: "of", src_type: "item", ..rates(&[2, 0], &[2, 0]) };
    let back = RelationEdges { name: "by", src_type: "item", dst_type: "user", ..rates(&[1], &[1]) };
    let graph = Relations::from_edges(types(), &[rates(&[1, 0], &[2, 2]), more, back]).unwrap();
    let whole = graph.to_homogeneous().unwrap();
    whole.validate().unwrap();
    let found: Vec<&[NodeId]> = (0..5).map(|node| whole.in_neighbors(NodeId(node))).collect();
    let expected: [&[u32]; 5] = [&[], &[3], &[2], &[], &[0, 1, 4]];
    assert_eq!(found, expected.map(NodeId::from_slice));
}

#[test]
fn wrong_edge_lists_are_errors_that_name_the_relation() {
    let build = |edges: RelationEdges<'_>| error_of(Relations::from_edges(types(), &[edges]));
    let expected = "edge 1 refers to node 2 of type `user`, which has 2 nodes, numbered from 0";
    assert_eq!(build(rates(&[1, 2], &[0, 0])), expected);
    let expected = "edge 0 refers to node 3 of type `item`, which has 3 nodes, numbered from 0";
    assert_eq!(build(rates(&[1], &[3])), expected);
    let unknown = RelationEdges { dst_type: "shop", ..rates(&[], &[]) };
    assert_eq!(build(unknown), "there is no node type `shop`, expected one of user, nothing, item");
    let lengths = build(rates(&[1], &[]));
    assert!(lengths.contains("entries, expected"), "{lengths}");
    let twice = Relations::from_edges(types(), &[rates(&[], &[]), rates(&[], &[])]).unwrap_err();
    assert_eq!(twice.to_string(), "invalid relation `rates`: it occurs twice");
}

#[test]
fn wrong_adjacencies_are_errors() {
    let of = |indptr: Vec<u64>, indices: &[u32], types: [usize; 2]| {
        let indices: Vec<_> = indices.iter().copied().map(NodeId).collect();
        let graph = Arc::new(Csc::new(indptr.into(), indices.into()).unwrap());
        let relation = Relation { name: "rates".to_owned(), src_type: types[0], dst_type: types[1], graph };
        Relations::new(self::types(), vec![relation])
    };
    assert_eq!(error_of(of(vec![0, 1], &[0], [0, 2])), "the list of rows has 1 entries, expected 3");
    assert!(error_of(of(vec![0, 1], &[0], [0, 3])).contains("no node type `3`"));
    let validated = |indptr, indices: &[u32]| {
        let graph = of(indptr, indices, [0, 2]).unwrap();
        error_of(graph.validate().map(|()| graph))
    };
    let expected = "edge 1 comes from node 2, expected a node of type `user`, which are 0..2";
    assert_eq!(validated(vec![0, 1, 2, 2], &[1, 2]), expected);
    assert!(validated(vec![0, 2, 1, 2], &[1, 1]).contains("invalid indptr at node 1"));
    let many: Vec<_> = (0..257).map(|i| i.to_string()).collect();
    let many: Vec<_> = many.iter().map(|name| RelationEdges { name, ..rates(&[], &[]) }).collect();
    assert!(Relations::from_edges(types(), &many[..256]).is_ok());
    let error = Relations::from_edges(types(), &many).unwrap_err();
    assert!(matches!(error, Error::TooMany { what: "relations", n: 257, max: 256 }));
}

#[test]
fn a_relation_is_a_graph_of_all_nodes_and_back() {
    let weighted = RelationEdges { weights: Some(&[0.5, 1.5, 2.5]), ..rates(&[1, 0, 1], &[2, 2, 0]) };
    let back =
        RelationEdges { name: "rated by", src_type: "item", dst_type: "user", ..rates(&[2, 2], &[1, 0]) };
    let graph = Relations::from_edges(types(), &[weighted, back]).unwrap();
    let whole = graph.whole_graph(0).unwrap();
    whole.validate().unwrap();
    assert_eq!((whole.n_nodes(), whole.n_edges()), (5, 3));
    assert_eq!(whole.in_neighbors(NodeId(4)), NodeId::from_slice(&[0, 1]));
    let same = graph.with_graph(0, whole).unwrap();
    assert_eq!(same.relation(0).graph.indptr(), graph.relation(0).graph.indptr());
    let fewer = CscBuilder::new(5).build(&[1], &[3]).unwrap();
    let fewer = graph.with_graph(0, fewer).unwrap();
    assert_eq!((fewer.n_edges(), fewer.first_edge(1)), (3, EdgeId(1)));
    // Users have no rows in the relation, and the graph must have all nodes.
    for (n_nodes, dst) in [(5, 0), (6, 3)] {
        let other = CscBuilder::new(n_nodes).build(&[1], &[dst]).unwrap();
        error_of(graph.with_graph(0, other));
    }
    let error = graph.require("sells").unwrap_err();
    assert_eq!(error.to_string(), "the data has no relation `sells`, expected one of: rates, rated by");
    assert_eq!(graph.require("rated by").unwrap(), 1);
}
