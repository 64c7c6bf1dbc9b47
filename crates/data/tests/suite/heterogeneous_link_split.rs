//! Splits of the links of one relation of a heterogeneous graph.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_data::{
    DatasetLinks, Error, LinkDirection, LinkSplit, LinkSplitConfig, LinkSplitError, LinkTargets, Note, Split,
};
use kiln_graph::{Csc, LinkId, LinkNegatives, Links, NodeId, NodeTypes, RelationEdges, Relations};

use crate::link_split::{HALVES, Pairs, edges, reversed};
use crate::sets::relation;

/// Users 0 to 19 and items 20 to 49. Each user buys 5 items and views those and 5 others; `bought by` has the reverses of the
/// purchases and one edge more. Users follow users: `follows` is directed, `followed by` its reverse.
pub(crate) fn graph() -> Relations {
    let types = NodeTypes::new([("user", 20), ("item", 30)]).unwrap();
    let edges =
        |n: u32| (0..20_u32).flat_map(move |user| (0..n).map(move |i| (user, (user * 7 + i * 3) % 30)));
    let (buyers, bought): (Vec<u32>, Vec<u32>) = edges(5).unzip();
    let (viewers, viewed): (Vec<u32>, Vec<u32>) = edges(10).unzip();
    let (mut owned, mut owners) = (bought.clone(), buyers.clone());
    owned.push(1);
    owners.push(0);
    let (followers, followed): (Vec<u32>, Vec<u32>) =
        (0..20_u32).flat_map(|user| [1, 4].map(|step| (user, (user + step) % 20))).unzip();
    let relations = [
        relation("buys", ["user", "item"], &buyers, &bought),
        relation("views", ["user", "item"], &viewers, &viewed),
        relation("bought by", ["item", "user"], &owned, &owners),
        relation("follows", ["user", "user"], &followers, &followed),
        relation("followed by", ["user", "user"], &followed, &followers),
    ];
    Relations::from_edges(types, &relations).unwrap()
}

/// The edges of a relation, in node ids of the graph.
fn edges_of(graph: &Relations, relation: &str) -> Pairs {
    edges(&graph.whole_graph(graph.require(relation).unwrap()).unwrap())
}

fn held_out(split: &LinkSplit) -> Pairs {
    let Split { val, test, .. } = split.split();
    let pair = |link: &LinkId| split.links().pair(*link);
    val.iter().chain(test.iter()).map(pair).map(|(src, dst)| (src.0, dst.0)).collect()
}

/// The neighbours of a relation that was made from existing arrays need not ascend.
#[test]
fn repeated_links_are_found_in_relations_that_are_not_sorted() {
    let graph = graph();
    let views = graph.require("views").unwrap();
    let sorted = graph.whole_graph(views).unwrap();
    let mut indices: Vec<NodeId> = Vec::new();
    for node in 0..graph.n_nodes() as u32 {
        indices.extend(sorted.in_neighbors(NodeId(node)).iter().rev());
    }
    let backwards = Csc::new(sorted.indptr().to_vec().into(), indices.into()).unwrap();
    assert!(!backwards.has_sorted_neighbors());
    let unsorted = graph.with_graph(views, backwards).unwrap();
    let [of_sorted, of_unsorted] = [&graph, &unsorted].map(|graph| {
        let split = LinkSplit::random_relation(graph, "buys", Some("bought by"), &HALVES, 3).unwrap();
        split.find_leaks().unwrap()
    });
    assert_eq!((of_unsorted.len(), &of_unsorted), (3, &of_sorted));
}

