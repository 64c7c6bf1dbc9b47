//! Random splits of links, and checks of given ones.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_data::{
    Error, LinkDirection, LinkSplit, LinkSplitConfig, LinkSplitError, LinkTargets, Note, Split, synthetic,
};
use kiln_graph::{
    Csc, CscBuilder, EdgeId, Error as GraphError, LinkId, LinkNegatives, Links, NodeId, SharedArray,
};

pub(crate) type Pairs = BTreeSet<(u32, u32)>;

pub(crate) const HALVES: LinkSplitConfig = LinkSplitConfig {
    val: 0.2,
    test: 0.3,
    direction: None,
    edge_type: None,
    disjoint_train: 0.0,
    with_times: false,
};

/// Returns the distinct edges `src -> dst` of a graph.
pub(crate) fn edges(graph: &Csc) -> Pairs {
    graph.indices().iter().zip(graph.dsts()).map(|(src, dst)| (src.0, dst.0)).collect()
}

/// Returns the links of each part.
fn parts(split: &LinkSplit) -> [Vec<(u32, u32)>; 3] {
    split.split().parts().map(|(_, links)| {
        let pair = |link: &LinkId| split.links().pair(*link);
        links.iter().map(pair).map(|(src, dst)| (src.0, dst.0)).collect()
    })
}

fn set(pairs: &[(u32, u32)]) -> Pairs {
    pairs.iter().copied().collect()
}

pub(crate) fn reversed(pairs: &Pairs) -> Pairs {
    pairs.iter().map(|&(src, dst)| (dst, src)).collect()
}

/// A directed graph of 100 nodes with 400 different edges; no edge has its reverse.
fn directed() -> Csc {
    let edges = (0..100_u32).flat_map(|src| [1, 5, 17, 40].map(|step| (src, (src + step) % 100)));
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.unzip();
    CscBuilder::new(100).build(&srcs, &dsts).unwrap()
}

#[test]
fn directed_links_are_divided_by_the_shares() {
    let graph = directed();
    let split = LinkSplit::random(&kiln_graph::Relations::of_graph(graph.clone()), &HALVES, 3).unwrap();
    let [train, val, test] = parts(&split);
    assert_eq!([train.len(), val.len(), test.len()], [200, 80, 120]);
    // Together they are all edges, and the graph keeps those for training only.
    assert_eq!(set(&[train.clone(), val, test].concat()), edges(&graph));
    assert_eq!(edges(&split.message().relation(0).graph), set(&train));
    assert_eq!(split.message().n_edges(), 200);
    assert_eq!(split.find_leaks().unwrap(), []);
    let ids: Vec<LinkId> = split.split().parts().into_iter().flat_map(|(_, ids)| ids.to_vec()).collect();
    assert_eq!(ids, (0..400).map(LinkId).collect::<Vec<_>>());
    for part in parts(&split) {
        assert!(part.windows(2).all(|pair| (pair[0].1, pair[0].0) < (pair[1].1, pair[1].0)));
    }
}

#[test]
fn both_directions_of_an_undirected_pair_stay_together() {
    let graph = synthetic::ring(40).unwrap().graph;
    let split = LinkSplit::random(&graph, &HALVES, 3).unwrap();
    let [train, val, test] = parts(&split);
    assert_eq!([train.len(), val.len(), test.len()], [20, 8, 12]);
    assert!([&train[..], &val, &test].concat().iter().all(|(src, dst)| src < dst));
    let train = set(&train);
    assert_eq!(edges(&split.message().relation(0).graph), &train | &reversed(&train));
    assert_eq!(split.find_leaks().unwrap(), []);
    let stated = LinkSplitConfig { direction: Some(LinkDirection::Undirected), ..HALVES };
    assert_eq!(parts(&LinkSplit::random(&graph, &stated, 3).unwrap()), parts(&split));
    // As directed links, both directions of a pair are links of their own.
    let directed = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..HALVES };
    let directed = LinkSplit::random(&graph, &directed, 3).unwrap();
    assert_eq!(directed.links().len(), 80);
    assert!(matches!(
        directed.find_leaks().unwrap()[..],
        [Note::LinksInGraph { part: "val", n_links: 0, .. }, _]
    ));
}

