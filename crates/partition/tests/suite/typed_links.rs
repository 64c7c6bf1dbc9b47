//! Partitions of heterogeneous sets with links.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use kiln_data::{Dataset, LinkSplit, LinkSplitConfig};
use kiln_graph::{Csc, EdgeId, NodeId, Relation, Relations};
use kiln_partition::{Error, Method, Part, PartitionBooks, PartitionMeta, part_dir, write_parts};
use kiln_store::npy;

use crate::common::{cache, labels, shop, typed_parts, write_typed};
use crate::parts::counts_of_epoch;

/// The set of [`shop`], whose ratings are split.
fn rated() -> Dataset {
    let config = LinkSplitConfig { val: 0.2, test: 0.2, ..Default::default() };
    let split = LinkSplit::random_relation(&shop().graph, "rates", Some("rated by"), &config, 3).unwrap();
    Dataset { graph: split.message().clone(), links: Some(split.dataset_links().clone()), ..shop() }
}

#[test]
fn sets_with_links_need_no_labels() {
    let labelled = rated();
    let data = Dataset { targets: None, ..labelled.clone() };
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("parts");
    write_typed(&data, 2, |node| node as usize % 2, None, &out);
    for part in [0, 1] {
        let folder = part_dir(&out, part);
        assert_eq!(Part::verify(&folder).unwrap().notes, []);
        let part = Part::open(&folder).unwrap();
        assert!(part.targets.is_none());
        let no_labels = npy::write(&[-1_i32; 9], &[9]);
        assert_eq!(fs::read(folder.join("labels.npy")).unwrap(), no_labels);
    }
    // Class labels are written beside links.
    let out = root.path().join("labelled");
    write_typed(&labelled, 1, |_| 0, None, &out);
    let part = Part::open(part_dir(&out, 0)).unwrap();
    assert_eq!(labels(&part).as_slice(), [0, 1, 2, 0, 1, 2, -1]);
}

/// The cached rows are those that batches of the nodes of training links read most often.
#[test]
fn the_cache_is_that_of_the_training_links() {
    let data = rated();
    let train: Vec<NodeId> = data.training_nodes().unwrap().to_vec();
    let targets = &data.links.as_ref().unwrap().targets;
    let mut expected: Vec<NodeId> = targets
        .split()
        .train
        .iter()
        .flat_map(|link| <[NodeId; 2]>::from(targets.links().pair(*link)))
        .collect();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(train, expected);
    assert!(train.iter().any(|node| node.0 < 9) && train.iter().any(|node| 9 <= node.0));
    let root = tempfile::tempdir().unwrap();
    let (out, config) = (root.path().join("parts"), cache(1.0));
    let owner = |node: u32| node as usize % 2;
    let reports = write_typed(&data, 2, owner, Some(&config), &out);
    let fanouts = config.fanouts.iter().map(|&fanout| vec![fanout; 3]).collect();
    let sampler = kiln_sample::HeteroNeighborSampler::new(&data.graph, fanouts, Default::default()).unwrap();
    for (index, report) in reports.iter().enumerate() {
        let own: Vec<NodeId> = train.iter().copied().filter(|node| owner(node.0) == index).collect();
        let counts = counts_of_epoch(&sampler, own.into_iter());
        let remote = (9..20).filter(|node| owner(*node) != index);
        let n_reads: u64 = remote.filter_map(|node| counts.get(&node).copied().map(u64::from)).sum();
        assert!(0 < n_reads);
        assert_eq!(report.n_remote, n_reads, "partition {index}");
    }
}

