//! Links that a model predicts are neither in the graph of an evaluation nor in the blocks of their training step.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kiln::graph::{NodeTypes, RelationEdges};
use kiln::prelude::*;
use kiln::sample::{Neighbors, NodeKey, Selection};

use super::{PHASES, batches, rgcn, rsage, shop};

/// Counts the edges that a rule sees, and those of held-out links and their reverses among them.
fn count_read(data: &Dataset, reverse: Option<&str>) -> [usize; 2] {
    let split =
        LinkSplit::random_relation(&data.graph, "buys", reverse, &LinkSplitConfig::default(), 3).unwrap();
    let held_out = [&split.split().val, &split.split().test].into_iter().flat_map(|links| links.iter());
    let pairs = held_out.map(|link| split.links().pair(*link));
    let held_out: HashSet<_> = pairs.flat_map(|(src, dst)| [(src, dst), (dst, src)]).collect();
    let n_read = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counts = Arc::clone(&n_read);
    let rule = move |neighbors: Neighbors<'_>, _: NodeKey, _: u32, picks: &mut Selection| {
        for src in neighbors.ids {
            counts[usize::from(held_out.contains(&(*src, neighbors.dst)))].fetch_add(1, Ordering::Relaxed);
        }
        (0..neighbors.degree() as u32).for_each(|pick| picks.push(pick));
    };
    let nodes = NeighborLoader::new(data, [100]).batch_size(256).rule(rule);
    let loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    let mut model = rgcn(data);
    model.encoder.model = model.encoder.model.layers(1);
    for phase in PHASES {
        batches(&model, &loader, phase, 1);
    }
    [0, 1].map(|kind| n_read[kind].load(Ordering::Relaxed))
}

#[test]
fn messages_never_pass_over_held_out_links() {
    let data = shop(6);
    let [message, held_out] = count_read(&data, Some("bought by"));
    assert!(1_000 < message, "{message}");
    assert_eq!(held_out, 0);
    // Shows that the test can fail: the reverse relation has the links.
    assert!(100 < count_read(&data, None)[1]);
}

/// Users who follow users, with the reverse edges as a relation of their own. Some pairs follow each other.
fn social() -> Dataset {
    let edges = (0..200_u32).flat_map(|user| [1, 7, 19, 199].map(|step| (user, (user + step) % 200)));
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = edges.unzip();
    let of = |name, srcs, dsts| RelationEdges::new(name, "user", "user", srcs, dsts);
    Dataset::builder_with_types(NodeTypes::new([("user", 200)]).unwrap())
        .relation(of("follows", &srcs, &dsts))
        .relation(of("followed by", &dsts, &srcs))
        .build()
        .unwrap()
}

/// Returns whether a training step reads one of its links, and the reverse of one from the other relation. The data has two
/// relations, the second of which has the reverses of the first.
fn reads_its_links(data: &Dataset, exclusion: Option<LinkExclusion>) -> [bool; 2] {
    let [relation, reverse] = [0, 1].map(|position| data.graph.relation(position).name.as_str());
    let config = LinkSplitConfig { direction: Some(LinkDirection::Directed), ..LinkSplitConfig::default() };
    let split = LinkSplit::random_relation(&data.graph, relation, Some(reverse), &config, 3).unwrap();
    let nodes = NeighborLoader::new(data, [Fanout::All, Fanout::All]).batch_size(64);
    let mut loader = LinkNeighborLoader::new(nodes, &split).unwrap();
    if let Some(exclusion) = exclusion {
        loader = loader.exclusion(exclusion);
    }
    let pairs_of = |relation: usize| {
        let graph = split.message().whole_graph(relation).unwrap();
        graph.indices().iter().copied().zip(graph.dsts()).collect::<Vec<_>>()
    };
    let (edges, reverses) = (pairs_of(0), pairs_of(1));
    let mut found = [false; 2];
    for batch in &batches(&rsage(data), &loader, PHASES[0], 1)[0] {
        assert!(batch.blocks.iter().all(|[_, edges]| 100 < edges.len()));
        let pair = |link: &kiln::graph::LinkId| split.links().pair(*link);
        let links: HashSet<_> = batch.links.iter().map(pair).collect();
        for edge in batch.blocks.iter().flat_map(|[_, edges]| edges) {
            match edges.get(*edge as usize) {
                Some(pair) => found[0] |= links.contains(pair),
                None => {
                    let (src, dst) = reverses[*edge as usize - edges.len()];
                    found[1] |= links.contains(&(dst, src));
                }
            }
        }
    }
    found
}

#[test]
fn training_steps_read_neither_their_links_nor_the_reverses() {
    for data in [shop(6), social()] {
        assert_eq!(reads_its_links(&data, None), [false, false], "{data}");
        // Shows that the test can fail.
        assert_eq!(reads_its_links(&data, Some(LinkExclusion::Directed)), [false, true], "{data}");
        assert_eq!(reads_its_links(&data, Some(LinkExclusion::None)), [true, true], "{data}");
    }
}