#[test]
fn rejects_undirected_links_of_a_directed_graph() {
    let config = LinkSplitConfig { direction: Some(LinkDirection::Undirected), ..HALVES };
    let graph = CscBuilder::new(4).build(&[0, 1, 2], &[1, 0, 3]).unwrap();
    let error = LinkSplit::random(&kiln_graph::Relations::of_graph(graph.clone()), &config, 0).unwrap_err();
    assert!(matches!(error, Error::LinkSplit(LinkSplitError::NotUndirected { src: 2, dst: 3 })), "{error}");
    assert!(error.to_string().contains("convert --symmetrize"), "{error}");
}

#[test]
fn parallel_edges_are_one_link_and_self_loops_are_none() {
    // Each edge of the ring three times, in both directions, and a self loop on each node.
    let n_nodes = 30;
    let (mut srcs, mut dsts, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for node in 0..n_nodes {
        let next = (node + 1) % n_nodes;
        for (src, dst) in [(node, next), (next, node), (node, next), (next, node), (node, next), (next, node)]
        {
            srcs.push(src);
            dsts.push(dst);
            weights.push((src * 100 + dst) as f32);
        }
        srcs.push(node);
        dsts.push(node);
        weights.push(-1.0);
    }
    let graph = CscBuilder::new(n_nodes as usize).weights(&weights).build(&srcs, &dsts).unwrap();
    let split = LinkSplit::random(&kiln_graph::Relations::of_graph(graph.clone()), &HALVES, 8).unwrap();
    assert_eq!(parts(&split).map(|part| part.len()), [15, 6, 9]);
    assert_eq!(split.message().n_edges(), 15 * 6 + 30);
    assert!((0..n_nodes).all(|node| edges(&split.message().relation(0).graph).contains(&(node, node))));
    assert_eq!(split.find_leaks().unwrap(), []);
    let weights = split.message().relation(0).graph.weights().unwrap();
    for (edge, dst) in split.message().relation(0).graph.dsts().into_iter().enumerate() {
        let src = split.message().relation(0).graph.indices()[edge];
        let expected = if src == dst { -1.0 } else { (src.0 * 100 + dst.0) as f32 };
        assert_eq!(weights[edge], expected);
    }
}

#[test]
fn links_of_a_relation_are_held_out_with_their_reverses() {
    // Relation 0 from each node to three others, with reverses of type 2, and relation 1 between some of the same nodes.
    let n_nodes = 60_u32;
    let of_0 = (0..n_nodes).flat_map(|src| [1, 9, n_nodes - 1].map(|step| (src, (src + step) % n_nodes, 0)));
    let of_1 = (0..n_nodes).map(|src| (src, (src + 1) % n_nodes, 1));
    let all: Vec<(u32, u32, u8)> = of_0.chain(of_1).collect();
    let srcs: Vec<u32> = all.iter().map(|edge| edge.0).collect();
    let dsts: Vec<u32> = all.iter().map(|edge| edge.1).collect();
    let types: Vec<u8> = all.iter().map(|edge| edge.2).collect();
    let builder = CscBuilder::new(n_nodes as usize).symmetrize().edge_types(&types).reverse_type_offset(2);
    let graph = builder.build(&srcs, &dsts).unwrap();
    let split = LinkSplit::random(
        &kiln_graph::Relations::of_graph(graph.clone()),
        &LinkSplitConfig { edge_type: Some(0), ..HALVES },
        1,
    )
    .unwrap();
    let [train, val, test] = parts(&split);
    let expected = all.iter().filter(|edge| edge.2 == 0).map(|edge| (edge.0, edge.1)).collect();
    assert_eq!(set(&[&train[..], &val, &test].concat()), expected);
    // 60 pairs have links in both directions, and 60 in one direction.
    assert_eq!(train.len() + val.len() + test.len(), 180);
    for part in [&train, &val, &test] {
        let part = set(part);
        assert!(part.iter().all(|&(src, dst)| {
            let has_both = (dst + n_nodes - src) % n_nodes != 9;
            part.contains(&(dst, src)) == has_both
        }));
    }
    assert_eq!(split.find_leaks().unwrap(), []);
    let types = split.message().relation(0).graph.edge_types().unwrap();
    let dsts = split.message().relation(0).graph.dsts();
    for (edge, src) in
        split.message().relation(0).graph.indices().iter().enumerate().filter(|(edge, _)| types[*edge] == 0)
    {
        assert!(train.contains(&(src.0, dsts[edge].0)), "{:?}", EdgeId(edge as u64));
    }
}

#[test]
fn disjoint_training_links_are_no_edges_of_the_graph() {
    let config = LinkSplitConfig { disjoint_train: 0.3, ..HALVES };
    let split = LinkSplit::random(&kiln_graph::Relations::of_graph(directed().clone()), &config, 3).unwrap();
    let [train, val, test] = parts(&split);
    assert_eq!([train.len(), val.len(), test.len()], [60, 80, 120]);
    assert_eq!(split.message().n_edges(), 140);
    assert!(edges(&split.message().relation(0).graph).is_disjoint(&set(&[&train[..], &val, &test].concat())));
    // The held-out links are those of the split whose training links are edges.
    let shared =
        parts(&LinkSplit::random(&kiln_graph::Relations::of_graph(directed().clone()), &HALVES, 3).unwrap());
    assert_eq!([&val, &test], [&shared[1], &shared[2]]);
}

#[test]
fn split_depends_on_the_seed_and_not_on_the_order_of_edges() {
    let graph = directed();
    let all = |graph: &Csc, seed: u64| {
        let split =
            LinkSplit::random(&kiln_graph::Relations::of_graph(graph.clone()), &HALVES, seed).unwrap();
        (parts(&split), split.message().relation(0).graph.indices().to_vec())
    };
    let expected = all(&graph, 5);
    assert_ne!(all(&graph, 6).0, expected.0);
    let descending: Vec<NodeId> =
        (0..100).flat_map(|dst| graph.in_neighbors(NodeId(dst)).iter().rev().copied()).collect();
    let reordered = Csc::new(graph.indptr().to_vec().into(), descending.into()).unwrap();
    assert_eq!(all(&reordered, 5), expected);
    assert_eq!(expected.0.map(|part| part[..3].to_vec()), FIRST);
}

/// The first three links of each part of the directed graph, for seed 5. An independent program computed them from
/// `docs/rng.md`.
const FIRST: [[(u32, u32); 3]; 3] =
    [[(60, 0), (84, 1), (63, 3)], [(95, 0), (0, 1), (96, 1)], [(83, 0), (99, 0), (61, 1)]];

#[test]
fn rejects_shares_and_graphs_without_links() {
    let check = |graph: &Csc, config: LinkSplitConfig, expected: &str| {
        let error = LinkSplit::random(&kiln_graph::Relations::of_graph(graph.clone()), &config, 0)
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    let graph = directed();
    check(
        &graph,
        LinkSplitConfig { val: -0.1, ..HALVES },
        "the share of the validation is -0.1, expected 0 to 1",
    );
    check(&graph, LinkSplitConfig { test: f64::NAN, ..HALVES }, "the share of the test is NaN");
    check(&graph, LinkSplitConfig { val: 0.8, ..HALVES }, "the sum of the shares is 1.1, expected at most 1");
    check(&graph, LinkSplitConfig { disjoint_train: 2.0, ..HALVES }, "disjoint_train is 2, expected 0 to 1");
    check(
        &graph,
        LinkSplitConfig { edge_type: Some(1), ..HALVES },
        "no edge of type 1 between two different",
    );
    let loops = CscBuilder::new(2).build(&[0, 1], &[0, 1]).unwrap();
    check(&loops, HALVES, "the graph has no edge between two different nodes");
    let damaged = Csc::new(vec![0, 2].into(), vec![NodeId(0), NodeId(7)].into()).unwrap();
    check(&damaged, HALVES, "node 7");
    let all = LinkSplitConfig { val: 0.5, test: 0.5, ..HALVES };
    let one = CscBuilder::new(2).build(&[0], &[1]).unwrap();
    assert_eq!(
        parts(&LinkSplit::random(&kiln_graph::Relations::of_graph(one.clone()), &all, 0).unwrap())
            .map(|part| part.len()),
        [0, 0, 1]
    );
}

fn links(pairs: &[(u32, u32)]) -> Links {
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
    Links::new(srcs, dsts).unwrap()
}

fn ids(ids: &[u32]) -> SharedArray<LinkId> {
    ids.iter().copied().map(LinkId).collect()
}

#[test]
fn given_splits_are_checked() {
    let list = links(&[(0, 1), (1, 2), (2, 3)]);
    let new = |train: &[u32], val: &[u32], test: &[u32]| {
        LinkTargets::new(list.clone(), Split { train: ids(train), val: ids(val), test: ids(test) })
    };
    let error = new(&[0], &[1, 3], &[]).unwrap_err();
    assert_eq!(error.to_string(), "the val split contains link 3 at position 1, expected a link id below 3");
    let error = new(&[0, 2], &[1], &[2]).unwrap_err();
    assert!(matches!(
        error,
        Error::LinkSplit(LinkSplitError::RepeatedLink {
            position: 0,
            link: 2,
            first: "train",
            second: "test"
        })
    ));
    assert!(new(&[0, 0], &[], &[]).is_err());
    let targets = new(&[0], &[2], &[1]).unwrap();
    let graph = Arc::new(CscBuilder::new(3).build(&[0], &[1]).unwrap());
    let error = LinkSplit::new(&kiln_graph::Relations::of_graph(graph.clone()), targets.clone())
        .unwrap_err()
        .to_string();
    assert!(error.contains("refers to node 3"), "{error}");
    let negatives = |links: &[u32], dsts: &[u32]| {
        LinkNegatives::of_dsts(ids(links), dsts.len() / links.len(), dsts.to_vec()).unwrap()
    };
    let error = targets.clone().with_negatives(None, Some(negatives(&[2], &[1]))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fixed negatives of the test split have no row for link 1: add its negatives"
    );
    let four = Arc::new(CscBuilder::new(4).build(&[0], &[1]).unwrap());
    let targets = targets.with_negatives(Some(negatives(&[2], &[1, 9])), None).unwrap();
    let error = LinkSplit::new(&kiln_graph::Relations::of_graph(four), targets).unwrap_err().to_string();
    assert!(error.contains("refers to node 9"), "{error}");
}

#[test]
fn leaks_of_given_splits_are_reported() {
    let targets =
        LinkTargets::of_parts(&links(&[(0, 1)]), &links(&[(1, 0), (1, 2)]), &links(&[(2, 3)])).unwrap();
    let graph = CscBuilder::new(4).build(&[0, 1], &[1, 2]).unwrap();
    let split = LinkSplit::new(&kiln_graph::Relations::of_graph(Arc::new(graph)), targets).unwrap();
    let notes = split.find_leaks().unwrap();
    assert_eq!(notes, [Note::LinksInGraph { part: "val", n_links: 1, n_reversed: 1 }]);
    assert!(notes[0].to_string().starts_with("1 links of the val split are edges of the graph"));
}

/// The edges 7 -> 0, 3 -> 0 and 2 -> 1 of 8 nodes. A binary search for 3 among the neighbours 7 and 3 misses it.
fn unsorted() -> Arc<Csc> {
    let indptr = vec![0, 2, 3, 3, 3, 3, 3, 3, 3];
    Arc::new(Csc::new(indptr.into(), vec![7_u32, 3, 2].into()).unwrap())
}

#[test]
fn sorts_the_message_graph_so_that_leaks_are_found() {
    let targets = LinkTargets::of_parts(&links(&[]), &links(&[(3, 0)]), &links(&[(0, 7)])).unwrap();
    let split = LinkSplit::new(&kiln_graph::Relations::of_graph(unsorted()), targets).unwrap();
    assert_eq!(split.message().relation(0).graph.indices(), [3, 7, 2].map(NodeId));
    let leak = |part, n_links, n_reversed| Note::LinksInGraph { part, n_links, n_reversed };
    assert_eq!(split.find_leaks().unwrap(), [leak("val", 1, 0), leak("test", 0, 1)]);
}

/// Such a negative ties with its own link, which then never has rank 1.
#[test]
fn fixed_negatives_that_are_their_own_link_have_a_note() {
    let graph = synthetic::ring(8).unwrap().graph;
    let targets = LinkTargets::of_parts(&links(&[(0, 1)]), &links(&[(2, 4), (3, 5)]), &links(&[(5, 7)]));
    let of_val = LinkNegatives::of_dsts([1, 2].map(LinkId).to_vec(), 2, [6, 4, 0, 1].map(NodeId).to_vec());
    let of_test =
        LinkNegatives::of_pairs(vec![LinkId(3)], 2, [5, 0].map(NodeId).to_vec(), [7, 7].map(NodeId).to_vec());
    let targets = targets.unwrap().with_negatives(Some(of_val.unwrap()), Some(of_test.unwrap())).unwrap();
    let notes = LinkSplit::new(&graph, targets).unwrap().find_leaks().unwrap();
    assert_eq!(
        notes,
        [
            Note::LinksAmongNegatives { part: "val", n_negatives: 1, n_all: 4 },
            Note::LinksAmongNegatives { part: "test", n_negatives: 1, n_all: 2 },
        ]
    );
    let said = notes[1].to_string();
    assert!(said.starts_with("1 fixed negative of the test split (50.0 %)"), "{said}");
}

#[test]
fn rejects_a_damaged_message_graph() {
    let targets = LinkTargets::of_parts(&links(&[]), &links(&[(0, 1)]), &links(&[])).unwrap();
    let falls = Csc::new(vec![0, 2, 1, 3].into(), vec![0_u32, 1, 2].into()).unwrap();
    let error = LinkSplit::new(&kiln_graph::Relations::of_graph(Arc::new(falls)), targets).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::IndptrNotMonotone { node: 1, .. })), "{error}");
}