#[test]
fn held_out_links_leave_their_relation_and_its_reverse() {
    let graph = graph();
    for (relation, reverse, others) in [
        ("buys", "bought by", ["views", "follows", "followed by"]),
        ("follows", "followed by", ["buys", "views", "bought by"]),
    ] {
        let split = LinkSplit::random_relation(&graph, relation, Some(reverse), &HALVES, 3).unwrap();
        let held_out = held_out(&split);
        assert_eq!(held_out.len(), edges_of(&graph, relation).len() / 2);
        let message = split.message();
        assert_eq!(edges_of(message, relation), &edges_of(&graph, relation) - &held_out);
        assert_eq!(edges_of(message, reverse), &edges_of(&graph, reverse) - &reversed(&held_out));
        for other in others {
            assert_eq!(edges_of(message, other), edges_of(&graph, other));
        }
        message.validate().unwrap();
        // Each user views what they buy.
        let notes = split.find_leaks().unwrap();
        let is_of_views =
            |note: &Note| matches!(note, Note::LinksInRelation { relation, .. } if relation == "views");
        assert_eq!(notes.len(), if relation == "buys" { 3 } else { 0 });
        assert!(notes.iter().all(is_of_views));
        // Without the name of the reverse relation, that has all edges.
        let alone = LinkSplit::random_relation(&graph, relation, None, &HALVES, 3).unwrap();
        assert_eq!(edges_of(alone.message(), reverse), edges_of(&graph, reverse));
        assert_eq!(alone.targets(), split.targets());
        // The names of the relations of the same edges are enough to find what is left.
        let links =
            DatasetLinks::new(graph.schema(), relation, Some(reverse), alone.targets().clone()).unwrap();
        let kept = LinkSplit::new(alone.message(), links).unwrap();
        let [n_val, n_test] = [&split.split().val, &split.split().test].map(|p| p.len());
        let leak = |part, n_reversed| Note::LinksInGraph { part, n_links: 0, n_reversed };
        let mut notes = kept.find_leaks().unwrap();
        notes.retain(|note| !is_of_views(note));
        assert_eq!(notes, [leak("val", n_val), leak("test", n_test)]);
        // A relation that was not named has the reverses, too.
        let leak = |part, n_all| Note::LinksInRelation {
            part,
            relation: reverse.to_owned(),
            n_repeated: 0,
            n_reversed: n_all,
            n_all,
        };
        let unnamed = [leak("val", n_val), leak("test", n_test)];
        assert!(unnamed.iter().all(|note| alone.find_leaks().unwrap().contains(note)));
    }
}

#[test]
fn the_reverse_relation_is_found_by_its_edges() {
    let graph = graph();
    for (relation, reverse) in
        [("buys", Some("bought by")), ("bought by", None), ("follows", Some("followed by")), ("views", None)]
    {
        assert_eq!(LinkSplit::find_reverse(&graph, relation).unwrap(), reverse);
    }
    // A relation that lacks the reverse of one edge is another one, and one may have more edges.
    assert!(LinkSplit::find_reverse(&graph, "sells").is_err());
    let types = NodeTypes::new([("user", 4), ("item", 3)]).unwrap();
    let relations = [
        relation("buys", ["user", "item"], &[0, 1, 1, 2, 2], &[0, 1, 1, 2, 2]),
        // All pairs, among them the reverses by chance.
        relation(
            "shown to",
            ["item", "user"],
            &[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2],
            &[0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3],
        ),
        // Purchases are repeated, their reverses are not.
        relation("bought by", ["item", "user"], &[0, 1, 2], &[0, 1, 2]),
        // Both directions are in one relation, and another one has them, too.
        relation("friend", ["user", "user"], &[0, 1], &[1, 0]),
        relation("near", ["user", "user"], &[0, 1], &[1, 0]),
    ];
    let graph = Relations::from_edges(types, &relations).unwrap();
    for (relation, reverse) in [("buys", Some("bought by")), ("shown to", None), ("friend", None)] {
        assert_eq!(LinkSplit::find_reverse(&graph, relation).unwrap(), reverse, "{relation}");
    }
}

#[test]
fn the_only_relation_is_split_as_its_graph() {
    let (srcs, dsts): (Vec<u32>, Vec<u32>) =
        (0..40_u32).flat_map(|src| [1, 39].map(|step| (src, (src + step) % 40))).unzip();
    let ring = kiln_graph::CscBuilder::new(40).build(&srcs, &dsts).unwrap();
    for direction in [None, Some(LinkDirection::Directed), Some(LinkDirection::WithReverses)] {
        let config = LinkSplitConfig { direction, disjoint_train: 0.3, ..HALVES };
        let expected = LinkSplit::random(&kiln_graph::Relations::of_graph(ring.clone()), &config, 5).unwrap();
        for reverse in [None, Some("edge")] {
            let split =
                LinkSplit::random_relation(&Relations::of_graph(ring.clone()), "edge", reverse, &config, 5)
                    .unwrap();
            assert_eq!(split.targets(), expected.targets());
            assert_eq!(
                edges(&split.message().relation(0).graph),
                edges(&expected.message().relation(0).graph)
            );
        }
    }
}