/// A training step would not find its links in neighbours that do not ascend.
#[test]
fn relations_of_links_must_be_sorted() {
    let data = rated();
    let reversed = |position: usize| {
        let relations = data.graph.iter().enumerate().map(|(other, relation)| match other == position {
            true => Relation { graph: Arc::new(backwards(&relation.graph)), ..relation.clone() },
            false => relation.clone(),
        });
        let graph = Relations::new(data.graph.types().clone(), relations.collect()).unwrap();
        Dataset { graph: Arc::new(graph), ..data.clone() }
    };
    let write = |data: &Dataset| {
        let book = PartitionBooks::from_parts(data.graph.types().clone(), &[0; 20], 1).unwrap();
        let meta = PartitionMeta { hash: "hash".into(), method: Method::Random, n_cut_edges: 0 };
        let root = tempfile::tempdir().unwrap();
        write_parts(data, &book, &meta, None, root.path().join("parts"))
    };
    for position in [0, 1] {
        let error = write(&reversed(position)).unwrap_err();
        assert!(matches!(error, Error::UnsortedNeighbors), "{error}");
    }
    // Without a reverse, a run may name any relation from items to users.
    let without_reverse = |position: usize| {
        let mut data = reversed(position);
        data.links.as_mut().unwrap().reverse = None;
        data
    };
    assert!(matches!(write(&without_reverse(1)).unwrap_err(), Error::UnsortedNeighbors));
    write(&without_reverse(2)).unwrap();
    // Links are not excluded from the third relation, nor from any in a set without links.
    write(&reversed(2)).unwrap();
    write(&Dataset { links: None, ..reversed(0) }).unwrap();
    let mut other = data;
    other.links.as_mut().unwrap().reverse = Some(2);
    assert!(write(&other).unwrap_err().to_string().contains("the reverse relation of the links"));
}

/// Reverses the neighbours of each node.
fn backwards(graph: &Csc) -> Csc {
    let nodes = (0..graph.n_nodes() as u32).map(NodeId);
    let indices: Vec<NodeId> =
        nodes.flat_map(|node| graph.in_neighbors(node).iter().rev().copied()).collect();
    let indptr = graph.indptr().to_vec();
    let reversed = Csc::new(indptr.into(), indices.into()).unwrap();
    match graph.weights() {
        Some(weights) => reversed.with_weights(weights.to_vec().into()).unwrap(),
        None => reversed,
    }
}

#[test]
fn graph_by_node_has_the_edges_of_a_relation_into_own_nodes() {
    let (root, _) = typed_parts();
    let data = shop();
    for index in [0, 1] {
        let part = Part::open(part_dir(root.path().join("parts"), index)).unwrap();
        for position in 0..3 {
            let whole = data.graph.whole_graph(position).unwrap();
            let own = part.graph_by_node(position).unwrap();
            assert_eq!(own.n_nodes(), 20);
            let mut n_edges = 0;
            for node in (0..20).map(NodeId) {
                let is_own = node.index() % 2 == index;
                let expected = if is_own { whole.in_neighbors(node) } else { &[] };
                assert_eq!(own.in_neighbors(node), expected, "{node:?}");
                assert_eq!(own.first_edge(node), EdgeId(n_edges));
                n_edges += expected.len() as u64;
            }
            assert_eq!(own.n_edges(), n_edges);
        }
    }
    let damaged = |name: &str, bytes: Vec<u8>| {
        let (_root, folder) = typed_parts();
        fs::write(folder.join(name), bytes).unwrap();
        Part::open(&folder).unwrap().graph_by_node(0).unwrap_err().to_string()
    };
    // The relation leads to items, which have the ids 9 to 15.
    let error = damaged("old_ids.1.npy", npy::write(&[10_u32, 14, 12], &[3]));
    assert!(error.contains("old_ids.1.npy: partition book: the node of row 1 is 14"), "{error}");
    let error = damaged("old_ids.1.npy", npy::write(&[10_u32, 2, 14], &[3]));
    assert!(error.contains("the node of row 1 is 2, expected the node whose new id"), "{error}");
    let error = damaged("indptr.0.npy", npy::write(&[0_u64, 5, 2, 12], &[4]));
    assert!(error.contains("invalid indptr at node 1: 5 is followed by 2"), "{error}");
}
