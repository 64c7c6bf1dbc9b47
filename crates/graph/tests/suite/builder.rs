//! The builder: exact arrays, agreement with a naive reference on random edge lists, errors.

// Test helpers may unwrap.
#![allow(clippy::unwrap_used)]

use kiln_graph::{Csc, CscBuilder, Duplicates, EdgeId, EdgeOrigin, Error, NodeId, SelfLoops, TracedGraph};
use kiln_testkit::arb_coo;
use proptest::prelude::*;

fn arrays(graph: &Csc) -> (Vec<u64>, Vec<u32>) {
    (graph.indptr().to_vec(), graph.indices().iter().map(|node| node.0).collect())
}

#[test]
fn neighbours_ascend_and_parallel_edges_are_kept() {
    let graph = CscBuilder::new(4).build(&[3, 0, 0, 2], &[1, 1, 1, 0]).unwrap();
    assert_eq!(arrays(&graph), (vec![0, 1, 4, 4, 4], vec![2, 0, 0, 3]));
}

#[test]
fn weights_types_and_origins_are_sorted_with_their_edges() {
    let built = CscBuilder::new(4)
        .weights(&[0.5, 1.5, 2.5, 3.5])
        .edge_types(&[7, 8, 9, 1])
        .build_with_origins(&[3, 0, 0, 2], &[1, 1, 1, 0])
        .unwrap();
    assert_eq!(built.graph.weights().unwrap(), [3.5, 1.5, 2.5, 0.5]);
    assert_eq!(built.graph.edge_types().unwrap(), [1, 8, 9, 7]);
    let origins: Vec<_> = (0..4).map(|edge| built.origin(EdgeId(edge))).collect();
    assert_eq!(origins, [3, 1, 2, 0].map(EdgeOrigin::Forward));
}

#[test]
fn symmetrize_offsets_reverse_edge_types_and_does_not_duplicate_self_loops() {
    let built = CscBuilder::new(3)
        .symmetrize()
        .edge_types(&[1, 2])
        .reverse_type_offset(10)
        .build_with_origins(&[0, 2], &[1, 2])
        .unwrap();
    assert_eq!(arrays(&built.graph), (vec![0, 1, 2, 3], vec![1, 0, 2]));
    assert_eq!(built.graph.edge_types().unwrap(), [11, 1, 2]);
    assert_eq!(built.origin(EdgeId(0)), EdgeOrigin::Reverse(0));
    assert_eq!(built.reverse_edges(), [Some(EdgeId(1)), Some(EdgeId(0)), None]);
}

#[test]
fn removing_duplicates_keeps_the_first_edge_of_the_list() {
    let build = |builder: CscBuilder<'_>| builder.build(&[1, 1, 2, 1], &[0, 0, 0, 0]).unwrap();
    let graph = build(CscBuilder::new(3).duplicates(Duplicates::Remove).weights(&[4.0, 5.0, 6.0, 7.0]));
    assert_eq!(arrays(&graph), (vec![0, 2, 2, 2], vec![1, 2]));
    assert_eq!(graph.weights().unwrap(), [4.0, 6.0]);
    let plain = build(CscBuilder::new(3).duplicates(Duplicates::Remove));
    assert_eq!(arrays(&plain), arrays(&graph));
}

#[test]
fn self_loops_are_removed_or_added_once() {
    let (srcs, dsts) = ([0, 0, 1], [0, 1, 0]);
    let removed = CscBuilder::new(3).self_loops(SelfLoops::Remove).build(&srcs, &dsts).unwrap();
    assert_eq!(arrays(&removed), (vec![0, 1, 2, 2], vec![1, 0]));
    let added = CscBuilder::new(3).self_loops(SelfLoops::Add);
    let built = added.weights(&[0.25, 0.5, 0.75]).build_with_origins(&srcs, &dsts).unwrap();
    assert_eq!(arrays(&built.graph), (vec![0, 2, 4, 5], vec![0, 1, 0, 1, 2]));
    assert_eq!(built.graph.weights().unwrap(), [0.25, 0.75, 0.5, 1.0, 1.0]);
    assert_eq!(built.origin(EdgeId(4)), EdgeOrigin::AddedLoop);
    assert_eq!(arrays(&CscBuilder::new(3).self_loops(SelfLoops::Add).build(&srcs, &dsts).unwrap()), {
        arrays(&built.graph)
    });
}

