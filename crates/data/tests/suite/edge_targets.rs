//! Links with target values and features: the edges that a model predicts, their split and their files.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::fs;

use kiln_data::{Dataset, DatasetLinks, LinkSplit, LinkTargets, Split, format, synthetic};
use kiln_feature::{EdgeFeatures, Labels, TargetKind, TargetValues, Targets};
use kiln_graph::{LinkId, Links, NodeId, NodeTypes, RelationEdges};

use crate::common::contents;
use crate::sets::written;

/// The links 0 -> 1, ..., 5 -> 6 of a ring, the last of which is in no part of the split.
fn links() -> LinkTargets {
    let links = Links::new((0..6).collect::<Vec<u32>>(), (1..7).collect::<Vec<u32>>()).unwrap();
    let ids = |ids: &[u32]| ids.iter().map(|id| LinkId(*id)).collect();
    LinkTargets::new(links, Split { train: ids(&[0, 3]), val: ids(&[1]), test: ids(&[4, 2]) }).unwrap()
}

fn classes(classes: [i32; 6]) -> Labels<LinkId> {
    Labels::new(classes.to_vec(), 2)
}

/// A ring whose links have these targets, and features.
fn ring(values: impl Into<Targets<LinkId>>) -> Dataset {
    let rows = EdgeFeatures::new((0..12).map(|value| value as f32).collect::<Vec<_>>(), 2).unwrap();
    let links = links().with_values(values).unwrap().with_features(rows).unwrap();
    let data = synthetic::ring(10).unwrap();
    let split = LinkSplit::hold_out(&data.graph, links).unwrap();
    let links = Some(split.dataset_links().clone());
    Dataset { graph: split.message().clone(), links, ..data }
}

fn numbers() -> TargetValues<LinkId> {
    TargetValues::regression(vec![1.5, 2.0, 0.0, -1.0, 7.5, f32::NAN], 1).unwrap()
}

fn labels() -> TargetValues<LinkId> {
    TargetValues::multi_label(vec![1, 0, 0, 255, 1, 1, 0, 0, 1, 0, 255, 255], 2).unwrap()
}

#[test]
fn held_out_edges_and_their_reverses_leave_the_graph() {
    let data = synthetic::ring(10).unwrap();
    let split = LinkSplit::hold_out(&data.graph, links()).unwrap();
    let graph = split.message().relation(0).graph.clone();
    // The links 1 -> 2, 2 -> 3 and 4 -> 5 are held out. Edges that are no links stay.
    for node in 0..10_u32 {
        let expected: Vec<NodeId> = [node + 9, node + 1]
            .map(|other| other % 10)
            .into_iter()
            .filter(|other| ![1, 2, 4].contains(&node.min(*other)) || node.abs_diff(*other) != 1)
            .map(NodeId)
            .collect();
        let mut found = graph.in_neighbors(NodeId(node)).to_vec();
        found.sort_unstable_by_key(|other| expected.iter().position(|node| node == other));
        assert_eq!(found, expected, "node {node}");
    }
    assert_eq!(split.find_leaks().unwrap(), []);
}

#[test]
fn held_out_edges_of_a_relation_leave_it_and_its_reverse_only() {
    // User 0 buys item 0 twice; the second purchase is held out.
    let (users, items) = ([0, 0, 1, 1], [0, 0, 0, 1]);
    let of = |name, src, dst, srcs, dsts| RelationEdges::new(name, src, dst, srcs, dsts);
    let data = Dataset::builder_with_types(NodeTypes::new([("user", 2), ("item", 2)]).unwrap())
        .relation(of("buys", "user", "item", &users, &items))
        .relation(of("views", "user", "item", &users, &items))
        .relation(of("bought by", "item", "user", &items, &users))
        .build()
        .unwrap();
    let links = Links::new(users.to_vec(), items.map(|item| item + 2).to_vec()).unwrap();
    let ids = |ids: &[u32]| ids.iter().map(|id| LinkId(*id)).collect();
    let split = Split { train: ids(&[0, 2]), val: ids(&[]), test: ids(&[1]) };
    let targets = LinkTargets::new(links, split).unwrap();
    let links = DatasetLinks::new(data.graph.schema(), "buys", Some("bought by"), targets).unwrap();
    let split = LinkSplit::hold_out(&data.graph, links).unwrap();
    assert_eq!([0, 1, 2].map(|relation| split.message().relation(relation).graph.n_edges()), [2, 4, 2]);
    assert!(!split.message().relation(0).graph.in_neighbors(NodeId(0)).contains(&NodeId(0)));
}

