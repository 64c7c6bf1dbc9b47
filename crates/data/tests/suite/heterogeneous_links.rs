//! The links of a relation of a heterogeneous set: in the kiln format, in GraphBolt folders, and as a split.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;
use std::sync::Arc;

use kiln_data::{
    Dataset, DatasetLinks, LinkSplit, LinkSplitConfig, LinkTargets, Note, format, graphbolt, recorded_hash,
};
use kiln_graph::{LinkId, LinkNegatives, Links, NodeId};
use tempfile::TempDir;

use crate::common::{contents, put};
use crate::heterogeneous_link_split::graph;
use crate::sets::written;

/// A set whose purchases are split, with fixed negatives of the validation: items of user 0, and pairs for the test.
fn data() -> Dataset {
    let config = LinkSplitConfig { val: 0.2, test: 0.3, ..Default::default() };
    let split = LinkSplit::random_relation(&graph(), "buys", Some("bought by"), &config, 3).unwrap();
    let [val, test] = [&split.split().val, &split.split().test];
    let items = |n: usize| (0..2 * n as u32).map(|draw| NodeId(20 + draw % 30)).collect::<Vec<_>>();
    let users = |n: usize| (0..2 * n as u32).map(|draw| NodeId(draw % 20)).collect::<Vec<_>>();
    let of_val = LinkNegatives::of_dsts(val.clone(), 2, items(val.len())).unwrap();
    let of_test = LinkNegatives::of_pairs(test.clone(), 2, users(test.len()), items(test.len())).unwrap();
    let targets = split.targets().clone().with_negatives(Some(of_val), Some(of_test)).unwrap();
    let links = Some(DatasetLinks { targets: Arc::new(targets), ..split.dataset_links().clone() });
    Dataset { links, ..Dataset::builder_with_relations(split.message()).build().unwrap() }
}

#[test]
fn the_kiln_format_keeps_links_and_their_split() {
    let data = data();
    assert_eq!(data.validate().unwrap(), []);
    assert!(data.to_string().ends_with("; 50 / 20 / 30 links"), "{data}");
    assert!(data.summary().to_string().contains("links: 50 to train, 20 to validate, 30 to test"));
    let (root, folder) = written(&data);
    let opened = format::open(&folder).unwrap();
    assert_eq!(opened.links, data.links);
    assert_eq!(opened.hash().unwrap(), data.hash().unwrap());
    assert_eq!(format::verify(&folder).unwrap().n_hashed, 10 + 8);
    let copy = root.path().join("copy");
    kiln_data::convert::convert_heterogeneous(&folder, &copy, 1 << 30).unwrap();
    assert_eq!(contents(&copy), contents(&folder));
    let split = LinkSplit::new(&opened.graph, opened.links.clone().unwrap()).unwrap();
    // Each user views what they buy, and the negatives are arbitrary.
    let leaks = split.find_leaks().unwrap();
    let is_expected = |note: &Note| {
        matches!(note, Note::LinksInRelation { n_reversed: 0, .. } | Note::LinksAmongNegatives { .. })
    };
    assert!(leaks.iter().all(is_expected), "{leaks:?}");
    assert_eq!(Some(split.dataset_links()), data.links.as_ref());
    assert_eq!((split.relation(), split.reverse()), (0, Some(2)));
    assert_eq!(recorded_hash(&folder).unwrap(), Some(format::hash(&folder).unwrap()));
    // Each part of the links is hashed.
    let links = data.links.clone().unwrap();
    let without = |val: bool| {
        let targets = (*links.targets).clone();
        let [of_val, of_test] = [targets.val_negatives(), targets.test_negatives()].map(|part| part.cloned());
        let targets =
            if val { targets.with_negatives(None, of_test) } else { targets.with_negatives(of_val, None) };
        DatasetLinks { targets: Arc::new(targets.unwrap()), ..links.clone() }
    };
    let others = [
        None,
        Some(DatasetLinks { reverse: None, ..links.clone() }),
        Some(without(true)),
        Some(without(false)),
    ];
    for links in others {
        let other = Dataset { links, ..data.clone() };
        let (_root, other_folder) = written(&other);
        assert_ne!(other.hash().unwrap(), data.hash().unwrap());
        assert_ne!(format::hash(&other_folder).unwrap(), format::hash(&folder).unwrap());
        assert_eq!(format::open(&other_folder).unwrap().links, other.links);
    }
}