#[test]
fn rejects_unknown_relations_and_links_between_other_types() {
    let graph = graph();
    let split = |relation, reverse| {
        LinkSplit::random_relation(&graph, relation, reverse, &HALVES, 3).unwrap_err().to_string()
    };
    let known = "expected one of: buys, views, bought by, follows, followed by";
    assert_eq!(
        split("sells", None),
        format!("cannot use the graph: the data has no relation `sells`, {known}")
    );
    assert_eq!(
        split("buys", Some("sold by")),
        format!("cannot use the graph: the data has no relation `sold by`, {known}")
    );
    assert_eq!(
        split("buys", Some("follows")),
        "the relation `follows` cannot be the reverse of `buys`: expected one from `item` to `user`"
    );
    let given = |srcs: Vec<u32>, dsts: Vec<u32>, negatives: Option<LinkNegatives>| {
        let ids = |range: std::ops::Range<u32>| range.map(LinkId).collect();
        let split = Split { train: ids(0..1), val: ids(1..2), test: ids(0..0) };
        let targets = LinkTargets::new(Links::new(srcs, dsts).unwrap(), split).unwrap();
        let targets = targets.with_negatives(negatives, None).unwrap();
        let links = DatasetLinks::new(graph.schema(), "buys", None, targets).unwrap();
        match LinkSplit::new(&graph, links) {
            Err(Error::LinkSplit(error @ LinkSplitError::OtherType { .. })) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        given(vec![0, 20], vec![20, 21], None),
        "the source of link 1 is node 20, expected a node of type `user`, which are 0..20: use node ids of the graph, \
         which begin at 0 for this type"
    );
    assert!(given(vec![0, 1], vec![3, 21], None).starts_with("the destination of link 0 is node 3,"));
    let negatives = |srcs: Vec<u32>, dsts: Vec<u32>| {
        Some(LinkNegatives::of_pairs(vec![LinkId(1)], 2, srcs, dsts).unwrap())
    };
    let of_negatives = |srcs, dsts| given(vec![0, 1], vec![20, 21], negatives(srcs, dsts));
    assert!(of_negatives(vec![0, 30], vec![20, 21]).starts_with("the source of negative 1 is node 30,"));
    assert!(of_negatives(vec![0, 1], vec![2, 21]).starts_with("the destination of negative 0 is node 2,"));
}

/// `likes` repeats most of the edges of `buys`, so it tells held-out links to the model.
#[test]
fn links_that_a_parallel_relation_repeats_have_a_note_with_their_share() {
    let srcs: Vec<u32> = (0..100).map(|edge| edge % 10).collect();
    let dsts: Vec<u32> = (0..100).map(|edge| edge / 10).collect();
    let types = NodeTypes::new([("user", 10), ("item", 10)]).unwrap();
    let edges = [
        RelationEdges::new("buys", "user", "item", &srcs, &dsts),
        RelationEdges::new("likes", "user", "item", &srcs[..80], &dsts[..80]),
    ];
    let graph = Relations::from_edges(types, &edges).unwrap();
    let split = LinkSplit::random_relation(&graph, "buys", None, &HALVES, 3).unwrap();
    let notes = split.find_leaks().unwrap();
    let mut n_repeated = [0; 2];
    for note in &notes {
        let Note::LinksInRelation { relation, n_repeated: n, n_reversed: 0, n_all, .. } = note else {
            panic!("{note}");
        };
        assert_eq!(relation, "likes");
        n_repeated[0] += n;
        n_repeated[1] += n_all;
    }
    assert_eq!((notes.len(), n_repeated), (3, [80, 100]));
    assert!(notes[0].to_string().contains("are edges of the relation `likes`"), "{}", notes[0]);
}