#[test]
fn both_layouts_keep_targets_and_features_of_links() {
    let targets: [(Targets<LinkId>, TargetKind); 3] = [
        (classes([0, 1, 1, 0, 1, -1]).into(), TargetKind::Classes),
        (labels().into(), TargetKind::MultiLabel),
        (numbers().into(), TargetKind::Regression),
    ];
    for (values, kind) in targets {
        let plain = ring(values.clone());
        let named = Dataset::builder_with_relations(&plain.graph).build().unwrap();
        let named = Dataset { links: plain.links.clone(), ..named };
        for data in [plain, named] {
            let (_root, folder) = written(&data);
            let opened = format::open(&folder).unwrap();
            assert_eq!(opened.links, data.links);
            let links = &opened.links.as_ref().unwrap().targets;
            assert_eq!(links.values().map(Targets::kind), Some(kind));
            assert_eq!(opened.hash().unwrap(), data.hash().unwrap());
            assert_eq!(format::verify(&folder).unwrap().notes, []);
            // The targets are a part of both hashes.
            let mut other = data.clone();
            let without = LinkTargets::new(links.links().clone(), links.split().clone()).unwrap();
            other.links.as_mut().unwrap().targets = without.into();
            let (_root, other_folder) = written(&other);
            assert_ne!(other.hash().unwrap(), data.hash().unwrap());
            assert_ne!(format::hash(&other_folder).unwrap(), format::hash(&folder).unwrap());
            assert!(!fs::read_to_string(other_folder.join("kiln.json")).unwrap().contains("link_targets"));
        }
    }
}

#[test]
fn copies_and_summaries_have_the_targets_of_links() {
    let data = ring(classes([0, 1, 1, 0, 1, -1]));
    let (root, folder) = written(&data);
    let copy = root.path().join("copy");
    kiln_data::convert::convert(&folder, &copy, &Default::default()).unwrap();
    assert_eq!(contents(&copy), contents(&folder));
    let summary = data.summary();
    let targets = summary.link_targets.as_ref().unwrap();
    assert_eq!((targets.n_items, targets.n_labelled, targets.n_split), (6, 5, [2, 1, 2]));
    let outputs: Vec<_> = targets.outputs.iter().map(|output| (output.n_items, output.n_split)).collect();
    assert_eq!(outputs, [(2, [2, 0, 0]), (3, [0, 1, 2])]);
    let text = summary.to_string();
    assert!(text.contains("targets: 2 classes of edge, known for 5 of 6 links\n"), "{text}");
    assert!(text.contains("class  links  train"), "{text}");
}

#[test]
fn rejects_targets_that_do_not_suit_the_links() {
    let error = |result: kiln_data::Result<LinkTargets>| result.unwrap_err().to_string();
    let few = Labels::new(vec![0; 5], 2);
    let got = error(links().with_values(few));
    assert!(got.contains("got 5 target values of 6 links, expected one for each link"), "{got}");
    let missing = error(links().with_values(classes([0, 1, -1, 0, 1, 1])));
    assert!(missing.contains("link 2 of the test split, at position 1, has no target value"), "{missing}");
    let large = error(links().with_values(classes([0, 1, 2, 0, 1, 1])));
    assert!(large.contains('2') && large.contains("link"), "{large}");
    let rows = |values: Vec<f32>| EdgeFeatures::new(values, 1).unwrap();
    let few = error(links().with_features(rows(vec![0.0; 7])));
    assert!(few.contains("got 7 feature rows of 6 links"), "{few}");
    let bad = error(links().with_features(rows(vec![0.0, 0.0, f32::NAN, 0.0, 0.0, 0.0])));
    assert!(bad.contains("a feature of link 2 is NaN, expected a finite number"), "{bad}");
    let names = error(links().with_values(numbers()).unwrap().with_class_names(["a", "b"]));
    assert!(names.contains("is 2 for 1, expected one for each class"), "{names}");
    assert!(error(links().with_class_names(["a"])).contains("which are set before"));
}

#[test]
fn rejects_damaged_targets_of_links_in_the_kiln_format() {
    let (_root, set) = written(&ring(classes([0, 1, 1, 0, 1, -1])));
    let manifest = fs::read_to_string(set.join("kiln.json")).unwrap();
    let check = |from: &str, to: &str, expected: &str| {
        assert!(manifest.contains(from), "{manifest}");
        fs::write(set.join("kiln.json"), manifest.replace(from, to)).unwrap();
        let error = format::open(&set).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("\"link_targets\": {", "\"link_goals\": {", "link_goals");
    check("\"link_labels.npy\"", "\"link_targets.npy\"", "link_targets.npy");
    check("\"link_labels.npy\"", "\"labels3.npy\"", "labels3.npy");
    check("\"link_features.npy\"", "\"rows3.npy\"", "rows3.npy");
    check(
        "\"n_classes\": 2,\n    \"class_names\": []\n",
        "\"n_classes\": 2,\n    \"class_names\": [\"a\"]\n",
        "2 names",
    );
    fs::write(set.join("kiln.json"), manifest.replace("\"link_srcs.npy\"", "\"names.npy\"")).unwrap();
    assert!(format::open(&set).is_err());
    // A class that does not exist: opening does not read the values, but verifying does.
    fs::write(set.join("kiln.json"), &manifest).unwrap();
    let path = set.join("link_labels.npy");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 8;
    bytes[last] = 9;
    fs::write(&path, &bytes).unwrap();
    let error = format::open(&set).unwrap().validate().unwrap_err().to_string();
    assert!(error.contains('9') && error.contains("link"), "{error}");
}