#[test]
fn dependencies_of_packages_split_as_directed_links() {
    let data = kiln_data::debian_packages().unwrap();
    let depends = data.edge_type_names.iter().position(|name| name == "Depends").unwrap() as u8;
    let config = LinkSplitConfig { val: 0.05, test: 0.1, edge_type: Some(depends), ..Default::default() };
    let split = LinkSplit::of_dataset(&data, &config, 1).unwrap();
    assert_eq!(split.find_leaks().unwrap(), []);
    let n_links = split.links().len();
    let [train, val, test] = split.split().parts().map(|(_, links)| links.len());
    assert_eq!(train + val + test, n_links);
    assert!(100_000 < n_links, "{n_links}");
    // Mutual dependencies are one pair, so the shares of the links are close to those of the pairs.
    for (n, share) in [(val, 0.05), (test, 0.1)] {
        assert!((n as f64 / n_links as f64 - share).abs() < 0.001, "{n} of {n_links}");
    }
    assert!(split.message().n_edges() < data.graph.n_edges());
    assert!(split.message().relation(0).graph.edge_types().is_some());
}

/// 20 users and 20 items in one graph: uniform negatives are users half of the time, which are never a destination.
#[test]
fn nodes_that_are_never_a_destination_have_a_note_with_their_share() {
    let srcs: Vec<u32> = (0..80).map(|edge| edge % 20).collect();
    let dsts: Vec<u32> = (0..80).map(|edge| 20 + edge * 7 % 20).collect();
    let graph = CscBuilder::new(40).build(&srcs, &dsts).unwrap();
    let split = LinkSplit::random(&kiln_graph::Relations::of_graph(graph), &LinkSplitConfig::default(), 1);
    let note = split.unwrap().find_never_destinations().unwrap();
    assert_eq!(note, Some(Note::NeverDestinations { n_nodes: 20, n_all: 40 }));
    let text = note.map(|note| note.to_string()).unwrap_or_default();
    assert!(text.starts_with("20 of the 40 nodes (50.0 %)"), "{text}");
    // The reverses of the links pass messages to the users.
    let both = [srcs.clone(), dsts.clone()].concat();
    let graph = CscBuilder::new(40).build(&both, &[dsts, srcs].concat()).unwrap();
    let config = LinkSplitConfig { direction: Some(LinkDirection::Undirected), ..Default::default() };
    let undirected = LinkSplit::random(&kiln_graph::Relations::of_graph(graph), &config, 1).unwrap();
    assert_eq!(
        undirected.find_never_destinations().unwrap(),
        Some(Note::NeverDestinations { n_nodes: 20, n_all: 40 })
    );
    let ring = kiln_data::synthetic::ring(40).unwrap();
    let split = LinkSplit::of_dataset(&ring, &LinkSplitConfig::default(), 1).unwrap();
    assert_eq!(split.find_never_destinations().unwrap(), None);

    // A grid whose ids are mixed: half of its nodes are smaller than their neighbours, and none is worse off for it.
    let id = |node: u32| node * 17 % 40;
    let ends: Vec<u32> = (0..40).map(id).collect();
    let next: Vec<u32> = (0..40).map(|node| id((node + 1) % 40)).collect();
    let both = [ends.clone(), next.clone()].concat();
    let graph = CscBuilder::new(40).build(&both, &[next.clone(), ends.clone()].concat()).unwrap();
    let mixed = LinkSplit::random(&kiln_graph::Relations::of_graph(graph), &config, 1).unwrap();
    assert_eq!(mixed.find_never_destinations().unwrap(), None);
}