#[test]
fn damaged_links_are_errors() {
    let data = data();
    let (_root, folder) = written(&data);
    let manifest = fs::read_to_string(folder.join("kiln.json")).unwrap();
    for (from, to, expected) in [
        ("\"relation\": \"buys\"", "\"relation\": \"sells\"", "links.relation"),
        ("\"reverse\": \"bought by\"", "\"reverse\": \"follows\"", "a relation from item to user"),
        ("\"reverse\": \"bought by\"", "\"reverse\": \"sold by\"", "links.reverse"),
        ("\"link_dsts.npy\"", "\"labels2.npy\"", "labels2.npy"),
        ("\"test_negatives.npy\"", "\"test_negative_srcs2.npy\"", "test_negatives.npy"),
    ] {
        assert!(manifest.contains(from), "{manifest}");
        fs::write(folder.join("kiln.json"), manifest.replace(from, to)).unwrap();
        let error = format::open(&folder).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    json.as_object_mut().unwrap().remove("links");
    fs::write(folder.join("kiln.json"), json.to_string()).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("no entry, because links is absent"), "{error}");
    let mut json: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    json["files"].as_object_mut().unwrap().remove("train_links.npy");
    fs::write(folder.join("kiln.json"), json.to_string()).unwrap();
    let error = format::open(&folder).unwrap_err().to_string();
    assert!(error.contains("train_links.npy"), "{error}");
    // Nodes of another type: opening does not read the values, but verifying and using them does.
    let links = data.links.clone().unwrap();
    let wrong = |links: Links| {
        let targets = LinkTargets::new(links, links_split(&data)).unwrap();
        Dataset {
            links: Some(DatasetLinks { targets: Arc::new(targets), ..links_of(&data) }),
            ..data.clone()
        }
    };
    let (srcs, mut dsts) = (links.targets.links().srcs().to_vec(), links.targets.links().dsts().to_vec());
    dsts[7] = NodeId(3);
    let other = wrong(Links::new(srcs.clone(), dsts.clone()).unwrap());
    let error = other.validate().unwrap_err().to_string();
    assert!(error.contains("the destination of link 7 is node 3"), "{error}");
    let (_root, other_folder) = written(&other);
    let error = format::verify(&other_folder).unwrap_err().to_string();
    assert!(error.contains("the destination of link 7 is node 3"), "{error}");
    let opened = format::open(&other_folder).unwrap();
    let error = LinkSplit::new(&opened.graph, opened.links.clone().unwrap()).unwrap_err();
    assert!(error.to_string().contains("the destination of link 7 is node 3"), "{error}");
    dsts[7] = NodeId(50);
    let error = wrong(Links::new(srcs, dsts).unwrap()).validate().unwrap_err().to_string();
    assert!(error.contains("50, expected a node id below 50"), "{error}");
    // Relations that do not exist, and one that is no reverse.
    for (relation, reverse, expected) in [
        (5, None, "the relation of the links"),
        (0, Some(9), "the relation of the links"),
        (0, Some(3), "reverse"),
    ] {
        let links = Some(DatasetLinks { relation, reverse, ..links.clone() });
        let error = Dataset { links, ..data.clone() }.validate().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let missing = DatasetLinks { relation: 5, ..links_of(&data) };
    let error = LinkSplit::new(&data.graph, missing).unwrap_err().to_string();
    assert!(error.contains("the relation of the links"), "{error}");
}

/// Training samples the neighbourhoods of the nodes of training links.
#[test]
fn training_nodes_are_those_of_training_links() {
    let data = data();
    let DatasetLinks { targets, .. } = links_of(&data);
    let nodes = data.training_nodes().unwrap();
    assert!(nodes.is_sorted_by(|one, other| one < other));
    let of_train = |node: &NodeId| {
        let mut links = targets.split().train.iter().map(|link| targets.links().pair(*link));
        links.any(|(src, dst)| src == *node || dst == *node)
    };
    let all = (0..data.graph.n_nodes() as u32).map(NodeId);
    assert_eq!(*nodes, all.filter(of_train).collect::<Vec<_>>()[..]);
    assert!(nodes.len() < data.graph.n_nodes());
    let without = Dataset { links: None, ..data };
    assert!(without.training_nodes().unwrap().is_empty());
}

fn links_of(data: &Dataset) -> DatasetLinks {
    data.links.clone().unwrap()
}

fn links_split(data: &Dataset) -> kiln_data::Split<LinkId> {
    links_of(data).targets.split().clone()
}

const METADATA: &str = "dataset_name: shop
graph:
  nodes:
  - {type: user, num: 3}
  - {type: item, num: 4}
  edges:
  - {type: 'user:buys:item', format: numpy, path: buys.npy}
  - {type: 'item:bought by:user', format: numpy, path: bought.npy}
tasks:
- name: link_prediction
  train_set:
  - type: user:buys:item
    data: [{name: seeds, format: numpy, path: train.npy}]
  validation_set:
  - type: user:buys:item
    data:
    - {name: seeds, format: numpy, path: val.npy}
    - {name: negative_dsts, format: numpy, path: negatives.npy}
  test_set:
  - type: user:buys:item
    data:
    - {name: seeds, format: numpy, path: test.npy}
    - {name: labels, format: numpy, path: labels.npy}
    - {name: indexes, format: numpy, path: indexes.npy}
";

/// Users 0 to 2, and items 0 to 3, which are the nodes 3 to 6 of the graph.
fn graphbolt_folder() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    fs::write(folder.join("metadata.yaml"), METADATA).unwrap();
    put(folder, "buys.npy", &[0_i64, 1, 2, 0, 1, 2], &[2, 3]);
    put(folder, "bought.npy", &[0_i64, 1, 2, 0, 1, 2], &[2, 3]);
    put(folder, "train.npy", &[0_i64, 0, 1, 1, 2, 2], &[3, 2]);
    put(folder, "val.npy", &[0_i64, 3], &[1, 2]);
    put(folder, "negatives.npy", &[1_i64, 2], &[1, 2]);
    // A link and a negative of its own.
    put(folder, "test.npy", &[1_i64, 3, 2, 0], &[2, 2]);
    put(folder, "labels.npy", &[1_i64, 0], &[2]);
    put(folder, "indexes.npy", &[0_i64, 0], &[2]);
    root
}