#[test]
fn accepts_graphs_without_nodes_or_edges() {
    assert_eq!(arrays(&CscBuilder::new(0).build(&[], &[]).unwrap()), (vec![0], vec![]));
    assert_eq!(arrays(&CscBuilder::new(2).build(&[], &[]).unwrap()), (vec![0, 0, 0], vec![]));
}

#[test]
fn rejects_invalid_edge_lists() {
    let out_of_range = CscBuilder::new(3).build(&[0, 1, 9], &[1, 3, 0]).unwrap_err();
    assert!(matches!(out_of_range, Error::NodeOutOfRange { edge: 1, node: 3, n_nodes: 3 }), "{out_of_range}");
    let own_loop = CscBuilder::new(3).self_loops(SelfLoops::Add).build(&[9], &[9]).unwrap_err();
    assert!(matches!(own_loop, Error::NodeOutOfRange { edge: 0, node: 9, n_nodes: 3 }), "{own_loop}");
    let lengths = CscBuilder::new(3).build(&[0, 1], &[1]).unwrap_err();
    assert!(matches!(lengths, Error::LengthMismatch { what: "dsts", expected: 2, got: 1 }), "{lengths}");
    let weights = CscBuilder::new(3).weights(&[1.0]).build(&[0, 1], &[1, 2]).unwrap_err();
    assert!(matches!(weights, Error::LengthMismatch { what: "weights", .. }), "{weights}");
    let types = CscBuilder::new(3).symmetrize().edge_types(&[250]).reverse_type_offset(6);
    assert!(matches!(types.build(&[0], &[1]).unwrap_err(), Error::TooMany { what: "edge types", .. }));
}

#[test]
fn rejects_invalid_csc_arrays() {
    let csc = |indptr: Vec<u64>, indices: Vec<u32>| {
        Csc::new(indptr.into(), indices.into_iter().map(NodeId).collect::<Vec<_>>().into())
    };
    assert!(matches!(csc(vec![], vec![]), Err(Error::LengthMismatch { what: "indptr", .. })));
    assert!(matches!(csc(vec![1, 2], vec![0, 0]), Err(Error::IndptrNotMonotone { node: 0, .. })));
    assert!(matches!(csc(vec![0, 3], vec![0]), Err(Error::LengthMismatch { what: "indices", .. })));
    let falls = csc(vec![0, 2, 1], vec![0]).unwrap().validate();
    assert!(matches!(falls, Err(Error::IndptrNotMonotone { node: 1, before: 2, after: 1 })), "{falls:?}");
    let outside = csc(vec![0, 1], vec![4]).unwrap().validate();
    assert!(matches!(outside, Err(Error::NodeOutOfRange { edge: 0, node: 4, n_nodes: 1 })), "{outside:?}");
    csc(vec![0, 1], vec![0]).unwrap().validate().unwrap();
}

/// A naive reference: lists all edges, sorts them, and drops duplicates.
fn reference(
    graph: &kiln_testkit::CooGraph,
    symmetrize: bool,
    duplicates: Duplicates,
    self_loops: SelfLoops,
) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    for (&src, &dst) in graph.srcs.iter().zip(&graph.dsts) {
        edges.push((dst, src));
        if symmetrize && src != dst {
            edges.push((src, dst));
        }
    }
    match self_loops {
        SelfLoops::Keep => {}
        SelfLoops::Remove => edges.retain(|(dst, src)| dst != src),
        SelfLoops::Add => {
            for node in 0..graph.n_nodes as u32 {
                if !edges.contains(&(node, node)) {
                    edges.push((node, node));
                }
            }
        }
    }
    edges.sort_unstable();
    if duplicates == Duplicates::Remove {
        edges.dedup();
    }
    edges
}

fn listed(graph: &Csc) -> Vec<(u32, u32)> {
    let of_node = |dst: u32| graph.in_neighbors(NodeId(dst)).iter().map(move |src| (dst, src.0));
    (0..graph.n_nodes() as u32).flat_map(of_node).collect()
}

proptest! {
    #[test]
    fn built_graphs_equal_those_of_a_naive_reference(
        graph in arb_coo(),
        symmetrize: bool,
        remove_duplicates: bool,
        loops in 0..3usize,
    ) {
        let duplicates = if remove_duplicates { Duplicates::Remove } else { Duplicates::Keep };
        let self_loops = [SelfLoops::Keep, SelfLoops::Remove, SelfLoops::Add][loops];
        let mut builder = CscBuilder::new(graph.n_nodes).duplicates(duplicates).self_loops(self_loops);
        if symmetrize {
            builder = builder.symmetrize();
        }
        let expected = reference(&graph, symmetrize, duplicates, self_loops);
        let plain = builder.build(&graph.srcs, &graph.dsts).unwrap();
        prop_assert_eq!(listed(&plain), expected.clone());
        plain.validate().unwrap();
        let traced = builder.build_with_origins(&graph.srcs, &graph.dsts).unwrap();
        prop_assert_eq!(listed(&traced.graph), expected);
        check_origins(&graph, &traced);
    }
}

fn check_origins(graph: &kiln_testkit::CooGraph, built: &TracedGraph) {
    let edges = listed(&built.graph);
    let reverse = built.reverse_edges();
    for (edge, &(dst, src)) in edges.iter().enumerate() {
        let expected = match built.origin(EdgeId(edge as u64)) {
            EdgeOrigin::Forward(position) => (graph.dsts[position as usize], graph.srcs[position as usize]),
            EdgeOrigin::Reverse(position) => (graph.srcs[position as usize], graph.dsts[position as usize]),
            EdgeOrigin::AddedLoop => (dst, dst),
        };
        assert_eq!((dst, src), expected, "origin of edge {edge}");
        if let Some(twin) = reverse[edge] {
            assert_eq!(edges[twin.index()], (src, dst), "reverse of edge {edge}");
            assert_eq!(reverse[twin.index()], Some(EdgeId(edge as u64)));
        }
    }
}

#[test]
fn large_graphs_do_not_depend_on_the_number_of_threads() {
    // Multiplicative hashing gives many distinct edges; node 5 is a hub.
    let n_nodes = 50_000u32;
    let srcs: Vec<u32> = (0..400_000u64).map(|i| (i * 2_654_435_761 % u64::from(n_nodes)) as u32).collect();
    let dsts: Vec<u32> =
        (0..400_000u64).map(|i| if i % 3 == 0 { 5 } else { (i * 40_503 % 49_999) as u32 }).collect();
    let build = |n_threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let builder = CscBuilder::new(n_nodes as usize).symmetrize().duplicates(Duplicates::Remove);
        pool.install(|| builder.build_with_origins(&srcs, &dsts).unwrap())
    };
    let (one, four) = (build(1), build(4));
    assert_eq!(arrays(&one.graph), arrays(&four.graph));
    assert_eq!(one.reverse_edges(), four.reverse_edges());
    // The graph has several bins, and a destination with enough edges for a parallel sort.
    let coo = kiln_testkit::CooGraph { n_nodes: n_nodes as usize, srcs: srcs.clone(), dsts: dsts.clone() };
    let expected = reference(&coo, true, Duplicates::Remove, SelfLoops::Keep);
    assert!(listed(&one.graph) == expected);
    check_origins(&coo, &one);
}