#[test]
fn a_graphbolt_task_over_several_edge_types_is_a_note() {
    let root = graphbolt_folder();
    let open = |metadata: &str| {
        fs::write(root.path().join("metadata.yaml"), metadata).unwrap();
        graphbolt::open_heterogeneous(root.path()).unwrap()
    };
    let more = "train_set:\n  - {type: 'item:bought by:user', data: []}\n";
    let several = METADATA.replace("train_set:\n", more);
    let none = METADATA.replace("train_set:", "training_set:");
    for (metadata, n_types) in [(several, 2), (none, 0)] {
        assert_ne!(metadata, METADATA);
        let data = open(&metadata);
        assert_eq!(data.links, None);
        let expected = format!("is not read: its train_set is of {n_types} edge types, expected one");
        assert!(data.notes.iter().any(|note| note.to_string().ends_with(&expected)), "{:?}", data.notes);
    }
}

#[test]
fn a_graphbolt_task_has_links_of_one_relation() {
    let root = graphbolt_folder();
    let data = graphbolt::open_heterogeneous(root.path()).unwrap();
    assert!(data.notes.iter().all(|note| !note.to_string().contains("not read")), "{:?}", data.notes);
    let DatasetLinks { relation, reverse, targets } = data.links.clone().unwrap();
    assert_eq!((relation, reverse), (0, None));
    let pair = |link: &LinkId| targets.links().pair(*link);
    let pairs =
        |links: &[LinkId]| links.iter().map(|link| (pair(link).0.0, pair(link).1.0)).collect::<Vec<_>>();
    let parts = targets.split().parts().map(|(_, links)| pairs(links));
    assert_eq!(parts, [vec![(0, 3), (1, 4), (2, 5)], vec![(0, 6)], vec![(1, 6)]]);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    assert_eq!(ids(targets.val_negatives().unwrap().dsts()), [4, 5]);
    let of_test = targets.test_negatives().unwrap();
    assert_eq!((ids(of_test.srcs().unwrap()), ids(of_test.dsts())), (vec![2], vec![3]));
    assert_eq!(data.validate().unwrap(), []);
    let (_root, folder) = written(&data);
    assert_eq!(format::open(folder).unwrap().links, data.links);
    for (from, to, expected) in [
        (
            "type: user:buys:item\n    data: [{name: seeds",
            "type: user:sells:item\n    data: [{name: seeds",
            "one of the edge types",
        ),
        (
            "test_set:\n  - type: user:buys:item",
            "test_set:\n  - type: item:bought by:user",
            "the edge type of the train_set",
        ),
        ("train_set:\n  - type: user:buys:item", "train_set:\n  - kind: user:buys:item", "type"),
    ] {
        assert!(METADATA.contains(from), "{from}");
        fs::write(root.path().join("metadata.yaml"), METADATA.replace(from, to)).unwrap();
        let error = graphbolt::open_heterogeneous(root.path()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    fs::write(root.path().join("metadata.yaml"), METADATA).unwrap();
    // User 3 does not exist, but item 3 does.
    put(root.path(), "val.npy", &[3_i64, 3], &[1, 2]);
    let error = graphbolt::open_heterogeneous(root.path()).unwrap_err().to_string();
    assert!(error.contains("below 3, the number of nodes of type `user`"), "{error}");
    put(root.path(), "val.npy", &[0_i64, 4], &[1, 2]);
    assert!(
        graphbolt::open_heterogeneous(root.path())
            .unwrap_err()
            .to_string()
            .contains("expected a node id below 4")
    );
}
